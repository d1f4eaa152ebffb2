//! A worker, what it sends, and what it reports.

use std::time::Duration;
use thc_protocol::wire::{
    Choice, FLAG_NUDGE, Header, Kind, MAX_PACKET, Norm, Nudge, Straggler, Table, Tables,
};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Parameters, PartSpec, Tx, Worker};
use thc_protocol::{Cookie, JobId, Policy, Round, SlotId, TableId, WorkerId};

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn parameters() -> Parameters {
    Parameters {
        job: JobId(0x0102),
        cookie: Cookie(0xAABB_CCDD),
        worker: WorkerId(1),
        workers: 3,
        quorum: 3,
        data_slots: 16,
        norm_slots: 8,
        credit: 0,
        first_window: 1 << 16,
        policy: Policy::Reliable,
        deadline: ms(50),
        tables: Tables::one(Table { id: TableId(9), ..Table::default() }),
        shards: 1,
        timeout: Duration::from_secs(10),
        patience: Duration::ZERO,
        min_rto: ms(20),
        max_rto: ms(1000),
        first_seq: 0,
        rack: None,
        marks: false,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    Norms(u64, Vec<u32>),
    Result(PacketId, u16, u8),
    Lost(PacketId),
    Late(PacketId),
    Failed(u64, CallError),
    LeftOut(u64, u32),
}

#[derive(Default)]
pub struct Reports(pub Vec<Report>);

impl Events for Reports {
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        self.0.push(Report::Norms(call, maxima.collect()));
    }

    fn left_out(&mut self, call: u64, partition: u32) {
        self.0.push(Report::LeftOut(call, partition));
    }

    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]) {
        assert_eq!(sums.len(), 1024);
        self.0.push(Report::Result(place, result.count, sums[0]));
    }

    fn packet_late(&mut self, place: PacketId, sent: Option<&[u8]>) {
        assert!(sent.unwrap().iter().all(|&byte| byte == place.packet as u8));
        self.0.push(Report::Late(place));
    }

    fn packet_lost(&mut self, place: PacketId, sent: Option<&[u8]>) {
        assert!(sent.unwrap().iter().all(|&byte| byte == place.packet as u8));
        self.0.push(Report::Lost(place));
    }

    fn call_failed(&mut self, call: u64, error: CallError) {
        self.0.push(Report::Failed(call, error));
    }
}

/// Runs as they were sent: shard and packets.
#[derive(Default)]
pub struct Sent(pub Vec<(u8, Vec<Vec<u8>>)>);

impl Tx for Sent {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        assert_eq!(contents.len() % segment, 0);
        self.0.push((shard, contents.chunks_exact(segment).map(<[u8]>::to_vec).collect()));
    }
}

pub struct Driven {
    pub worker: Worker,
    pub now: Duration,
    pub sent: Sent,
    pub reports: Reports,
}

impl Driven {
    pub fn new(parameters: Parameters) -> Driven {
        let worker = Worker::new(parameters, Duration::ZERO);
        Driven { worker, now: Duration::ZERO, sent: Sent::default(), reports: Reports::default() }
    }

    pub fn submit(&mut self, packets: &[u32], norms: &[f32]) -> u64 {
        self.submit_as(Choice::Table(TableId(9)), packets, norms)
    }

    pub fn submit_as(&mut self, choice: Choice, packets: &[u32], norms: &[f32]) -> u64 {
        let length = packets.iter().sum::<u32>() * 1024;
        let parts = packets.iter().zip(norms);
        let part =
            |(&packets, norm): (&u32, &f32)| PartSpec { choice, length, packets, norm: norm.to_bits() };
        let parts: Vec<PartSpec> = parts.map(part).collect();
        let spec = CallSpec { key: 0xFACE, parts: &parts };
        let number = self.worker.submit(&spec);
        self.worker.send_norms(self.now, &mut self.sent);
        number
    }

    /// Sends all data that can be sent: packet i of a partition is full of i.
    pub fn fill(&mut self) {
        let write = |place: PacketId, payload: &mut [u8]| payload.fill(place.packet as u8);
        while self.worker.fill(self.now, &mut self.sent, usize::MAX, write) > 0 {}
    }

