//! P25: leaving.

use super::parties::{JOB, Process, Server, address, exchange, ms, session};
use thc_protocol::session::JoinEvent;
use thc_protocol::wire::{Header, Kind, Leave};

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

#[test]
fn leave_is_repeated_for_a_second() {
    let (_, mut processes) = session(2);
    let session = processes[0].session().unwrap();
    processes[0].joiner.leave(ms(1000));
    let mut sent = 0;
    let mut now = ms(1000);
    while let Some(deadline) = processes[0].joiner.deadline() {
        now = deadline;
        if let Some(packet) = processes[0].poll(now) {
            let (header, payload) = Header::parse(&packet).unwrap();
            assert_eq!((header.kind, header.cookie), (Kind::Leave, session));
            assert_eq!(Leave::parse(payload), Some(Leave { nonce: 1 }));
            sent += 1;
        }
    }
    assert_eq!((sent, now), (20, ms(2000)));
    assert!(processes[0].joiner.has_left());
    // Leaving twice changes nothing.
    processes[0].joiner.leave(ms(3000));
    assert!(processes[0].joiner.has_left());
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
    let (_, mut processes) = session(2);
    let mut restarted = Server::new(2);
    processes[0].joiner.leave(ms(10));
    exchange(ms(10), &mut restarted, &mut processes);
    assert!(processes[0].joiner.has_left());
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
