//! The vectors in `tests/vectors` are what the code computes today.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;

#[test]
fn sessions_are_those_of_the_vectors() {
    let again = "if that is meant: cargo run -p thc-tests --example vectors >tests/vectors/all_reduce.json";
    let kept: Value = serde_json::from_str(include_str!("../vectors/all_reduce.json")).unwrap();
    let made: Value = serde_json::from_str(&thc_tests::vectors::text()).unwrap();
    // Piece by piece, and without showing both: all together are some hundred kilobytes.
    let sessions = |of: &Value| of["sessions"].as_array().unwrap().clone();
    assert_eq!(sessions(&kept).len(), sessions(&made).len(), "{again}");
    for (number, (kept, made)) in sessions(&kept).iter().zip(&sessions(&made)).enumerate() {
        for (name, value) in made.as_object().unwrap() {
            assert!(kept[name] == *value, "{name} of session {number} differs; {again}");
        }
    }
}
