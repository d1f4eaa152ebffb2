//! Threads that use DPDK.

use std::cell::Cell;

use crate::error::{errno, text};

/// A thread's number in DPDK, by which pools find the thread's cache. It is released when the thread ends.
struct Registration {
    registered: bool,
}

impl Registration {
    fn new() -> Self {
        // SAFETY: any thread may call this once DPDK runs. Callers hold a queue or a pool, which exist only then.
        let registered = unsafe { dpdk_sys::rte_thread_register() } == 0;
        if !registered {
            tracing::warn!(
                "DPDK supports no more threads ({}), so this thread is slower because its pools have no cache",
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

/// Registers this thread with DPDK, unless it has been registered. The check is cheap enough for every burst.
#[inline]
pub(crate) fn register() {
    if !KNOWN.get() {
        first();
    }
}

#[cold]
fn first() {
    KNOWN.set(true);
    // A thread that ends needs no registration.
    let _ = REGISTRATION.try_with(|_| ());
}

/// An empty set of cores.
pub(crate) fn no_cores() -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is an array of integers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}
