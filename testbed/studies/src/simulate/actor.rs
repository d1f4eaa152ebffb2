//! The actors of a simulated job: workers and aggregators. Both take turns, and what a turn sends leaves while it lasts.

use std::io;
use std::time::Duration;

use thc_protocol::aggregator::{Aggregator, Endpoint, Outcome, Sink};
use thc_protocol::{Ecn, JobId};
use thc_ps::Simd;
use thc_support::SimIo;
use thc_transport::{IoStats, Origin, PacketIo, Peer, RetainedTx, Run};
use thc_worker::{Borrowed, Call, Computed, Engine};

use super::job::Costs;
use crate::error::{Error, Result};

/// The outcome of a turn.
pub struct Turn {
    /// Its duration.
    pub took: Duration,
    /// The packets that leave during it.
    pub sent: Vec<Sent>,
    /// Whether there may be more to do at once.
    pub again: bool,
    /// When the next turn is due if nothing arrives before.
    pub due: Option<Duration>,
}

/// A run of packets to each of some receivers.
pub struct Sent {
    /// The time from the beginning of the turn to the departure.
    pub after: Duration,
    to: Vec<Peer>,
    contents: Vec<u8>,
    segment: usize,
    ecn: u8,
}

impl Sent {
    fn leave(&self, io: &mut SimIo) -> io::Result<()> {
        self.to.iter().try_for_each(|to| io.send_run_with(*to, &self.contents, self.segment, self.ecn))
    }
}

/// Packet I/O of an engine. Packets cost time to send and to receive, and leave when that time has passed.
pub struct Port {
    io: SimIo,
    costs: Costs,
    spent: Duration,
    sent: Vec<Sent>,
}

impl Port {
    pub fn new(io: SimIo, costs: Costs) -> Self {
        Self { io, costs, spent: Duration::ZERO, sent: Vec::new() }
    }
}

impl RetainedTx for Port {}

impl PacketIo for Port {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let got = self.io.recv_burst(&mut |origin, payload| f(Run::single(origin, payload)))?;
        self.spent += self.costs.receive * got as u32;
        Ok(got)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        self.spent += self.costs.send * contents.len().div_ceil(segment.max(1)) as u32;
        let contents = contents.to_vec();
        self.sent.push(Sent { after: self.spent, to: vec![to], contents, segment, ecn });
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> io::Result<bool> {
        // The cluster moves time.
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

/// A worker of the job, which averages its tensor `rounds` times.
pub struct Party {
    engine: Engine<Port>,
    /// The tensor, and after the end the last mean.
    pub data: Vec<f32>,
    call: Option<u64>,
    costs: Costs,
    computed: Computed,
    rounds: usize,
    next: Duration,
    /// When each all-reduce began and ended here.
    pub began: Vec<Duration>,
    pub ended: Vec<Duration>,
}

impl Party {
    pub fn new(engine: Engine<Port>, data: Vec<f32>, costs: Costs, rounds: usize) -> Self {
        let (began, ended) = (Vec::new(), Vec::new());
        let computed = Computed::default();
        Self { engine, data, call: None, costs, computed, rounds, next: Duration::ZERO, began, ended }
    }

    pub fn is_done(&self) -> bool {
        self.ended.len() == self.rounds
    }

    /// The packets that were sent again, and the time-outs.
    pub fn repetitions(&self) -> (u64, u64) {
        let stats = self.engine.stats();
        (stats.retransmissions, stats.timeouts)
    }

    pub fn turn(&mut self, now: Duration) -> Result<Turn> {
        if self.call.is_none() && !self.is_done() && now >= self.next {
            let call = self.engine.submit(self.data.len(), Call::default());
            self.call = Some(call.map_err(Error::failure)?);
            self.began.push(now);
        }
        let again = match self.call {
            Some(call) => self.engine.step(&mut Borrowed::new(call, &mut self.data)),
            None => self.engine.step(&mut Borrowed::empty()),
        };
        if let Some(error) = self.engine.failure() {
            return Err(Error::failure(error));
        }
        let computed = self.engine.computed_counts();
        let computing = self.costs.computing_time(&self.computed, &computed);
        self.computed = computed;
        let port = self.engine.io_mut();
        let took = computing + std::mem::take(&mut port.spent);
        // A turn that computes has neither received nor sent anything before.
        let mut sent = std::mem::take(&mut port.sent);
        sent.iter_mut().for_each(|sent| sent.after += computing);
        if let Some(outcome) = self.call.and_then(|call| self.engine.take_outcome(call)) {
            outcome.map_err(Error::failure)?;
            self.call = None;
            self.next = now + took;
            self.ended.push(self.next);
        }
        let start = (self.call.is_none() && !self.is_done()).then_some(self.next);
        let due = [self.engine.deadline(), start].into_iter().flatten().min();
        Ok(Turn { took, sent, again, due })
    }
}

/// The costs of a packet at an aggregator.
#[derive(Clone, Copy, Debug)]
pub struct PacketCosts {
    /// The cost of receiving, checking and adding it.
    pub receive: Duration,
    /// The further costs of one that completes a slot.
    pub complete: Duration,
    /// The cost of each copy of an answer.
    pub send: Duration,
    /// The time that an answer spends on its way while the aggregator handles other packets.
    pub delay: Duration,
}

/// A server, a share of one, or a switch.
pub struct SimAggregator {
    pub io: SimIo,
    pub aggregator: Aggregator<Simd>,
    pub costs: PacketCosts,
    /// The packets that it dropped.
    pub dropped: u64,
}

struct Out<'a> {
    costs: &'a PacketCosts,
    spent: Duration,
    sent: Vec<Sent>,
}

impl Out<'_> {
    fn push(&mut self, to: Vec<Peer>, ecn: Ecn, packet: &[u8]) {
        self.spent += self.costs.send * to.len() as u32;
        let (after, segment) = (self.spent + self.costs.delay, packet.len());
        self.sent.push(Sent { after, to, contents: packet.to_vec(), segment, ecn: ecn.bits() });
    }
}

