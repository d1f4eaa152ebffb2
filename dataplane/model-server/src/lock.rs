//! Locks of data that stay valid even if a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for a lock, even one whose holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
