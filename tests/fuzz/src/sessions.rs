//! Joining and leaving: any control packets from anywhere at any time. Members of a session are as many as the job has
//! workers, one of each number; there is never a second session; and who does not know a session's secrets cannot end
//! one whose workers are alive.

use arbitrary::Unstructured;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{Endpoint, JobConfig};
use thc_protocol::session::{Action, JoinEvent, Joiner, Registry, StaticJob};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Join, Kind, Leave, Table, Tables, Welcome};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};

const JOB: JobId = JobId(7);
const COOKIE: Cookie = Cookie(0x1CED_CAFE);

pub fn run(data: &[u8]) {
    let _ = history(&mut Unstructured::new(data));
}

fn job(workers: u8, quorum: u8) -> StaticJob {
    let table = Table {
        id: TableId(3),
        bits: 4,
        form: Form::USUAL,
        granularity: 30,
        fraction: 0.03125,
        t_p: 2.153_874_694_061_457_3,
        values: [0, 1, 3, 4, 6, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 30],
    };
    let welcome = Welcome {
        data_slots: 64,
        norm_slots: 16,
        quorum,
        deadline: Duration::from_millis(25),
        job_seed: 0xABCD,
        ..Welcome::new(workers, Tables::one(table))
    };
    StaticJob::new(JobConfig::from_welcome(JOB, COOKIE, &welcome), welcome)
}

/// A worker's process.
struct Process {
    joiner: Joiner,
    at: SocketAddr,
    nonce: u64,
    /// The session that it is in, by its own account.
    session: Option<Cookie>,
    leaving: bool,
}

impl Process {
    fn new(worker: u8, life: u16, now: Duration) -> Process {
        let nonce = (u64::from(worker) << 32 | u64::from(life)) + 1;
        let at = SocketAddr::from((Ipv4Addr::new(10, 0, 0, worker), 4000 + life));
        let joiner = Joiner::new(JOB, WorkerId(worker), COOKIE, nonce, 5, now);
        Process { joiner, at, nonce, session: None, leaving: false }
    }
}

struct World {
    now: Duration,
    registry: Registry,
    job: StaticJob,
    /// What the aggregator has.
    installed: Option<(Cookie, Vec<(WorkerId, Endpoint)>)>,
    processes: Vec<Process>,
    lives: u16,
    cookies: u32,
    /// Packets that were sent at some time, to come again.
    heard: Vec<(SocketAddr, Vec<u8>)>,
    /// Whether nobody but strangers has done anything since the session began.
    calm: bool,
    /// Whether members send data, or compute for long.
    sending: bool,
}

fn history(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let workers = input.int_in_range(1..=3)?;
    let quorum = if input.ratio(1, 4)? { input.int_in_range(1..=workers)? } else { workers };
    let job = job(workers, quorum);
    let mut world = World {
        now: Duration::ZERO,
        registry: Registry::new([job.clone()]),
        job,
        installed: None,
        processes: (0..workers).map(|worker| Process::new(worker, 0, Duration::ZERO)).collect(),
        lives: 0,
        cookies: 1000,
        heard: Vec::new(),
        calm: false,
        sending: input.arbitrary()?,
    };
    if input.ratio(3, 4)? {
        world.everybody_joins();
        world.calm = true;
        assert!(world.installed.is_some(), "all have joined");
    }
    while !input.is_empty() {
        world.take_step(input)?;
    }
    world.settle();
    Ok(())
}

