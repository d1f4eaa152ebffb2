//! A fixed corpus of random and of mutated valid packets, over 200,000 for each state machine: none
//! panics, none holds more than before, and what is dropped changes nothing (P7).
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{
    Aggregator, DropReason, Endpoint, Event, JobConfig, Lookup, Outcome, Scalar, Shard, Sink,
};
use thc_protocol::session::{Action, Joiner, Registry, StaticJob};
use thc_protocol::wire::{
    Ask, Choice, FLAG_MARK, FLAG_NUDGE, Form, HEADER_LEN, Header, JOIN_LEN, Join, Kind, Leave, MAX_PACKET,
    Mismatch, Norm, Nudge, Pending, RefuseReason, Refused, Straggler, Table, Tables, VERSION, Welcome,
};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Parameters, PartSpec, Tx, Worker};
use thc_protocol::{Cookie, Ecn, JobId, Policy, Round, SlotId, TableId, WorkerId};
use thc_support::random::Rng;

const PACKETS: u64 = 200_000;
const JOB: JobId = JobId(3);
const SESSION: Cookie = Cookie(0xAA55_1234);
const CONFIGURED: Cookie = Cookie(0x0BAD_5EED);
const WORKERS: u8 = 3;
const SLOTS: u16 = 8;
const NORMS: u16 = 4;

/// Says where in the corpus it was.
struct At(&'static str, u64);

impl Drop for At {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed at packet {} of the corpus", self.0, self.1);
        }
    }
}

fn any_norm(rng: &mut Rng) -> Norm {
    let value = match rng.below(4) {
        0 => 0,
        1 => Norm::non_finite(WorkerId(rng.below(3) as u8)),
        2 => rng.next() as u32,
        _ => (rng.below(1000) as f32).to_bits(),
    };
    Norm { tag: 0, value, length: 4096, call: rng.below(8) as u16, table: TableId(1), mode: 0, key: 5 }
        .with_tag(4)
}

/// A packet that could be sent by somebody who knows everything, about a round close to `round`;
/// mostly of the kinds in `focus`.
fn valid(rng: &mut Rng, focus: &[Kind], round: u32) -> Vec<u8> {
    let kinds = if rng.below(10) < 9 { focus } else { Kind::ALL };
    let kind = kinds[rng.below(kinds.len() as u64) as usize];
    let held = [Kind::Norm, Kind::Data, Kind::Raw][rng.below(3) as usize];
    let norms = kind == Kind::Norm || kind == Kind::NormResult || held == Kind::Norm;
    let payload = match kind {
        Kind::Norm | Kind::NormResult => any_norm(rng).to_bytes().to_vec(),
        Kind::Data | Kind::Raw | Kind::Result | Kind::RawResult => {
            let byte = rng.next() as u8;
            vec![byte; kind.payload_len(Form::USUAL)]
        }
        Kind::Straggler => Straggler { kind: held, current: Round(rng.below(4) as u32) }.to_bytes().to_vec(),
        Kind::Mismatch => Mismatch { slot: any_norm(rng), refused: any_norm(rng) }.to_bytes().to_vec(),
        Kind::Nudge => Nudge { kind: held, seen: rng.below(8) }.to_bytes().to_vec(),
        Kind::Join => {
            let session = [Cookie(0), SESSION][rng.below(2) as usize];
            let fingerprint = [0, welcome(0).fingerprint()][rng.below(2) as usize];
            Join {
                nonce: rng.below(6),
                session,
                ends: rng.below(9) == 0,
                fingerprint,
                definitions: rng.below(3),
            }
            .to_bytes()
            .to_vec()
        }
        Kind::Leave => Leave { nonce: rng.below(6) }.to_bytes().to_vec(),
        Kind::Welcome | Kind::Description => {
            let credit = u32::from(rng.below(4) == 0);
            Welcome { credit, ..welcome(rng.below(6)) }.to_bytes().to_vec()
        }
        Kind::Ask => Ask { nonce: rng.below(6) }.to_bytes().to_vec(),
        Kind::Pending => Pending { joined: rng.below(8) }.to_bytes().to_vec(),
        Kind::Refused => {
            let reason = if rng.below(2) == 0 { RefuseReason::Reforming } else { RefuseReason::WorkerInUse };
            Refused { reason, worker: WorkerId(rng.below(3) as u8) }.to_bytes().to_vec()
        }
        Kind::Bye => Vec::new(),
    };
    let header = Header {
        flags: if rng.below(3) == 0 { FLAG_NUDGE } else { 0 },
        table: TableId(1),
        round: Round(round.wrapping_add([0, 0, 0, 0, 0, 0, 1, u32::MAX][rng.below(8) as usize])),
        slot: SlotId(rng.below(u64::from(if norms { NORMS } else { SLOTS })) as u16),
        count: 1 + rng.below(u64::from(WORKERS)) as u16,
        ..Header::new(
            kind,
            WORKERS,
            JOB,
            match kind {
                Kind::NormResult | Kind::Result | Kind::RawResult if rng.below(10) > 0 => WorkerId::NONE,
                _ => WorkerId(rng.below(u64::from(WORKERS)) as u8),
            },
            if kind == Kind::Join || rng.below(10) == 0 { CONFIGURED } else { SESSION },
        )
    };
    let mut buffer = [0; MAX_PACKET];
    header.emit_packet(&mut buffer, &payload).to_vec()
}

