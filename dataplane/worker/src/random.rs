//! Numbers that nobody can guess well: not for secrets, but to tell processes apart.

use std::hash::{BuildHasher, Hasher, RandomState};

/// One of 2^64. The standard library seeds its hashers from the system, which is all the randomness needed here.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
