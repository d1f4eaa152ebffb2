//! Who acts in a simulated job: workers, which are thc-worker's engine, and shards of servers or a switch, which are the
//! protocol's aggregator with thc-ps's kernels.

use std::time::Duration;

use thc_protocol::aggregator::{Aggregator, Endpoint, Outcome, Sink};
use thc_protocol::{Ecn, JobId};
use thc_ps::Simd;
use thc_support::SimIo;
use thc_transport::{Origin, PacketIo, Peer};
use thc_worker::{Borrowed, Call, Computed, Engine};

use super::port::{Leaving, Port};
use super::settings::Costs;
use crate::error::{Error, Result};

/// What came of a turn.
pub struct Turn {
    /// How long it took.
    pub took: Duration,
    /// What leaves during it.
    pub leaving: Vec<Outgoing>,
    /// Whether there may be more to do at once.
    pub again: bool,
    /// When there is something to do at the latest, whatever comes.
    pub due: Option<Duration>,
}

/// What leaves, so much later than the turn began.
pub struct Outgoing {
    pub after: Duration,
    pub what: Packets,
}

/// Packets on their way out.
pub enum Packets {
    /// A run to one receiver.
    Run(Leaving),
    /// One packet to several, with these ECN bits.
    Copies(Vec<Peer>, Vec<u8>, u8),
}

/// A worker of the job.
pub struct Party {
    engine: Engine<Port>,
    data: Vec<f32>,
    call: Option<u64>,
    costs: Costs,
    counted: Computed,
    /// How many all-reduces it does.
    rounds: usize,
    next: Duration,
    /// When each all-reduce began and ended here.
    pub began: Vec<Duration>,
    pub ended: Vec<Duration>,
}

impl Party {
    /// A worker that averages `data` so many times.
    pub fn new(engine: Engine<Port>, data: Vec<f32>, costs: Costs, rounds: usize) -> Self {
        Self {
            engine,
            data,
            call: None,
            costs,
            counted: Computed::default(),
            rounds,
            next: Duration::ZERO,
            began: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Whether it has done everything.
    pub fn is_done(&self) -> bool {
        self.ended.len() == self.rounds
    }

    /// The tensor: after the end the last mean.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// Packets that were sent again.
    pub fn repetitions(&self) -> u64 {
        self.engine.stats().retransmissions
    }

    /// Time-outs.
    pub fn timeouts(&self) -> u64 {
        self.engine.stats().timeouts
    }

    /// Where it is on the network.
    pub fn local(&mut self) -> Peer {
        self.engine.io_mut().local()
    }

    pub fn turn(&mut self, now: Duration) -> Result<Turn> {
        if self.call.is_none() && !self.is_done() && now >= self.next {
            let call = self.engine.submit(self.data.len(), Call::default());
            self.call = Some(call.map_err(Error::failure)?);
            self.began.push(now);
        }
        let busy = match self.call {
            Some(call) => self.engine.step(&mut Borrowed::new(call, &mut self.data)),
            None => self.engine.step(&mut Borrowed::empty()),
        };
        if let Some(error) = self.engine.failure() {
            return Err(Error::failure(error));
        }
        let computed = self.engine.computed_counts();
        let computing = self.costs.computing_time(&self.counted, &computed);
        self.counted = computed;
        let (spent, runs) = self.engine.io_mut().end_turn();
        // A turn that computes has neither received nor sent anything before.
        let leaving =
            runs.into_iter().map(|run| Outgoing { after: computing + run.after, what: Packets::Run(run) });
        let took = computing + spent;
        let outcome = self.call.and_then(|call| self.engine.take_outcome(call));
        if let Some(outcome) = outcome {
            outcome.map_err(Error::failure)?;
            self.call = None;
            self.ended.push(now + took);
            self.next = now + took;
        }
        let start = (self.call.is_none() && !self.is_done()).then_some(self.next);
        let due = [self.engine.deadline(), start].into_iter().flatten().min();
        Ok(Turn { took, leaving: leaving.collect(), again: busy, due })
    }

    /// Puts on the wire what was sent in a turn.
    pub fn leave(&mut self, packets: &Packets) -> std::io::Result<()> {
        match packets {
            Packets::Run(run) => self.engine.io_mut().leave(run),
            Packets::Copies(..) => Ok(()),
        }
    }
}

/// What a packet costs an aggregator.
#[derive(Clone, Copy, Debug)]
pub struct PacketCosts {
    /// To receive, check and add it.
    pub receive: Duration,
    /// More for one that completes a slot.
    pub complete: Duration,
    /// For each copy of an answer.
    pub send: Duration,
    /// How much later an answer leaves, while others are handled.
    pub delay: Duration,
}

/// A shard of a server, or a switch.
pub struct SimAggregator {
    io: SimIo,
    /// For a rack, its end of the link to the root, and where the root is.
    up: Option<(SimIo, Peer)>,
    aggregator: Aggregator<Simd>,
    costs: PacketCosts,
    /// Packets that were dropped.
    pub dropped: u64,
}

struct Out<'a> {
    costs: &'a PacketCosts,
    spent: Duration,
    leaving: Vec<Outgoing>,
}

impl Out<'_> {
    fn push(&mut self, to: Vec<Peer>, ecn: Ecn, packet: &[u8]) {
        self.spent += self.costs.send * to.len() as u32;
        let what = Packets::Copies(to, packet.to_vec(), ecn.bits());
        self.leaving.push(Outgoing { after: self.spent + self.costs.delay, what });
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
    pub fn new(
        io: SimIo,
        up: Option<(SimIo, Peer)>,
        aggregator: Aggregator<Simd>,
        costs: PacketCosts,
    ) -> Self {
        Self { io, up, aggregator, costs, dropped: 0 }
    }

    /// Where it is on the network.
    pub fn locals(&self) -> impl Iterator<Item = Peer> {
        [Some(&self.io), self.up.as_ref().map(|(io, _)| io)].into_iter().flatten().map(PacketIo::local)
    }

    pub fn turn(&mut self) -> std::io::Result<Turn> {
        let Self { io, up, aggregator, costs, dropped } = self;
        let mut out = Out { costs, spent: Duration::ZERO, leaving: Vec::new() };
        let mut take = |Origin { from, ecn, .. }: Origin, packet: &[u8]| {
            out.spent += costs.receive;
            let outcome = aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), packet, &mut out);
            *dropped += u64::from(matches!(outcome, Outcome::Dropped(_)));
        };
        let mut got = io.recv_burst(&mut take)?;
        if let Some((up, _)) = up {
            got += up.recv_burst(&mut take)?;
        }
        Ok(Turn { took: out.spent, leaving: out.leaving, again: got > 0, due: None })
    }

    pub fn leave(&mut self, packets: &Packets) -> std::io::Result<()> {
        match packets {
            Packets::Run(run) => self.io.send_run_with(run.to, &run.contents, run.segment, run.ecn),
            Packets::Copies(to, packet, ecn) => {
                let io = match &mut self.up {
                    Some((up, root)) if to[..] == [*root] => up,
                    _ => &mut self.io,
                };
                io.send_run_to_all(to, packet, packet.len(), *ecn)
            }
        }
    }
}
