//! What a network thread does by itself with what it receives.

use std::{io, time::Duration};

use crate::{Peer, Run};

/// Handles packets on the network thread itself, with its socket: what it takes is not handed over.
///
/// All methods are called on that thread. `now` is the time of [`PacketIo::now`](crate::PacketIo::now).
pub trait Handler: Send {
    /// Takes a run, or leaves it to whoever uses the backend.
    fn take(&mut self, now: Duration, run: &Run<'_>, io: &mut dyn RunSender) -> bool;

    /// Does other work: after each burst, when [`PacketIo::wake_handler`](crate::PacketIo::wake_handler) has
    /// been called, and at [`Self::deadline`].
    ///
    /// # Errors
    /// They are handed over, and the thread goes on.
    fn work(&mut self, now: Duration, io: &mut dyn RunSender) -> io::Result<Handled>;

    /// When [`Self::work`] has something to do at the latest, if nothing comes.
    fn deadline(&self) -> Option<Duration>;
}

/// Sends runs, for a [`Handler`].
pub trait RunSender {
    /// As [`PacketIo::send_run_with`](crate::PacketIo::send_run_with).
    ///
    /// # Errors
    /// Those of [`PacketIo::send_run`](crate::PacketIo::send_run).
    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()>;
}

/// What a [`Handler`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Whether there was anything to do.
    pub busy: bool,
    /// Whether who uses the backend is to be woken.
    pub news: bool,
}
