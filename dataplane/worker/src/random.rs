//! Random numbers that tell processes apart. They are no secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number of 64 bits. The standard library seeds its hashers from the system's randomness.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
