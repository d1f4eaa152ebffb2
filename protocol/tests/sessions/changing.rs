//! Members that come and go (P42, P43): what the server makes of any order of packets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thc_protocol::session::{Action, Registry, Sizes, StaticJob};
use thc_protocol::wire::{
    Boundary, HEADER_LEN, Header, Join, Kind, Leave, Members, Position, RefuseReason, Refused, Stand,
    Welcome, What,
};
use thc_protocol::{Cookie, Round, SlotId, WorkerId};
use thc_support::parties::{COOKIE, JOB, ms, static_job};

const GONE_AFTER: Duration = ms(1500);

fn job(least: u8, most: u8) -> StaticJob {
    let shape = |workers| {
        let StaticJob { config, welcome, .. } = static_job(workers);
        let members = Some(Members::default());
        (config, Welcome { min_workers: least, max_workers: most, members, ..welcome })
    };
    let shapes: Vec<_> = (least..=most).map(shape).collect();
    let (config, welcome) = shapes.last().unwrap().clone();
    let sizes = Sizes { shapes, gone_after: GONE_AFTER, gather: ms(500) };
    StaticJob { config, welcome, root: None, sizes: Some(Arc::new(sizes)) }
}

/// A server, and what each seat was told last.
struct Server {
    registry: Registry,
    now: Duration,
    cookies: u32,
    /// By seat, the WELCOME and its n.
    welcomes: BTreeMap<u8, (Welcome, u8)>,
    /// By seat, the BOUNDARY as it is on the wire.
    boundaries: BTreeMap<u8, Vec<u8>>,
    /// By seat.
    refused: BTreeMap<u8, RefuseReason>,
    /// How often each seat was asked whether it still runs.
    asked: BTreeMap<u8, u32>,
}

/// Where a worker with this seat sends from.
fn address(seat: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, seat), 6000))
}

fn nonce(seat: u8) -> u64 {
    1000 + u64::from(seat)
}

