//! P24: a number changes hands only when its owner has not answered.

use thc_protocol::session::{JoinError, JoinEvent};
use thc_protocol::wire::{
    Ask, Form, Header, Join, Kind, Leave, RefuseReason, Refused, Table, Tables, Welcome,
};
use thc_protocol::{Cookie, Policy, WorkerId};
use thc_support::parties::{
    JOB, Packets, Process, Server, address, exchange, ms, session, static_job, usurp,
};

fn kinds(packets: &Packets) -> Vec<(std::net::SocketAddr, Kind)> {
    packets.iter().map(|(to, bytes)| (*to, Header::parse(bytes).unwrap().0.kind)).collect()
}

#[test]
fn a_member_that_computes_keeps_its_number() {
    let (mut server, mut processes) = session(2);
    let installed = server.installed.clone();
    // It has sent nothing for a minute, right after WELCOME or later; a stray asks for its number.
    let mut stray = Process::new(1, 7, ms(60_000));
    for now in (60_000..64_000).step_by(10).map(ms) {
        let Some(packet) = stray.poll(now) else { continue };
        for (to, answer) in server.take(now, stray.address, &packet) {
            if to == stray.address {
                stray.take(now, &answer);
            } else {
                // What it computes takes it 300 ms, then it answers.
                assert_eq!((to, answer[1]), (address(1, 0), Kind::Ask as u8));
                processes[1].take(now + ms(300), &answer);
            }
        }
        if let Some(answer) = processes[1].poll(now) {
            let welcome = server.take(now, processes[1].address, &answer);
            assert_eq!(kinds(&welcome), [(address(1, 0), Kind::Welcome)]);
            processes[1].take(now, &welcome[0].1);
        }
    }
    assert_eq!(server.installed, installed);
    let error = JoinError::Refused { job: JOB, worker: WorkerId(1), reason: RefuseReason::WorkerInUse };
    assert_eq!(stray.events, []);
    // It may be the shadow of its own earlier life: it gives up only after a while.
    let packet = stray.poll(ms(64_100)).unwrap();
    let answers = server.take(ms(64_100), stray.address, &packet);
    stray.take(ms(64_100), &answers.last().unwrap().1);
    assert_eq!(stray.events, [JoinEvent::Failed(error)]);
    assert!(error.to_string().contains("worker 1") && error.to_string().contains("in use"));
}

#[test]
fn a_member_whose_packets_come_keeps_its_number() {
    let (mut server, _) = session(2);
    let mut stray = Process::new(1, 7, ms(5000));
    server.alive.insert(1, ms(0));
    assert_eq!(usurp(ms(5000), &mut server, &mut stray), None);
    // The same if they came before it was asked, and no longer.
    server.alive.insert(1, ms(1000));
    assert!(usurp(ms(7000), &mut server, &mut stray).is_some());
}

#[test]
fn asking_is_rare() {
    let (mut server, mut processes) = session(2);
    let mut stray = Process::new(1, 7, ms(0));
    let packet = stray.poll(ms(0)).unwrap();
    let mut asks = 0;
    // Ten thousand JOINs a second, for ten seconds.
    for now in (0..100_000).map(|i| ms(5000) + std::time::Duration::from_micros(100) * i) {
        for (to, answer) in server.take(now, stray.address, &packet) {
            if to == address(1, 0) {
                asks += 1;
                processes[1].take(now, &answer);
                let join = processes[1].poll(now).unwrap();
                for (_, welcome) in server.take(now, processes[1].address, &join) {
                    processes[1].take(now, &welcome);
                }
            }
        }
    }
    assert!((8..=24).contains(&asks), "{asks}");
    assert!(server.installed.is_some());
}

#[test]
fn ask_is_answered_in_the_session_it_names_only() {
    let (mut server, mut processes) = session(2);
    let session = processes[0].session().unwrap();
    let mut stray = Process::new(0, 7, ms(10));
    let packet = stray.poll(ms(10)).unwrap();
    let asked = server.take(ms(10), stray.address, &packet).remove(0).1;
    let (header, payload) = Header::parse(&asked).unwrap();
    assert_eq!((header.kind, header.worker, header.cookie), (Kind::Ask, WorkerId(0), session));
    assert_eq!(Ask::parse(payload), Some(Ask { nonce: 1 }));
    let emit = |header: Header, nonce: u64| {
        let mut buffer = [0; 64];
        header.emit_packet(&mut buffer, &Ask { nonce }.to_bytes()).to_vec()
    };
    for bad in [emit(header, 2), emit(Header { cookie: Cookie(session.0 ^ 1), ..header }, 1)] {
        processes[0].take(ms(20), &bad);
        assert_eq!(processes[0].poll(ms(20)), None);
    }
    processes[0].take(ms(20), &asked);
    let answer = processes[0].poll(ms(20)).unwrap();
    let join = Join::parse(Header::parse(&answer).unwrap().1).unwrap();
    assert_eq!((join.nonce, join.session), (1, session));
    assert_eq!(join.fingerprint, static_job(2).welcome.fingerprint());
}

