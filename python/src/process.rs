//! Objects that belong to the process that made them, and the cores that the process may use.

use pyo3::prelude::*;

/// Cores that this process may keep busy: those that it is bound to, or fewer if its control group has a quota of time.
#[pyfunction]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A value with threads and sockets behind it. After a fork the child has a copy of it whose threads do not
/// exist: dropping that would wait for them for ever, or tell the parameter server that the parent leaves.
/// So only the process that made it drops it.
#[derive(Debug)]
pub struct OwnedByProcess<T> {
    value: Option<T>,
    process: u32,
}

impl<T> OwnedByProcess<T> {
    /// A value that belongs to this process.
    pub fn new(value: T) -> Self {
        OwnedByProcess { value: Some(value), process: std::process::id() }
    }

    /// The value, unless this is a forked child.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }

    /// Takes the value out, unless this is a forked child.
    pub fn into_inner(mut self) -> Option<T> {
        if self.process == std::process::id() { self.value.take() } else { None }
    }
}

impl<T> Drop for OwnedByProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