/// The next packet of the corpus: as it should be, changed a little, or noise.
fn packet(rng: &mut Rng, focus: &[Kind], round: u32) -> Vec<u8> {
    let mut bytes = valid(rng, focus, round);
    match rng.below(10) {
        0..=4 => {}
        // Some bits, mostly of the header, where they matter.
        5..=6 => {
            for _ in 0..=rng.below(3) {
                let end = if rng.below(2) == 0 { HEADER_LEN } else { bytes.len() };
                let at = rng.below(end as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        7 => {
            let len = rng.below(bytes.len() as u64 + 1) as usize;
            bytes.truncate(len);
        }
        8 => bytes.resize(bytes.len() + 1 + rng.below(500) as usize, 0x5A),
        _ => {
            let len = rng.below(1200);
            bytes = (0..len).map(|_| rng.next() as u8).collect();
            // Half of the noise gets past the first checks.
            if rng.below(2) == 0 && bytes.len() > 1 {
                bytes[0] = VERSION;
                bytes[1] &= 0x37;
            }
        }
    }
    bytes
}

fn welcome(nonce: u64) -> Welcome {
    let table = Table {
        id: TableId(1),
        bits: 4,
        form: Form::USUAL,
        granularity: 15,
        fraction: 0.1,
        t_p: 1.64,
        values: [0; 16],
    };
    Welcome {
        session: SESSION,
        data_slots: u32::from(SLOTS),
        norm_slots: u32::from(NORMS),
        deadline: Duration::from_millis(10),
        job_seed: 1,
        nonce,
        ..Welcome::new(WORKERS, Tables::one(table))
    }
}

fn config(quorum: u8) -> JobConfig {
    JobConfig::from_welcome(JOB, SESSION, &Welcome { quorum, ..welcome(0) })
}

fn address(worker: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, worker as u8), 7000))
}

/// Checks each answer, and counts them.
#[derive(Default)]
struct Answers(u64);

impl Answers {
    fn check(&mut self, packet: &[u8]) {
        let (header, payload) = Header::parse(packet).unwrap();
        assert!(!header.kind.is_control() && header.kind.result().is_none());
        assert_eq!(payload.len(), header.kind.payload_len(Form::USUAL));
        let flags = if matches!(header.kind, Kind::Result | Kind::RawResult) { FLAG_MARK } else { 0 };
        assert_eq!((header.job, header.cookie, header.flags & !flags), (JOB, SESSION, 0));
        self.0 += 1;
    }
}

impl Sink for Answers {
    fn unicast(&mut self, _: Endpoint, _: Ecn, packet: &[u8]) {
        self.check(packet);
    }

    fn multicast(&mut self, job: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        assert_eq!((job, members.len()), (JOB, usize::from(WORKERS)));
        self.check(packet);
    }
}

