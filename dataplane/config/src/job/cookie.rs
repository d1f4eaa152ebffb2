//! Secrets of jobs and sessions.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// A cookie must not be guessed, so it comes from the operating system.
pub fn random() -> u32 {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = [0; 4];
    // So few bytes come whole or not at all, and fail only before the system has gathered
    // randomness at boot or on a kernel older than 3.17; std has its own way then.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(4) => u32::from_ne_bytes(bytes),
        _ => RandomState::new().hash_one(Instant::now()) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        let numbers: std::collections::BTreeSet<u32> = (0..8).map(|_| random()).collect();
        assert!(numbers.len() >= 7, "{numbers:?}");
    }
}
