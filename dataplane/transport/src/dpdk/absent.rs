//! Replaces the backend if it is not built in: the same names, and an error that says what is missing.

use std::{convert::Infallible, io, time::Duration};

use super::{Answers, DeviceInfo, DpdkConfig};
use crate::{FrameCounts, IoStats, PacketIo, Peer, RetainedTx, Run, TransportError};

/// One endpoint on DPDK devices. There are none: this program was built without the feature `dpdk`.
pub struct DpdkIo(Infallible);

impl DpdkIo {
    /// Always fails.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for settings that make no sense, else [`TransportError::NoDpdk`].
    pub fn open(config: &DpdkConfig, _first_port: u16, _queues: u16) -> Result<Vec<Self>, TransportError> {
        config.check()?;
        Err(TransportError::NoDpdk)
    }

    /// Returns how many datagrams the receive rings hold.
    pub fn recv_capacity(&self) -> usize {
        match self.0 {}
    }

    /// Frames the devices dropped because the receive rings were full.
    pub fn recv_overflows(&self) -> u64 {
        match self.0 {}
    }

    /// Returns the devices, with the state of their links at this moment.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        match self.0 {}
    }

    /// Returns the counters of frames that were no datagrams for this endpoint.
    pub fn frame_counts(&self) -> FrameCounts {
        match self.0 {}
    }

    /// Receives one burst and has each datagram answered at once.
    pub fn answer_burst(&mut self, _: &mut impl Answers) -> usize {
        match self.0 {}
    }
}

impl RetainedTx for DpdkIo {}

impl PacketIo for DpdkIo {
    fn recv_runs(&mut self, _: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        match self.0 {}
    }

    fn send_run_with(&mut self, _: Peer, _: &[u8], _: usize, _: u8) -> io::Result<()> {
        match self.0 {}
    }

    fn wait(&mut self, _: Duration) -> io::Result<bool> {
        match self.0 {}
    }

    fn now(&self) -> Duration {
        match self.0 {}
    }

    fn local(&self) -> Peer {
        match self.0 {}
    }

    fn stats(&self) -> IoStats {
        match self.0 {}
    }
}
