//! Vectors of members that come and go (P33, P42, P43): histories of control packets between one server and its
//! workers, as the registry, the joiner and the member's half of boundaries make them. Written by the example
//! `vectors`, held to by the test `vectors`.

use crate::vectors::hex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_job::wire_table;
use thc_protocol::aggregator::JobConfig;
use thc_protocol::session::{Action, Halt, JoinEvent, Joiner, Registry, Sizes, StaticJob};
use thc_protocol::wire::{Form, Kind, Members, Table, Tables, Welcome};
use thc_protocol::{Cookie, JobId, Lane, TableId, WorkerId};

const JOB: JobId = JobId(0x0203);
const CONFIGURED: Cookie = Cookie(0x0BAD_CAFE);
const GONE_AFTER: Duration = Duration::from_secs(3);
const GATHER: Duration = Duration::from_secs(1);
/// Time moves so far at once.
const TICK: Duration = Duration::from_millis(10);
/// How often the server looks at what is due by time: `thc-ps` does so as often.
const POLL: u128 = 50;

/// The histories as they are in `tests/vectors/members.json`: one event a line.
#[must_use]
pub fn text() -> String {
    let histories = [comes(), dies(), leaves(), restarts(), forgets()];
    let mut text = String::from("{\"histories\": [\n");
    for (i, history) in histories.iter().enumerate() {
        let head = history.head().to_string();
        text.push_str(head.trim_end_matches('}'));
        text.push_str(",\"events\": [\n");
        let lines: Vec<String> = history.events.iter().map(Value::to_string).collect();
        text.push_str(&lines.join(",\n"));
        text.push_str(if i + 1 < histories.len() { "\n]},\n" } else { "\n]}\n]}\n" });
    }
    text
}

/// Two workers are at their second call when a third comes. One of them hears an old question again.
fn comes() -> History {
    let mut history = History::new("comes", 1, 3);
    history.start(0, 2);
    history.start(1, 2);
    history.begin_calls(&[0, 1], 1);
    history.have_results(&[0, 1], 1);
    history.begin_calls(&[0, 1], 2);
    history.start(2, 0);
    history.pass(20);
    history.have_results(&[0], 2);
    history.reach_boundary(0);
    history.deliver_old_boundary(0);
    history.pass(50);
    history.have_results(&[1], 2);
    history.reach_boundary(1);
    history.expect_session(2, &[0, 1, 2]);
    history.begin_calls(&[0, 1, 2], 1);
    history.have_results(&[0, 1, 2], 1);
    history
}

/// The third of three workers dies when one of the others has finished a call more than the other, whose
/// result comes late. What that one is told first is lost; meanwhile the other, which holds, has the results of
/// a further call, and must not finish it.
fn dies() -> History {
    let mut history = History::new("dies", 1, 3);
    (0..3).for_each(|seat| history.start(seat, 3));
    history.begin_calls(&[0, 1, 2], 1);
    history.have_results(&[0, 1, 2], 1);
    history.begin_calls(&[0, 1, 2], 2);
    history.have_results(&[1], 2);
    history.begin_calls(&[0, 1, 2], 3);
    history.note(2, "dies");
    history.seats.remove(&2);
    history.lose_next = Some((0, Kind::Boundary));
    while history.lose_next.is_some() {
        history.pass(10);
    }
    history.have_results(&[1], 3);
    history.pass(150);
    history.have_results(&[0], 2);
    history.expect_session(2, &[0, 1]);
    // Call 3, which neither had finished, begins again.
    history.begin_calls(&[0, 1], 1);
    history.have_results(&[0, 1], 1);
    history
}

