//! The state of a simulated network, and what happens to datagrams under way.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

use fastrand::Rng;
use thc_transport::{IPV4_UDP_HEADER_LEN, IoStats, Origin, Peer};

use super::{LinkConfig, SimConfig, SimStats};
use crate::agenda::Agenda;

/// The longest delay of a held-back datagram, in units of its link's latency and jitter.
const MAX_HOLD: u32 = 4;
/// ECN's codepoint of a datagram that a queue has marked.
const CONGESTED: u8 = 3;
/// The shortest hold, so that reordering also works on a link without latency.
const MIN_HOLD: Duration = Duration::from_micros(1);

/// The state behind the handles of a [`SimNet`](super::SimNet).
pub(super) struct NetState {
    config: SimConfig,
    rng: Rng,
    pub now: Duration,
    events: Agenda<(Stage, Datagram)>,
    attached: u64,
    endpoints: HashMap<Peer, SimPort>,
    bandwidths: HashMap<Peer, Option<u64>>,
    hosts: HashMap<IpAddr, Host>,
    links: HashMap<(Peer, Peer), Link>,
    pub partitioned: HashSet<Peer>,
    /// Endpoints whose inbox was empty and no longer is, if the network records them.
    pub arrivals: Option<Vec<Peer>>,
    pub stats: SimStats,
}

/// A host, whose endpoints share a wire in each direction and reach each other without it.
struct Host {
    bandwidth: Option<u64>,
    uplink: Wire,
    downlink: Wire,
    /// The times at which the datagrams on their way out will have left.
    leaving: VecDeque<Duration>,
}

/// One direction between two endpoints.
#[derive(Default)]
struct Link {
    settings: Option<LinkConfig>,
    /// The arrival of the latest datagram that was not held back. No later datagram arrives before it.
    latest: Duration,
}

/// An attached endpoint.
pub(super) struct SimPort {
    generation: u64,
    inbox: VecDeque<(Origin, Vec<u8>)>,
    /// Datagrams on the last hop and in the inbox.
    waiting: usize,
    uplink: Wire,
    downlink: Wire,
    pub stats: IoStats,
}

/// A wire of limited bandwidth that carries one datagram after the other.
#[derive(Clone, Copy, Default)]
struct Wire {
    free_at: Duration,
}

struct Datagram {
    from: Peer,
    to: Peer,
    ecn: u8,
    payload: Vec<u8>,
    /// Whether no bit of the datagram has been flipped on the way.
    intact: bool,
}

enum Stage {
    /// The datagram reaches the receiver's last hop.
    Arrive,
    /// The datagram has crossed the last hop of the endpoint of this generation.
    Deliver(u64),
}

impl Wire {
    /// Puts `length` bytes, all headers included, on the wire at `now` or when the wire is free. Returns
    /// the time at which the last bit has left.
    fn carry(&mut self, now: Duration, length: usize, bandwidth: Option<u64>) -> Duration {
        let Some(bandwidth) = bandwidth else {
            return now;
        };
        let bits = length as u128 * 8;
        let nanos = bits * 1_000_000_000 / u128::from(bandwidth.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now).saturating_add(takes);
        self.free_at
    }
}

impl SimPort {
    pub fn is_readable(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Moves up to `limit` datagrams to `burst` and counts them as received.
    pub fn read(&mut self, limit: usize, burst: &mut Vec<(Origin, Vec<u8>)>) {
        let count = self.inbox.len().min(limit);
        if count == 0 {
            return;
        }
        self.inbox
            .iter()
            .take(count)
            .for_each(|(origin, bytes)| self.stats.count_in(origin.from, 1, bytes.len()));
        self.stats.recv_bursts += 1;
        self.waiting -= count;
        burst.extend(self.inbox.drain(..count));
    }
}

impl NetState {
    pub fn new(config: SimConfig) -> Self {
        Self {
            config,
            rng: Rng::with_seed(config.seed),
            now: Duration::ZERO,
            events: Agenda::default(),
            attached: 0,
            endpoints: HashMap::new(),
            bandwidths: HashMap::new(),
            hosts: HashMap::new(),
            links: HashMap::new(),
            partitioned: HashSet::new(),
            arrivals: None,
            stats: SimStats::default(),
        }
    }

    pub fn attach(&mut self, peer: Peer) -> u64 {
        self.attached += 1;
        let endpoint = SimPort {
            generation: self.attached,
            inbox: VecDeque::new(),
            waiting: 0,
            uplink: Wire::default(),
            downlink: Wire::default(),
            stats: IoStats::default(),
        };
        self.endpoints.insert(peer, endpoint);
        self.attached
    }

    pub fn detach(&mut self, peer: Peer, generation: u64) {
        if self.endpoint(peer, generation).is_some() {
            self.endpoints.remove(&peer);
        }
    }

