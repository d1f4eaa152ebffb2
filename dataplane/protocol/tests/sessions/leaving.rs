//! P25: leaving.

use std::time::Duration;
use thc_protocol::session::{Action, JoinEvent};
use thc_protocol::wire::{Header, Kind, Leave};
use thc_support::parties::{JOB, Process, Server, address, exchange, ms, session};

#[test]
fn the_last_to_leave_sets_all_free() {
    let (mut server, mut processes) = session(3);
    for i in 0..2 {
        processes[i].joiner.leave(ms(100));
        exchange(ms(100), &mut server, &mut processes);
        assert!(!processes[i].joiner.has_left());
    }
    assert!(server.installed.is_some());
    processes[2].joiner.leave(ms(120));
    exchange(ms(120), &mut server, &mut processes);
    assert_eq!(server.installed, None);
    assert_eq!(server.registry.status(JOB), Some((0, false)));
    for process in &processes {
        assert_eq!(process.events.last(), Some(&JoinEvent::Bye));
        assert!(process.joiner.has_left());
        assert_eq!(process.joiner.deadline(), None);
    }
}

#[test]
fn members_hear_who_has_left_and_whose_port_nobody_listens_at() {
    let (mut server, mut processes) = session(4);
    processes[1].joiner.leave(ms(100));
    exchange(ms(100), &mut server, &mut processes);
    for i in [0, 2, 3] {
        assert_eq!(processes[i].events.last(), Some(&JoinEvent::Here(0b1101)), "worker {i}");
    }
    assert_eq!(server.registry.status(JOB), Some((0b1101, true)));
    assert!(!processes[1].joiner.has_left());
    // One is killed: its own host says so.
    for action in server.registry.unreachable(&[processes[2].address, address(9, 0)]) {
        let Action::Send(to, packet) = action else { panic!("{action:?}") };
        let process = processes.iter_mut().find(|process| process.address == to).unwrap();
        assert!(process.address != address(2, 0));
        process.take(ms(200), &packet);
    }
    for i in [0, 3] {
        assert_eq!(processes[i].events.last(), Some(&JoinEvent::Here(0b1001)), "worker {i}");
    }
    assert!(server.registry.unreachable(&[address(9, 0)]).is_empty());
    // It was no more than its host's word: the worker is there again.
    for action in server.registry.unreachable(&[]) {
        let Action::Send(to, packet) = action else { panic!("{action:?}") };
        processes.iter_mut().find(|process| process.address == to).unwrap().take(ms(400), &packet);
    }
    assert_eq!(processes[3].events.last(), Some(&JoinEvent::Here(0b1101)));
}

#[test]
fn a_lost_bye_comes_again() {
    let (mut server, mut processes) = session(2);
    for process in &mut processes {
        process.joiner.leave(ms(0));
        let packet = process.poll(ms(0)).unwrap();
        server.take(ms(0), process.address, &packet);
    }
    assert_eq!(server.installed, None);
    exchange(ms(50), &mut server, &mut processes);
    assert!(processes.iter().all(|process| process.joiner.has_left()));
}

/// Sends LEAVE, to this server if there is one, until the worker has left: how often, and when that was.
fn leaves(mut server: Option<&mut Server>, process: &mut Process) -> (u32, Duration) {
    let session = process.session().unwrap();
    let (mut sent, mut now, at) = (0, Duration::ZERO, process.address);
    while let Some(deadline) = process.joiner.deadline() {
        now = deadline;
        let Some(packet) = process.poll(now) else { continue };
        let (header, payload) = Header::parse(&packet).unwrap();
        if header.kind == Kind::Leave {
            assert_eq!(header.cookie, session);
            assert_eq!(Leave::parse(payload), Some(Leave { nonce: 1 }));
            sent += 1;
        }
        for (to, answer) in server.iter_mut().flat_map(|server| server.take(now, at, &packet)) {
            // The others hear of it, too.
            if to == at {
                process.take(now, &answer);
            }
        }
    }
    assert!(process.joiner.has_left());
    (sent, now)
}

#[test]
fn leave_is_repeated_for_a_second_where_the_session_runs_and_for_five_where_nobody_answers() {
    let (mut server, mut processes) = session(2);
    processes[0].joiner.leave(ms(1000));
    assert_eq!(leaves(Some(&mut server), &mut processes[0]), (20, ms(2000)));
    // Leaving twice changes nothing.
    processes[0].joiner.leave(ms(3000));
    assert!(processes[0].joiner.has_left());
    assert!(server.installed.is_some(), "the other one has not left");

    let (_, mut processes) = session(2);
    processes[0].joiner.leave(ms(1000));
    assert_eq!(leaves(None, &mut processes[0]), (100, ms(6000)));

    // Whose session is over is needed by nobody.
    let (_, mut processes) = session(2);
    processes[0].joiner.quit(ms(1000));
    assert_eq!(leaves(None, &mut processes[0]), (20, ms(2000)));

    // Where nobody has been let in there is nobody to stay for.
    let mut process = Process::new(0, 0, ms(0));
    process.joiner.leave(ms(1000));
    while let Some(deadline) = process.joiner.deadline() {
        assert!(deadline <= ms(2000));
        process.poll(deadline);
    }
    assert!(process.joiner.has_left());
}