/// The second of three workers leaves after the first call. The WELCOME of another to the next session is
/// lost, and comes again in answer to its POSITION.
fn leaves() -> History {
    let mut history = History::new("leaves", 1, 3);
    (0..3).for_each(|seat| history.start(seat, 3));
    history.begin_calls(&[0, 1, 2], 1);
    history.have_results(&[0, 1, 2], 1);
    history.begin_calls(&[0, 2], 2);
    history.lose_next = Some((2, Kind::Welcome));
    history.leave(1);
    history.pass(150);
    history.expect_session(2, &[0, 2]);
    history.begin_calls(&[0, 2], 1);
    history.have_results(&[0, 2], 1);
    history
}

/// The server is started anew while it asks members to stop for a third worker.
fn restarts() -> History {
    let mut history = History::new("restarts", 1, 3);
    history.start(0, 2);
    history.start(1, 2);
    history.begin_calls(&[0, 1], 1);
    history.start(2, 0);
    history.pass(30);
    history.restart_server();
    history.pass(60);
    history.suspect_restart(&[0, 1]);
    history.pass(250);
    history.have_results(&[0, 1], 1);
    history.reach_boundary(0);
    history.reach_boundary(1);
    history.pass(250);
    history.expect_session(2, &[0, 1, 2]);
    history
}

/// Who waits gives up, so that members go on. Then the server is started anew: its next question has a number
/// that members have heard before.
fn forgets() -> History {
    let mut history = History::new("forgets", 1, 3);
    history.start(0, 2);
    history.start(1, 2);
    history.begin_calls(&[0, 1], 1);
    history.start(2, 0);
    history.note(2, "dies");
    history.seats.remove(&2);
    history.pass(3300);
    assert!([0, 1].iter().all(|seat| history.seats[seat].halt.position((0, 0)).is_none()), "they go on");
    history.restart_server();
    history.suspect_restart(&[0, 1]);
    history.start(2, 0);
    history.pass(50);
    history.have_results(&[0, 1], 1);
    history.reach_boundary(0);
    history.reach_boundary(1);
    history.expect_session(2, &[0, 1, 2]);
    history
}

fn job(least: u8, most: u8) -> StaticJob {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    let form = Form::new(4, Lane::Bits8).unwrap();
    let table = Table { id: TableId(3), ..wire_table(form, &table) };
    let shape = |workers| {
        let one_size = Welcome {
            data_slots: 4,
            norm_slots: 2,
            job_seed: 1,
            block: 10,
            ..Welcome::new(workers, Tables::one(table))
        };
        let config = JobConfig::from_welcome(JOB, CONFIGURED, &one_size);
        let members = Some(Members::default());
        (config, Welcome { min_workers: least, max_workers: most, members, ..one_size })
    };
    let shapes: Vec<_> = (least..=most).map(shape).collect();
    let (config, welcome) = shapes[shapes.len() - 1].clone();
    let sizes = Sizes { shapes, gone_after: GONE_AFTER, gather: GATHER };
    StaticJob { config, welcome, root: None, sizes: Some(Arc::new(sizes)) }
}

fn address(seat: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, seat + 1), 5000))
}

/// A worker, and how far its program is.
struct Seat {
    joiner: Joiner,
    halt: Halt,
    session: Option<Welcome>,
    finished: u64,
    begun: u64,
    /// Calls of the session that have all their results.
    results: u64,
    /// Whether the program is at a boundary, and waits there if it must.
    at_boundary: bool,
}

impl Seat {
    /// What follows for it from what has come, or from its program.
    fn update(&mut self, now: Duration) {
        self.finished = self.halt.limit().unwrap_or(u64::MAX).min(self.results).max(self.finished);
        if self.at_boundary {
            self.at_boundary = self.halt.stop_at_boundary(self.begun);
        }
        self.joiner.set_finished(self.finished as u32);
        if let Some(welcome) = &self.session {
            let position = self.halt.position((self.finished, self.begun));
            self.joiner.set_position(now, welcome.session, position);
        }
    }
}

/// What happens in the order in which it happens.
struct History {
    name: &'static str,
    sizes: (u8, u8),
    now: Duration,
    registry: Registry,
    cookies: u32,
    seats: BTreeMap<u8, Seat>,
    /// By seat, the BOUNDARY that it had first in its session.
    old: BTreeMap<u8, Vec<u8>>,
    /// To which seat the next packet of which kind is lost.
    lose_next: Option<(u8, Kind)>,
    events: Vec<Value>,
}

