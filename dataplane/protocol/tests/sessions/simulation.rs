//! Small random histories: lost, late and doubled packets, restarts of server and workers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thc_protocol::Cookie;
use thc_protocol::session::JoinEvent;
use thc_support::Agenda;
use thc_support::parties::{Process, Server, ms, static_job};
use thc_support::random::{Rng, for_seeds};

/// What a worker's application does: it joins, and joins anew when the session is over.
struct Member {
    process: Process,
    /// The session whose calls it is in.
    session: Option<Cookie>,
    incarnation: u16,
    /// Since when the server has not known it.
    unheard: Option<Duration>,
}

/// A packet under way: whence or whither (the other is the server), bytes.
type Flight = (Option<SocketAddr>, Option<SocketAddr>, Vec<u8>);

/// Workers that join a server over a faulty network.
struct Gathering {
    rng: Rng,
    now: Duration,
    server: Server,
    members: Vec<Member>,
    agenda: Agenda<Flight>,
    faults: bool,
    /// Which incarnations a session is of.
    nonces: BTreeMap<u32, Vec<u16>>,
}

impl Gathering {
    fn new(seed: u64, workers: u8) -> Gathering {
        let member = |worker| Member {
            process: Process::new(worker, 0, ms(0)),
            session: None,
            incarnation: 0,
            unheard: None,
        };
        Gathering {
            rng: Rng(seed),
            now: ms(0),
            server: Server::new(workers),
            members: (0..workers).map(member).collect(),
            agenda: Agenda::default(),
            faults: true,
            nonces: BTreeMap::new(),
        }
    }

    /// To the server from somebody, or from the server to somebody.
    fn send(&mut self, from: Option<SocketAddr>, to: Option<SocketAddr>, bytes: &[u8]) {
        let copies = if self.faults { [0, 1, 1, 1, 2][self.rng.below(5) as usize] } else { 1 };
        for _ in 0..copies {
            let slow = self.faults && self.rng.below(10) == 0;
            let delay = ms(1 + self.rng.below(if slow { 3000 } else { 20 }));
            self.agenda.add(self.now + delay, (from, to, bytes.to_vec()));
        }
    }

    fn is_known(&self, member: &Member) -> bool {
        self.server.installed.as_ref().is_some_and(|(cookie, members)| {
            Some(*cookie) == member.session
                && members.iter().any(|(worker, at)| {
                    worker.0 == member.process.worker && at.addr == member.process.address
                })
        })
    }

    fn rejoin(&mut self, i: usize, moved: bool) {
        let member = &mut self.members[i];
        member.incarnation += 1;
        let worker = member.process.worker;
        let address = member.process.address;
        member.process = Process::new(worker, member.incarnation, self.now);
        if !moved {
            member.process.address = address;
        }
        member.session = None;
        member.unheard = None;
    }

    /// Everything that happens within the next 10 ms.
    fn step(&mut self) {
        self.now += ms(10);
        while let Some((from, to, bytes)) = self.agenda.pop_due(self.now) {
            match (from, to) {
                (Some(from), _) => self.at_server(from, &bytes),
                (_, Some(to)) => self.at_worker(to, &bytes),
                _ => unreachable!(),
            }
        }
        for i in 0..self.members.len() {
            self.live(i);
        }
    }

    fn at_server(&mut self, from: SocketAddr, bytes: &[u8]) {
        let before = self.server.installed.as_ref().map(|installed| installed.0);
        for (to, answer) in self.server.take(self.now, from, bytes) {
            self.send(None, Some(to), &answer);
        }
        if before != self.server.installed.as_ref().map(|installed| installed.0) {
            self.server.alive.clear();
        }
    }