    /// The endpoint, unless it was removed or taken over since `generation`.
    pub fn endpoint(&mut self, peer: Peer, generation: u64) -> Option<&mut SimPort> {
        self.endpoints.get_mut(&peer).filter(|endpoint| endpoint.generation == generation)
    }

    pub fn link(&self, from: Peer, to: Peer) -> LinkConfig {
        self.links.get(&(from, to)).and_then(|link| link.settings).unwrap_or_else(|| self.config.link())
    }

    pub fn set_link(&mut self, from: Peer, to: Peer, settings: Option<LinkConfig>) {
        self.links.entry((from, to)).or_default().settings = settings;
    }

    pub fn set_bandwidth(&mut self, peer: Peer, bandwidth: Option<u64>) {
        self.bandwidths.insert(peer, bandwidth);
    }

    pub fn set_host(&mut self, address: IpAddr, bandwidth: Option<u64>) {
        let new = || Host {
            bandwidth,
            uplink: Wire::default(),
            downlink: Wire::default(),
            leaving: VecDeque::new(),
        };
        self.hosts.entry(address).or_insert_with(new).bandwidth = bandwidth;
    }

    fn bandwidth(&self, peer: Peer) -> Option<u64> {
        *self.bandwidths.get(&peer).unwrap_or(&self.config.bandwidth)
    }

    /// Bytes of a datagram on a wire.
    fn length(&self, payload: &[u8]) -> usize {
        payload.len() + IPV4_UDP_HEADER_LEN + self.config.framing
    }

    fn is_cut(&self, from: Peer, to: Peer) -> bool {
        self.partitioned.contains(&from) || self.partitioned.contains(&to)
    }

    pub fn in_flight(&self) -> usize {
        self.events.len()
    }

    pub fn next_event(&self) -> Option<Duration> {
        self.events.next_at()
    }

    pub fn advance_to_next(&mut self) -> Option<Duration> {
        let time = self.next_event()?;
        self.advance_to(time);
        Some(time)
    }

    pub fn advance_to(&mut self, time: Duration) {
        while self.next_event().is_some_and(|due| due <= time) {
            if let Some((at, (stage, datagram))) = self.events.pop() {
                self.now = self.now.max(at);
                match stage {
                    Stage::Arrive => self.arrive(datagram),
                    Stage::Deliver(generation) => self.deliver(datagram, generation),
                }
            }
        }
        self.now = self.now.max(time);
    }

    /// Sends one datagram of an attached endpoint.
    pub fn send(&mut self, from: Peer, to: Peer, mut ecn: u8, payload: &[u8]) {
        self.stats.sent += 1;
        let length = self.length(payload);
        let departs = match self.hosts.get_mut(&from.ip()) {
            Some(_) if from.ip() == to.ip() => return self.stay(from, to, ecn, payload),
            Some(host) => {
                while host.leaving.front().is_some_and(|&left| left <= self.now) {
                    host.leaving.pop_front();
                }
                let waiting = host.leaving.len();
                if self.config.leaving_packets.is_some_and(|most| waiting >= most) {
                    self.stats.overflowed += 1;
                    return;
                }
                if ecn != 0 && self.config.mark_packets.is_some_and(|most| waiting >= most) {
                    ecn = CONGESTED;
                    self.stats.marked += 1;
                }
                let left = host.uplink.carry(self.now, length, host.bandwidth);
                if self.config.leaving_packets.is_some() || self.config.mark_packets.is_some() {
                    host.leaving.push_back(left);
                }
                left
            }
            None => {
                let bandwidth = self.bandwidth(from);
                let uplink = self.endpoints.get_mut(&from).map(|sender| &mut sender.uplink);
                uplink.map_or(self.now, |wire| wire.carry(self.now, length, bandwidth))
            }
        };
        if self.is_cut(from, to) {
            self.stats.partitioned += 1;
            return;
        }
        let link = self.link(from, to);
        if self.chance(link.loss) {
            self.stats.lost += 1;
            return;
        }
        let spread = link.latency.saturating_add(link.jitter);
        let on_time = departs.saturating_add(link.latency).saturating_add(self.part_of(link.jitter));
        let arrives = if self.chance(link.reorder) {
            self.stats.reordered += 1;
            let hold = self.part_of(spread.saturating_mul(MAX_HOLD - 1));
            on_time.saturating_add(spread.max(MIN_HOLD).saturating_add(hold))
        } else {
            let latest = &mut self.links.entry((from, to)).or_default().latest;
            *latest = on_time.max(*latest);
            *latest
        };
        let copy = || Datagram { from, to, ecn, payload: payload.to_vec(), intact: true };
        self.launch(copy(), &link, arrives);
        if self.chance(link.duplicate) {
            self.stats.duplicated += 1;
            let later = self.part_of(spread.saturating_mul(MAX_HOLD));
            self.launch(copy(), &link, arrives.saturating_add(later));
        }
        // No random number is drawn for a rate of zero, so that seeds keep their traces.
        if link.late > 0.0 && self.chance(link.late) {
            self.stats.duplicated += 1;
            let later = self.part_of(link.late_by);
            self.launch(copy(), &link, arrives.saturating_add(later));
        }
    }

