//! Faults injected into a real backend.

use std::{collections::VecDeque, io, time::Duration};

use fastrand::Rng;

use crate::{
    FaultRates, IoStats, Origin, PacketIo, Peer, RetainedTx, Run, TransportError, Waker,
    packet_io::{Receiver, check_segment},
};

/// Most datagrams held back per direction; beyond that, further ones pass in order.
const MAX_HELD: usize = 256;
/// A held-back datagram follows after at most this many later ones.
const MAX_OVERTAKERS: u64 = 32;

/// The faults that a [`LossyIo`] injects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossyConfig {
    /// Seed of all decisions.
    pub seed: u64,
    /// Faults of datagrams sent.
    pub outgoing: FaultRates,
    /// Faults of datagrams received.
    pub incoming: FaultRates,
    /// A datagram held back for reordering is released after this time at the latest, even if none overtakes
    /// it.
    pub hold: Duration,
}

impl Default for LossyConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            outgoing: FaultRates::NONE,
            incoming: FaultRates::NONE,
            hold: Duration::from_millis(1),
        }
    }
}

impl LossyConfig {
    /// The same rates of faults in both directions.
    pub fn both_ways(rates: FaultRates, seed: u64) -> LossyConfig {
        LossyConfig { seed, outgoing: rates, incoming: rates, ..LossyConfig::default() }
    }
}

/// The faults that a [`LossyIo`] has injected, in both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyStats {
    /// Datagrams dropped.
    pub lost: u64,
    /// Datagrams doubled.
    pub duplicated: u64,
    /// Datagrams held back.
    pub reordered: u64,
}

/// A wrapper around a backend that loses, duplicates and reorders datagrams in both directions,
/// so that real processes can be tested against faults.
///
/// It holds at most 256 datagrams per direction. Its [`stats`](PacketIo::stats) are those of the
/// backend: lost outgoing datagrams are missing there, lost incoming ones are not.
pub struct LossyIo<T> {
    inner: T,
    outgoing: Direction,
    incoming: Direction,
}

struct Direction {
    rates: FaultRates,
    rng: Rng,
    hold: Duration,
    held: VecDeque<Held>,
    /// Datagrams that went by so far.
    passed: u64,
    stats: LossyStats,
}

/// A datagram held back until `overtaken` datagrams went by or `until` has come.
struct Held {
    /// The sender, or of a datagram sent the receiver.
    peer: Origin,
    payload: Vec<u8>,
    overtaken: u64,
    until: Duration,
}

/// The number of copies of a datagram that are passed on at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Nothing,
    Once,
    Twice,
}

impl Direction {
    fn new(seed: u64, rates: FaultRates, hold: Duration) -> Self {
        Self {
            rates,
            rng: Rng::with_seed(seed),
            hold,
            held: VecDeque::new(),
            passed: 0,
            stats: LossyStats::default(),
        }
    }

    /// Decides about a datagram, and keeps a copy if one is to come later.
    fn judge(&mut self, peer: Origin, payload: &[u8], now: Duration) -> Fate {
        // Always three draws, so that one rate does not shift the decisions of the others.
        let lost = self.rng.f64() < self.rates.loss;
        let doubled = self.rng.f64() < self.rates.duplicate;
        let late = self.rng.f64() < self.rates.reorder;
        if lost {
            self.stats.lost += 1;
            return Fate::Nothing;
        }
        self.passed += 1;
        self.stats.duplicated += u64::from(doubled);
        if !late || self.held.len() >= MAX_HELD {
            return if doubled { Fate::Twice } else { Fate::Once };
        }
        self.stats.reordered += 1;
        self.held.push_back(Held {
            peer,
            payload: payload.to_vec(),
            overtaken: self.passed + self.rng.u64(1..=MAX_OVERTAKERS),
            until: now.saturating_add(self.hold),
        });
        if doubled { Fate::Once } else { Fate::Nothing }
    }

    /// Takes out one held datagram that is due.
    fn take_due(&mut self, now: Duration) -> Option<Held> {
        let index = self.held.iter().position(|held| held.overtaken <= self.passed || held.until <= now)?;
        self.held.remove(index)
    }

    fn has_due(&self, now: Duration) -> bool {
        self.held.iter().any(|held| held.overtaken <= self.passed || held.until <= now)
    }
}