impl History {
    fn new(name: &'static str, least: u8, most: u8) -> History {
        let registry = Registry::new([job(least, most)]);
        History {
            name,
            sizes: (least, most),
            now: Duration::ZERO,
            registry,
            cookies: 0,
            seats: BTreeMap::new(),
            old: BTreeMap::new(),
            lose_next: None,
            events: Vec::new(),
        }
    }

    fn head(&self) -> Value {
        json!({
            "name": self.name,
            "job": JOB.0,
            "cookie": CONFIGURED.0,
            "fewest": self.sizes.0,
            "most": self.sizes.1,
            "gone_after_ms": GONE_AFTER.as_millis() as u64,
            "gather_ms": GATHER.as_millis() as u64,
        })
    }

    fn record(&mut self, seat: Option<u8>, what: &str, value: impl Into<Value>) {
        let mut event = json!({ "at_ms": self.now.as_millis() as u64 });
        if let Some(seat) = seat {
            event["seat"] = seat.into();
        }
        event[what] = value.into();
        self.events.push(event);
    }

    fn note(&mut self, seat: u8, program: &str) {
        self.record(Some(seat), "program", program);
    }

    fn seat(&mut self, seat: u8) -> &mut Seat {
        self.seats.get_mut(&seat).expect("a worker that runs")
    }

    /// A worker starts that wants a session of so many, 0 for any number.
    fn start(&mut self, seat: u8, wants: u8) {
        let nonce = 0x1122_3344_5566_7700 + u64::from(seat);
        let joiner = Joiner::new(JOB, WorkerId(seat), CONFIGURED, nonce, 0, self.now);
        let joiner = joiner.with_wanted_workers(wants);
        let (halt, session) = (Halt::default(), None);
        let state = Seat { joiner, halt, session, finished: 0, begun: 0, results: 0, at_boundary: false };
        self.seats.insert(seat, state);
        self.note(seat, "starts");
        let event = self.events.last_mut().expect("it was noted");
        (event["nonce"], event["wants"]) = (nonce.to_string().into(), wants.into());
        self.pass(10);
    }

    fn begin_calls(&mut self, seats: &[u8], call: u64) {
        for &seat in seats {
            self.seat(seat).begun += 1;
            assert_eq!(self.seat(seat).begun, call);
            self.note(seat, "begins a call");
            self.update(seat);
        }
        self.pass(20);
    }

    /// All results of the first so many calls of the session are in.
    fn have_results(&mut self, seats: &[u8], calls: u64) {
        for &seat in seats {
            self.seat(seat).results = calls;
            self.note(seat, "has all results");
            self.events.last_mut().expect("it was noted")["calls"] = calls.into();
            self.update(seat);
        }
        self.pass(20);
    }

    fn reach_boundary(&mut self, seat: u8) {
        let member = self.seat(seat);
        member.at_boundary = true;
        assert_eq!(member.begun, member.finished, "no call is under way");
        self.note(seat, "is at a boundary");
        self.update(seat);
        self.pass(10);
    }

    fn leave(&mut self, seat: u8) {
        self.note(seat, "leaves");
        let now = self.now;
        self.seat(seat).joiner.leave(now);
        self.pass(10);
        assert!(self.seat(seat).joiner.has_left());
        self.seats.remove(&seat);
    }

    /// These have heard nothing from the server while they wait (P20).
    fn suspect_restart(&mut self, seats: &[u8]) {
        for &seat in seats {
            self.note(seat, "hears nothing");
            let now = self.now;
            self.seat(seat).joiner.resume(now);
        }
        self.pass(10);
    }

    fn restart_server(&mut self) {
        self.record(None, "server", "starts anew");
        self.registry = Registry::new([job(self.sizes.0, self.sizes.1)]);
    }

