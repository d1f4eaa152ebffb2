//! P24: restarts of the parameter server and of workers.

use thc_protocol::session::JoinEvent;
use thc_protocol::wire::{Header, Kind, RefuseReason, Refused};
use thc_protocol::{Cookie, WorkerId};
use thc_support::parties::{JOB, Process, Server, address, exchange, ms, session, static_job, usurp};

#[test]
fn a_restarted_server_goes_on_with_the_session_that_all_claim() {
    let (old, mut processes) = session(3);
    let cookie = old.installed.unwrap().0;
    let mut server = Server::with_job(static_job(3), 5000);
    for process in &mut processes {
        process.events.clear();
        process.joiner.resume(ms(60_000));
    }
    exchange(ms(60_000), &mut server, &mut processes[..2]);
    assert_eq!(server.installed, None);
    exchange(ms(60_200), &mut server, &mut processes);
    assert_eq!(server.installed.unwrap().0, cookie);
    assert!(processes.iter().all(|process| process.session() == Some(cookie)));
}

#[test]
fn who_claims_a_session_that_another_does_not_must_join_anew() {
    // Worker 2 has restarted together with the server.
    let (old, mut processes) = session(3);
    let cookie = old.installed.unwrap().0;
    let mut server = Server::with_job(static_job(3), 5000);
    processes[..2].iter_mut().for_each(|process| process.joiner.resume(ms(100)));
    processes[2] = Process::new(2, 1, ms(100));
    processes.iter_mut().for_each(|process| process.events.clear());
    // It could be a stray in the place of a member that still comes: they wait a second for that.
    for now in (100..=1100).step_by(200).map(ms) {
        exchange(now, &mut server, &mut processes);
        assert_eq!(server.installed, None);
        let told = processes[0].events.last() == Some(&JoinEvent::Reforming(WorkerId(2)));
        assert_eq!(told, now == ms(1100));
    }
    assert!(processes[1].events.contains(&JoinEvent::Reforming(WorkerId(2))));
    for worker in 0..2 {
        processes[usize::from(worker)] = Process::new(worker, 7, ms(1200));
    }
    exchange(ms(1300), &mut server, &mut processes);
    exchange(ms(1500), &mut server, &mut processes);
    let new = server.installed.unwrap().0;
    assert_ne!(new, cookie);
    assert!(processes.iter().all(|process| process.session() == Some(new)));
}

#[test]
fn claims_of_two_different_sessions_are_both_turned_away() {
    let (_, mut first) = session(2);
    let mut other = Server::with_job(static_job(2), 9000);
    let mut second: Vec<Process> = (0..2).map(|worker| Process::new(worker, 3, ms(0))).collect();
    exchange(ms(0), &mut other, &mut second);
    let mut server = Server::with_job(static_job(2), 20_000);
    let mut mixed = vec![first.remove(0), second.remove(1)];
    mixed.iter_mut().for_each(|process| process.joiner.resume(ms(50)));
    exchange(ms(50), &mut server, &mut mixed);
    assert_eq!(server.installed, None);
    for process in &mixed {
        assert_eq!(process.events.last(), Some(&JoinEvent::Reforming(WorkerId::NONE)));
    }
}

#[test]
fn with_a_quorum_below_n_no_session_is_resumed() {
    let mut job = static_job(3);
    job.config.quorum = 2;
    job.welcome.quorum = 2;
    let mut server = Server::with_job(job.clone(), 1000);
    let mut processes: Vec<Process> = (0..3).map(|worker| Process::new(worker, 0, ms(0))).collect();
    exchange(ms(0), &mut server, &mut processes);
    let mut server = Server::with_job(job, 5000);
    processes.iter_mut().for_each(|process| process.joiner.resume(ms(100)));
    exchange(ms(100), &mut server, &mut processes);
    assert_eq!(server.installed, None);
    for process in &processes {
        assert_eq!(process.events.last(), Some(&JoinEvent::Reforming(WorkerId::NONE)));
    }
}

