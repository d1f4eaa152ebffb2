//! Threads that use DPDK.

use std::cell::Cell;

use crate::error::{errno, text};

/// A thread with a number of DPDK's, by which pools find the thread's cache. Given back when the thread ends.
struct Registration {
    registered: bool,
}

impl Registration {
    fn new() -> Self {
        // SAFETY: callable on any thread once DPDK runs; callers hold a queue or a pool, which exist only then.
        let registered = unsafe { dpdk_sys::rte_thread_register() } == 0;
        if !registered {
            tracing::warn!(
                "DPDK knows too many threads ({}): this one works without caches, slower",
                text(errno())
            );
        }
        Self { registered }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread has registered, and thread-locals are dropped on their own thread.
            unsafe { dpdk_sys::rte_thread_unregister() }
        }
    }
}

thread_local! {
    static KNOWN: Cell<bool> = const { Cell::new(false) };
    static REGISTRATION: Registration = Registration::new();
}

/// Makes this thread known to DPDK, the first time. Cheap enough for every burst.
#[inline]
pub(crate) fn register() {
    if !KNOWN.get() {
        first();
    }
}

#[cold]
fn first() {
    KNOWN.set(true);
    // While the thread ends there is nothing to register any more.
    let _ = REGISTRATION.try_with(|_| ());
}

/// An empty set of cores.
pub(crate) fn no_cores() -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is an array of integers, for which zeros are a value.
    unsafe { std::mem::zeroed() }
}