impl World {
    fn take_step(&mut self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let worker = input.choose_index(self.processes.len())?;
        match input.int_in_range(0..=15u8)? {
            0 => {
                // A restart.
                self.calm = false;
                self.lives += 1;
                self.processes[worker] = Process::new(worker as u8, self.lives, self.now);
            }
            1 => {
                self.calm = false;
                self.processes[worker].leaving = true;
                self.processes[worker].joiner.leave(self.now);
            }
            2 => {
                // A new address.
                self.calm = false;
                self.processes[worker].at.set_port(5000 + input.int_in_range(0..=3u16)?);
            }
            3 if input.ratio(1, 2)? => {
                self.calm = false;
                self.registry = Registry::new([self.job.clone()]);
                self.installed = None;
            }
            4 => self.processes[worker].joiner.resume(self.now),
            5 => {
                // One from earlier.
                if !self.heard.is_empty() {
                    let (from, packet) = input.choose(&self.heard)?.clone();
                    self.calm = false;
                    self.at_server(from, &packet, true);
                }
            }
            6 | 7 => self.now += Duration::from_millis(input.int_in_range(0..=1000)?),
            8..=10 => {
                let lost = input.ratio(1, 4)?;
                self.poll(worker, lost);
            }
            _ => self.stranger(input)?,
        }
        Ok(())
    }

    /// What a process wants to send goes to the server, and so do the answers back.
    fn poll(&mut self, worker: usize, lost: bool) {
        let mut buffer = [0xEE; 128];
        let process = &mut self.processes[worker];
        let Some(packet) = process.joiner.poll(self.now, &mut buffer).map(<[u8]>::to_vec) else { return };
        let from = process.at;
        if self.heard.len() == 16 {
            self.heard.remove(0);
        }
        self.heard.push((from, packet.clone()));
        if !lost {
            self.at_server(from, &packet, true);
        }
    }

    /// Somebody who knows the job and its cookie, but no session's and no nonce.
    fn stranger(&mut self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        // From its own address.
        let from = SocketAddr::from((Ipv4Addr::new(10, 9, 0, input.int_in_range(0..=3)?), 4000));
        if input.ratio(1, 8)? {
            let packet = input.bytes(input.len().min(64))?.to_vec();
            self.at_server(from, &packet, false);
            return Ok(());
        }
        let header = Header {
            kind: if input.ratio(1, 4)? { *input.choose(Kind::ALL)? } else { Kind::Join },
            flags: 0,
            num_workers: 0,
            job: if input.ratio(1, 16)? { JobId(8) } else { JOB },
            worker: if input.ratio(1, 16)? { WorkerId(255) } else { WorkerId(input.int_in_range(0..=3)?) },
            table: TableId(0),
            cookie: if input.ratio(1, 8)? { Cookie(input.arbitrary()?) } else { COOKIE },
            round: Round(0),
            slot: SlotId(0),
            count: 0,
        };
        // Nonces that no process has.
        let nonce = (1 << 63) + u64::from(input.arbitrary::<u8>()? % 4);
        let session = if input.ratio(1, 4)? { Cookie(input.arbitrary()?) } else { Cookie(0) };
        let body = match header.kind {
            Kind::Leave => Leave { nonce }.to_bytes().to_vec(),
            Kind::Join => {
                let fingerprint = if input.arbitrary()? { self.job.welcome.fingerprint() } else { 0 };
                let definitions = input.int_in_range(4..=5)?;
                Join { nonce, session, ends: false, fingerprint, definitions }.to_bytes().to_vec()
            }
            _ => input.bytes(input.len().min(16))?.to_vec(),
        };
        let mut packet = vec![0; HEADER_LEN + body.len()];
        header.emit_packet(&mut packet, &body);
        self.at_server(from, &packet, false);
        if self.calm {
            // Members answer what they are asked.
            self.everybody_joins();
        }
        Ok(())
    }

