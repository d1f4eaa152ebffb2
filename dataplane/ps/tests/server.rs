//! A server in this process, plain sockets as its workers, and the model beside it.
#![allow(clippy::unwrap_used)]

mod session;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use session::{
    COOKIE, Model, PATIENCE, RawWorker, assert_job, indices, join_all, keep_order, norm, options, packet,
    session,
};
use thc_protocol::session::{JoinError, JoinEvent};
use thc_protocol::wire::{FLAG_NUDGE, Header, Kind, RefuseReason};
use thc_protocol::{Cookie, JobId, Policy, WorkerId};
use thc_ps::{PsError, Server, ServerOptions, ServerStats};
use thc_transport::{FaultRates, LossyConfig};

/// Slots whose results fit a socket's default receive buffer, twice.
const IN_FLIGHT: usize = 20;

fn start(options: &ServerOptions) -> Server {
    let server = Server::start(options.validate().unwrap()).unwrap();
    // After the start: the server's threads may go where they like.
    keep_order();
    server
}

/// Sends to server and model alike.
fn send(model: &mut Model, worker: &RawWorker, header: &Header, payload: &[u8]) {
    let bytes = packet(header, payload);
    let slot = header.slot.0;
    worker.send(&bytes, slot);
    let shard = worker.port_of(slot).port() - worker.server.port();
    model.handle(usize::from(shard), worker.address(), &bytes);
}

/// Every worker gets exactly what the model has sent it.
fn assert_same(model: &mut Model, workers: &[RawWorker]) -> usize {
    let mut count = 0;
    for worker in workers {
        let expected = model.take(worker.address());
        let mut got: Vec<Vec<u8>> = expected.iter().map(|_| worker.expect()).collect();
        got.sort();
        assert!(got == expected, "worker {} gets other packets than the model sends", worker.number);
        count += got.len();
    }
    count
}

