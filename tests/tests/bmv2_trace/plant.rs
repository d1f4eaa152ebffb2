//! What is configured, in the model and in the switch alike: members, jobs, tables, groups.

use super::frame::{CARRIER, Datagram, Mac};
use super::switch::Switch;
use super::{PASSES, WORDS};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use thc_protocol::aggregator::{
    Aggregator, Endpoint, JobConfig, Kernels, Level, Lookup, Outcome, Scalar, Shard, Sink,
};
use thc_protocol::wire::Kind;
use thc_protocol::{JobId, TableId, WorkerId};
use thc_ps::Simd;

pub const PORTS: [u16; 5] = [1, 2, 3, 4, 5];
/// Where the control plane is.
pub const CONTROL_PORT: u16 = 5;
pub const OWN_MAC: Mac = [0x02, 0xAA, 0, 0, 0, 1];
pub const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 254), 9000);
/// The group of all ports.
const FLOOD: u16 = 100;
/// The number of the root's first port in `addresses`.
const FIRST_ROOT: u16 = 192;

/// A member of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub mac: Mac,
    /// Ingress 0: it may send from any port.
    pub endpoint: Endpoint,
    /// Where RESULTs for all reach it.
    pub port: u16,
}

/// A job with its place in the switch.
#[derive(Clone)]
pub struct PlacedJob {
    pub config: JobConfig,
    pub index: u8,
    pub epoch: u32,
    pub data_base: u32,
    pub norm_base: u32,
    /// By worker number; a missing one is no member.
    pub members: BTreeMap<u8, Member>,
    /// Where the root is, of a rack: its first port.
    pub root: Option<Member>,
}

impl PlacedJob {
    pub fn group(&self) -> u16 {
        u16::from(self.index) + 1
    }

    /// The root's UDP ports.
    fn root_ports(&self) -> u16 {
        if let Level::Rack { ports, .. } = self.config.level { ports.into() } else { 0 }
    }
}

/// What goes out of each port, in order.
pub type Frames = BTreeMap<u16, Vec<Vec<u8>>>;

/// The model, and a record of what it sends, as frames. The aggregator of thc-ps gets every packet too, and must
/// do the same.
pub struct Plant {
    pub model: Aggregator<Scalar>,
    pub ps: Aggregator<Simd>,
    pub jobs: Vec<PlacedJob>,
    pub tables: BTreeMap<u8, Lookup>,
    pub out: Frames,
    /// Bytes of frames by job and worker number, 64 for all others.
    pub bytes: BTreeMap<(u16, u8), u64>,
}

struct Recorder<'a> {
    jobs: &'a [PlacedJob],
    from: Endpoint,
    out: &'a mut Frames,
}

impl Recorder<'_> {
    fn put(&mut self, port: u16, mac: Mac, to: SocketAddrV4, packet: &[u8]) {
        let datagram = Datagram { from: (OWN_MAC, OWN), to: (mac, to), payload: packet.to_vec() };
        self.out.entry(port).or_default().push(datagram.frame());
    }

    fn job(&self, packet: &[u8]) -> &PlacedJob {
        let number = u16::from_be_bytes([packet[4], packet[5]]);
        self.jobs.iter().find(|job| job.config.job.0 == number).unwrap()
    }
}

impl Sink for Recorder<'_> {
    fn unicast(&mut self, to: Endpoint, packet: &[u8]) {
        let job = self.job(packet);
        if let Some(root) = job.root.filter(|root| root.endpoint.addr.ip() == to.addr.ip()) {
            let port = to.addr.port() - root.endpoint.addr.port();
            assert!(port < job.root_ports());
            self.put(root.port, root.mac, to.addr, packet);
            return;
        }
        let member = *job.members.values().find(|member| member.endpoint == to).unwrap();
        // A member that may send from any port is answered where it sent.
        self.put(self.from.ingress, member.mac, to.addr, packet);
    }

    fn multicast(&mut self, job: JobId, members: &[Endpoint], packet: &[u8]) {
        let placed = self.job(packet).clone();
        assert_eq!(placed.config.job, job);
        assert!(placed.members.values().map(|member| &member.endpoint).eq(members));
        for member in placed.members.values() {
            self.put(member.port, member.mac, member.endpoint.addr, packet);
        }
    }
}

