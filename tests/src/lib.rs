//! Tests that cross THC's crates.