impl Sink for Out<'_> {
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        self.push(vec![to.addr], ecn, packet);
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        self.spent += self.costs.complete;
        self.push(members.iter().map(|member| member.addr).collect(), ecn, packet);
    }
}

impl SimAggregator {
    fn turn(&mut self) -> io::Result<Turn> {
        let Self { io, aggregator, costs, dropped } = self;
        let mut out = Out { costs, spent: Duration::ZERO, sent: Vec::new() };
        let got = io.recv_burst(&mut |Origin { from, ecn, .. }: Origin, packet: &[u8]| {
            out.spent += costs.receive;
            let outcome = aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), packet, &mut out);
            *dropped += u64::from(matches!(outcome, Outcome::Dropped(_)));
        })?;
        Ok(Turn { took: out.spent, sent: out.sent, again: got > 0, due: None })
    }
}

/// A worker or an aggregator.
pub enum Actor {
    Party(Box<Party>),
    Aggregator(Box<SimAggregator>),
}

impl Actor {
    pub fn local(&mut self) -> Peer {
        match self {
            Self::Party(party) => party.engine.io_mut().local(),
            Self::Aggregator(aggregator) => aggregator.io.local(),
        }
    }

    pub fn turn(&mut self, now: Duration) -> Result<Turn> {
        match self {
            Self::Party(party) => party.turn(now),
            Self::Aggregator(aggregator) => aggregator.turn().map_err(Error::failure),
        }
    }

    /// Puts on the wire, now, what a turn sent.
    pub fn leave(&mut self, sent: &Sent) -> Result<()> {
        let io = match self {
            Self::Party(party) => &mut party.engine.io_mut().io,
            Self::Aggregator(aggregator) => &mut aggregator.io,
        };
        sent.leave(io).map_err(Error::failure)
    }

    /// Whether the job waits for this actor no longer.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Party(party) => party.is_done(),
            Self::Aggregator(_) => true,
        }
    }
}