/// Everything that an aggregator's slots hold.
fn slots(aggregator: &Aggregator<Scalar>, into: &mut Vec<u8>) {
    into.clear();
    for (kind, count) in [(Kind::Norm, NORMS), (Kind::Data, SLOTS)] {
        for slot in 0..count {
            let view = aggregator.slot(JOB, kind, SlotId(slot)).unwrap();
            into.extend_from_slice(&view.round.0.to_be_bytes());
            into.extend_from_slice(&view.seen.to_be_bytes());
            into.extend([u8::from(view.complete), u8::from(view.mark)]);
            into.extend_from_slice(view.values);
        }
    }
}

#[test]
fn aggregator() {
    for quorum in [WORKERS, 2] {
        let mut rng = Rng(u64::from(quorum));
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 20);
        let mut values = [0; 16];
        (0u8..).zip(&mut values).for_each(|(i, value)| *value = i * 5);
        aggregator.install_table(TableId(1), Lookup { form: Form::USUAL, values }).unwrap();
        aggregator.install_job(config(quorum)).unwrap();
        for worker in 0..WORKERS {
            aggregator.set_member(JOB, WorkerId(worker), Endpoint::udp(address(u64::from(worker)))).unwrap();
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let (mut dropped, mut handled) = ([0u64; DropReason::ALL.len()], [0u64; Event::ALL.len()]);
        for i in 0..PACKETS / 2 {
            let named = At("aggregator", i);
            // A changed round may be far ahead: all begins anew now and then.
            if i % 2000 == 0 {
                aggregator.forget_slots();
            }
            let round = (i / 100) as u32;
            let bytes = packet(&mut rng, &[Kind::Norm, Kind::Data, Kind::Raw], round.wrapping_sub(300));
            // Mostly from where the worker that it names sends.
            let worker =
                if rng.below(10) == 0 { rng.below(5) } else { bytes.get(6).map_or(0, |&b| u64::from(b)) };
            slots(&aggregator, &mut before);
            let mut answers = Answers::default();
            let ecn = Ecn::of_bits(rng.below(4) as u8);
            match aggregator.handle_with(Endpoint::udp(address(worker)), ecn, &bytes, &mut answers) {
                Outcome::Dropped(reason) => {
                    slots(&aggregator, &mut after);
                    assert!(before == after, "{reason:?} changed a slot");
                    assert_eq!(answers.0, 0);
                    dropped[reason as usize] += 1;
                }
                Outcome::Passed => panic!("there is no root"),
                Outcome::Handled(event) => {
                    assert!(answers.0 <= 1);
                    handled[event as usize] += 1;
                }
            }
            drop(named);
        }
        // The corpus reaches every branch; and every packet is counted once.
        let possible = |reason| reason != DropReason::Round || quorum == WORKERS;
        let reached = |&reason: &DropReason| (dropped[reason as usize] > 10) == possible(reason);
        assert!(DropReason::ALL.iter().all(reached), "{dropped:?}");
        let possible = Event::ALL.iter().filter(|&&event| event != Event::Late || quorum < WORKERS);
        assert!(possible.clone().all(|&event| handled[event as usize] > 10), "{handled:?}");
        let counters = aggregator.job_counters(JOB).unwrap();
        let workers = (0..=64).map(|worker| counters.worker(WorkerId(worker)));
        let of_job: u64 = workers.map(|w| w.events.iter().chain(&w.drops).sum::<u64>()).sum();
        let of_none: u64 = aggregator.counters().drops.iter().sum();
        assert_eq!(of_job + of_none, PACKETS / 2);
    }
}

#[derive(Default)]
struct Quiet(u64);

impl Events for Quiet {
    fn norms(&mut self, _: u64, maxima: &mut dyn Iterator<Item = u32>) {
        self.0 += maxima.count() as u64;
    }

    fn result(&mut self, _: PacketId, _: &Header, sums: &[u8]) {
        assert_eq!(sums.len(), 1024);
        self.0 += 1;
    }