    fn at_server(&mut self, from: SocketAddr, packet: &[u8], honest: bool) {
        let cookies = &mut self.cookies;
        let random = || {
            *cookies += 1;
            *cookies
        };
        let session = self.installed.as_ref().map(|installed| installed.0);
        let sends: Vec<bool> = self
            .processes
            .iter()
            .map(|process| self.sending && session.is_some() && process.session == session)
            .collect();
        let alive = |_, worker: WorkerId| {
            sends.get(usize::from(worker.0)).is_some_and(|sends| *sends).then_some(Duration::from_millis(10))
        };
        let calm = self.calm;
        let before = self.installed.as_ref().map(|installed| installed.0);
        let actions = self.registry.handle(self.now, from, packet, alive, random);
        // At most a packet to each, and what changes.
        assert!(actions.len() <= 2 * self.processes.len() + 3, "{actions:?}");
        for action in actions {
            match action {
                Action::Install(config, members) => {
                    assert!(self.installed.is_none(), "a second session");
                    assert_eq!(members.len(), usize::from(self.job.config.workers));
                    for (place, (worker, _)) in members.iter().enumerate() {
                        assert_eq!(usize::from(worker.0), place);
                    }
                    assert!(config.cookie != Cookie(0) && config.cookie != COOKIE);
                    assert_eq!(JobConfig { cookie: COOKIE, ..config.clone() }, self.job.config);
                    self.installed = Some((config.cookie, members));
                }
                Action::Move(_, worker, at) => {
                    let (_, members) = self.installed.as_mut().expect("a member of a session moves");
                    members[usize::from(worker.0)].1 = at;
                }
                Action::Remove(_) => assert!(self.installed.take().is_some(), "nothing to remove"),
                Action::Send(to, packet) => self.answer(to, &packet),
                Action::Tell(..) => panic!("nobody comes or goes"),
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("there is no root"),
            }
        }
        if !honest && calm {
            let after = self.installed.as_ref().map(|installed| installed.0);
            assert_eq!(before, after, "a stranger has ended a session");
            let (_, members) = self.installed.as_ref().expect("it runs");
            for (process, (_, at)) in self.processes.iter().zip(members) {
                assert_eq!(process.at, at.addr, "a stranger has a member's place");
            }
        }
    }

    fn answer(&mut self, to: SocketAddr, packet: &[u8]) {
        let (header, payload) = Header::parse(packet).expect("what is sent is a packet");
        if header.kind == Kind::Welcome {
            let welcome = Welcome::parse(payload).expect("a WELCOME is one");
            let installed = self.installed.as_ref().map(|installed| installed.0);
            assert_eq!(Some(welcome.session), installed, "WELCOME goes out for what is installed");
            assert_eq!(header.cookie, welcome.session);
        }
        let now = self.now;
        for process in self.processes.iter_mut().filter(|process| process.at == to) {
            match process.joiner.handle(now, packet) {
                Some(JoinEvent::Welcome(welcome, _)) => {
                    assert_eq!(welcome.nonce, process.nonce);
                    process.session = Some(welcome.session);
                }
                Some(
                    JoinEvent::Reforming(_) | JoinEvent::Changed(_) | JoinEvent::Bye | JoinEvent::Failed(_),
                ) => process.session = None,
                Some(JoinEvent::PendingRacks(..)) => panic!("there are no racks"),
                Some(JoinEvent::Boundary(_)) => panic!("nobody comes or goes"),
                Some(JoinEvent::Pending(..)) | None => {}
            }
        }
    }

    fn everybody_joins(&mut self) {
        for worker in 0..self.processes.len() {
            self.poll(worker, false);
        }
    }

    /// Strangers give up, and all start anew: within a few seconds there is a session of all.
    fn settle(&mut self) {
        self.calm = false;
        self.now += Duration::from_secs(10);
        self.lives += 1;
        for worker in 0..self.processes.len() {
            self.processes[worker] = Process::new(worker as u8, self.lives, self.now);
        }
        for _ in 0..60 {
            self.everybody_joins();
            let session = self.installed.as_ref().map(|installed| installed.0);
            if session.is_some() && self.processes.iter().all(|process| process.session == session) {
                return;
            }
            self.now += Duration::from_millis(100);
        }
        panic!("no session after 6 s: {:?}", self.registry);
    }
}
