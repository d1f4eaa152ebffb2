//! Ends a wait from another thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Ends the [`PacketIo::wait`](crate::PacketIo::wait) of one backend, the one that goes on or else the next one, from any
/// thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<File>);

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        // SAFETY: the call takes no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else has it.
        Ok(Waker(Arc::new(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))))
    }

    /// Ends the wait.
    pub fn wake(&self) {
        // It fails only if so many wakes are there already that their counter is full.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }

    /// Takes back all wakes so far.
    pub(crate) fn reset(&self) {
        let _ = (&*self.0).read(&mut [0; 8]);
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
