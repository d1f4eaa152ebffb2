//! A job whose slots several servers share: its session is the first one's (P24).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::session::{JoinError, JoinEvent, Joiner, Joiners, Registry, StaticJob};
use thc_protocol::wire::{Header, Join, Kind, RefuseReason, Shares, Welcome};
use thc_protocol::{Cookie, WorkerId};
use thc_support::parties::{COOKIE, JOB, Packets, Server, address, ms, static_job};

const SHARES: usize = 3;

fn share_address(share: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 2, 0, share as u8), 9000))
}

fn job(workers: u8) -> StaticJob {
    let mut job = static_job(workers);
    let all: Vec<_> = (0..SHARES).map(share_address).collect();
    job.welcome.shares = Shares::new(&all, job.welcome.shards).unwrap();
    job
}

struct ShareMember {
    at: SocketAddr,
    joiners: Joiners,
    events: Vec<JoinEvent>,
}

impl ShareMember {
    fn new(worker: u8, process: u16, now: Duration) -> ShareMember {
        let nonce = (u64::from(worker) << 32 | u64::from(process)) + 1;
        let joiners = Joiners::new(Joiner::new(JOB, WorkerId(worker), COOKIE, nonce, 0, now));
        ShareMember { at: address(worker, process), joiners, events: Vec::new() }
    }

    fn session(&self) -> Option<Cookie> {
        self.events.iter().rev().find_map(|event| match event {
            JoinEvent::Welcome(welcome) => Some(welcome.session),
            _ => None,
        })
    }
}

/// A server of several shares and its workers, with a network that takes no time.
struct SharedServer {
    now: Duration,
    servers: Vec<Server>,
    workers: Vec<ShareMember>,
}

impl SharedServer {
    fn new(workers: u8) -> SharedServer {
        let job = job(workers);
        let mut servers = vec![Server::with_job(job.clone(), 1000)];
        servers.resize_with(SHARES, || Server::follower(job.clone()));
        let workers = (0..workers).map(|worker| ShareMember::new(worker, 0, Duration::ZERO)).collect();
        SharedServer { now: Duration::ZERO, servers, workers }
    }

    /// Everything that is due is sent and arrives at once, but what `lost` says of worker and share.
    fn exchange(&mut self, lost: impl Fn(usize, usize) -> bool) {
        for i in 0..self.workers.len() {
            let mut buffer = [0; 64];
            let mut packets: Vec<(usize, Vec<u8>)> = Vec::new();
            while let Some((share, packet)) = self.workers[i].joiners.poll(self.now, &mut buffer) {
                packets.push((share, packet.to_vec()));
            }
            for (share, packet) in packets {
                if !lost(i, share) {
                    let answers = self.servers[share].take(self.now, self.workers[i].at, &packet);
                    self.deliver(share, answers);
                }
            }
        }
        for share in 0..SHARES {
            let due = self.servers[share].poll(self.now);
            self.deliver(share, due);
        }
        self.now += ms(10);
    }

