//! Prints the vectors of whole sessions: `cargo run -p thc-tests --example vectors >tests/vectors/all_reduce.json`.

fn main() {
    print!("{}", thc_tests::vectors::text());
}
