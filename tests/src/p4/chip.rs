//! A chip of TNA as far as a program can see it: pipes with registers of their own, ingress, the replication of packets,
//! egress, and ports that lead back into the chip.

use super::program::Program;
use super::read::read;
use super::run::{Cells, Parsed, Pipe, Run};
use super::state::Tables;
use fastrand::Rng;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::Update;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first bits of a port's number say which pipe it belongs to; these are the others.
const PORTS_OF_A_PIPE: u32 = 7;
const PIPES: usize = 4;
/// Bits of the length of a queue, in cells of the packet buffer.
const DEPTH_BITS: u32 = 19;
/// A packet that goes round for longer than any does is going round for ever.
const MOST_PASSES: usize = 10_000;

/// A counter's packets and bytes, by index.
pub type Counted = Vec<(u64, u64)>;

/// Packets that wait, and how many had entered a queue before each of them.
type Queue = VecDeque<(u64, Vec<u8>)>;

/// In what order packets that are under way go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    First,
    /// Any queue's first one.
    Random,
    /// The first one of the queue that has the highest number, once all that hosts have sent has come in.
    Highest,
}

/// A chip with a program.
pub struct Chip {
    program: Program,
    info: P4Info,
    tables: Tables,
    /// By pipe, then by register: egress's and ingress's, of which no program has the same.
    registers: Vec<Vec<Cells>>,
    counters: Vec<Counted>,
    metered: BTreeMap<(usize, Vec<u64>), u64>,
    loopback: BTreeSet<u16>,
    /// Bytes in front of a packet that ingress passes over.
    port_metadata: usize,
    /// By port and the queue by which it left: what is to enter ingress there.
    queues: BTreeMap<(u16, u8), Queue>,
    /// How many have entered a queue.
    entered: u64,
    random: Rng,
    /// What has left, by port.
    pub out: BTreeMap<u16, Vec<Vec<u8>>>,
    /// Packets that egress's parser found too short, and ingress's.
    pub short: (u64, u64),
    /// Packets that went through egress to a port that leads back.
    pub passes: u64,
    /// How long the queue is that a host's packet leaves for its first pass; that of a later pass is of any length.
    pub depth: u64,
    /// Of these, one in so many is lost.
    pub loses: Option<u64>,
    /// Packets that came back by a port since this was emptied, and the port; nothing is kept while there is none.
    pub back: Option<Vec<(u16, Vec<u8>)>>,
    /// Headers, such as `hdr.words`, whose fields keep what is written to them while they are not valid. P4 does not say so.
    pub keeping: &'static [&'static str],
}

impl Chip {
    /// With a program as p4c's front end leaves it, and its P4Info; `port_metadata` bytes are in front of each packet that
    /// comes in; packets to `loopback` ports come in there again.
    #[must_use]
    pub fn new(text: &str, info: P4Info, port_metadata: usize, loopback: &[u16], seed: u64) -> Chip {
        let program = read(text);
        let cells = |size: u64| vec![[0, 0]; size as usize];
        let of_pipe: Vec<Cells> = program.registers.iter().map(|register| cells(register.size)).collect();
        Chip {
            tables: Tables::new(&program),
            registers: vec![of_pipe; PIPES],
            counters: program.counters.iter().map(|counter| vec![(0, 0); counter.size as usize]).collect(),
            metered: BTreeMap::new(),
            program,
            info,
            loopback: loopback.iter().copied().collect(),
            port_metadata,
            queues: BTreeMap::new(),
            entered: 0,
            random: Rng::with_seed(seed),
            out: BTreeMap::new(),
            short: (0, 0),
            passes: 0,
            depth: 0,
            loses: None,
            back: None,
            keeping: &[],
        }
    }

    /// Takes a controller's updates, in order.
    pub fn write(&mut self, updates: Vec<Update>) {
        for update in updates {
            self.tables.update(&self.program, &self.info, update);
        }
    }

    /// A cell of a register.
    ///
    /// # Panics
    /// If there is none of the name.
    #[must_use]
    pub fn cell(&self, register: &str, port: u16, index: usize) -> Option<[u64; 2]> {
        let at = self.program.registers.iter().position(|known| known.name == register)?;
        self.registers[usize::from(port >> PORTS_OF_A_PIPE)][at].get(index).copied()
    }

    /// Packets and bytes that a counter has counted.
    ///
    /// # Panics
    /// If there is none of the name.
    #[must_use]
    pub fn counter_value(&self, counter: &str, index: usize) -> (u64, u64) {
        let at = self.program.counters.iter().position(|known| known.name == counter);
        self.counters[at.unwrap_or_else(|| panic!("no counter {counter}"))][index]
    }

    /// All cells, by pipe and register, and by counter packets and bytes.
    #[must_use]
    pub fn holds(&self) -> (Vec<Vec<Cells>>, BTreeMap<String, Counted>) {
        let names = self.program.counters.iter().map(|counter| counter.name.clone());
        (self.registers.clone(), names.zip(self.counters.iter().cloned()).collect())
    }

