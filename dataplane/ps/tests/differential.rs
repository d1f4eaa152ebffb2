//! Random packets into a running server and into the model: what comes out and what is counted must
//! be equal, byte for byte.
#![allow(clippy::unwrap_used)]

mod session;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;
use session::{
    Model, PATIENCE, RawWorker, assert_counters, assert_job, keep_order, norm, options, packet, session,
};
use thc_protocol::aggregator::DropReason;
use thc_protocol::wire::{FLAG_NUDGE, Kind};
use thc_protocol::{Cookie, JobId, Lane, Policy, Round, SlotId, TableId, WorkerId};
use thc_ps::Server;

const PACKETS: usize = 6000;
/// Packets between comparisons: what they answer fits every socket's default receive buffer.
const CHUNK: usize = 40;

/// A packet of the trace: who sends it, to which shard, and its bytes.
struct Step {
    sender: usize,
    shard: u8,
    bytes: Vec<u8>,
}

/// Slots on the borders of shards and of the job, so that workers meet in them.
fn slot(random: &mut Rng, slots: u32) -> u16 {
    let slots = slots as u16;
    random.choice([0, 1, 63, 64, 127, slots - 1]).unwrap()
}

fn step(random: &mut Rng, workers: &[RawWorker], round: u32) -> Step {
    let sender = random.usize(..workers.len());
    let welcome = workers[sender].welcome.unwrap();
    let kind = random.choice([Kind::Norm, Kind::Data, Kind::Data, Kind::Data, Kind::Raw]).unwrap();
    let slots = if kind == Kind::Norm { welcome.norm_slots } else { welcome.data_slots };
    let slot = slot(random, slots);
    // Mostly the round of the time, now and then an older or newer one.
    let now = round;
    let round = match random.u8(..20) {
        0 => round.wrapping_sub(1),
        1 => round.wrapping_add(1),
        // Seldom: a slot that it opens takes nothing else any more.
        2 if random.u8(..8) == 0 => round.wrapping_add(1 << 31),
        3 => round.wrapping_add(2),
        _ => round,
    };
    // Mostly what the others send for the slot's round.
    let kind = match kind {
        Kind::Norm => kind,
        _ if random.u8(..12) == 0 => kind,
        _ if (u32::from(slot) ^ round).wrapping_mul(0x9E37_79B9) >> 30 == 0 => Kind::Raw,
        _ => Kind::Data,
    };
    let mut header = workers[sender].header(kind, slot, round);
    header.flags = if random.u8(..4) == 0 { FLAG_NUDGE } else { random.u8(..) & !FLAG_NUDGE };
    if round == now.wrapping_add(2) && random.u8(..8) > 0 {
        // With NUDGE it turns away all that come before their time has come.
        header.flags &= !FLAG_NUDGE;
    }
    header.count = random.u16(..);
    let mut payload: Vec<u8> = match kind {
        // Few values and few lengths: sometimes equal, sometimes another collective.
        Kind::Norm => norm(random.f32() * 4.0, if random.u8(..12) == 0 { 7 } else { 4096 }).to_vec(),
        kind => (0..kind.payload_len(welcome.tables.first().form)).map(|_| random.u8(..)).collect(),
    };
    let mut shard = ((slot / 64) % u16::from(welcome.shards)) as u8;
    // Everything that P7 drops.
    let mut cut = None;
    match random.u8(..60) {
        0 => header.cookie = Cookie(random.u32(..)),
        1 => header.job = JobId(random.u16(..)),
        2 => header.worker = WorkerId(random.u8(..)),
        3 => header.num_workers = header.num_workers.wrapping_add(1),
        4 => payload.truncate(random.usize(..payload.len())),
        5 => payload.push(0),
        6 => header.slot = SlotId(random.u16(..)),
        7 => header.table = TableId(random.u8(..)),
        8 => shard = random.u8(..welcome.shards),
        9 => (header.round, header.flags) = (Round(random.u32(..)), 0),
        10 => header.kind = random.choice(thc_support::kinds()).unwrap(),
        11 => cut = Some(random.usize(1..20)),
        _ => {}
    }
    let mut bytes = packet(&header, &payload);
    match random.u8(..80) {
        0 => bytes[0] = random.u8(..),
        1 => bytes[1] = random.u8(..),
        _ => {}
    }
    // JOIN and LEAVE of the right length would be the control plane's; a mutation can make none.
    assert!(!matches!(bytes.get(1), Some(0x21)) || bytes.len() != 36);
    assert!(!matches!(bytes.get(1), Some(0x22)) || bytes.len() != 28);
    bytes.truncate(cut.unwrap_or(bytes.len()));
    Step { sender, shard, bytes }
}

