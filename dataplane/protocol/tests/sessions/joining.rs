//! P22, P23: joining, and being refused.

use std::time::Duration;
use thc_protocol::session::{JoinError, JoinEvent, Joiner, Registry};
use thc_protocol::wire::{Header, Join, Kind, RefuseReason, Refused, Welcome};
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_support::parties::{COOKIE, JOB, Process, Server, address, exchange, ms, session, static_job};

#[test]
fn all_are_welcomed_when_the_last_has_joined() {
    let mut server = Server::new(3);
    let mut processes: Vec<Process> = [2, 0, 1].map(|worker| Process::new(worker, 0, ms(0))).into();
    exchange(ms(0), &mut server, &mut processes[..1]);
    assert_eq!(processes[0].events, [JoinEvent::Pending(0b100, 3)]);
    exchange(ms(10), &mut server, &mut processes[..2]);
    assert_eq!(processes[1].events, [JoinEvent::Pending(0b101, 3)]);
    assert_eq!(server.registry.status(JOB), Some((0b101, false)));
    exchange(ms(20), &mut server, &mut processes);
    let (cookie, members) = server.installed.clone().unwrap();
    assert_eq!(server.registry.status(JOB), Some((0b111, true)));
    for (worker, (number, at)) in (0u8..).zip(members) {
        assert_eq!((number, at.ingress, at.addr), (WorkerId(worker), 0, address(worker, 0)));
    }
    for process in &mut processes {
        let expected = Welcome {
            session: cookie,
            nonce: (u64::from(process.worker) << 32) + 1,
            ..static_job(3).welcome
        };
        assert_eq!(process.events.last(), Some(&JoinEvent::Welcome(expected)));
        assert_eq!(process.joiner.deadline(), None);
        assert_eq!(process.poll(ms(500)), None);
    }
}

#[test]
fn one_worker_is_a_session() {
    let (server, processes) = session(1);
    assert_eq!(processes[0].session(), Some(server.installed.unwrap().0));
}

#[test]
fn join_is_repeated_every_200_ms_and_says_who() {
    let mut process = Process::new(5, 9, ms(1000));
    for i in 0..5 {
        let now = ms(1000 + 200 * i);
        assert_eq!(process.joiner.deadline(), Some(now));
        assert_eq!(process.poll(now - Duration::from_nanos(1)), None);
        let packet = process.poll(now).unwrap();
        let (header, payload) = Header::parse(&packet).unwrap();
        assert_eq!(
            (header.kind, header.job, header.worker, header.cookie),
            (Kind::Join, JOB, WorkerId(5), COOKIE)
        );
        assert_eq!(Join::parse(payload), Some(Join { nonce: (5 << 32 | 9) + 1, ..Join::default() }));
        assert_eq!(process.poll(now), None);
    }
}

#[test]
fn a_lost_welcome_comes_again() {
    let mut server = Server::new(2);
    let mut processes: Vec<Process> = (0..2).map(|worker| Process::new(worker, 0, ms(0))).collect();
    // What the server says is lost until 600 ms.
    for now in [0, 200, 400] {
        for process in &mut processes {
            let packet = process.poll(ms(now)).unwrap();
            server.take(ms(now), process.address, &packet);
        }
    }
    let cookie = server.installed.clone().unwrap().0;
    exchange(ms(600), &mut server, &mut processes);
    assert!(processes.iter().all(|process| process.session() == Some(cookie)));
    assert_eq!(server.installed.unwrap().0, cookie);
}

#[test]
fn refusals() {
    let mut server = Server::new(2);
    let cases = [
        (JobId(43), WorkerId(0), COOKIE, RefuseReason::UnknownJob),
        (JOB, WorkerId(0), Cookie(COOKIE.0 ^ 1), RefuseReason::WrongCookie),
        (JOB, WorkerId(2), COOKIE, RefuseReason::WorkerOutOfRange),
        (JOB, WorkerId(64), COOKIE, RefuseReason::WorkerOutOfRange),
    ];
    for (job, worker, cookie, reason) in cases {
        let mut joiner = Joiner::new(job, worker, cookie, 7, 0, ms(0));
        let mut buffer = [0; 64];
        let packet = joiner.poll(ms(0), &mut buffer).unwrap().to_vec();
        let answers = server.take(ms(0), address(9, 9), &packet);
        assert_eq!((answers.len(), answers[0].0), (1, address(9, 9)));
        let (header, payload) = Header::parse(&answers[0].1).unwrap();
        assert_eq!((header.kind, Refused::parse(payload)), (Kind::Refused, Some(Refused { reason, worker })));
        // Who asks with the right cookie learns how many workers there are.
        let n = if reason == RefuseReason::WorkerOutOfRange { 2 } else { 0 };
        assert_eq!(header.num_workers, n);
        let expected = JoinEvent::Failed(JoinError::Refused { job, worker, reason });
        assert_eq!(joiner.handle(ms(1), &answers[0].1), Some(expected));
        assert_eq!(server.registry.status(JOB), Some((0, false)));
    }
    assert_eq!(server.registry.status(JobId(43)), None);
}

