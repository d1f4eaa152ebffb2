//! A worker's way to the simulated network: packets take time to be received and sent, and leave when that time has passed.

use std::io;
use std::time::Duration;

use thc_support::SimIo;

use thc_transport::{IoStats, PacketIo, Peer, Run};

/// A run of packets that was sent, and is to leave so much later than the turn began in which it was.
#[derive(Debug)]
pub struct Leaving {
    pub after: Duration,
    pub to: Peer,
    pub contents: Vec<u8>,
    pub segment: usize,
    pub ecn: u8,
}

/// Packet I/O of an engine that is driven turn by turn.
pub struct Port {
    io: SimIo,
    /// What a packet costs to send and to receive.
    send: Duration,
    receive: Duration,
    /// What packets have cost in this turn, and what was sent.
    spent: Duration,
    leaving: Vec<Leaving>,
}

impl Port {
    pub fn new(io: SimIo, send: Duration, receive: Duration) -> Self {
        Self { io, send, receive, spent: Duration::ZERO, leaving: Vec::new() }
    }

    /// Ends a turn: what its packets cost, and what was sent.
    pub fn end_turn(&mut self) -> (Duration, Vec<Leaving>) {
        (std::mem::take(&mut self.spent), std::mem::take(&mut self.leaving))
    }

    /// Puts on the wire, now, what was sent before.
    pub fn leave(&mut self, run: &Leaving) -> io::Result<()> {
        self.io.send_run_with(run.to, &run.contents, run.segment, run.ecn)
    }
}

impl PacketIo for Port {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let got = self.io.recv_burst(&mut |origin, payload| f(Run::single(origin, payload)))?;
        self.spent += self.receive * got as u32;
        Ok(got)
    }

    fn reads_ecn(&self) -> bool {
        self.io.reads_ecn()
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        self.spent += self.send * contents.len().div_ceil(segment.max(1)) as u32;
        self.leaving.push(Leaving { after: self.spent, to, contents: contents.to_vec(), segment, ecn });
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> io::Result<bool> {
        // Whoever drives the turns moves time.
        Ok(false)
    }

    fn now(&self) -> Duration {
        self.io.now()
    }

    fn local(&self) -> Peer {
        self.io.local()
    }

    fn stats(&self) -> IoStats {
        self.io.stats()
    }
}
