//! What is configured, in the model and in a switch alike: members, jobs, tables. And what the model sends, as frames.

use super::frame::{Datagram, Mac};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use thc_protocol::aggregator::{
    Aggregator, Endpoint, JobConfig, Kernels, Level, Lookup, Outcome, Scalar, Shard, Sink,
};
use thc_protocol::wire::Kind;
use thc_protocol::{Ecn, JobId, TableId, WorkerId};
use thc_ps::Simd;

/// Ports of the switch.
pub const PORTS: [u16; 5] = [1, 2, 3, 4, 5];
/// Where the control plane is.
pub const CONTROL_PORT: u16 = 5;
/// The aggregator's Ethernet address.
pub const OWN_MAC: Mac = [0x02, 0xAA, 0, 0, 0, 1];
/// The aggregator's address.
pub const OWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 254), 9000));

/// A member of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Ingress 0: it may send from any port.
    pub endpoint: Endpoint,
    /// Where RESULTs for all reach it.
    pub port: u16,
}

/// A job with its place in the switch.
#[derive(Clone)]
pub struct PlacedJob {
    /// What the model knows of it.
    pub config: JobConfig,
    /// Of its counters.
    pub index: u8,
    /// Cells of another epoch are empty.
    pub epoch: u32,
    /// Its first data slot.
    pub data_base: u32,
    /// Its first norm slot.
    pub norm_base: u32,
    /// By worker number; a missing one is no member.
    pub members: BTreeMap<u8, Member>,
    /// Where the root is, of a rack: its first port.
    pub root: Option<Member>,
}

impl PlacedJob {
    /// Its multicast group.
    #[must_use]
    pub fn group(&self) -> u16 {
        u16::from(self.index) + 1
    }

    /// The root's UDP ports.
    #[must_use]
    pub fn root_ports(&self) -> u16 {
        if let Level::Rack { ports, .. } = self.config.level { ports.into() } else { 0 }
    }
}

/// What goes out of each port, in order.
pub type Frames = BTreeMap<u16, Vec<Vec<u8>>>;

/// The model, and a record of what it sends, as frames. The aggregator of thc-ps gets every packet too, and must
/// do the same.
pub struct Plant {
    /// The model.
    pub model: Aggregator<Scalar>,
    /// As thc-ps has it.
    pub ps: Aggregator<Simd>,
    /// All jobs.
    pub jobs: Vec<PlacedJob>,
    /// All lookup tables, by number.
    pub tables: BTreeMap<u8, Lookup>,
    /// Kinds of packets that the switch hands to the control plane.
    pub control: Vec<Kind>,
    /// Whether DATA and RAW may come cut off behind their headers.
    pub cuts: bool,
    /// What the model has sent and nobody has taken yet.
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
    fn put(&mut self, port: u16, mac: Mac, to: SocketAddr, ecn: Ecn, packet: &[u8]) {
        let datagram = Datagram { from: (OWN_MAC, OWN), to: (mac, to), ecn, payload: packet.to_vec() };
        self.out.entry(port).or_default().push(datagram.frame());
    }

    fn job(&self, packet: &[u8]) -> &PlacedJob {
        let number = u16::from_be_bytes([packet[4], packet[5]]);
        self.jobs.iter().find(|job| job.config.job.0 == number).unwrap()
    }
}

impl Sink for Recorder<'_> {
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        let job = self.job(packet);
        if let Some(root) = job.root.filter(|root| root.endpoint.addr.ip() == to.addr.ip()) {
            let port = to.addr.port() - root.endpoint.addr.port();
            assert!(port < job.root_ports());
            self.put(root.port, root.mac, to.addr, ecn, packet);
            return;
        }
        let member = *job.members.values().find(|member| member.endpoint == to).unwrap();
        // A member that may send from any port is answered where it sent.
        self.put(self.from.ingress, member.mac, to.addr, ecn, packet);
    }

    fn multicast(&mut self, job: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        let placed = self.job(packet).clone();
        assert_eq!(placed.config.job, job);
        assert!(placed.members.values().map(|member| &member.endpoint).eq(members));
        for member in placed.members.values() {
            self.put(member.port, member.mac, member.endpoint.addr, ecn, packet);
        }
    }
}

impl Plant {
    /// With nothing configured.
    #[must_use]
    pub fn new(control: &[Kind]) -> Plant {
        Plant {
            control: control.to_vec(),
            cuts: true,
            model: Aggregator::new(Shard::WHOLE, 1 << 30),
            ps: Aggregator::new(Shard::WHOLE, 1 << 30),
            jobs: Vec::new(),
            tables: BTreeMap::new(),
            out: Frames::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// A packet to the aggregator in this frame.
    ///
    /// # Panics
    /// If thc-ps does anything else than the model.
    pub fn handle(&mut self, from: Endpoint, packet: &[u8], frame: &[u8]) -> Outcome {
        let ecn = Ecn::of_bits(frame[15]);
        let (mut out, mut of_ps) = (Frames::new(), Frames::new());
        let mut sink = Recorder { jobs: &self.jobs, from, out: &mut out };
        let outcome = self.model.handle_with(from, ecn, packet, &mut sink);
        let mut sink = Recorder { jobs: &self.jobs, from, out: &mut of_ps };
        assert_eq!(self.ps.handle_with(from, ecn, packet, &mut sink), outcome, "thc-ps and the model differ");
        assert!(out == of_ps, "thc-ps and the model answer differently: {outcome:?}");
        for (port, frames) in out {
            self.out.entry(port).or_default().extend(frames);
        }
        let known = !matches!(outcome, Outcome::Dropped(reason) if (reason as usize) < 4);
        if known {
            let job = u16::from_be_bytes([packet[4], packet[5]]);
            // What comes from a root is no worker's.
            let worker = if packet[1] > Kind::Raw as u8 { 64 } else { packet[6].min(64) };
            *self.bytes.entry((job, worker)).or_default() += frame.len() as u64;
        }
        outcome
    }

    /// Tells the model and thc-ps what has changed in `jobs` and `tables`.
    pub fn configure_model(&mut self) {
        configure(&mut self.model, &self.jobs, &self.tables);
        configure(&mut self.ps, &self.jobs, &self.tables);
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