    fn at_worker(&mut self, to: SocketAddr, bytes: &[u8]) {
        let Some(i) = self.members.iter().position(|member| member.process.address == to) else { return };
        self.members[i].process.take(self.now, bytes);
        let Some(event) = self.members[i].process.events.pop() else { return };
        match event {
            JoinEvent::Welcome(welcome) => {
                let n = welcome.workers;
                assert_eq!(usize::from(n), self.members.len());
                match self.members[i].session {
                    None => {
                        self.members[i].session = Some(welcome.session);
                        let incarnation = self.members[i].incarnation;
                        let known = self
                            .nonces
                            .entry(welcome.session.0)
                            .or_insert_with(|| vec![u16::MAX; usize::from(n)]);
                        // Two incarnations of a worker are never members of one session.
                        assert!(known[i] == u16::MAX || known[i] == incarnation, "session {welcome:?}");
                        known[i] = incarnation;
                    }
                    Some(session) if session != welcome.session => self.rejoin(i, false),
                    Some(_) => {}
                }
            }
            JoinEvent::Reforming(_) => self.rejoin(i, false),
            JoinEvent::Pending(joined, _) => assert_ne!(joined >> i & 1, 0),
            JoinEvent::Failed(error) => {
                // Only an earlier life of this worker can be in its way.
                assert!(self.members[i].incarnation > 0, "{error}");
                self.rejoin(i, false);
            }
            JoinEvent::Changed(change) => panic!("nothing changes: {change}"),
            JoinEvent::PendingRacks(..) => panic!("there are no racks"),
            JoinEvent::Bye | JoinEvent::Here(_) => panic!("nobody leaves"),
        }
    }

    fn live(&mut self, i: usize) {
        let now = self.now;
        if self.members[i].session.is_some() {
            // Members send data all the time, and suspect a restart when nothing comes back.
            if self.is_known(&self.members[i]) {
                self.members[i].unheard = None;
                self.server.alive.insert(i as u8, ms(0));
            } else if now - *self.members[i].unheard.get_or_insert(now) >= ms(100) {
                self.members[i].process.joiner.resume(now);
            }
        }
        let from = self.members[i].process.address;
        if let Some(packet) = self.members[i].process.poll(now) {
            self.send(Some(from), None, &packet);
        }
    }

    fn is_settled(&self) -> bool {
        self.members.iter().all(|member| self.is_known(member))
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for ago in self.server.alive.values_mut() {
                *ago += ms(10);
            }
            self.step();
        }
    }
}

#[test]
fn whatever_happens_all_end_up_in_one_session() {
    for_seeds("sessions", 1000, |seed| {
        let workers = 1 + (seed % 4) as u8;
        let mut gathering = Gathering::new(seed * 7919, workers);
        gathering.run(ms(2000));
        for _ in 0..gathering.rng.below(5) {
            match gathering.rng.below(4) {
                0 => {
                    let cookies = 1_000_000 + gathering.rng.below(1 << 30) as u32;
                    gathering.server = Server::with_job(static_job(workers), cookies);
                }
                1 => {
                    let worker = gathering.rng.below(u64::from(workers)) as usize;
                    let moved = gathering.rng.below(2) == 0;
                    gathering.rejoin(worker, moved);
                }
                2 => {
                    // A member moves without restarting.
                    let worker = gathering.rng.below(u64::from(workers)) as usize;
                    let port = 20_000 + gathering.rng.below(10_000) as u16;
                    let address = &mut gathering.members[worker].process.address;
                    *address = SocketAddr::from((address.ip(), port));
                }
                _ => {}
            }
            let pause = ms(gathering.rng.below(6000));
            gathering.run(pause);
        }
        // The network heals, and what is still under way has arrived after 3 s.
        gathering.faults = false;
        gathering.run(ms(12_000));
        assert!(gathering.is_settled(), "not settled: {:?}", gathering.server.registry);
        // From here on nothing disturbs the session; a restart of the server is survived.
        let session = gathering.server.installed.clone().unwrap().0;
        gathering.run(ms(1000));
        gathering.server = Server::with_job(static_job(workers), 77);
        gathering.run(ms(3000));
        assert!(gathering.is_settled());
        assert_eq!(gathering.server.installed.clone().unwrap().0, session);
    });
}
