//! The sending half of a backend that is not built in.

use std::{convert::Infallible, io};

use crate::Peer;

/// The sending half of a [`DpdkIo`](super::DpdkIo).
pub struct DpdkTx(Infallible);

impl DpdkTx {
    /// Sends one datagram.
    ///
    /// # Errors
    /// As [`PacketIo::send_run`](crate::PacketIo::send_run).
    pub fn send(&mut self, _: Peer, _: &[u8], _: u8) -> io::Result<()> {
        match self.0 {}
    }

    /// Sends one datagram to every receiver.
    pub fn send_to_all(
        &mut self,
        _: impl ExactSizeIterator<Item = Peer>,
        _: &[u8],
        _: u8,
        _: &mut impl FnMut(Peer, io::Error),
    ) {
        match self.0 {}
    }
}