#[test]
fn other_packets_are_no_business_of_the_registry() {
    let mut server = Server::new(1);
    let process = Process::new(0, 0, ms(0)).poll(ms(0)).unwrap();
    for kind in thc_support::kinds().into_iter().filter(|&kind| kind != Kind::Join && kind != Kind::Leave) {
        let mut packet = process.clone();
        packet[1] = kind as u8;
        assert_eq!(server.take(ms(0), address(0, 0), &packet), vec![]);
    }
    for len in 0..process.len() {
        assert_eq!(server.take(ms(0), address(0, 0), &process[..len]), vec![]);
    }
    let mut long = process.clone();
    long.push(0);
    assert_eq!(server.take(ms(0), address(0, 0), &long), vec![]);
    assert_eq!(Registry::new([]).status(JOB), None);
}

#[test]
fn before_the_session_a_number_is_in_use_while_its_worker_asks() {
    let mut server = Server::new(2);
    let mut first = Process::new(0, 0, ms(0));
    let packet = first.poll(ms(0)).unwrap();
    server.take(ms(0), first.address, &packet);
    let mut second = Process::new(0, 1, ms(500));
    let packet = second.poll(ms(500)).unwrap();
    let reason = |answers: &[(_, Vec<u8>)]| {
        let (header, payload) = Header::parse(&answers[0].1).unwrap();
        (header.kind, Refused::parse(payload).map(|refused| refused.reason))
    };
    let answers = server.take(ms(500), second.address, &packet);
    assert_eq!(reason(&answers), (Kind::Refused, Some(RefuseReason::WorkerInUse)));
    let answers = server.take(ms(1000), second.address, &packet);
    assert_eq!(reason(&answers), (Kind::Pending, None));
}

#[test]
fn who_no_longer_asks_is_forgotten_before_the_session_begins() {
    let mut server = Server::new(2);
    let mut gone = Process::new(0, 0, ms(0));
    let packet = gone.poll(ms(0)).unwrap();
    server.take(ms(0), gone.address, &packet);
    let mut other = Process::new(1, 0, ms(3001));
    exchange(ms(3001), &mut server, std::slice::from_mut(&mut other));
    assert_eq!(other.events, [JoinEvent::Pending(0b10, 2)]);
    // Asking again in time keeps one's place.
    exchange(ms(5000), &mut server, std::slice::from_mut(&mut other));
    let mut back = Process::new(0, 1, ms(7000));
    exchange(ms(7000), &mut server, std::slice::from_mut(&mut back));
    assert!(back.session().is_some());
}

#[test]
fn overdue_says_whether_the_server_or_workers_are_missing() {
    let mut process = Process::new(1, 0, ms(100));
    assert_eq!(process.joiner.timeout_error(ms(5099), ms(5000)), None);
    let silent = process.joiner.timeout_error(ms(5100), ms(5000));
    assert_eq!(silent, Some(JoinError::Silent { waited: ms(5000) }));
    let mut server = Server::new(5);
    exchange(ms(5200), &mut server, std::slice::from_mut(&mut process));
    let missing = process.joiner.timeout_error(ms(6100), ms(5000)).unwrap();
    assert_eq!(missing, JoinError::Missing { job: JOB, missing: 0b11101, waited: ms(6000) });
    assert!(missing.to_string().contains("workers 0, 2, 3, 4 did not join"), "{missing}");
    let (_, mut joined) = session(1);
    assert_eq!(joined[0].joiner.timeout_error(ms(100_000), ms(5000)), None);
    // After a resumption the wait counts from then on.
    joined[0].joiner.resume(ms(100_000));
    assert_eq!(joined[0].joiner.timeout_error(ms(104_999), ms(5000)), None);
    assert!(joined[0].joiner.timeout_error(ms(105_000), ms(5000)).is_some());
}