/// Everything that has come to a worker, once as many as expected came.
fn receive_all(worker: &RawWorker, expected: usize) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = (0..expected).map(|_| worker.expect()).collect();
    packets.sort();
    packets
}

struct Case {
    seed: u64,
    workers: u8,
    quorum: u8,
    shards: u64,
    lane: Lane,
}

fn run(case: &Case) {
    let mut options = options(case.workers, case.shards);
    options.job[0].quorum = Some(u64::from(case.quorum));
    options.job[0].lane = Some(u64::from(case.lane.bits()));
    options.recv_buffer = Some(thc_ps::Size(32 << 20));
    let server = Server::start(options.validate().unwrap()).unwrap();
    keep_order();
    let workers = session(case.workers, server.local());
    assert_eq!(workers[0].welcome.unwrap().policy, Policy::Reliable);
    let before = server.stats();
    let mut model = Model::from_workers(&workers);
    let mut random = Rng::with_seed(case.seed);
    let base = server.local();
    // So that rounds wrap within the trace.
    let first = u32::MAX - 20;
    let mut sent = 0;
    for chunk in 0..PACKETS / CHUNK {
        let round = first.wrapping_add(chunk as u32 / 3);
        for _ in 0..CHUNK {
            let step = step(&mut random, &workers, round);
            // One in forty comes from another worker's address.
            let from = if random.u8(..40) == 0 { random.usize(..workers.len()) } else { step.sender };
            let to = SocketAddr::from((base.ip(), base.port() + u16::from(step.shard)));
            workers[from].socket.send_to(&step.bytes, to).unwrap();
            model.handle(usize::from(step.shard), workers[from].address(), &step.bytes);
            sent += 1;
        }
        for worker in &workers {
            let expected = model.take(worker.address());
            let got = receive_all(worker, expected.len());
            assert!(got == expected, "seed {}: worker {} gets other packets", case.seed, worker.number);
        }
    }
    // Packets that are dropped answer nothing, so wait for them here.
    let start = Instant::now();
    while server.stats().network.packets_in < before.network.packets_in + sent {
        assert!(start.elapsed() < PATIENCE, "packets got lost on the way to the server");
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = server.shutdown();
    for worker in &workers {
        assert_eq!(worker.receive(), None, "more came than the model sends");
    }
    let (job, counters) = (stats.job(1).unwrap(), model.counters());
    assert_job(job, &counters);
    let mut strangers = *counters.worker(WorkerId::NONE);
    for number in case.workers..64 {
        let stranger = counters.worker(WorkerId(number));
        strangers.packets += stranger.packets;
        strangers.bytes += stranger.bytes;
        strangers.drops.iter_mut().zip(stranger.drops).for_each(|(sum, count)| *sum += count);
    }
    assert_counters(&job.strangers, &strangers, "strangers");
    for (reason, count) in DropReason::ALL.iter().zip(model.global_drops()) {
        assert_eq!(stats.drops[reason.name()], count, "dropped for {}", reason.name());
    }
    // The trace must have been worth it: everything happened.
    assert!(job.results > 100 && job.resent > 10 && job.nudges > 50, "{job:?}");
    let all = |reason: DropReason| -> u64 {
        let workers = job.members.iter().chain([&job.strangers]).map(|worker| &worker.drops);
        workers.chain([&stats.drops]).filter_map(|drops| drops.get(reason.name())).sum()
    };
    for reason in DropReason::ALL {
        // A job with a quorum may skip rounds.
        let possible = reason != DropReason::Round || case.quorum == case.workers;
        assert_eq!(all(reason) > 0, possible, "dropped for {}", reason.name());
    }
    for event in thc_protocol::aggregator::Event::ALL {
        let sum: u64 = job.members.iter().map(|worker| worker.count(event)).sum();
        // Only a quorum leaves anybody behind.
        let possible = event.name() != "late" || case.quorum < case.workers;
        assert_eq!(sum > 0, possible, "{} {}", sum, event.name());
    }
    let n = &stats.network;
    assert_eq!((n.recv_overflows, n.send_errors, n.send_failures), (0, 0, 0));
    let (io, sessions) = (n.packets_in - before.network.packets_in, job.sessions);
    assert_eq!((io, sessions), (sent, 1));
}

#[test]
fn one_shard() {
    run(&Case { seed: 1, workers: 3, quorum: 3, shards: 1, lane: Lane::Bits8 });
}

#[test]
fn two_shards() {
    run(&Case { seed: 2, workers: 3, quorum: 3, shards: 2, lane: Lane::Bits8 });
}

#[test]
fn two_shards_wide_lanes_and_a_quorum() {
    run(&Case { seed: 3, workers: 4, quorum: 2, shards: 2, lane: Lane::Bits16 });
}