    pub fn tick(&mut self) {
        self.worker.tick(self.now, &mut self.reports, &mut self.sent);
    }

    /// Ticks at every deadline up to `until`.
    pub fn pass(&mut self, until: Duration) {
        while let Some(deadline) = self.worker.deadline().filter(|&deadline| deadline <= until) {
            assert!(deadline > self.now, "nothing happened at {:?}", self.now);
            self.now = deadline;
            self.tick();
        }
        self.now = until;
    }

    pub fn header(&self, kind: Kind, seq: u64) -> Header {
        let p = self.worker.parameters();
        let norms = matches!(kind, Kind::NormResult);
        let slots = u64::from(if norms { p.norm_slots } else { p.data_slots });
        Header {
            kind,
            flags: 0,
            num_workers: p.workers,
            job: p.job,
            worker: WorkerId::NONE,
            table: if kind == Kind::Result { p.tables.first().id } else { TableId(0) },
            cookie: p.cookie,
            round: Round((seq / slots) as u32),
            slot: SlotId((seq % slots) as u16),
            count: p.workers.into(),
        }
    }

    pub fn handle(&mut self, header: Header, payload: &[u8]) {
        let mut buffer = vec![0; MAX_PACKET + 600];
        let packet = header.emit_packet(&mut buffer, payload);
        self.worker.handle(self.now, packet, &mut self.reports, &mut self.sent);
    }

    pub fn norm_result(&mut self, seq: u64, value: u32) {
        let norm = Norm { tag: 0, value, length: 0, call: 0, table: TableId(9), mode: 0, key: 0 };
        self.handle(self.header(Kind::NormResult, seq), &norm.to_bytes());
    }

    pub fn result(&mut self, seq: u64) {
        self.handle(self.header(Kind::Result, seq), &[seq as u8; 1024]);
    }

    /// STRAGGLER for a packet of this kind.
    pub fn straggler(&mut self, kind: Kind, seq: u64) {
        let like = if kind == Kind::Norm { Kind::NormResult } else { Kind::Result };
        let worker = self.worker.parameters().worker;
        let header = Header { kind: Kind::Straggler, worker, count: 0, ..self.header(like, seq) };
        self.handle(header, &Straggler { kind, current: Round(header.round.0 + 1) }.to_bytes());
    }

    /// A NUDGE of worker `from` for a packet of this kind.
    pub fn nudge(&mut self, from: u8, kind: Kind, seq: u64, seen: u64) {
        let like = if kind == Kind::Norm { Kind::NormResult } else { Kind::Result };
        let header = Header { kind: Kind::Nudge, worker: WorkerId(from), count: 0, ..self.header(like, seq) };
        self.handle(header, &Nudge { kind, seen }.to_bytes());
    }

    /// One call of one partition of `packets`, whose norm is through; nothing of it sent yet.
    pub fn call(&mut self, packets: u32) {
        let seq = self.worker.stats().norm.sent;
        self.submit(&[packets], &[1.0]);
        self.norm_result(seq, 1f32.to_bits());
        self.take();
    }

    /// What has been sent since the last look: kind, seq (of the round and slot), whether with NUDGE.
    pub fn take(&mut self) -> Vec<(Kind, u64, bool)> {
        let p = *self.worker.parameters();
        let packets = std::mem::take(&mut self.sent.0).into_iter().flat_map(|(_, packets)| packets);
        let what = |packet: Vec<u8>| {
            let header = Header::parse(&packet).unwrap().0;
            let slots = if header.kind == Kind::Norm { p.norm_slots } else { p.data_slots };
            let seq = u64::from(header.round.0) * u64::from(slots) + u64::from(header.slot.0);
            (header.kind, seq, header.flags & FLAG_NUDGE != 0)
        };
        packets.map(what).collect()
    }

    /// The seqs of DATA sent since the last look.
    pub fn seqs(&mut self) -> Vec<u64> {
        self.take()
            .into_iter()
            .map(|(kind, seq, _)| if kind == Kind::Data { seq } else { panic!("{kind:?}") })
            .collect()
    }
}
