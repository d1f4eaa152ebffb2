//! A switch with the program: its rows, registers and counters, replication, and the way back to ingress.

use super::load::load;
use super::program::{Call, Program};
use super::run::{DROP, Packet, Run};
use fastrand::Rng;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::{MulticastGroupEntry, TableEntry};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// `standard_metadata.instance_type` of copies, and of packets that have come back.
const REPLICATED: u128 = 5;
const RECIRCULATED: u128 = 4;
/// A packet that comes back more often than any does comes back for ever.
const MAX_PASSES: usize = 100;

/// A counter's packets and bytes, by index.
pub type Counted = Vec<(u64, u64)>;

/// What the control plane writes, and what packets leave behind.
#[derive(Clone, Debug)]
pub struct State {
    /// By table: the key, what is done, and how the controller wrote it.
    pub rows: Vec<HashMap<Vec<u128>, (Call, TableEntry)>>,
    /// By table: what is done without a row, and how the controller wrote it, if it did.
    pub defaults: Vec<(Call, Option<TableEntry>)>,
    /// By group: port and number of each copy, and how the controller wrote it.
    pub groups: BTreeMap<u128, (Vec<(u16, u16)>, MulticastGroupEntry)>,
    pub registers: Vec<Vec<u64>>,
    pub counters: Vec<Counted>,
}

/// A frame on its way to ingress, with the metadata that it keeps.
struct Arrival {
    port: u16,
    frame: Vec<u8>,
    kept: Vec<(usize, u128)>,
    /// How often it has come back.
    passes: usize,
}

/// A switch that runs the program.
pub struct Switch {
    pub(crate) program: Program,
    pub(crate) info: P4Info,
    pub(crate) state: State,
    arrivals: VecDeque<Arrival>,
    random: Rng,
    /// What has left, by port.
    pub out: BTreeMap<u16, Vec<Vec<u8>>>,
    /// Frames that came back to ingress.
    pub passes: u64,
    /// Of these, one in this many is lost.
    pub loses: Option<u64>,
    /// Any port's first frame goes on, not the one that has waited longest. Frames of one port stay in order.
    pub shuffles: bool,
}

impl Switch {
    /// With `p4/build/thc.json` and its P4Info.
    #[must_use]
    pub fn new(info: P4Info, seed: u64) -> Switch {
        let program = load(thc_p4::BMV2);
        let state = State {
            rows: vec![HashMap::new(); program.tables.len()],
            defaults: program.tables.iter().map(|table| (table.default.clone(), None)).collect(),
            groups: BTreeMap::new(),
            registers: program.registers.iter().map(|register| vec![0; register.1]).collect(),
            counters: program.counters.iter().map(|counter| vec![(0, 0); counter.1]).collect(),
        };
        let random = Rng::with_seed(seed);
        let (arrivals, out) = (VecDeque::new(), BTreeMap::new());
        Switch { program, info, state, arrivals, random, out, passes: 0, loses: None, shuffles: false }
    }

    /// The cells of a register.
    ///
    /// # Panics
    /// If the program has no register of this name.
    #[must_use]
    pub fn register(&self, name: &str) -> &[u64] {
        let at = self.program.registers.iter().position(|register| register.0 == name);
        &self.state.registers[at.unwrap_or_else(|| panic!("no register {name}"))]
    }

    /// Packets and bytes that a counter has counted.
    ///
    /// # Panics
    /// If the program has no counter of this name.
    #[must_use]
    pub fn counter(&self, name: &str, index: usize) -> (u64, u64) {
        let at = self.program.counters.iter().position(|counter| counter.0 == name);
        self.state.counters[at.unwrap_or_else(|| panic!("no counter {name}"))][index]
    }

    /// A frame comes in at a port.
    pub fn send(&mut self, port: u16, frame: &[u8]) {
        self.arrivals.push_back(Arrival { port, frame: frame.to_vec(), kept: Vec::new(), passes: 0 });
    }

    /// Goes on until no frame is under way.
    ///
    /// # Panics
    /// If a frame comes back for ever, or a group that it goes to is not there.
    pub fn run(&mut self) {
        while !self.arrivals.is_empty() {
            let at = if self.shuffles { self.random.usize(..self.arrivals.len()) } else { 0 };
            let port = self.arrivals[at].port;
            let at = self.arrivals.iter().position(|arrival| arrival.port == port).unwrap_or(at);
            if let Some(arrival) = self.arrivals.remove(at) {
                self.ingress(&arrival);
            }
        }
    }

    fn ingress(&mut self, arrival: &Arrival) {
        let program = &self.program;
        let mut packet = Packet::new(program, &mut self.random);
        packet.set_standard(program, "packet_length", arrival.frame.len() as u128);
        if arrival.passes == 0 {
            packet.set_standard(program, "ingress_port", arrival.port.into());
        } else {
            packet.set_standard(program, "instance_type", RECIRCULATED);
        }
        for &(field, value) in &arrival.kept {
            packet.values[field] = value;
        }
        packet.parse(program, &arrival.frame);
        Run { program, state: &mut self.state, packet: &mut packet }.pipeline(program.ingress);
        let group = packet.standard(program, "mcast_grp");
        let port = packet.standard(program, "egress_spec");
        if group != 0 {
            // BMv2 drops what goes to a group that it does not know.
            let copies = self.state.groups.get(&group).map(|(copies, _)| copies.clone());
            for (port, number) in copies.unwrap_or_default() {
                let mut copy = packet.clone();
                copy.set_standard(&self.program, "instance_type", REPLICATED);
                copy.set_standard(&self.program, "egress_rid", number.into());
                self.egress(port, copy, arrival.passes);
            }
        } else if port != DROP {
            packet.set_standard(program, "instance_type", 0);
            self.egress(port as u16, packet, arrival.passes);
        }
    }

    fn egress(&mut self, port: u16, mut packet: Packet, passes: usize) {
        let program = &self.program;
        packet.set_standard(program, "egress_port", port.into());
        packet.set_standard(program, "egress_spec", 0);
        Run { program, state: &mut self.state, packet: &mut packet }.pipeline(program.egress);
        if packet.standard(program, "egress_spec") == DROP {
            return;
        }
        let frame = packet.deparse(program);
        let Some(list) = packet.recirculated else {
            self.out.entry(port).or_default().push(frame);
            return;
        };
        assert!(passes < MAX_PASSES, "a frame comes back for ever");
        self.passes += 1;
        if self.loses.is_some_and(|one_in| self.random.u64(..one_in) == 0) {
            return;
        }
        let kept = program.kept[&list].iter().map(|&field| (field, packet.values[field])).collect();
        self.arrivals.push_back(Arrival { port, frame, kept, passes: passes + 1 });
    }
}