    fn deliver(&mut self, share: usize, packets: Packets) {
        for (to, packet) in packets {
            for worker in self.workers.iter_mut().filter(|worker| worker.at == to) {
                worker.events.extend(worker.joiners.handle(self.now, share, &packet));
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.exchange(|_, _| false);
        }
    }

    fn sessions(&self) -> Vec<Option<Cookie>> {
        self.servers.iter().map(|server| server.installed.as_ref().map(|(session, _)| *session)).collect()
    }
}

#[test]
fn a_session_of_the_first_share_is_brought_to_the_others() {
    let mut shared = SharedServer::new(3);
    shared.run(ms(250));
    let sessions = shared.sessions();
    assert!(sessions[0].is_some() && sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    for worker in &shared.workers {
        let Some(JoinEvent::Welcome(welcome)) = worker.events.last() else { panic!("{:?}", worker.events) };
        assert_eq!(welcome.shares.as_slice(), [share_address(0), share_address(1), share_address(2)]);
    }
    for server in &shared.servers {
        let members: Vec<_> = server.installed.as_ref().unwrap().1.iter().map(|(_, at)| at.addr).collect();
        assert_eq!(members, shared.workers.iter().map(|worker| worker.at).collect::<Vec<_>>());
    }
    // All leave every share.
    let now = shared.now;
    shared.workers.iter_mut().for_each(|worker| worker.joiners.leave(now));
    shared.run(ms(100));
    assert_eq!(shared.sessions(), [None; SHARES]);
    assert!(shared.workers.iter().all(|worker| worker.joiners.has_left()));
}

#[test]
fn a_worker_is_welcome_when_every_share_says_so() {
    let mut shared = SharedServer::new(2);
    for _ in 0..100 {
        shared.exchange(|worker, share| worker == 1 && share == 2);
    }
    assert_eq!(shared.sessions()[2], None);
    assert!(shared.workers.iter().all(|worker| worker.session().is_none()));
    // The share says who is missing, to whom it can.
    let error = shared.workers[0].joiners.timeout_error(shared.now, ms(900)).unwrap();
    assert!(matches!(error, JoinError::ShareMissing { share: 2, missing: 0b10, .. }), "{error:?}");
    let error = shared.workers[1].joiners.timeout_error(shared.now, ms(900)).unwrap();
    assert_eq!(
        error.to_string(),
        "share 2 of the parameter server, at 10.2.0.2:9000, does not answer: check that it runs there and that this \
         host reaches it (waited 1 s)"
    );
    shared.run(ms(250));
    assert!(shared.workers.iter().all(|worker| worker.session().is_some()));
}

#[test]
fn a_worker_that_restarts_takes_all_shares_to_a_new_session() {
    let mut shared = SharedServer::new(3);
    shared.run(ms(250));
    let before = shared.sessions()[0];
    let old = std::mem::replace(&mut shared.workers[1], ShareMember::new(1, 0, shared.now));
    // From the same address, so that nobody is asked (P24), with another nonce.
    shared.workers[1].joiners = Joiners::new(Joiner::new(JOB, WorkerId(1), COOKIE, 77, 0, shared.now));
    shared.run(ms(20));
    for worker in [0, 2] {
        let reforming = JoinEvent::Reforming(WorkerId(1));
        assert!(shared.workers[worker].events.contains(&reforming), "{:?}", shared.workers[worker].events);
        shared.workers[worker] = ShareMember::new(worker as u8, 0, shared.now);
        shared.workers[worker].joiners =
            Joiners::new(Joiner::new(JOB, WorkerId(worker as u8), COOKIE, 77 + worker as u64, 0, shared.now));
    }
    shared.run(ms(500));
    let after = shared.sessions();
    assert!(after[0] != before && after.iter().all(|session| *session == after[0]), "{before:?} {after:?}");
    assert!(shared.workers.iter().all(|worker| worker.session() == after[0]));
    // A JOIN of the old session that was long under way changes nothing.
    let mut stale = old.joiners;
    stale.resume(shared.now);
    let mut buffer = [0; 64];
    while let Some((share, packet)) = stale.poll(shared.now, &mut buffer) {
        let packet = packet.to_vec();
        let answers = shared.servers[share].take(shared.now, old.at, &packet);
        assert!(share == 0 || answers.iter().all(|(_, a)| a[1] == Kind::Pending as u8), "{answers:?}");
    }
    assert_eq!(shared.sessions(), after);
}

#[test]
fn a_share_that_restarts_takes_the_session_up_again() {
    let mut shared = SharedServer::new(3);
    shared.run(ms(250));
    let session = shared.sessions();
    for share in [2, 0] {
        let job = job(3);
        let registry = if share == 0 { Registry::new([job.clone()]) } else { Registry::follower([job]) };
        shared.servers[share].registry = registry;
        shared.servers[share].installed = None;
        let now = shared.now;
        shared.workers.iter_mut().for_each(|worker| worker.joiners.resume(now));
        shared.run(ms(250));
        assert_eq!(shared.sessions(), session);
        assert!(
            shared.workers.iter().all(|w| !w.events.iter().any(|e| matches!(e, JoinEvent::Reforming(_))))
        );
    }
}

#[test]
fn a_share_that_is_not_the_first_begins_no_session() {
    let mut server = Server::follower(job(1));
    let mut joiner = Joiner::new(JOB, WorkerId(0), COOKIE, 7, 0, ms(0));
    let mut buffer = [0; 64];
    let packet = joiner.poll(ms(0), &mut buffer).unwrap().to_vec();
    let answers = server.take(ms(0), address(0, 0), &packet);
    let reason = RefuseReason::NotFirst;
    let expected = JoinError::Refused { job: JOB, worker: WorkerId(0), reason };
    assert_eq!(joiner.handle(ms(0), &answers[0].1), Some(JoinEvent::Failed(expected)));
    assert_eq!(server.installed, None);
}

#[test]
fn a_share_with_another_job_is_named() {
    let mut shared = SharedServer::new(2);
    let mut other = job(2);
    other.welcome.job_seed += 1;
    shared.servers[1].registry = Registry::follower([other]);
    shared.run(ms(50));
    let Some(JoinEvent::Failed(error)) = shared.workers[0].events.last() else { panic!() };
    assert!(matches!(error, JoinError::ShareDiffers { share: 1, change, .. } if change.field == "seed"));
    assert_eq!(
        error.to_string(),
        "share 1 of the parameter server, at 10.2.0.1:9000, has another job than the first (other seed): configure \
         all alike"
    );
}

#[test]
fn a_claim_with_another_fingerprint_is_told_what_the_job_is_by_every_share() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let before = shared.sessions();
    let mut buffer = [0; 64];
    shared.workers[0].joiners.resume(shared.now);
    let mut answered = 0;
    while let Some((share, packet)) = shared.workers[0].joiners.poll(shared.now, &mut buffer) {
        let mut packet = packet.to_vec();
        packet[20 + 16] ^= 1;
        let answers = shared.servers[share].take(shared.now, shared.workers[0].at, &packet);
        assert_eq!(answers.len(), 1, "share {share}");
        assert_eq!(answers[0].1[1], Kind::Description as u8, "share {share}");
        answered += 1;
    }
    assert_eq!((answered, shared.sessions()), (SHARES, before));
}

#[test]
fn a_stranger_with_the_number_of_a_member_is_refused() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let session = shared.sessions()[1].unwrap();
    let welcome = Welcome { session, nonce: 99, ..job(2).welcome };
    let mut stranger = Joiner::new(JOB, WorkerId(0), COOKIE, 99, 0, shared.now);
    let header = Header::new(Kind::Welcome, 2, JOB, WorkerId(0), session);
    let mut packet = [0; 1044];
    assert!(stranger.handle(shared.now, header.emit_packet(&mut packet, &welcome.to_bytes())).is_some());
    let mut elsewhere = stranger.for_other_share(shared.now);
    let mut buffer = [0; 64];
    let join = elsewhere.poll(shared.now, &mut buffer).unwrap().to_vec();
    let before = shared.servers[1].installed.clone();
    let answers = shared.servers[1].take(shared.now, address(9, 9), &join);
    assert_eq!((answers[0].1[1], answers[0].1[20]), (Kind::Refused as u8, RefuseReason::WorkerInUse as u8));
    assert_eq!(shared.servers[1].installed, before);
}