#[test]
fn who_leaves_says_so_for_longer_while_others_need_it() {
    let (_, mut processes) = session(2);
    processes[0].joiner.leave(ms(1000));
    processes[0].joiner.stay(ms(4000));
    assert_eq!(leaves(None, &mut processes[0]), (160, ms(9000)));
}

#[test]
fn a_server_that_has_lost_the_session_has_it_again_from_who_leaves_and_who_does_not() {
    let (_, mut processes) = session(2);
    let cookie = processes[0].session().unwrap();
    let mut restarted = Server::new(2);
    processes[0].joiner.leave(ms(0));
    // Before the other one has noticed.
    for now in (0..400).step_by(10) {
        exchange(ms(now), &mut restarted, &mut processes);
    }
    assert!(!processes[0].joiner.has_left() && restarted.installed.is_none());
    processes[1].joiner.resume(ms(400));
    for now in (400..1000).step_by(10) {
        exchange(ms(now), &mut restarted, &mut processes);
    }
    assert_eq!(restarted.installed.as_ref().map(|(cookie, _)| *cookie), Some(cookie));
    assert!(processes[1].joiner.has_joined());
    let events: Vec<_> =
        processes[1].events.iter().filter(|event| !matches!(event, JoinEvent::Here(0b10))).collect();
    assert_eq!(events.last(), events.first(), "the session goes on");
    processes[1].joiner.leave(ms(1000));
    for now in (1000..1200).step_by(10) {
        exchange(ms(now), &mut restarted, &mut processes);
    }
    assert!(processes.iter().all(|process| process.joiner.has_left()));
    assert_eq!(restarted.installed, None);
    assert_eq!(restarted.registry.status(JOB), Some((0, false)));
}

#[test]
fn who_leaves_before_the_session_begins_is_free_at_once() {
    let mut server = Server::new(2);
    let mut process = Process::new(0, 0, ms(0));
    exchange(ms(0), &mut server, std::slice::from_mut(&mut process));
    process.joiner.leave(ms(10));
    exchange(ms(10), &mut server, std::slice::from_mut(&mut process));
    assert!(process.joiner.has_left());
    assert_eq!(server.registry.status(JOB), Some((0, false)));
}

#[test]
fn leaving_a_session_that_is_over_holds_nobody() {
    let (mut server, mut processes) = session(2);
    let old = processes[0].session().unwrap();
    // Worker 1 has restarted; worker 0 has not heard of it.
    let mut again = Process::new(1, 1, ms(0));
    again.address = processes[1].address;
    let join = again.poll(ms(0)).unwrap();
    server.take(ms(0), again.address, &join);
    assert_eq!(server.installed, None);
    processes[0].joiner.leave(ms(10));
    exchange(ms(10), &mut server, &mut processes);
    assert!(processes[0].joiner.has_left());
    assert_eq!(processes[0].session(), Some(old));
}

#[test]
fn a_stranger_cannot_leave_for_a_member() {
    let (mut server, mut processes) = session(2);
    let mut stranger = Process::new(0, 9, ms(0));
    stranger.joiner.leave(ms(0));
    exchange(ms(0), &mut server, std::slice::from_mut(&mut stranger));
    processes[1].joiner.leave(ms(0));
    exchange(ms(0), &mut server, &mut processes);
    assert!(server.installed.is_some());
    assert!(!processes[1].joiner.has_left());
}

#[test]
fn after_all_but_one_have_left_a_new_session_can_begin() {
    let (mut server, mut processes) = session(2);
    // Worker 0 leaves and is gone; worker 1 has crashed. Both start again.
    processes[0].joiner.leave(ms(0));
    exchange(ms(0), &mut server, &mut processes);
    let cookie = server.installed.clone().unwrap().0;
    let mut fresh: Vec<Process> = (0..2).map(|worker| Process::new(worker, 1, ms(5000))).collect();
    exchange(ms(5000), &mut server, &mut fresh);
    exchange(ms(5200), &mut server, &mut fresh);
    let new = server.installed.clone().unwrap();
    assert_ne!(new.0, cookie);
    assert_eq!(new.1[1].1.addr, address(1, 1));
    assert!(fresh.iter().all(|process| process.session() == Some(new.0)));
}

#[test]
fn a_late_join_does_not_bring_a_leaver_back() {
    let (mut server, mut processes) = session(2);
    let stale = Process::new(0, 0, ms(0)).poll(ms(0)).unwrap();
    processes[0].joiner.leave(ms(10));
    exchange(ms(10), &mut server, &mut processes);
    server.take(ms(20), address(0, 0), &stale);
    processes[1].joiner.leave(ms(30));
    exchange(ms(30), &mut server, &mut processes);
    assert!(processes.iter().all(|process| process.joiner.has_left()));
}
