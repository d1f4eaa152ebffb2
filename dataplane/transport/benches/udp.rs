//! Measures kernel UDP.
fn main() {}