/// A JOIN of somebody who has captured all that can be seen, for the share of this number.
fn claim(worker: u8, nonce: u64, session: Cookie, workers: u8) -> Vec<u8> {
    let header = Header::new(Kind::Join, 0, JOB, WorkerId(worker), COOKIE);
    let fingerprint = job(workers).welcome.fingerprint();
    let body = Join { nonce, session, fingerprint, ..Join::default() }.to_bytes();
    let mut packet = [0; 64];
    header.emit_packet(&mut packet, &body).to_vec()
}

#[test]
fn a_captured_nonce_moves_no_member_that_answers_at_any_share() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let session = shared.sessions()[0].unwrap();
    let before: Vec<_> = shared.servers.iter().map(|server| server.installed.clone()).collect();
    let join = claim(0, 1, session, 2);
    let (end, stranger, mut asked) = (shared.now + ms(3000), address(9, 9), [0; SHARES]);
    while shared.now < end {
        for share in 0..SHARES {
            let answers = shared.servers[share].take(shared.now, stranger, &join);
            asked[share] += answers.iter().filter(|(_, packet)| packet[1] == Kind::Ask as u8).count();
            assert!(answers.iter().all(|(to, _)| *to != stranger), "share {share}: {answers:?}");
            shared.deliver(share, answers);
        }
        shared.exchange(|_, _| false);
    }
    assert!(asked.iter().all(|&asked| asked > 0), "{asked:?}");
    assert!(shared.servers.iter().map(|server| server.installed.clone()).eq(before));
}

#[test]
fn a_member_that_does_not_answer_moves_at_every_share() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let session = shared.sessions()[0].unwrap();
    let join = claim(0, 1, session, 2);
    for share in 0..SHARES {
        let moved = |server: &Server| server.installed.as_ref().unwrap().1[0].1.addr == address(9, 9);
        let end = shared.now + ms(2000);
        while shared.now < end && !moved(&shared.servers[share]) {
            shared.servers[share].take(shared.now, address(9, 9), &join);
            shared.now += ms(60);
        }
        assert!(moved(&shared.servers[share]), "share {share}");
    }
}

#[test]
fn claims_of_strangers_end_no_session_whose_members_answer() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let before = shared.sessions();
    let end = shared.now + ms(5000);
    while shared.now < end {
        for share in 1..SHARES {
            for worker in 0..2 {
                let join = claim(worker, 900 + u64::from(worker), Cookie(0xABCDEF), 2);
                let answers = shared.servers[share].take(shared.now, address(9, 9), &join);
                shared.deliver(share, answers);
            }
        }
        shared.exchange(|_, _| false);
    }
    assert_eq!(shared.sessions(), before);
}

#[test]
fn a_share_that_was_suspended_does_not_take_its_members_for_gone() {
    let mut shared = SharedServer::new(2);
    shared.run(ms(250));
    let before = shared.sessions();
    let claims = |shared: &mut SharedServer| {
        for worker in 0..2 {
            let join = claim(worker, 900 + u64::from(worker), Cookie(0xABCDEF), 2);
            let answers = shared.servers[1].take(shared.now, address(9, 9), &join);
            // What it asks reaches nobody in time.
            assert!(answers.iter().all(|(_, packet)| packet[1] != Kind::Welcome as u8));
        }
    };
    // It has asked three times, and is then suspended: the claims are what it reads first.
    for _ in 0..3 {
        claims(&mut shared);
        shared.servers[1].poll(shared.now);
        shared.now += ms(60);
    }
    shared.now += ms(2000);
    claims(&mut shared);
    shared.servers[1].poll(shared.now);
    assert_eq!(shared.sessions(), before);
}