    /// A frame comes in.
    pub fn send(&mut self, port: u16, frame: &[u8]) {
        self.enter(port, 0, frame.to_vec());
    }

    fn enter(&mut self, port: u16, queue: u8, frame: Vec<u8>) {
        self.entered += 1;
        self.queues.entry((port, queue)).or_default().push_back((self.entered, frame));
    }

    /// Goes on until nothing is under way.
    ///
    /// # Panics
    /// If a packet goes round for ever, or does what a chip cannot.
    pub fn run(&mut self, order: Order) {
        for pass in 0.. {
            let waiting = self.queues.iter().filter_map(|(&place, queue)| Some((queue.front()?.0, place)));
            let next = match order {
                Order::First => waiting.min(),
                Order::Random => {
                    let places: Vec<_> = waiting.collect();
                    if places.is_empty() { None } else { Some(places[self.random.usize(..places.len())]) }
                }
                Order::Highest => waiting.max_by_key(|&(entered, (port, queue))| {
                    (!self.loopback.contains(&port), queue, std::cmp::Reverse(entered))
                }),
            };
            let Some((_, place)) = next else { return };
            assert!(pass < MOST_PASSES * self.entered as usize, "a packet goes round for ever");
            if let Some((_, frame)) = self.queues.get_mut(&place).and_then(VecDeque::pop_front) {
                self.ingress(place.0, &frame);
            }
        }
    }

    fn ingress(&mut self, port: u16, frame: &[u8]) {
        let mut packet: Vec<u8> = (0..self.port_metadata).map(|_| self.random.u8(..)).collect();
        packet.extend(frame);
        let mut pipe = Pipe {
            tables: &self.tables,
            registers: &mut self.registers[usize::from(port >> PORTS_OF_A_PIPE)],
            counters: &mut self.counters,
            metered: &mut self.metered,
        };
        let random = &mut self.random;
        let (program, length) = (&self.program, frame.len() as u64);
        let mut run = Run::new(program, &program.ingress, &mut pipe, &packet, length, self.keeping, random);
        run.say("intrinsic.ingress_port", port.into());
        // Nowhere, as long as the program does not say where.
        let nowhere = super::program::mask(9);
        run.say("manager.ucast_egress_port", nowhere);
        run.say("manager.qid", 0);
        run.say("manager.mcast_grp_a", 0);
        run.say("deparser.drop_ctl", 0);
        match run.parse() {
            Parsed::Accepted => {}
            // A program that does not ask for `parser_err` does not get such packets.
            Parsed::Rejected | Parsed::Short => {
                self.short.0 += 1;
                return;
            }
        }
        run.control();
        let said = |name: &str| run.read(name).unwrap_or(0);
        let (one, all, drop) =
            (said("manager.ucast_egress_port"), said("manager.mcast_grp_a"), said("deparser.drop_ctl"));
        let queue = said("manager.qid") as u8;
        let from_pass = self.loopback.contains(&port);
        let packet = run.deparse();
        if drop & 1 == 1 {
            return;
        }
        let mut copies: Vec<(u16, u16)> = Vec::new();
        if one != nowhere {
            copies.push((one as u16, 0));
        }
        if all != 0 {
            let group = self.tables.groups.get(&all);
            copies.extend(group.unwrap_or_else(|| panic!("there is no group {all}")));
        }
        for (port, number) in copies {
            let depth = if from_pass { self.random.u64(..1 << DEPTH_BITS) } else { self.depth };
            self.egress(port, (queue, depth), number, &packet);
        }
    }

    fn egress(&mut self, port: u16, (queue, depth): (u8, u64), number: u16, packet: &[u8]) {
        let mut pipe = Pipe {
            tables: &self.tables,
            registers: &mut self.registers[usize::from(port >> PORTS_OF_A_PIPE)],
            counters: &mut self.counters,
            metered: &mut self.metered,
        };
        let random = &mut self.random;
        let (program, length) = (&self.program, packet.len() as u64);
        let mut run = Run::new(program, &program.egress, &mut pipe, packet, length, self.keeping, random);
        run.say("intrinsic.egress_port", port.into());
        run.say("intrinsic.egress_rid", number.into());
        run.say("intrinsic.deq_qdepth", depth);
        run.say("deparser.drop_ctl", 0);
        let parsed = run.parse();
        // Which bit says that the packet was too short is the chip's affair.
        run.say("parsed.parser_err", u64::from(parsed != Parsed::Accepted) << 1);
        self.short.1 += u64::from(parsed != Parsed::Accepted);
        run.control();
        let drop = run.read("deparser.drop_ctl").unwrap_or(0);
        let packet = run.deparse();
        if drop & 1 == 1 {
            return;
        }
        if !self.loopback.contains(&port) {
            self.out.entry(port).or_default().push(packet);
            return;
        }
        self.passes += 1;
        if let Some(back) = &mut self.back {
            back.push((port, packet.clone()));
        }
        if self.loses.is_none_or(|one_in| self.random.u64(..one_in) != 0) {
            self.enter(port, queue, packet);
        }
    }
}
