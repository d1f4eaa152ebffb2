//! An aggregator with one job, and what it sends.

use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::aggregator::{
    Aggregator, Endpoint, Event, JobConfig, Lookup, Outcome, Shard, Sink, SlotView,
};
use thc_protocol::wire::{FLAG_NUDGE, Form, Header, Kind, MAX_PACKET, Norm};
use thc_protocol::{Cookie, Ecn, JobId, Lane, Round, SlotId, TableId, WorkerId};

pub const JOB: JobId = JobId(0x0A0B);
pub const COOKIE: Cookie = Cookie(0xC0DE_F00D);
pub const TABLE: TableId = TableId(3);
/// Strictly increasing, T[15] = 30.
pub const VALUES: [u8; 16] = [0, 1, 3, 4, 6, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 30];
pub const USUAL: Lookup = Lookup { form: Form::USUAL, values: VALUES };

/// Values in packets of the usual form.
pub fn lookup(values: [u8; 16]) -> Lookup {
    Lookup { values, ..USUAL }
}

/// The usual values in lanes of 16 bits.
pub fn wide() -> Lookup {
    Lookup { form: Form::new(4, Lane::Bits16).unwrap(), ..USUAL }
}

/// Where a packet went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    One(Endpoint),
    All(JobId, Vec<Endpoint>),
}

/// One packet that the aggregator sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub to: To,
    pub packet: Vec<u8>,
}

impl Sent {
    pub fn header(&self) -> Header {
        Header::parse(&self.packet).unwrap().0
    }

    pub fn payload(&self) -> &[u8] {
        Header::parse(&self.packet).unwrap().1
    }
}

#[derive(Default)]
struct Record(Vec<Sent>);

impl Sink for Record {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push(Sent { to: To::One(to), packet: packet.to_vec() });
    }

    fn multicast(&mut self, job: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.push(Sent { to: To::All(job, members.to_vec()), packet: packet.to_vec() });
    }
}

pub fn config(workers: u8) -> JobConfig {
    JobConfig { data_slots: 8, norm_slots: 4, ..JobConfig::new(JOB, COOKIE, workers, vec![TABLE]) }
}

/// The place a worker sends from.
pub fn endpoint(worker: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, worker + 1), 4000 + u16::from(worker))))
}

pub struct Setup {
    pub aggregator: Aggregator,
    pub workers: u8,
}

impl Setup {
    pub fn new(workers: u8) -> Setup {
        Setup::with_config(config(workers))
    }

    pub fn with_config(config: JobConfig) -> Setup {
        Setup::shard(config, Shard::WHOLE)
    }

    /// A job whose only table is this one.
    pub fn with_table(table: Lookup, workers: u8) -> Setup {
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
        aggregator.install_table(TABLE, table).unwrap();
        aggregator.install_job(config(workers)).unwrap();
        (0..workers)
            .for_each(|worker| aggregator.set_member(JOB, WorkerId(worker), endpoint(worker)).unwrap());
        Setup { aggregator, workers }
    }

    pub fn shard(config: JobConfig, shard: Shard) -> Setup {
        let mut aggregator = Aggregator::new(shard, 1 << 24);
        aggregator.install_table(TABLE, USUAL).unwrap();
        let workers = config.workers;
        aggregator.install_job(config).unwrap();
        for worker in 0..workers {
            aggregator.set_member(JOB, WorkerId(worker), endpoint(worker)).unwrap();
        }
        Setup { aggregator, workers }
    }

    pub fn to_all(&self) -> To {
        To::All(JOB, (0..self.workers).map(endpoint).collect())
    }

    pub fn header(&self, kind: Kind, worker: u8, round: u32, slot: u16) -> Header {
        Header {
            table: if kind == Kind::Data { TABLE } else { TableId(0) },
            round: Round(round),
            slot: SlotId(slot),
            ..Header::new(kind, self.workers, JOB, WorkerId(worker), COOKIE)
        }
    }

    /// Hands in any bytes from any place.
    pub fn raw(&mut self, from: Endpoint, packet: &[u8]) -> (Outcome, Vec<Sent>) {
        let mut record = Record::default();
        let outcome = self.aggregator.handle(from, packet, &mut record);
        (outcome, record.0)
    }

    /// Hands in a packet from where its worker sends.
    pub fn packet(&mut self, header: Header, payload: &[u8]) -> (Outcome, Vec<Sent>) {
        self.raw(endpoint(header.worker.0), &bytes(header, payload))
    }

    /// A DATA packet all of whose indices are `index`.
    pub fn data(&mut self, worker: u8, round: u32, slot: u16, index: u8) -> (Event, Vec<Sent>) {
        let header = self.header(Kind::Data, worker, round, slot);
        expect_handled(self.packet(header, &[index << 4 | index; 512]))
    }

    pub fn nudging_data(&mut self, worker: u8, round: u32, slot: u16, index: u8) -> (Event, Vec<Sent>) {
        let header = Header { flags: FLAG_NUDGE, ..self.header(Kind::Data, worker, round, slot) };
        expect_handled(self.packet(header, &[index << 4 | index; 512]))
    }

    pub fn norm(&mut self, worker: u8, round: u32, slot: u16, norm: Norm) -> (Event, Vec<Sent>) {
        let header = self.header(Kind::Norm, worker, round, slot);
        expect_handled(self.packet(header, &norm.to_bytes()))
    }

    pub fn slot(&self, kind: Kind, slot: u16) -> SlotView<'_> {
        self.aggregator.slot(JOB, kind, SlotId(slot)).unwrap()
    }

    pub fn events(&self, worker: u8) -> Vec<(Event, u64)> {
        let counters = self.aggregator.job_counters(JOB).unwrap().worker(WorkerId(worker));
        let all = Event::ALL.into_iter().map(|event| (event, counters.events[event as usize]));
        all.filter(|&(_, count)| count > 0).collect()
    }
}

pub fn bytes(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; MAX_PACKET + 1500];
    header.emit_packet(&mut buffer, payload).to_vec()
}

pub fn expect_handled((outcome, sent): (Outcome, Vec<Sent>)) -> (Event, Vec<Sent>) {
    match outcome {
        Outcome::Handled(event) => (event, sent),
        Outcome::Dropped(reason) => panic!("dropped: {reason:?}"),
        Outcome::Passed => panic!("passed on"),
    }
}

/// A norm of call 7.
pub fn norm(value: f32) -> Norm {
    Norm { tag: 0, value: value.to_bits(), length: 5000, call: 7, table: TABLE, mode: 0, key: 0xFEED }
        .with_tag(2)
}