impl Plant {
    pub fn new() -> Plant {
        Plant {
            model: Aggregator::new(Shard::WHOLE, 1 << 30),
            ps: Aggregator::new(Shard::WHOLE, 1 << 30),
            jobs: Vec::new(),
            tables: BTreeMap::new(),
            out: Frames::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// A packet to the aggregator in a frame of so many bytes.
    pub fn handle(&mut self, from: Endpoint, packet: &[u8], frame: usize) -> Outcome {
        let (mut out, mut of_ps) = (Frames::new(), Frames::new());
        let mut sink = Recorder { jobs: &self.jobs, from, out: &mut out };
        let outcome = self.model.handle(from, packet, &mut sink);
        let mut sink = Recorder { jobs: &self.jobs, from, out: &mut of_ps };
        assert_eq!(self.ps.handle(from, packet, &mut sink), outcome, "thc-ps and the model differ");
        assert!(out == of_ps, "thc-ps and the model answer differently: {outcome:?}");
        for (port, frames) in out {
            self.out.entry(port).or_default().extend(frames);
        }
        let known = !matches!(outcome, Outcome::Dropped(reason) if (reason as usize) < 4);
        if known {
            let job = u16::from_be_bytes([packet[4], packet[5]]);
            // What comes from a root is no worker's.
            let worker = if packet[1] > Kind::Raw as u8 { 64 } else { packet[6].min(64) };
            *self.bytes.entry((job, worker)).or_default() += frame as u64;
        }
        outcome
    }

    /// Tells the model and thc-ps what has changed in `jobs` and `tables`.
    pub fn configure_model(&mut self) {
        configure(&mut self.model, &self.jobs, &self.tables);
        configure(&mut self.ps, &self.jobs, &self.tables);
    }

    /// Writes everything into a fresh switch; `stations` are what it forwards to by MAC.
    pub fn configure_fresh(&self, switch: &Switch, stations: &[(Mac, u16)]) {
        let mut commands = vec![
            // Nothing may get lost on the way to a next pass.
            "set_queue_depth 1000000".to_owned(),
            format!("table_add own_address set_ours {} {} =>", mac(OWN_MAC), OWN.ip()),
            format!("table_add own_arp answer_arp {} => {}", OWN.ip(), mac(OWN_MAC)),
            format!("mc_mgrp_create {FLOOD}"),
            format!("mc_node_create 0 {}", PORTS.map(|port| port.to_string()).join(" ")),
            format!("mc_node_associate {FLOOD} 0"),
            format!("table_set_default stations flood {FLOOD}"),
            format!("table_add stations drop {} =>", mac(OWN_MAC)),
            // The control plane takes LEAVE, as an example; JOIN is dropped.
            format!("table_add control_plane to_control {} => {CONTROL_PORT}", Kind::Leave as u8),
        ];
        // Whatever the ports, packets on their way to the same pass must stay in order.
        for pass in 1..8 {
            commands.push(format!("table_add passes set_pass_port {pass} => {}", 400 + pass % 3));
        }
        for &(station, port) in stations {
            commands.push(format!("table_add stations set_port {} => {port}", mac(station)));
        }
        let mut node = 1;
        for job in &self.jobs {
            commands.push(format!("mc_mgrp_create {}", job.group()));
            for (number, member) in &job.members {
                commands.push(format!("mc_node_create {number} {}", member.port));
                commands.push(format!("mc_node_associate {} {node}", job.group()));
                node += 1;
            }
        }
        switch.commands(&commands);
    }

    /// Replaces what a controller changes while the switch runs. Groups stay as they are.
    pub fn configure(&self, switch: &Switch) {
        let mut commands: Vec<String> =
            ["jobs", "racks", "roots", "members", "job_tables", "lookup", "addresses"]
                .map(|table| format!("table_clear {table}"))
                .to_vec();
        for (id, Lookup { form, values }) in &self.tables {
            let digits: String = values.iter().map(|value| format!("{value:02x}")).collect();
            let (width, lane) = (form.width(), form.lane().bits());
            commands.push(format!("table_add lookup set_values {id} => 0x{digits} {width} {lane}"));
        }
        for job in &self.jobs {
            let c = &job.config;
            commands.push(format!(
                "table_add jobs set_job {} => {} {:#x} {} {} {} {} {} {} {} {} {}",
                c.job,
                job.index,
                c.cookie.0,
                job.epoch,
                c.workers,
                c.quorum,
                u8::from(c.skip),
                job.data_base,
                c.data_slots,
                job.norm_base,
                c.norm_slots,
                job.group()
            ));
            if let (Level::Rack { racks, rack, ports, .. }, Some(root)) = (c.level, job.root) {
                let (to, base) = (root.endpoint.addr.ip(), root.endpoint.addr.port());
                commands.push(format!(
                    "table_add racks set_rack {} => {rack} {} {}",
                    c.job, racks.count, root.port
                ));
                for port in 0..u16::from(ports) {
                    let (receiver, udp, mac) = (FIRST_ROOT + port, base + port, mac(root.mac));
                    let row = format!("{} {receiver} => {mac} {to} {udp}", c.job);
                    commands.push(format!("table_add addresses set_address {row}"));
                }
                for block in 0..c.data_slots.max(c.norm_slots).div_ceil(64) as u16 {
                    let (receiver, udp) =
                        (FIRST_ROOT + block % u16::from(ports), base + block % u16::from(ports));
                    let row = format!("{} {block} => {receiver} {to} {udp}", c.job);
                    commands.push(format!("table_add roots set_root {row}"));
                }
            }
            for table in &c.tables {
                commands.push(format!("table_add job_tables allow_table {} {table} =>", c.job));
            }
            for (number, member) in &job.members {
                let Endpoint { ingress, addr } = member.endpoint;
                let (ip, udp) = (addr.ip(), addr.port());
                commands
                    .push(format!("table_add members set_member {} {number} => {ingress} {ip} {udp}", c.job));
                commands.push(format!(
                    "table_add addresses set_address {} {number} => {} {ip} {udp}",
                    c.job,
                    mac(member.mac)
                ));
            }
        }
        switch.commands(&commands);
    }
}

fn configure<K: Kernels>(aggregator: &mut Aggregator<K>, jobs: &[PlacedJob], tables: &BTreeMap<u8, Lookup>) {
    for (&id, &table) in tables {
        aggregator.install_table(TableId(id), table).unwrap();
    }
    for job in jobs {
        aggregator.install_job(job.config.clone()).unwrap();
        for number in 0..job.config.workers {
            match job.members.get(&number) {
                Some(member) => {
                    aggregator.set_member(job.config.job, WorkerId(number), member.endpoint).unwrap();
                }
                None => aggregator.remove_member(job.config.job, WorkerId(number)),
            }
        }
    }
}

fn mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The passes that a packet takes, each for 128 bytes of sums.
pub fn passes(kind: Kind, table: TableId, tables: &BTreeMap<u8, Lookup>, level: Level) -> usize {
    let table = tables.get(&table.0).and_then(|table| level.lookup(table));
    match table {
        Some(table) if kind == Kind::Data => table.form.result_len() / (4 * WORDS),
        _ => PASSES,
    }
}

/// How many passes a frame went through before it was sent.
pub fn passes_of(frame: &[u8], tables: &BTreeMap<u8, Lookup>) -> usize {
    if frame[12..14] != [8, 0] || frame[26..30] != OWN.ip().octets() {
        return 1;
    }
    let about = match frame.get(CARRIER + 1) {
        Some(0x12) => Kind::Data,
        Some(0x13) => Kind::Raw,
        Some(0x16) if frame[CARRIER + 20] != 1 => Kind::from_byte(frame[CARRIER + 20]).unwrap(),
        _ => return 1,
    };
    passes(about, TableId(frame[CARRIER + 7]), tables, Level::Only)
}