    fn packet_late(&mut self, _: PacketId, _: Option<&[u8]>) {}

    fn packet_lost(&mut self, _: PacketId, _: Option<&[u8]>) {
        self.0 += 1;
    }

    fn call_failed(&mut self, _: u64, _: CallError) {
        self.0 += 1;
    }
}

impl Tx for Quiet {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        assert_eq!(shard, 0);
        for packet in contents.chunks(segment) {
            let (header, payload) = Header::parse(packet).unwrap();
            assert_eq!(payload.len(), header.kind.payload_len(Form::USUAL));
            assert_eq!((header.job, header.cookie, header.worker), (JOB, SESSION, WorkerId(0)));
        }
    }
}

/// A worker's whole state but for what it counts.
fn state(worker: &Worker) -> String {
    let text = format!("{worker:?}");
    let end = text.rfind("foreign: ").unwrap();
    text[..end].to_owned()
}

#[test]
fn worker() {
    let mut rng = Rng(77);
    let mut sessions = 0;
    let mut it: Option<Worker> = None;
    let (mut events, mut tx) = (Quiet::default(), Quiet::default());
    let mut now = Duration::ZERO;
    let mut unchanged = 0;
    for i in 0..PACKETS {
        let named = At("worker", i);
        now += Duration::from_micros(rng.below(2000));
        let worker = it.get_or_insert_with(|| {
            sessions += 1;
            let policy = if sessions % 2 == 0 { Policy::Reliable } else { Policy::BestEffort };
            let welcome = Welcome { policy, quorum: 1 + (sessions % 3) as u8, ..welcome(0) };
            let parameters = Parameters::new(JOB, WorkerId(0), WORKERS, &welcome);
            Worker::new(Parameters { timeout: Duration::from_secs(5), ..parameters }, now)
        });
        while worker.pending_calls() < 3 {
            let choice = if rng.below(3) == 0 { Choice::Raw } else { Choice::Table(TableId(1)) };
            let own = if rng.below(10) == 0 { 0x7FC0_0000 } else { 2f32.to_bits() };
            let parts = [(3, 1f32.to_bits()), (2, own)].map(|(packets, norm)| PartSpec {
                choice,
                length: 4096,
                packets,
                norm,
            });
            worker.submit(&CallSpec { key: 5, parts: &parts });
            worker.send_norms(now, &mut tx);
        }
        let stats = worker.stats();
        let (data, norm) =
            (stats.data.sent / u64::from(SLOTS), stats.norm.sent.saturating_sub(1) / u64::from(NORMS));
        let round = if rng.below(2) == 0 { data } else { norm };
        let focus = [Kind::NormResult, Kind::Result, Kind::RawResult, Kind::Nudge];
        let bytes = packet(&mut rng, &focus, round as u32);
        let foreign = worker.stats().foreign;
        let before = rng.below(50).eq(&0).then(|| state(worker));
        worker.handle(now, &bytes, &mut events, &mut tx);
        if worker.stats().foreign > foreign
            && let Some(before) = before
        {
            // Packets of the session, but wrong, may count as signs of life and nothing else.
            assert_eq!(mask(&before), mask(&state(worker)));
            unchanged += 1;
        }
        if rng.below(4) == 0 {
            worker.tick(now, &mut events, &mut tx);
            while worker.fill(now, &mut tx, usize::MAX, |place, payload| payload.fill(place.packet as u8)) > 0
            {
            }
        }
        assert!(worker.pending_calls() <= 3);
        if worker.failure().is_some() && rng.below(20) == 0 {
            it = None;
        }
        drop(named);
    }
    assert!(events.0 > 2_000 && unchanged > 500 && sessions > 20, "{} {unchanged} {sessions}", events.0);
}

/// Without the time of the last sign of life.
fn mask(state: &str) -> String {
    let start = state.find("heard: ").unwrap();
    let end = start + state[start..].find(',').unwrap();
    format!("{}{}", &state[..start], &state[end..])
}