#[test]
fn answers_that_are_not_for_this_joiner_are_ignored() {
    let mut server = Server::new(1);
    let mut process = Process::new(0, 0, ms(0));
    let packet = process.poll(ms(0)).unwrap();
    let welcome = server.take(ms(0), process.address, &packet).remove(0).1;
    let (header, payload) = Header::parse(&welcome).unwrap();
    let body = Welcome::parse(payload).unwrap();
    let emit = |header: Header, payload: &[u8]| {
        let mut buffer = [0; 256];
        header.emit_packet(&mut buffer, payload).to_vec()
    };
    let with = |body: Welcome| emit(header, &body.to_bytes());
    let bad = [
        // Another nonce, job, number of workers; cut short.
        with(Welcome { nonce: body.nonce + 1, ..body }),
        emit(Header { job: JobId(1), ..header }, payload),
        emit(Header { num_workers: 0, ..header }, payload),
        emit(Header { num_workers: 65, ..header }, payload),
        emit(header, &payload[..127]),
        // Neither a leaver's nor a member's packets mean anything yet.
        emit(Header { kind: Kind::Bye, ..header }, &[]),
        emit(Header { kind: Kind::Join, ..header }, &[0; 32]),
        emit(Header { kind: Kind::Result, ..header }, &[0; 1024][..64]),
        // Who refuses or counts must know the job's cookie.
        emit(Header { kind: Kind::Refused, cookie: Cookie(1), ..header }, &[2, 0, 0, 0]),
        emit(Header { kind: Kind::Refused, cookie: COOKIE, ..header }, &[10, 0, 0, 0]),
        emit(Header { kind: Kind::Refused, cookie: Cookie(0), ..header }, &[5, 0, 0, 0]),
        emit(Header { kind: Kind::Pending, cookie: Cookie(1), ..header }, &[0; 8]),
        // Who has no session cannot be asked whether it still is in it, nor be told that it is another.
        emit(Header { kind: Kind::Ask, ..header }, &body.nonce.to_be_bytes()),
        emit(Header { kind: Kind::Description, cookie: COOKIE, ..header }, payload),
    ];
    for (i, packet) in bad.iter().enumerate() {
        process.take(ms(1), packet);
        assert_eq!(process.events, [], "packet {i}");
    }
    process.take(ms(2), &welcome);
    assert_eq!(process.session(), Some(body.session));
    // And once joined, WELCOME and PENDING are old news.
    process.take(ms(3), &welcome);
    process.take(ms(3), &emit(Header { kind: Kind::Pending, cookie: COOKIE, ..header }, &[0; 8]));
    process.take(ms(3), &emit(Header { kind: Kind::Refused, cookie: COOKIE, ..header }, &[2, 0, 0, 0]));
    assert_eq!(process.events.len(), 1);
}

#[test]
fn a_welcome_to_a_job_that_this_version_does_not_know_is_refused_by_name() {
    let mut server = Server::new(1);
    let mut process = Process::new(0, 0, ms(0));
    let packet = process.poll(ms(0)).unwrap();
    let welcome = server.take(ms(0), process.address, &packet).remove(0).1;
    let (header, payload) = Header::parse(&welcome).unwrap();
    let body = Welcome { data_slots: 3, ..Welcome::parse(payload).unwrap() };
    let mut buffer = [0; 256];
    // Somebody else's changes nothing.
    let other = Welcome { nonce: body.nonce + 1, ..body };
    process.take(ms(1), header.emit_packet(&mut buffer, &other.to_bytes()));
    assert_eq!(process.events, []);
    process.take(ms(1), header.emit_packet(&mut buffer, &body.to_bytes()));
    let [JoinEvent::Failed(error @ JoinError::Unusable { .. })] = &process.events[..] else {
        panic!("{:?}", process.events)
    };
    assert_eq!(
        error.to_string(),
        "this worker cannot take part in the parameter server's job 7: data slots 3: this version knows even numbers from \
         2 to 65536; change the job, or use the server's version"
            .replace("job 7", &format!("job {JOB}"))
    );
}

#[test]
fn a_refusal_of_an_earlier_attempt_that_comes_late_fails_nobody() {
    let mut server = Server::new(1);
    let mut process = Process::new(0, 0, ms(0));
    let join = process.poll(ms(0)).unwrap();
    // Its job is not there yet, it says, and the packet is under way for long.
    let late = server.take(ms(0), process.address, &{
        let mut other = join.clone();
        other[11] ^= 1;
        other
    });
    let mut late = late[0].1.clone();
    late[8..12].copy_from_slice(&COOKIE.0.to_be_bytes());
    assert_eq!((late[1], late[20]), (Kind::Refused as u8, RefuseReason::WrongCookie as u8));
    let mut same_attempt = process.joiner.clone();
    let welcome = server.take(ms(1), process.address, &join);
    process.take(ms(1), &welcome[0].1);
    let session = process.session();
    assert!(session.is_some());
    process.joiner.resume(ms(5000));
    assert!(process.poll(ms(5000)).is_some());
    process.take(ms(5000), &late);
    assert_eq!(process.events.len(), 1, "it was refused: {:?}", process.events);
    assert!(matches!(same_attempt.handle(ms(1), &late), Some(JoinEvent::Failed(_))));
}

#[test]
fn the_session_cookie_is_neither_zero_nor_the_configured_one() {
    let mut registry = Registry::new([static_job(1)]);
    let packet = Process::new(0, 0, ms(0)).poll(ms(0)).unwrap();
    let mut numbers = [0, COOKIE.0, 0, 17].into_iter();
    let actions = registry.handle(ms(0), address(0, 0), &packet, |_, _| None, || numbers.next().unwrap());
    let thc_protocol::session::Action::Install(config, _) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!(config.cookie, Cookie(17));
}