/// Statistics once the server has taken all packets that were sent to it.
fn settled_stats(server: &Server, packets: u64) -> ServerStats {
    let start = Instant::now();
    loop {
        let stats = server.stats();
        if stats.network.packets_in >= packets {
            return stats;
        }
        assert!(start.elapsed() < PATIENCE, "{} packets came of {packets}", stats.network.packets_in);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_session_adds_up_as_the_model_does() {
    let server = start(&options(4, 1));
    let workers = session(4, server.local());
    let welcome = workers[0].welcome.unwrap();
    assert_eq!((welcome.workers, welcome.quorum, welcome.data_slots), (4, 4, 256));
    assert_eq!(
        (welcome.tables.first().granularity, welcome.shards, welcome.policy),
        (30, 1, Policy::Reliable)
    );
    let mut model = Model::from_workers(&workers);
    let mut random = fastrand::Rng::with_seed(1);
    for worker in &workers {
        let value = 1.5 + f32::from(worker.number.0);
        send(&mut model, worker, &worker.header(Kind::Norm, 0, 0), &norm(value, 4096));
    }
    assert_eq!(assert_same(&mut model, &workers), 4);
    for slots in (0..100).collect::<Vec<u16>>().chunks(IN_FLIGHT) {
        for &slot in slots {
            for worker in &workers {
                let header = worker.header(Kind::Data, slot, 0);
                send(&mut model, worker, &header, &indices(&mut random, &welcome));
            }
        }
        assert_eq!(assert_same(&mut model, &workers), slots.len() * 4);
    }
    // RAW has the slots' next round, and one worker repeats itself before and after it is complete.
    let words: Vec<u8> = (0..1024).map(|_| random.u8(..)).collect();
    for round in [1, 2] {
        for worker in [0, 0, 1, 2, 3, 1, 0] {
            let worker = &workers[worker];
            send(&mut model, worker, &worker.header(Kind::Raw, 7, round), &words);
        }
    }
    assert_eq!(assert_same(&mut model, &workers), 2 * (4 + 2));
    let totals = server.shutdown();
    let job = totals.job(1).unwrap();
    assert_eq!((job.sessions, job.running, job.joined.len()), (1, true, 4));
    assert_eq!(job.results, 103);
    assert_job(job, &model.counters());
    assert_eq!(totals.network.recv_overflows, 0);
}

#[test]
fn a_worker_that_joins_anew_ends_the_session_for_all() {
    let server = start(&options(2, 2));
    let mut workers = session(2, server.local());
    let old = workers[0].welcome.unwrap();
    let stale = packet(&workers[0].header(Kind::Data, 1, 0), &[0; 512]);
    workers[0].send(&stale, 1);
    let mut again = RawWorker::new(1, server.local(), 999);
    again.wait_until(|event| matches!(event, JoinEvent::Pending(0b10, 2)).then_some(()));
    let named = workers[0].wait_until(|event| match event {
        JoinEvent::Reforming(worker) => Some(worker),
        _ => None,
    });
    assert_eq!(named, WorkerId(1));
    // Of no job now.
    workers[0].send(&stale, 1);
    workers[1] = again;
    let stays = &mut workers[0];
    stays.joiner =
        thc_protocol::session::Joiner::new(JobId(1), WorkerId(0), Cookie(COOKIE), 1000, 0, Duration::ZERO);
    stays.welcome = None;
    join_all(&mut workers);
    let new = workers[0].welcome.unwrap();
    assert_ne!(old.session, new.session);
    assert_eq!(old.job_seed, new.job_seed);
    // Of the job, but with the cookie of its former session.
    workers[0].send(&stale, 1);
    let mut model = Model::from_workers(&workers);
    for worker in &workers {
        send(&mut model, worker, &worker.header(Kind::Data, 1, 0), &[0x5a; 512]);
    }
    assert_eq!(assert_same(&mut model, &workers), 2);
    let totals = server.shutdown();
    let job = totals.job(1).unwrap();
    assert_eq!((job.sessions, job.results), (2, 1));
    // Counters outlive the session.
    assert_eq!(job.members[0].packets, 3);
    assert_eq!((totals.drops["job"], job.members[0].drops["cookie"]), (1, 1));
}

#[test]
fn the_session_ends_when_all_have_left() {
    let server = start(&options(2, 1));
    let mut workers = session(2, server.local());
    workers[0].leave();
    workers[0].poll();
    settled_stats(&server, 3);
    assert!(server.stats().job(1).unwrap().running);
    workers[1].leave();
    workers[1].poll();
    for worker in &mut workers {
        worker.wait_until(|event| (event == JoinEvent::Bye).then_some(()));
    }
    let stats = server.stats();
    let job = stats.job(1).unwrap();
    assert_eq!((job.running, job.joined.len(), job.sessions), (false, 0, 1));
    // And another can begin.
    session(2, server.local());
    assert_eq!(server.shutdown().job(1).unwrap().sessions, 2);
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let server = start(&options(2, 1));
    let refused = |job: u16, worker: u8, cookie: u32| {
        let mut stranger = RawWorker::new(worker, server.local(), 5);
        stranger.joiner = thc_protocol::session::Joiner::new(
            JobId(job),
            WorkerId(worker),
            Cookie(cookie),
            5,
            0,
            Duration::ZERO,
        );
        stranger.wait_until(|event| match event {
            JoinEvent::Failed(JoinError::Refused { reason, .. }) => Some(reason),
            _ => None,
        })
    };
    assert_eq!(refused(2, 0, COOKIE), RefuseReason::UnknownJob);
    assert_eq!(refused(1, 0, COOKIE + 1), RefuseReason::WrongCookie);
    assert_eq!(refused(1, 2, COOKIE), RefuseReason::WorkerOutOfRange);
    let stats = server.stats();
    assert_eq!(stats.control.refused, 3);
    assert_eq!(stats.job(1).unwrap().sessions, 0);
}

/// P24, reason 4: the number of a worker that is heard is not given away.
#[test]
fn a_living_worker_keeps_its_number() {
    let server = start(&options(1, 2));
    let workers = session(1, server.local());
    let living = &workers[0];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // On the second shard: any of them shows that the worker lives.
        scope.spawn(|| {
            let data = packet(&living.header(Kind::Data, 64, 0), &[0; 512]);
            while !stop.load(Ordering::Relaxed) {
                living.send(&data, 64);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        // Shards publish and the control thread looks every 50 ms each.
        std::thread::sleep(Duration::from_millis(500));
        let mut thief = RawWorker::new(0, server.local(), 6);
        thief.poll();
        let bytes = thief.expect();
        let (header, payload) = Header::parse(&bytes).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(header.kind, Kind::Refused);
        assert_eq!(thc_protocol::wire::Refused::parse(payload).unwrap().reason, RefuseReason::WorkerInUse);
        // Once it has been silent for a second, it is.
        thief.wait_until(|event| matches!(event, JoinEvent::Welcome(..)).then_some(()));
    });
    assert_eq!(server.shutdown().job(1).unwrap().sessions, 2);
}

/// The same worker from another address, as after its NAT forgot it.
#[test]
fn a_worker_can_move() {
    let server = start(&options(2, 2));
    let mut workers = session(2, server.local());
    let session = workers[0].welcome.unwrap().session;
    workers[0].socket = RawWorker::new(0, server.local(), 0).socket;
    workers[0].resume();
    join_all(&mut workers);
    assert_eq!(workers[0].welcome.unwrap().session, session);
    let mut model = Model::from_workers(&workers);
    for slot in [3, 64] {
        for worker in &workers {
            send(&mut model, worker, &worker.header(Kind::Data, slot, 0), &[0xf0; 512]);
        }
    }
    assert_eq!(assert_same(&mut model, &workers), 4);
    assert_eq!(server.shutdown().job(1).unwrap().sessions, 1);
}

#[test]
fn control_packets_elsewhere_or_malformed_are_drops() {
    let server = start(&options(1, 2));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut joiner = RawWorker::new(0, server.local(), 1).joiner;
    let mut buffer = [0; 256];
    let join = joiner.poll(Duration::ZERO, &mut buffer).unwrap().to_vec();
    let second = (server.local().ip(), server.local().port() + 1);
    // The second shard has no control plane; and JOINs have one length.
    socket.send_to(&join, second).unwrap();
    socket.send_to(&join[..join.len() - 1], server.local()).unwrap();
    socket.send_to(&[&join[..], &[0; 600]].concat(), server.local()).unwrap();
    let mut version = join.clone();
    version[0] = 9;
    socket.send_to(&version, server.local()).unwrap();
    socket.send_to(&join[..4], server.local()).unwrap();
    // What only servers send.
    let mut welcome = join.clone();
    welcome[1] = Kind::Welcome as u8;
    socket.send_to(&welcome, server.local()).unwrap();
    let stats = settled_stats(&server, 6);
    assert_eq!(stats.control.packets, 0);
    assert_eq!((stats.drops["kind"], stats.drops["version"], stats.drops["short"]), (4, 1, 1));
}

#[test]
fn injected_loss_keeps_packets_away() {
    let mut options = options(1, 1);
    let loss = FaultRates { loss: 1.0, ..FaultRates::NONE };
    options.faults = Some(LossyConfig { incoming: loss, ..LossyConfig::default() });
    let server = start(&options);
    let mut worker = RawWorker::new(0, server.local(), 1);
    worker.poll();
    let stats = settled_stats(&server, 1);
    assert_eq!((stats.control.packets, stats.drops["short"]), (0, 0));
}

/// A closed port answers with ICMP, which the server's socket reports: that is no end.
#[test]
fn a_worker_that_is_gone_stops_nobody() {
    let server = start(&options(2, 1));
    let mut workers = session(2, server.local());
    workers.truncate(1);
    for slot in 0..20 {
        let nudge = Header { flags: FLAG_NUDGE, ..workers[0].header(Kind::Data, slot, 0) };
        workers[0].send(&packet(&nudge, &[0; 512]), slot);
        let bytes = workers[0].expect();
        assert_eq!(Header::parse(&bytes).unwrap().0.kind, Kind::Nudge);
    }
    assert!(!server.has_failed());
    let totals = server.shutdown();
    assert_eq!(totals.job(1).unwrap().nudges, 20);
}

#[test]
fn ports_that_are_taken_are_named() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut options = options(1, 1);
    options.listen = Some(format!("127.0.0.1:{port}"));
    let error = Server::start(options.validate().unwrap()).unwrap_err();
    assert!(matches!(error, PsError::Transport(_)));
    assert!(error.to_string().contains(&format!("127.0.0.1:{port} is in use")), "{error}");
    // The second shard's port.
    options.listen = Some(format!("127.0.0.1:{}", port - 1));
    options.shards = Some(2);
    let error = Server::start(options.validate().unwrap()).unwrap_err();
    assert!(error.to_string().contains("is in use"), "{error}");
}

#[test]
fn cores_that_are_not_ours_are_named() {
    let mut options = options(1, 1);
    options.pin = Some(vec![100_000]);
    let error = Server::start(options.validate().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("cannot pin to core 100000: this process may use "), "{error}");
    // The first core that is ours works, polling too.
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    options.pin = Some(vec![(0..rustix::thread::CpuSet::MAX_CPU).find(|&core| ours.is_set(core)).unwrap()]);
    options.busy_poll = Some(true);
    let server = start(&options);
    session(1, server.local());
    assert_eq!(server.shutdown().job(1).unwrap().sessions, 1);
}