#[test]
fn joiner() {
    let mut rng = Rng(11);
    let mut now = Duration::ZERO;
    let mut buffer = [0; 64];
    let (mut it, mut joiners, mut events) = (None, 0, 0);
    for i in 0..PACKETS {
        let named = At("joiner", i);
        now += Duration::from_micros(rng.below(5000));
        let joiner = it.get_or_insert_with(|| {
            joiners += 1;
            Joiner::new(JOB, WorkerId(1), CONFIGURED, joiners % 6, 0, now)
        });
        let bytes = packet(&mut rng, Kind::ALL, 0);
        events += u64::from(joiner.handle(now, &bytes).is_some());
        match rng.below(100) {
            0 => joiner.resume(now),
            1 if rng.below(10) == 0 => joiner.leave(now),
            2..=9 => {
                if let Some(sent) = joiner.poll(now, &mut buffer) {
                    let (header, payload) = Header::parse(sent).unwrap();
                    assert!(matches!(header.kind, Kind::Join | Kind::Leave));
                    assert_eq!(payload.len(), header.kind.payload_len(Form::USUAL));
                }
            }
            _ => {}
        }
        let overdue = joiner.timeout_error(now, Duration::from_secs(3));
        assert!(overdue.is_none() || joiner.deadline().is_some());
        if joiner.has_left() {
            it = None;
        }
        drop(named);
    }
    assert!(joiners > 50 && events > 500, "{joiners} joiners, {events} events");
}

#[test]
fn registry() {
    let mut rng = Rng(5);
    let config = JobConfig { cookie: CONFIGURED, ..config(WORKERS) };
    let mut registry = Registry::new([StaticJob::new(config, welcome(0))]);
    let mut now = Duration::ZERO;
    let (mut installed, mut sessions, mut longest) = (false, 0, 0);
    for i in 0..PACKETS {
        let named = At("registry", i);
        now += Duration::from_micros(rng.below(2000));
        let mut bytes = packet(&mut rng, &[Kind::Join, Kind::Leave], 0);
        // Rarely enough of another incarnation that sessions do begin.
        if bytes.get(1) == Some(&(Kind::Join as u8))
            && bytes.len() == HEADER_LEN + JOIN_LEN
            && rng.below(4) > 0
        {
            bytes[27] = bytes[6];
        }
        let from = address(rng.below(12) / 10 + bytes.get(6).map_or(0, |&b| u64::from(b)));
        let before = format!("{registry:?}");
        let random = rng.next() as u32;
        let ago = [None, Some(Duration::ZERO), Some(Duration::from_secs(2))][rng.below(3) as usize];
        let actions = registry.handle(now, from, &bytes, |_, _| ago, || random | 1);
        assert!(actions.len() <= 2 + 2 * usize::from(WORKERS), "{actions:?}");
        for action in &actions {
            match action {
                Action::Install(config, members) => {
                    assert!(!installed && members.len() == usize::from(WORKERS));
                    assert_ne!(config.cookie, CONFIGURED);
                    installed = true;
                    sessions += 1;
                }
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("there is no root"),
                Action::Remove(job) => {
                    assert!(installed && *job == JOB);
                    installed = false;
                }
                Action::Move(job, worker, _) => assert!(installed && *job == JOB && worker.0 < WORKERS),
                Action::Send(_, bytes) => {
                    let (header, payload) = Header::parse(bytes).unwrap();
                    assert!(header.kind as u8 >= 0x31);
                    assert_eq!(payload.len(), header.kind.payload_len(Form::USUAL));
                }
            }
        }
        assert_eq!(registry.status(JOB).unwrap().1, installed);
        let after = format!("{registry:?}");
        longest = longest.max(after.len());
        let control = Header::parse(&bytes).is_ok_and(|(header, payload)| {
            matches!(header.kind, Kind::Join | Kind::Leave)
                && header.job == JOB
                && payload.len() == header.kind.payload_len(Form::USUAL)
        });
        assert!(control || before == after, "a packet that is none for it changed the registry");
        drop(named);
    }
    assert!(sessions > 100, "{sessions} sessions");
    // Its state has a fixed size, but for the digits of times.
    assert!(longest < 4000, "{longest}");
}