#[test]
fn who_knows_nonce_and_cookies_must_also_send_from_the_members_address_to_leave() {
    let (mut server, processes) = session(2);
    let session = processes[0].session().unwrap();
    let leave = |cookie: Cookie, worker: u8, nonce: u64| {
        let header = Header::new(Kind::Leave, 0, JOB, WorkerId(worker), cookie);
        let mut buffer = [0; 64];
        header.emit_packet(&mut buffer, &Leave { nonce }.to_bytes()).to_vec()
    };
    for worker in 0..2 {
        let nonce = (u64::from(worker) << 32) + 1;
        // From elsewhere; with the job's cookie, or another session's.
        assert_eq!(server.take(ms(9), address(9, 9), &leave(session, worker, nonce)), vec![]);
        assert_eq!(
            server.take(ms(9), address(worker, 0), &leave(Cookie(session.0 ^ 1), worker, nonce)),
            vec![]
        );
        assert_eq!(
            server.take(ms(9), address(worker, 0), &leave(thc_support::parties::COOKIE, worker, nonce)),
            vec![]
        );
    }
    assert!(server.installed.is_some());
    server.take(ms(9), address(0, 0), &leave(session, 0, 1));
    server.take(ms(9), address(1, 0), &leave(session, 1, (1 << 32) + 1));
    assert_eq!(server.installed, None);
}

#[test]
fn a_captured_nonce_moves_no_member_that_runs() {
    let (mut server, mut processes) = session(2);
    processes[1].joiner.resume(ms(100));
    let captured = processes[1].poll(ms(100)).unwrap();
    let welcome = server.take(ms(100), processes[1].address, &captured).remove(0).1;
    processes[1].take(ms(100), &welcome);
    for now in (200..3000).step_by(50).map(ms) {
        for (to, answer) in server.take(now, address(9, 9), &captured) {
            assert_eq!((to, answer[1]), (address(1, 0), Kind::Ask as u8));
            processes[1].take(now, &answer);
            let join = processes[1].poll(now).unwrap();
            for (_, welcome) in server.take(now, address(1, 0), &join) {
                processes[1].take(now, &welcome);
            }
        }
    }
    assert_eq!(server.installed.unwrap().1[1].1.addr, address(1, 0));
}

#[test]
fn guessing_cookies_is_slow_and_disturbs_nobody() {
    let (mut server, mut processes) = session(2);
    let (mut looked_at, mut last) = (0, ms(0));
    let mut guess = Process::new(0, 7, ms(0)).poll(ms(0)).unwrap();
    for i in 0..1_000_000u32 {
        guess[8..12].copy_from_slice(&i.to_be_bytes());
        let now = ms(1000) + std::time::Duration::from_micros(10) * i;
        let answers = server.take(now, address(9, 9), &guess).len();
        looked_at += answers;
        if answers > 0 {
            last = now;
        }
    }
    // In ten seconds, of one address.
    assert!((110..=121).contains(&looked_at), "{looked_at}");
    // A newcomer from there waits, members do not, and others neither.
    let mut other = Process::new(0, 3, ms(11_000));
    other.address = address(9, 3);
    let packet = other.poll(ms(11_000)).unwrap();
    assert_eq!(server.take(last, other.address, &packet), vec![]);
    assert_ne!(server.take(last, address(8, 8), &packet), vec![]);
    processes[0].joiner.resume(ms(11_000));
    exchange(ms(11_000), &mut server, &mut processes);
    assert!(matches!(processes[0].events.last(), Some(JoinEvent::Welcome(..))));
    assert_ne!(server.take(ms(12_000), other.address, &packet), vec![]);
}