    /// The first BOUNDARY that a member had in its session comes a second time.
    fn deliver_old_boundary(&mut self, seat: u8) {
        let packet = self.old[&seat].clone();
        self.deliver(seat, &packet, "again");
        self.exchange();
    }

    /// The job's so many-th session runs, with these members.
    fn expect_session(&self, epoch: u16, seats: &[u8]) {
        let (session, members) = self.registry.session(JOB).expect("a session");
        let here: Vec<u8> = members.iter().map(|member| member.worker.0).collect();
        assert_eq!((self.registry.epoch(JOB), &here[..]), (epoch, seats), "{}", self.name);
        for seat in seats {
            let known = self.seats[seat].session.map(|welcome| welcome.session);
            assert_eq!(known, Some(session), "{}: seat {seat}", self.name);
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        self.exchange();
        while self.now < end {
            self.now += TICK;
            if self.now.as_millis().is_multiple_of(POLL) {
                let (now, random) = (self.now, counter(&mut self.cookies));
                let actions = self.registry.poll(now, |_, _| None, random);
                self.act(actions);
            }
            self.exchange();
        }
    }

    /// Whatever is due is sent and arrives at once.
    fn exchange(&mut self) {
        let mut buffer = [0; 64];
        let seats: Vec<u8> = self.seats.keys().copied().collect();
        let mut busy = true;
        while std::mem::take(&mut busy) {
            for &seat in &seats {
                let now = self.now;
                let Some(packet) = self.seat(seat).joiner.poll(now, &mut buffer).map(<[u8]>::to_vec) else {
                    continue;
                };
                busy = true;
                self.record(Some(seat), "up", hex(&packet));
                let random = counter(&mut self.cookies);
                let actions = self.registry.handle(now, address(seat), &packet, |_, _| None, random);
                self.act(actions);
            }
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let Action::Send(to, packet) = action else { continue };
            let SocketAddr::V4(to) = to else { continue };
            let seat = to.ip().octets()[3] - 1;
            self.deliver(seat, &packet, "");
        }
    }

    /// A packet of the server comes to a worker, for the first time unless `how` says otherwise.
    fn deliver(&mut self, seat: u8, packet: &[u8], how: &str) {
        self.record(Some(seat), "down", hex(packet));
        let lost = self.lose_next.is_some_and(|(to, kind)| to == seat && packet[1] == kind as u8);
        if !how.is_empty() || lost {
            self.events.last_mut().expect("it was recorded")["how"] = if lost { "lost" } else { how }.into();
        }
        if lost {
            self.lose_next = None;
            return;
        }
        let now = self.now;
        // Whoever has died hears nothing.
        let Some(member) = self.seats.get_mut(&seat) else { return };
        match member.joiner.handle(now, packet) {
            Some(JoinEvent::Welcome(welcome, _)) => {
                if member.session.is_none_or(|before| before.session != welcome.session) {
                    (member.halt, member.session, member.at_boundary) =
                        (Halt::default(), Some(welcome), false);
                    (member.finished, member.begun, member.results) = (0, 0, 0);
                    self.old.remove(&seat);
                }
            }
            Some(JoinEvent::Boundary(boundary)) => {
                member.halt.obey(now, &boundary, (member.finished, member.begun));
                member.update(now);
                member.joiner.repeat_position(now);
                self.old.entry(seat).or_insert_with(|| packet.to_vec());
            }
            Some(JoinEvent::Pending(..) | JoinEvent::Bye) | None => {}
            Some(event) => panic!("{}: seat {seat}: {event:?}", self.name),
        }
    }

    fn update(&mut self, seat: u8) {
        let now = self.now;
        self.seat(seat).update(now);
    }
}

/// Session cookies: not random, so that the vectors are the same each time.
fn counter(cookies: &mut u32) -> impl FnMut() -> u32 {
    move || {
        *cookies += 1;
        0x5E55_0000 + *cookies
    }
}
