//! Joining and leaving: any control packets from anywhere at any time. Members of a session are as many as the job has
//! workers, one of each number; there is never a second session; and who does not know a session's secrets cannot end
//! one whose workers are alive.

use arbitrary::Unstructured;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::JobConfig;
use thc_protocol::session::{JoinEvent, Registry, StaticJob};
use thc_protocol::wire::{Form, HEADER_LEN, Header, Join, Kind, Leave, Welcome};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};
use thc_support::kinds;
use thc_support::parties::{self, COOKIE, JOB, Server, static_job};

pub fn run(data: &[u8]) {
    let _ = run_history(&mut Unstructured::new(data));
}

fn job(workers: u8, quorum: u8) -> StaticJob {
    let welcome = Welcome { quorum, ..static_job(workers).welcome };
    StaticJob::new(JobConfig::from_welcome(JOB, COOKIE, &welcome), welcome)
}

/// A worker's process, and the session that it is in, by its own account.
struct Process {
    party: parties::Process,
    nonce: u64,
    session: Option<Cookie>,
}

impl Process {
    fn new(worker: u8, life: u16, now: Duration) -> Process {
        let party = parties::Process::with_definitions(worker, life, 5, now);
        Process { party, nonce: parties::nonce(worker, life), session: None }
    }
}

struct History {
    now: Duration,
    server: Server,
    job: StaticJob,
    processes: Vec<Process>,
    lives: u16,
    /// Packets that were sent at some time, to come again.
    heard: Vec<(SocketAddr, Vec<u8>)>,
    /// Whether nobody but strangers has done anything since the session began.
    calm: bool,
    /// Whether members send data, or compute for long.
    sending: bool,
}

fn run_history(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let workers = input.int_in_range(1..=3)?;
    let quorum = if input.ratio(1, 4)? { input.int_in_range(1..=workers)? } else { workers };
    let job = job(workers, quorum);
    let mut history = History {
        now: Duration::ZERO,
        server: Server::with_job(job.clone(), 1000),
        job,
        processes: (0..workers).map(|worker| Process::new(worker, 0, Duration::ZERO)).collect(),
        lives: 0,
        heard: Vec::new(),
        calm: false,
        sending: input.arbitrary()?,
    };
    if input.ratio(3, 4)? {
        history.everybody_joins();
        history.calm = true;
        assert!(history.server.installed.is_some(), "all have joined");
    }
    while !input.is_empty() {
        history.take_step(input)?;
    }
    history.settle();
    Ok(())
}

impl History {
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
                self.processes[worker].party.joiner.leave(self.now);
            }
            2 => {
                // A new address.
                self.calm = false;
                self.processes[worker].party.address.set_port(5000 + input.int_in_range(0..=3u16)?);
            }
            3 if input.ratio(1, 2)? => {
                self.calm = false;
                self.server.registry = Registry::new([self.job.clone()]);
                self.server.installed = None;
            }
            4 => self.processes[worker].party.joiner.resume(self.now),
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
        let party = &mut self.processes[worker].party;
        let Some(packet) = party.poll(self.now) else { return };
        let from = party.address;
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
            kind: if input.ratio(1, 4)? { *input.choose(&kinds())? } else { Kind::Join },
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

    /// The session that the aggregator has.
    fn session(&self) -> Option<Cookie> {
        self.server.installed.as_ref().map(|installed| installed.0)
    }

    fn at_server(&mut self, from: SocketAddr, packet: &[u8], honest: bool) {
        let before = self.session();
        let alive = |process: &&Process| self.sending && before.is_some() && process.session == before;
        let alive = self.processes.iter().filter(alive);
        self.server.alive = alive.map(|process| (process.party.worker, Duration::from_millis(10))).collect();
        let state = format!("{:?}", self.server.registry);
        let answers = self.server.take(self.now, from, packet);
        let after = format!("{:?}", self.server.registry);
        // P22: only JOIN and LEAVE of the whole length change anything, and what is kept does not grow.
        let joins = |kind| matches!(kind, Kind::Join | Kind::Leave);
        let is_own = Header::parse(packet).is_ok_and(|(header, payload)| {
            joins(header.kind) && payload.len() == header.kind.payload_len(Form::USUAL)
        });
        assert!(is_own || state == after, "a packet that is not for the registry changed it");
        assert!(after.len() < 8_000, "{}", after.len());
        // At most a packet to each.
        assert!(answers.len() <= 2 * self.processes.len() + 3, "{answers:?}");
        for (to, packet) in answers {
            self.answer(to, &packet);
        }
        if !honest && self.calm {
            assert_eq!(before, self.session(), "a stranger has ended a session");
            let (_, members) = self.server.installed.as_ref().expect("it runs");
            for (process, (_, at)) in self.processes.iter().zip(members) {
                assert_eq!(process.party.address, at.addr, "a stranger has a member's place");
            }
        }
    }

    fn answer(&mut self, to: SocketAddr, packet: &[u8]) {
        for process in self.processes.iter_mut().filter(|process| process.party.address == to) {
            process.party.take(self.now, packet);
            match process.party.events.pop() {
                Some(JoinEvent::Welcome(welcome)) => {
                    assert_eq!(welcome.nonce, process.nonce);
                    process.session = Some(welcome.session);
                }
                Some(
                    JoinEvent::Reforming(_) | JoinEvent::Changed(_) | JoinEvent::Bye | JoinEvent::Failed(_),
                ) => process.session = None,
                Some(JoinEvent::PendingRacks(..)) => panic!("there are no racks"),
                Some(JoinEvent::Here(_) | JoinEvent::Pending(..)) | None => {}
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
            let session = self.session();
            if session.is_some() && self.processes.iter().all(|process| process.session == session) {
                return;
            }
            self.now += Duration::from_millis(100);
        }
        panic!("no session after 6 s: {:?}", self.server.registry);
    }
}