impl Server {
    fn new(least: u8, most: u8) -> Server {
        Server {
            registry: Registry::new([job(least, most)]),
            now: Duration::ZERO,
            cookies: 100,
            welcomes: BTreeMap::new(),
            boundaries: BTreeMap::new(),
            refused: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// A session of so many, all of whom have joined.
    fn with_session(least: u8, most: u8) -> Server {
        let mut server = Server::new(least, most);
        (0..most).for_each(|seat| server.join(seat, 0));
        assert_eq!(server.session().1, (0..most).collect::<Vec<_>>());
        server
    }

    /// The server forgets everything.
    fn restart(&mut self, least: u8, most: u8) {
        self.registry = Registry::new([job(least, most)]);
    }

    /// The session that runs, and its members' seats.
    fn session(&self) -> (Cookie, Vec<u8>) {
        let (cookie, members) = self.registry.session(JOB).unwrap_or_default();
        (cookie, members.iter().map(|member| member.worker.0).collect())
    }

    fn take(&mut self, seat: u8, header: Header, body: &[u8]) {
        let mut bytes = vec![0; HEADER_LEN + body.len()];
        header.emit_packet(&mut bytes, body);
        let cookies = &mut self.cookies;
        let random = || {
            *cookies += 1;
            *cookies
        };
        let actions = self.registry.handle(self.now, address(seat), &bytes, |_, _| None, random);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let Action::Send(to, bytes) = action else { continue };
            let seat = octets(to)[3];
            let (header, payload) = Header::parse(&bytes).unwrap();
            assert_eq!(header.worker, WorkerId(seat));
            match header.kind {
                Kind::Welcome => {
                    let welcome = Welcome::parse(payload).unwrap();
                    let before = self.welcomes.insert(seat, (welcome, header.num_workers));
                    if before.is_none_or(|(before, _)| before.session != welcome.session) {
                        self.boundaries.remove(&seat);
                    }
                }
                Kind::Boundary => {
                    self.boundaries.insert(seat, payload.to_vec());
                }
                Kind::Refused => {
                    self.refused.insert(seat, Refused::parse(payload).unwrap().reason);
                }
                Kind::Ask => *self.asked.entry(seat).or_default() += 1,
                _ => {}
            }
        }
    }

    fn header(kind: Kind, seat: u8, cookie: Cookie) -> Header {
        Header::new(kind, 0, JOB, WorkerId(seat), cookie)
    }

    /// JOIN of a worker that is in no session and wants one of so many, 0 for any.
    fn join(&mut self, seat: u8, wants: u8) {
        self.join_with(seat, wants, 0);
    }

    fn join_with(&mut self, seat: u8, wants: u8, epoch: u16) {
        let header = Server::header(Kind::Join, seat, COOKIE);
        let body = Join { nonce: nonce(seat), ..Join::default() }.to_bytes();
        self.take(seat, Header { num_workers: wants, slot: SlotId(epoch), ..header }, &body);
    }

    /// JOIN of a member that claims its session.
    fn claim(&mut self, seat: u8) {
        let (welcome, n) = self.welcomes[&seat];
        let header = Server::header(Kind::Join, seat, COOKIE);
        let epoch = welcome.members.unwrap().epoch;
        let (session, fingerprint) = (welcome.session, welcome.fingerprint());
        let body = Join { nonce: nonce(seat), session, fingerprint, ..Join::default() }.to_bytes();
        self.take(seat, Header { num_workers: n, slot: SlotId(epoch), ..header }, &body);
    }

    /// What a seat was told to do last in its session.
    fn last_order(&self, seat: u8) -> Option<(What, u32)> {
        let boundary = Boundary::parse(self.boundaries.get(&seat)?).unwrap();
        Some((boundary.what, boundary.calls))
    }

    /// POSITION as it is on the wire, in answer to what the seat was told last.
    fn answer(&self, seat: u8, (finished, begun): (u32, u32), stand: Stand) -> (Header, Vec<u8>) {
        let header = Server::header(Kind::Position, seat, self.welcomes[&seat].0.session);
        let mut body = vec![0; 20];
        body[..8].copy_from_slice(&nonce(seat).to_be_bytes());
        body[8..12].copy_from_slice(&finished.to_be_bytes());
        body[12..16].copy_from_slice(&begun.to_be_bytes());
        body[16] = stand as u8;
        if let Some(boundary) = self.boundaries.get(&seat) {
            body[18..20].copy_from_slice(&boundary[2..4]);
        }
        assert!(Position::parse(&body).is_some());
        (header, body)
    }

    fn say(&mut self, seat: u8, calls: (u32, u32), stand: Stand) {
        let (header, body) = self.answer(seat, calls, stand);
        self.take(seat, header, &body);
    }

    fn hold(&mut self, seat: u8, finished: u32) {
        self.say(seat, (finished, finished.wrapping_add(1)), Stand::Holding);
    }

    fn leave(&mut self, seat: u8, finished: u32) {
        let header = Server::header(Kind::Leave, seat, self.welcomes[&seat].0.session);
        let body = Leave { nonce: nonce(seat) }.to_bytes();
        self.take(seat, Header { round: Round(finished), ..header }, &body);
    }

    /// Time passes, in which these do something every 100 ms.
    fn pass(&mut self, time: Duration, mut what: impl FnMut(&mut Server)) {
        let end = self.now + time;
        while self.now < end {
            self.now += ms(50);
            let cookies = &mut self.cookies;
            let random = || {
                *cookies += 1;
                *cookies
            };
            let actions = self.registry.poll(self.now, |_, _| None, random);
            self.act(actions);
            what(self);
        }
    }
}

#[test]
fn what_members_were_told_to_finish_they_finish_whoever_dies_then() {
    let mut server = Server::with_session(1, 4);
    let before = server.session().0;
    // Seat 3 dies; the others hold, seat 2 having finished one call more than the rest.
    server.pass(GONE_AFTER + ms(200), |server| {
        for (seat, finished) in [(0, 5), (1, 5), (2, 6)] {
            match server.last_order(seat) {
                None => server.claim(seat),
                Some(_) => server.hold(seat, finished),
            }
        }
    });
    assert_eq!(
        (server.last_order(0), server.last_order(1)),
        (Some((What::Finish, 6)), Some((What::Finish, 6)))
    );
    // Seat 0 finishes its sixth call, and nobody hears of it; seat 2 dies.
    server.pass(GONE_AFTER + ms(200), |server| {
        server.say(1, (5, 6), Stand::Holding);
        server.claim(0);
    });
    assert_eq!(server.session(), (before, vec![0, 1]), "a session has begun with one of them a call behind");
    assert_eq!(server.last_order(1), Some((What::Finish, 6)));
    server.say(0, (6, 6), Stand::Holding);
    assert_eq!(server.session().0, before);
    server.say(1, (6, 6), Stand::Holding);
    assert_ne!(server.session().0, before);
    assert_eq!(server.session().1, [0, 1]);
}

#[test]
fn an_answer_to_an_earlier_question_that_comes_late_counts_for_nothing() {
    let mut server = Server::new(1, 3);
    server.pass(ms(3600), |server| (0..2).for_each(|seat| server.join(seat, 0)));
    let before = server.session();
    assert_eq!(before.1, [0, 1]);
    // Somebody waits, and one member stops for it; a copy of what it says is under way for long.
    server.join(2, 0);
    server.say(0, (4, 4), Stand::Stopped);
    server.say(1, (3, 4), Stand::Running);
    assert_eq!(server.last_order(0), Some((What::Stop, 4)));
    let late = server.answer(0, (4, 4), Stand::Stopped);
    // Who waited is forgotten, and all go on.
    server.pass(ms(3200), |server| {
        for (seat, stand) in [(0, Stand::Stopped), (1, Stand::Running)] {
            match server.last_order(seat) {
                Some((What::GoOn, _)) => server.claim(seat),
                _ => server.say(seat, (3, 4), stand),
            }
        }
    });
    assert_eq!(server.last_order(0), Some((What::GoOn, 0)));
    // The first is in its fifth call when somebody waits again, and the other stops before that.
    server.join(2, 0);
    server.say(1, (4, 4), Stand::Stopped);
    server.take(0, late.0, &late.1);
    server.say(1, (4, 4), Stand::Stopped);
    server.take(0, late.0, &late.1);
    assert_eq!(server.session(), before, "a session has begun without one that is in a call");
    server.say(0, (4, 5), Stand::Running);
    assert_eq!(server.last_order(1), Some((What::Stop, 5)));
    server.say(0, (5, 5), Stand::Stopped);
    server.say(1, (5, 5), Stand::Stopped);
    assert_eq!(server.session().1, [0, 1, 2]);
}

#[test]
fn a_server_that_is_started_anew_goes_on_with_the_numbers_that_members_know() {
    let newer = |a: u16, b: u16| a.wrapping_sub(b) as i16 > 0;
    for known in [17, 0x7FFF, 0x8000, 0xFFFF_u16] {
        let mut server = Server::with_session(1, 3);
        server.leave(2, 0);
        (0..2).for_each(|seat| server.hold(seat, 0));
        assert_eq!(server.session().1, [0, 1]);
        let told = |server: &Server, seat: u8| Boundary::parse(&server.boundaries[&seat]).unwrap();
        // Members know of a question whose number this server has never given.
        let knows = |server: &mut Server, seat: u8, question: u16| {
            let what = Boundary { what: What::Hold, because_of: WorkerId(2), question, calls: 0 };
            server.boundaries.insert(seat, what.to_bytes().to_vec());
        };
        knows(&mut server, 0, known);
        server.hold(0, 3);
        assert_eq!(server.last_order(0), Some((What::GoOn, 0)), "{known}");
        assert!(newer(told(&server, 0).question, known), "{known}");
        // It asks with a number that one of them takes for an old one, and is told so.
        let known = known.wrapping_add(1000);
        server.join(2, 0);
        assert_eq!(server.last_order(1), Some((What::Ask, 0)), "{known}");
        knows(&mut server, 1, known);
        server.say(1, (3, 3), Stand::Running);
        for seat in 0..2 {
            assert_eq!(server.last_order(seat), Some((What::Ask, 0)), "{known}");
            assert!(newer(told(&server, seat).question, known), "{known}");
        }
        (0..2).for_each(|seat| server.say(seat, (3, 3), Stand::Stopped));
        (0..2).for_each(|seat| server.say(seat, (3, 3), Stand::Stopped));
        assert_eq!(server.session().1, [0, 1, 2], "{known}");
    }
}

#[test]
fn a_member_that_stays_in_a_session_that_the_server_has_forgotten_is_gone() {
    let mut server = Server::new(1, 3);
    server.pass(ms(3600), |server| server.join(2, 0));
    assert_eq!(server.session().1, [2]);
    let forgotten = server.welcomes[&2];
    server.restart(1, 3);
    // Its first JOIN comes once more, and so it is let into a session that it takes for an earlier one: it has the same epoch.
    (0..3).for_each(|seat| server.join(seat, 0));
    assert_eq!(server.session().1, [0, 1, 2]);
    assert!(server.welcomes[&2].0.is_before(&forgotten.0));
    server.pass(GONE_AFTER + ms(200), |server| {
        server.welcomes.insert(2, forgotten);
        server.say(2, (0, 0), Stand::Stopped);
        (0..2).for_each(|seat| server.claim(seat));
    });
    assert_eq!(server.last_order(0), Some((What::Hold, 0)));
    (0..2).for_each(|seat| server.hold(seat, 0));
    assert_eq!(server.session().1, [0, 1]);
    server.say(2, (0, 0), Stand::Stopped);
    assert_eq!(server.refused[&2], RefuseReason::Reforming);
}

#[test]
fn calls_are_counted_through_their_wraps() {
    for first in [1 << 31, u32::MAX, 0x7FFF_FFFF, 0] {
        for leaves in [true, false] {
            let mut server = Server::with_session(1, 3);
            let before = server.session().0;
            let at = |calls: u32| first.wrapping_add(calls).wrapping_add(7);
            if leaves {
                server.leave(2, at(1));
            }
            let finished = |seat: u8| at(u32::from(!leaves && seat == 1));
            server.pass(GONE_AFTER + ms(200), |server| {
                for seat in 0..2 {
                    match server.last_order(seat) {
                        Some((What::Finish, _)) => {}
                        Some(_) => server.hold(seat, finished(seat)),
                        None => server.claim(seat),
                    }
                }
            });
            assert_eq!(server.last_order(0), Some((What::Finish, at(1))), "{first}, {leaves}");
            for seat in 0..2 {
                if server.session().0 == before {
                    server.hold(seat, at(1));
                }
            }
            assert_eq!(server.session().1, [0, 1], "{first}, {leaves}");
            assert_ne!(server.session().0, before, "{first}, {leaves}");
            // Somebody comes back.
            let before = server.session().0;
            server.pass(ms(1000), |server| {
                server.join(2, 0);
                for seat in 0..2 {
                    match server.last_order(seat) {
                        _ if server.session().0 != before => {}
                        Some((What::Stop, calls)) => {
                            assert_eq!(calls, at(4), "{first}");
                            server.say(seat, (at(4), at(4)), Stand::Stopped);
                        }
                        Some(_) => server.say(seat, (at(3), at(3 + u32::from(seat))), Stand::Running),
                        None => server.claim(seat),
                    }
                }
            });
            assert_eq!(server.session().1, [0, 1, 2], "{first}, {leaves}");
        }
    }
}

#[test]
fn an_epoch_is_taken_from_nobody_who_is_in_no_session() {
    let mut server = Server::with_session(1, 3);
    let epoch = server.welcomes[&0].0.members.unwrap().epoch;
    server.leave(2, 0);
    (0..2).for_each(|seat| server.hold(seat, 0));
    assert_eq!(server.session().1, [0, 1]);
    // Whoever it is, all that it knows is the job's cookie.
    for strange in [0x7FFF, 0x8000, 0xFFFF_u16] {
        server.join_with(2, 0, epoch.wrapping_add(strange));
    }
    let before = server.welcomes[&0].0;
    server.pass(ms(500), |server| {
        server.join(2, 0);
        (0..2).for_each(|seat| {
            if server.welcomes[&seat].0.session == before.session {
                server.say(seat, (0, 0), Stand::Stopped);
            }
        });
    });
    let after = server.welcomes[&0].0;
    assert_ne!(after.session, before.session);
    assert!(!after.is_before(&before), "a member would take it for an earlier session");
    assert_eq!(after.members.unwrap().epoch, before.members.unwrap().epoch + 1);
}

#[test]
fn a_server_that_has_forgotten_its_session_takes_the_epoch_from_those_who_bring_it_back() {
    for strange in [0, 1, 0x7FFF, 0x8000, 0xFFFE] {
        let mut server = Server::with_session(1, 3);
        let (session, members) = server.session();
        let epoch = server.welcomes[&0].0.members.unwrap().epoch;
        server.restart(1, 3);
        // Somebody claims another session, which was one of the job once.
        let stray = server.welcomes[&2];
        let other = Members { epoch: epoch.wrapping_add(strange), ..stray.0.members.unwrap() };
        let other = Welcome { session: Cookie(77), members: Some(other), ..stray.0 };
        server.welcomes.insert(2, (other, 3));
        server.claim(2);
        server.welcomes.insert(2, stray);
        (0..3).for_each(|seat| server.claim(seat));
        assert_eq!(server.session(), (session, members), "{strange}");
        let now_is = server.welcomes[&0].0.members.unwrap().epoch;
        assert_eq!(now_is, epoch, "{strange}");
    }
}

#[test]
fn a_world_that_is_started_anew_ends_no_session_whose_members_answer() {
    for answers in [true, false] {
        let mut server = Server::with_session(1, 3);
        server.leave(2, 0);
        (0..2).for_each(|seat| server.hold(seat, 0));
        let before = server.session();
        assert_eq!(before.1, [0, 1]);
        // One process, and it wants to be alone.
        server.pass(ms(1200), |server| {
            server.join(2, 1);
            for seat in 0..2 {
                if server.asked.remove(&seat).is_some() && answers {
                    server.claim(seat);
                }
            }
        });
        if answers {
            assert_eq!(server.session(), before, "a healthy session was ended");
        } else {
            assert_eq!(server.session().1, [2]);
            assert_eq!(server.refused[&0], RefuseReason::Reforming);
        }
    }
}

/// The bytes of an IPv4 address.
fn octets(at: SocketAddr) -> [u8; 4] {
    let std::net::IpAddr::V4(ip) = at.ip() else { panic!("{at}") };
    ip.octets()
}
