//! A registry, workers that join, and what passes between them.
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{Endpoint, JobConfig};
use thc_protocol::session::{Action, JoinEvent, Joiner, Registry, StaticJob};
use thc_protocol::wire::{Form, Header, Kind, Table, Tables, Welcome};
use thc_protocol::{Cookie, JobId, TableId, WorkerId};

/// The job.
pub const JOB: JobId = JobId(42);
/// With which workers join it.
pub const COOKIE: Cookie = Cookie(0x1CED_CAFE);

/// Packets and where they go.
pub type Packets = Vec<(SocketAddr, Vec<u8>)>;

/// So many milliseconds.
#[must_use]
pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A job of so many workers.
#[must_use]
pub fn static_job(workers: u8) -> StaticJob {
    let table = Table {
        id: TableId(3),
        bits: 4,
        form: Form::USUAL,
        granularity: 30,
        fraction: 0.03125,
        t_p: 2.153874694061457,
        values: [0, 1, 3, 4, 6, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 30],
    };
    let welcome = Welcome {
        data_slots: 64,
        norm_slots: 16,
        shards: 2,
        deadline: ms(25),
        job_seed: 0xABCD,
        ..Welcome::new(workers, Tables::one(table))
    };
    StaticJob::new(JobConfig::from_welcome(JOB, COOKIE, &welcome), welcome)
}

/// The address of a worker's process.
#[must_use]
pub fn address(worker: u8, process: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, worker), 6000 + process))
}

/// The nonce of a worker's process.
#[must_use]
pub fn nonce(worker: u8, process: u16) -> u64 {
    (u64::from(worker) << 32 | u64::from(process)) + 1
}

/// A parameter server's control plane.
pub struct Server {
    /// Its sessions.
    pub registry: Registry,
    /// The session installed: its cookie and members.
    pub installed: Option<(Cookie, Vec<(WorkerId, Endpoint)>)>,
    /// How long ago each member's last data packet came.
    pub alive: BTreeMap<u8, Duration>,
    /// The last random number that it drew.
    pub cookies: u32,
    /// It has another share than the first, whose next session takes the place of the last.
    pub follows: bool,
}

impl Server {
    /// The server of a job of so many workers.
    #[must_use]
    pub fn new(workers: u8) -> Server {
        Server::with_job(static_job(workers), 1000)
    }

    /// `cookies` is where its random numbers begin.
    #[must_use]
    pub fn with_job(job: StaticJob, cookies: u32) -> Server {
        let registry = Registry::new([job]);
        Server { registry, installed: None, alive: BTreeMap::new(), cookies, follows: false }
    }

    /// The same for a share that is not the first.
    #[must_use]
    pub fn follower(job: StaticJob) -> Server {
        Server { registry: Registry::follower([job.clone()]), follows: true, ..Server::with_job(job, 1000) }
    }

    /// Takes a packet; returns what is sent.
    ///
    /// # Panics
    /// If what the registry wants done does not fit what it wanted before.
    pub fn take(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        let alive = self.alive.clone();
        let cookies = &mut self.cookies;
        let random = || {
            *cookies += 1;
            *cookies
        };
        let age = |_, worker: WorkerId| alive.get(&worker.0).copied();
        let actions = self.registry.handle(now, from, bytes, age, random);
        self.act(actions)
    }

    /// Does what is due by time; returns what is sent.
    ///
    /// # Panics
    /// As [`Self::take`].
    pub fn poll(&mut self, now: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let alive = self.alive.clone();
        let actions = self.registry.poll(now, |_, worker: WorkerId| alive.get(&worker.0).copied());
        self.act(actions)
    }