impl<T: PacketIo> LossyIo<T> {
    /// Wraps `inner`.
    ///
    /// # Errors
    /// [`TransportError::Probability`] when a rate is not a probability.
    pub fn new(inner: T, config: LossyConfig) -> Result<Self, TransportError> {
        config.outgoing.validate()?;
        config.incoming.validate()?;
        let mut seeds = Rng::with_seed(config.seed);
        Ok(Self {
            inner,
            outgoing: Direction::new(seeds.u64(..), config.outgoing, config.hold),
            incoming: Direction::new(seeds.u64(..), config.incoming, config.hold),
        })
    }

    /// The wrapped backend.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The wrapped backend, to be configured.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the faults injected so far.
    pub fn injected_faults(&self) -> LossyStats {
        let (out, back) = (self.outgoing.stats, self.incoming.stats);
        LossyStats {
            lost: out.lost + back.lost,
            duplicated: out.duplicated + back.duplicated,
            reordered: out.reordered + back.reordered,
        }
    }

    /// [`PacketIo::recv_runs`], with a callback of one type, so that a backend that may contain itself in a
    /// wrapper (an enum of all) does not make the compiler wrap callbacks without end.
    fn receive(&mut self, f: &mut Receiver<'_>) -> io::Result<usize> {
        self.release_outgoing()?;
        let now = self.inner.now();
        let Self { inner, incoming, .. } = self;
        let mut delivered = 0;
        inner.recv_burst(&mut |origin, payload| {
            let copies = match incoming.judge(origin, payload, now) {
                Fate::Nothing => 0,
                Fate::Once => 1,
                Fate::Twice => 2,
            };
            for _ in 0..copies {
                f(Run::single(origin, payload));
            }
            delivered += copies;
        })?;
        while let Some(held) = incoming.take_due(now) {
            f(Run::single(held.peer, &held.payload));
            delivered += 1;
        }
        Ok(delivered)
    }

    /// Sends held-back datagrams that are due.
    fn release_outgoing(&mut self) -> io::Result<()> {
        let now = self.inner.now();
        while let Some(held) = self.outgoing.take_due(now) {
            let segment = held.payload.len();
            let Origin { from: to, ecn, .. } = held.peer;
            self.inner.send_run_with(to, &held.payload, segment, ecn)?;
        }
        Ok(())
    }

    /// Returns when time alone makes the next held-back datagram due.
    fn next_release(&self) -> Option<Duration> {
        self.outgoing.held.iter().chain(&self.incoming.held).map(|held| held.until).min()
    }
}

impl<T: PacketIo> PacketIo for LossyIo<T> {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        self.receive(f)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        let towards = Origin { ecn, ..to.into() };
        let now = self.inner.now();
        // Neighbours that both pass stay one run, so that the backend can still batch them.
        let mut pass = 0..0;
        let mut start = 0;
        for payload in contents.chunks(segment) {
            let end = start + payload.len();
            let fate = self.outgoing.judge(towards, payload, now);
            if fate != Fate::Nothing {
                pass.end = end;
            }
            if fate != Fate::Once {
                self.inner.send_run_with(to, &contents[pass.clone()], segment, ecn)?;
                pass = end..end;
            }
            if fate == Fate::Twice {
                self.inner.send_run_with(to, payload, segment, ecn)?;
            }
            start = end;
        }
        self.inner.send_run_with(to, &contents[pass], segment, ecn)?;
        self.release_outgoing()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let deadline = self.inner.now().saturating_add(timeout);
        loop {
            self.release_outgoing()?;
            let now = self.inner.now();
            if self.incoming.has_due(now) {
                return Ok(true);
            }
            let until = self.next_release().map_or(deadline, |release| release.min(deadline));
            if self.inner.wait(until.saturating_sub(now))? {
                return Ok(true);
            }
            if self.inner.now() >= deadline {
                self.release_outgoing()?;
                return Ok(self.incoming.has_due(self.inner.now()));
            }
        }
    }

    fn waker(&mut self) -> io::Result<Option<Waker>> {
        self.inner.waker()
    }

    fn refused(&self) -> Option<(Peer, Duration)> {
        self.inner.refused()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn local(&self) -> Peer {
        self.inner.local()
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

impl<T: RetainedTx> RetainedTx for LossyIo<T> {
    fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        self.inner.pack(number, len)
    }

    fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        self.inner.packed_payload(number)
    }

    fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        let now = self.inner.now();
        let Some(payload) = self.inner.packed_payload(number) else { return Ok(()) };
        let copies = match self.outgoing.judge(Origin { ecn, ..to.into() }, payload, now) {
            Fate::Nothing => 0,
            Fate::Once => 1,
            Fate::Twice => 2,
        };
        (0..copies).try_for_each(|_| self.inner.send_packed(to, number, ecn))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        self.release_outgoing()
    }
}
