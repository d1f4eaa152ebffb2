//! Prints the vectors of whole sessions (P33), which are kept in tests/vectors/all_reduce.json:
//! `cargo run -p thc-tests --example vectors`.

fn main() {
    print!("{}", thc_tests::vectors::text());
}