#[test]
fn a_late_claim_of_an_old_session_does_not_end_the_one_that_runs() {
    let (mut server, mut processes) = session(2);
    processes[0].joiner.resume(ms(900));
    let late = processes[0].poll(ms(900)).unwrap();
    // Worker 1 restarts, and worker 0 joins anew.
    let mut fresh: Vec<Process> = (0..2u8).map(|worker| Process::new(worker, 9, ms(2000))).collect();
    assert!(usurp(ms(2000), &mut server, &mut fresh[1]).is_some());
    exchange(ms(3100), &mut server, &mut fresh);
    exchange(ms(3300), &mut server, &mut fresh);
    let new = server.installed.clone().unwrap().0;
    let answers = server.take(ms(3400), processes[0].address, &late);
    assert_eq!(server.installed.clone().unwrap().0, new);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].1[1], Kind::Refused as u8);
}

#[test]
fn a_restarted_worker_ends_the_session_for_all() {
    let (mut server, mut processes) = session(3);
    let cookie = processes[0].session().unwrap();
    // From the same address, or from another once the old one has not answered.
    for process in [0, 1] {
        let start = ms(1000 + 3000 * u64::from(process));
        let mut fresh = Process::new(1, process, start);
        fresh.joiner = thc_protocol::session::Joiner::new(
            JOB,
            WorkerId(1),
            thc_support::parties::COOKIE,
            777 + u64::from(process),
            0,
            start,
        );
        let before = server.installed.clone().unwrap().0;
        let (when, answers) = usurp(start, &mut server, &mut fresh).unwrap();
        assert_eq!(when - start, if process == 0 { ms(0) } else { ms(540) });
        assert_eq!(server.installed, None);
        let mut told = Vec::new();
        for (to, answer) in &answers {
            let (header, payload) = Header::parse(answer).unwrap();
            match header.kind {
                Kind::Pending => assert_eq!(*to, fresh.address),
                Kind::Refused => {
                    let expected = Refused { reason: RefuseReason::Reforming, worker: WorkerId(1) };
                    assert_eq!((Refused::parse(payload), header.cookie), (Some(expected), before));
                    told.push(*to);
                    processes.iter_mut().filter(|p| p.address == *to).for_each(|p| p.take(when, answer));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, [address(0, 0), address(2, 0)]);
        for worker in [0, 2] {
            assert_eq!(processes[worker].events.pop(), Some(JoinEvent::Reforming(WorkerId(1))));
        }
        // All join anew.
        processes[1] = fresh;
        for worker in [0u8, 2] {
            processes[usize::from(worker)] = Process::new(worker, 0, when);
            let joiner = &mut processes[usize::from(worker)].joiner;
            *joiner = thc_protocol::session::Joiner::new(
                JOB,
                WorkerId(worker),
                thc_support::parties::COOKIE,
                900 + u64::from(process),
                0,
                when,
            );
        }
        exchange(when, &mut server, &mut processes);
        exchange(when + ms(200), &mut server, &mut processes);
        let new = server.installed.clone().unwrap().0;
        assert_ne!(new, cookie);
        assert!(processes.iter().all(|process| process.session() == Some(new)));
    }
}

#[test]
fn a_lost_notice_of_re_forming_comes_again_until_its_receiver_has_joined() {
    let (mut server, mut processes) = session(3);
    let mut fresh = Process::new(2, 5, ms(1000));
    let (when, _) = usurp(ms(1000), &mut server, &mut fresh).unwrap();
    assert!(when < ms(1800));
    let told = |answers: &[(std::net::SocketAddr, Vec<u8>)]| {
        let refused = answers.iter().filter(|(_, bytes)| bytes[1] == Kind::Refused as u8);
        refused.map(|(to, _)| *to).collect::<Vec<_>>()
    };
    for i in 0..3 {
        let packet = fresh.poll(ms(2000 + 200 * i)).unwrap();
        let answers = server.take(ms(2000 + 200 * i), fresh.address, &packet);
        assert_eq!(told(&answers), [address(0, 0), address(1, 0)]);
    }
    // Worker 0 notices by itself and asks with its old session.
    processes[0].joiner.resume(ms(2500));
    let packet = processes[0].poll(ms(2500)).unwrap();
    let answers = server.take(ms(2500), processes[0].address, &packet);
    assert_eq!(told(&answers), [address(0, 0)]);
    // It has joined anew: only the other is told again.
    let mut anew = Process::new(0, 0, ms(2550));
    anew.joiner =
        thc_protocol::session::Joiner::new(JOB, WorkerId(0), thc_support::parties::COOKIE, 31, 0, ms(2550));
    let packet = anew.poll(ms(2550)).unwrap();
    server.take(ms(2550), anew.address, &packet);
    let packet = fresh.poll(ms(2600)).unwrap();
    let answers = server.take(ms(2600), fresh.address, &packet);
    assert_eq!(told(&answers), [address(1, 0)]);
}

#[test]
fn a_notice_counts_only_in_the_session_it_is_about() {
    let (_, mut processes) = session(2);
    let session = processes[0].session().unwrap();
    let notice = |cookie| {
        let mut buffer = [0; 64];
        let header = Header::new(Kind::Refused, 0, JOB, WorkerId(0), cookie);
        let body = Refused { reason: RefuseReason::Reforming, worker: WorkerId(1) }.to_bytes();
        header.emit_packet(&mut buffer, &body).to_vec()
    };
    processes[0].events.clear();
    for cookie in [Cookie(0), Cookie(session.0 ^ 1), thc_support::parties::COOKIE] {
        processes[0].take(ms(1), &notice(cookie));
    }
    assert_eq!(processes[0].events, []);
    processes[0].take(ms(1), &notice(session));
    assert_eq!(processes[0].events, [JoinEvent::Reforming(WorkerId(1))]);
}

#[test]
fn a_late_join_of_an_earlier_incarnation_does_not_end_the_session() {
    let mut server = Server::new(2);
    let mut old = Process::new(0, 0, ms(0));
    let stale = old.poll(ms(0)).unwrap();
    server.take(ms(0), old.address, &stale);
    let mut processes = vec![Process::new(0, 1, ms(1500)), Process::new(1, 0, ms(1500))];
    exchange(ms(1500), &mut server, &mut processes);
    let installed = server.installed.clone();
    assert!(installed.is_some());
    // The old JOIN comes once more, and the present members are idle.
    assert_eq!(server.take(ms(3000), old.address, &stale), vec![]);
    // Later it is one that asks; but asking once ends nothing.
    assert_ne!(server.take(ms(4500), old.address, &stale), vec![]);
    assert_ne!(server.take(ms(7500), old.address, &stale), vec![]);
    assert_eq!(server.installed, installed);
}

#[test]
fn a_late_first_join_does_not_take_a_claim_back() {
    let (_, mut processes) = session(2);
    let cookie = processes[0].session().unwrap();
    let stale = Process::new(0, 0, ms(0)).poll(ms(0)).unwrap();
    let mut server = Server::with_job(static_job(2), 5000);
    processes.iter_mut().for_each(|process| process.joiner.resume(ms(100)));
    exchange(ms(100), &mut server, &mut processes[..1]);
    server.take(ms(150), address(0, 0), &stale);
    exchange(ms(150), &mut server, &mut processes[1..]);
    assert_eq!(server.installed.unwrap().0, cookie);
}

#[test]
fn a_member_may_move() {
    let (mut server, mut processes) = session(2);
    let cookie = processes[1].session();
    processes[1].address = address(1, 44);
    // Its old address is asked first, and does not answer.
    for now in (100..=900).step_by(200) {
        processes[1].joiner.resume(ms(now));
        exchange(ms(now), &mut server, &mut processes);
        let at = server.installed.as_ref().unwrap().1[1].1.addr;
        assert_eq!(at, address(1, if now < 900 { 0 } else { 44 }), "{now}");
    }
    assert_eq!((processes[1].session(), processes[1].events.len()), (cookie, 2));
}

#[test]
fn resuming_needs_a_session() {
    let mut process = Process::new(0, 0, ms(0));
    process.poll(ms(0)).unwrap();
    process.joiner.resume(ms(1));
    assert_eq!(process.joiner.deadline(), Some(ms(200)));
}