#[test]
fn a_session_goes_on_only_in_the_job_it_began_in() {
    let same = static_job(2);
    let with = |change: fn(&mut Welcome)| {
        let mut job = same.clone();
        change(&mut job.welcome);
        job
    };
    let first = |change: fn(&mut Table)| {
        let mut job = same.clone();
        let mut table = *job.welcome.tables.first();
        change(&mut table);
        job.welcome.tables = Tables::one(table);
        job
    };
    let cases = [
        (first(|t| t.granularity = 20), "granularity", "granularity 20 instead of 30"),
        (first(|t| t.values[3] = 5), "table values", "other table values"),
        (first(|t| t.fraction = 0.25), "fraction", "fraction 0.25 instead of 0.03125"),
        (first(|t| t.bits = 3), "bits", "bits 3 instead of 4"),
        (with(|w| w.job_seed = 1), "seed", "other seed"),
        (first(|t| t.id.0 = 4), "table id", "table id 4 instead of 3"),
        (with(|w| w.shards = 1), "shards", "shards 1 instead of 2"),
        (with(|w| w.data_slots = 128), "data slots", "data slots 128 instead of 64"),
        (with(|w| w.norm_slots = 2), "norm slots", "norm slots 2 instead of 16"),
        (
            first(|t| t.form = Form::new(4, thc_protocol::Lane::Bits16).unwrap()),
            "lane",
            "lane 16 instead of 8",
        ),
        (with(|w| w.policy = Policy::BestEffort), "policy", "policy best-effort instead of reliable"),
        (with(|w| w.deadline = ms(26)), "deadline", "deadline 26000 µs instead of 25000 µs"),
        (static_job(3), "workers", "workers 3 instead of 2, and"),
        (static_job(1), "workers", "workers 1 instead of 2, and"),
    ];
    for (job, field, text) in cases {
        let (_, mut processes) = session(2);
        let mut server = Server::with_job(job, 5000);
        for process in &mut processes {
            process.events.clear();
            process.joiner.resume(ms(100));
        }
        exchange(ms(100), &mut server, &mut processes);
        assert_eq!(server.installed, None, "{text}");
        for process in &processes {
            let [JoinEvent::Changed(change)] = process.events[..] else {
                panic!("{text}: {:?}", process.events)
            };
            assert_eq!(change.field, field);
            assert!(change.to_string().starts_with(text), "{change}");
        }
        assert_eq!(server.registry.status(JOB).unwrap().0, 0, "{text}");
    }
}

#[test]
fn a_welcome_of_another_job_to_the_same_session_is_noticed() {
    let (_, mut processes) = session(1);
    let session = processes[0].session().unwrap();
    processes[0].joiner.resume(ms(1));
    let welcome = static_job(1).welcome;
    let tables = Tables::one(Table { granularity: 29, ..*welcome.tables.first() });
    let body = Welcome { session, nonce: 1, tables, ..welcome };
    let header = Header::new(Kind::Welcome, 1, JOB, WorkerId(0), session);
    let mut buffer = [0; 256];
    let packet = header.emit_packet(&mut buffer, &body.to_bytes()).to_vec();
    processes[0].take(ms(2), &packet);
    assert!(matches!(processes[0].events.last(), Some(JoinEvent::Changed(c)) if c.field == "granularity"));
}

#[test]
fn builds_that_compute_other_numbers_do_not_join_one_job() {
    let mut server = Server::new(3);
    let join = |worker: u8, definitions: u64| {
        let mut process = Process::new(worker, 0, ms(0));
        process.joiner = thc_protocol::session::Joiner::new(
            JOB,
            WorkerId(worker),
            thc_support::parties::COOKIE,
            u64::from(worker) + 1,
            definitions,
            ms(0),
        );
        process.poll(ms(0)).unwrap()
    };
    let said = |packets: Packets| {
        let (header, payload) = Header::parse(&packets[0].1).unwrap();
        (header.kind, Refused::parse(payload))
    };
    let refused = Refused { reason: RefuseReason::Definitions, worker: WorkerId(1) };
    assert_eq!(said(server.take(ms(0), address(1, 0), &join(1, 77))).0, Kind::Pending);
    assert_eq!(said(server.take(ms(0), address(0, 0), &join(0, 78))), (Kind::Refused, Some(refused)));
    // A probe takes no place, and learns the same; or how the job is configured.
    assert_eq!(said(server.take(ms(0), address(9, 0), &join(255, 78))), (Kind::Refused, Some(refused)));
    let answers = server.take(ms(0), address(9, 0), &join(255, 77));
    let (header, payload) = Header::parse(&answers[0].1).unwrap();
    assert_eq!((header.kind, header.num_workers), (Kind::Description, 3));
    assert_eq!(Welcome::parse(payload), Some(Welcome { nonce: 256, ..static_job(3).welcome }));
    // Who does not say is not compared.
    assert_eq!(said(server.take(ms(0), address(2, 0), &join(2, 0))).0, Kind::Pending);
    assert_eq!(said(server.take(ms(0), address(0, 0), &join(0, 77))).0, Kind::Welcome);
}

#[test]
fn who_was_in_the_session_comes_before_a_stray_after_a_restart() {
    let (_, mut processes) = session(2);
    let cookie = processes[0].session().unwrap();
    let mut server = Server::with_job(static_job(2), 5000);
    let mut stray = Process::new(1, 7, ms(50));
    let packet = stray.poll(ms(50)).unwrap();
    server.take(ms(50), stray.address, &packet);
    processes.iter_mut().for_each(|process| process.joiner.resume(ms(100)));
    exchange(ms(100), &mut server, &mut processes);
    assert_eq!(server.installed.clone().unwrap().0, cookie);
    // And the stray does not get in before all are there again.
    let mut server = Server::with_job(static_job(2), 5000);
    processes.iter_mut().for_each(|process| process.joiner.resume(ms(200)));
    exchange(ms(200), &mut server, &mut processes[1..]);
    server.take(ms(300), stray.address, &packet);
    exchange(ms(400), &mut server, &mut processes);
    assert_eq!(server.installed.unwrap().0, cookie);
}