    fn act(&mut self, actions: Vec<Action>) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut sent = Vec::new();
        for action in actions {
            match action {
                Action::Install(config, members) => {
                    assert!(self.follows || self.installed.is_none(), "a second session");
                    assert!(config.cookie != Cookie(0) && config.cookie != COOKIE);
                    assert!(members.iter().map(|member| member.0.0).eq(0..config.workers), "{members:?}");
                    self.installed = Some((config.cookie, members));
                }
                Action::Move(job, worker, at) => {
                    assert_eq!(job, JOB);
                    let members = &mut self.installed.as_mut().unwrap().1;
                    members.iter_mut().find(|member| member.0 == worker).unwrap().1 = at;
                }
                Action::RootDiffers(..) | Action::RootRefuses(..) => unreachable!("there is no root"),
                Action::Remove(job) => {
                    assert_eq!(job, JOB);
                    assert!(self.installed.take().is_some(), "nothing to remove");
                }
                Action::Send(to, bytes) => {
                    // A WELCOME goes out only for what is installed.
                    let (header, payload) = Header::parse(&bytes).unwrap();
                    if header.kind == Kind::Welcome {
                        let installed = self.installed.as_ref().unwrap().0;
                        assert_eq!(Welcome::parse(payload).unwrap().session, installed);
                        assert_eq!(header.cookie, installed);
                    }
                    sent.push((to, bytes));
                }
            }
        }
        sent
    }
}

/// A process takes a member's number: it asks until the member has not answered for long enough (P24). Returns
/// when that was, and what was sent then; at most a second is waited.
pub fn usurp(mut now: Duration, server: &mut Server, process: &mut Process) -> Option<(Duration, Packets)> {
    let (end, session) = (now + ms(1000), server.installed.clone());
    while now < end {
        if let Some(packet) = process.poll(now) {
            let answers = server.take(now, process.address, &packet);
            if server.installed != session {
                return Some((now, answers));
            }
            let at = process.address;
            for (_, answer) in answers.iter().filter(|(to, _)| *to == at) {
                process.take(now, answer);
            }
        }
        now += ms(10);
    }
    None
}

/// A worker's process.
pub struct Process {
    /// The worker's number.
    pub worker: u8,
    /// Where it sends from.
    pub address: SocketAddr,
    /// Its side of joining.
    pub joiner: Joiner,
    /// What has come of joining.
    pub events: Vec<JoinEvent>,
}

impl Process {
    /// The so many-th process of a worker, which begins to join.
    #[must_use]
    pub fn new(worker: u8, process: u16, now: Duration) -> Process {
        Process::with_definitions(worker, process, 0, now)
    }

    /// The same with definitions (P26).
    #[must_use]
    pub fn with_definitions(worker: u8, process: u16, definitions: u64, now: Duration) -> Process {
        let nonce = nonce(worker, process);
        let joiner = Joiner::new(JOB, WorkerId(worker), COOKIE, nonce, definitions, now);
        Process { worker, address: address(worker, process), joiner, events: Vec::new() }
    }

    /// The packet that is due.
    pub fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        let mut buffer = [0xEE; 64];
        self.joiner.poll(now, &mut buffer).map(<[u8]>::to_vec)
    }

    /// Takes a packet of the server.
    pub fn take(&mut self, now: Duration, bytes: &[u8]) {
        self.events.extend(self.joiner.handle(now, bytes));
    }

    /// The latest session it was welcomed to.
    #[must_use]
    pub fn session(&self) -> Option<Cookie> {
        self.events.iter().rev().find_map(|event| match event {
            JoinEvent::Welcome(welcome) => Some(welcome.session),
            _ => None,
        })
    }
}

/// Everything that is due at `now` is sent and arrives at once.
pub fn exchange(now: Duration, server: &mut Server, processes: &mut [Process]) {
    for i in 0..processes.len() {
        let from = processes[i].address;
        let Some(packet) = processes[i].poll(now) else { continue };
        for (to, answer) in server.take(now, from, &packet) {
            for process in processes.iter_mut().filter(|process| process.address == to) {
                process.take(now, &answer);
            }
        }
    }
}

/// A session of `n` workers that all have joined at time 0.
///
/// # Panics
/// If they do not get it.
#[must_use]
pub fn session(n: u8) -> (Server, Vec<Process>) {
    let mut server = Server::new(n);
    let mut processes: Vec<Process> = (0..n).map(|worker| Process::new(worker, 0, Duration::ZERO)).collect();
    exchange(Duration::ZERO, &mut server, &mut processes);
    assert!(processes.iter().all(|process| process.session().is_some()));
    (server, processes)
}