    /// A datagram that does not leave its host.
    fn stay(&mut self, from: Peer, to: Peer, ecn: u8, payload: &[u8]) {
        let full = self.config.queue_packets;
        let Some(receiver) = self.endpoints.get_mut(&to) else {
            self.stats.unreachable += 1;
            return;
        };
        if receiver.waiting >= full {
            self.stats.overflowed += 1;
            return;
        }
        receiver.waiting += 1;
        let generation = receiver.generation;
        let datagram = Datagram { from, to, ecn, payload: payload.to_vec(), intact: true };
        self.schedule(self.now, Stage::Deliver(generation), datagram);
    }

    /// Sends one copy of a datagram, which may be corrupted.
    fn launch(&mut self, mut datagram: Datagram, link: &LinkConfig, arrives: Duration) {
        if self.chance(link.corrupt) {
            self.stats.corrupted += 1;
            self.corrupt(&mut datagram);
        }
        self.schedule(arrives, Stage::Arrive, datagram);
    }

    /// Flips a burst of bits within 15 bits, which every UDP checksum detects; on a real network the link layer's CRC detects
    /// longer bursts. So the simulation can treat a datagram without a checksum as corrupted.
    fn corrupt(&mut self, datagram: &mut Datagram) {
        let pattern = self.rng.u16(0..0x8000) | 1;
        let bits = datagram.payload.len() * 8;
        datagram.intact = false;
        if bits == 0 {
            return;
        }
        let start = self.rng.usize(0..bits);
        for bit in (0..15).filter(|bit| pattern >> bit & 1 == 1) {
            if let Some(byte) = datagram.payload.get_mut((start + bit) / 8) {
                *byte ^= 0x80 >> ((start + bit) % 8);
            }
        }
    }

    fn schedule(&mut self, at: Duration, stage: Stage, datagram: Datagram) {
        self.events.add(at, (stage, datagram));
    }

    fn arrive(&mut self, mut datagram: Datagram) {
        if self.is_cut(datagram.from, datagram.to) {
            self.stats.partitioned += 1;
            return;
        }
        let bandwidth = self.bandwidth(datagram.to);
        let length = self.length(&datagram.payload);
        let Some(receiver) = self.endpoints.get_mut(&datagram.to) else {
            self.stats.unreachable += 1;
            return;
        };
        if receiver.waiting >= self.config.queue_packets {
            self.stats.overflowed += 1;
            return;
        }
        if datagram.ecn != 0 && self.config.mark_packets.is_some_and(|most| receiver.waiting >= most) {
            datagram.ecn = CONGESTED;
            self.stats.marked += 1;
        }
        receiver.waiting += 1;
        let done = match self.hosts.get_mut(&datagram.to.ip()) {
            Some(host) => host.downlink.carry(self.now, length, host.bandwidth),
            None => receiver.downlink.carry(self.now, length, bandwidth),
        };
        let generation = receiver.generation;
        if done > self.now {
            self.schedule(done, Stage::Deliver(generation), datagram);
        } else {
            self.deliver(datagram, generation);
        }
    }

    fn deliver(&mut self, datagram: Datagram, generation: u64) {
        let Datagram { from, to, ecn, payload, intact } = datagram;
        let intact = intact || !self.config.checksums;
        let cut = self.is_cut(from, to);
        let Some(receiver) = self.endpoint(to, generation) else {
            self.stats.unreachable += 1;
            return;
        };
        if intact && !cut {
            let first = receiver.inbox.is_empty();
            receiver.inbox.push_back((Origin { ecn, ..from.into() }, payload));
            if let Some(arrivals) = self.arrivals.as_mut().filter(|_| first) {
                arrivals.push(to);
            }
            self.stats.delivered += 1;
            return;
        }
        receiver.waiting -= 1;
        if cut {
            self.stats.partitioned += 1;
        } else {
            self.stats.checksum_failed += 1;
        }
    }

    /// True with `probability`.
    fn chance(&mut self, probability: f64) -> bool {
        self.rng.f64() < probability
    }

    /// A uniformly distributed part of `whole`.
    fn part_of(&mut self, whole: Duration) -> Duration {
        let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rng.u64(0..=nanos))
    }
}
