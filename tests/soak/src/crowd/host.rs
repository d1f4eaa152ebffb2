//! A server's process with all jobs: registry and aggregator. The second host is the first one's spare.

use super::book::Book;
use super::jobs::Job;
use crate::plan::COOKIE;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{Aggregator, Endpoint, Kernels, Outcome, Shard};
use thc_protocol::session::{Action, Registry};
use thc_protocol::wire::Header;
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_support::{SimIo, SimNet};
use thc_transport::PacketIo;

use crate::server::Out;

const MEMORY: usize = 256 << 20;

/// Where a host is.
pub fn address(share: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 100 + share as u8), 9000))
}

pub struct Host<K: Kernels> {
    net: SimNet,
    share: usize,
    pub address: SocketAddr,
    io: SimIo,
    aggregator: Aggregator<K>,
    registry: Registry,
    /// When packets of a session's member were last let in.
    heard: BTreeMap<(JobId, u8), Duration>,
    cookies: Rng,
    /// Until when the process is not there.
    pub down_until: Duration,
    /// When it has its next turn.
    pub due: Duration,
}

impl<K: Kernels> Host<K> {
    pub fn new(net: &SimNet, share: usize, jobs: &[Job], seed: u64) -> Host<K> {
        let mut host = Host {
            net: net.clone(),
            share,
            address: address(share),
            io: net.endpoint(address(share)),
            aggregator: Aggregator::new(Shard::WHOLE, MEMORY),
            registry: Registry::default(),
            heard: BTreeMap::new(),
            cookies: Rng::with_seed(seed ^ 0xC00C_1E55),
            down_until: Duration::ZERO,
            due: Duration::ZERO,
        };
        host.restart(jobs);
        for job in jobs.iter().filter(|_| share == 0) {
            // No session, but the number of the last one.
            host.registry.restore(Duration::ZERO, job.number, (Cookie(0), job.counts.epoch), &[]);
        }
        host
    }

    /// A new process, which knows nothing but its configuration.
    pub fn restart(&mut self, jobs: &[Job]) {
        self.aggregator = Aggregator::new(Shard::WHOLE, MEMORY);
        for (_, welcome) in jobs.iter().flat_map(|job| &job.configured.sizes.as_ref().unwrap().shapes) {
            for table in welcome.tables.iter() {
                self.aggregator.install_table(table.id, table.into()).unwrap();
            }
        }
        let jobs = jobs.iter().map(|job| job.configured.clone());
        self.registry = if self.share == 0 { Registry::new(jobs) } else { Registry::follower(jobs) };
        self.io = self.net.endpoint(self.address);
        self.heard.clear();
    }

    /// The session of a job that it knows.
    pub fn session(&self, job: JobId) -> Option<Cookie> {
        self.registry.session(job).map(|(cookie, _)| cookie)
    }

    /// Bytes that what is kept of sessions takes, roughly.
    pub fn registry_size(&self) -> usize {
        format!("{:?}", self.registry).len()
    }

    /// Handles what has come, and what time brings. Whether anything had come.
    pub fn serve(&mut self, now: Duration, book: &mut Book) -> bool {
        let mut burst = Vec::new();
        self.io.recv_burst(&mut |from, packet| burst.push((from, packet.to_vec()))).unwrap();
        let any = !burst.is_empty();
        if now < self.down_until {
            return any;
        }
        for (from, packet) in burst {
            // Control kinds have bit 5 set (P2).
            if packet.get(1).is_some_and(|kind| kind & 0x20 != 0) {
                let (heard, cookies) = (&self.heard, &mut self.cookies);
                let alive =
                    |job, worker: WorkerId| heard.get(&(job, worker.0)).map(|at| now.saturating_sub(*at));
                let actions = self.registry.handle(now, from, &packet, alive, || cookies.u32(..));
                self.act(actions, book);
            } else if let Outcome::Handled(_) =
                self.aggregator.handle(Endpoint::udp(from), &packet, &mut Out(&mut self.io))
                && let Ok((header, _)) = Header::parse(&packet)
            {
                self.heard.insert((header.job, header.worker.0), now);
            }
        }
        let (heard, cookies) = (&self.heard, &mut self.cookies);
        let alive = |job, worker: WorkerId| heard.get(&(job, worker.0)).map(|at| now.saturating_sub(*at));
        let due = self.registry.poll(now, alive, || cookies.u32(..));
        self.act(due, book);
        any
    }

    fn act(&mut self, actions: Vec<Action>, book: &mut Book) {
        let mut sends = Vec::new();
        for action in actions {
            match action {
                Action::Install(config, members) => {
                    let job = config.job;
                    assert!(config.cookie != Cookie(0) && config.cookie != COOKIE);
                    assert_eq!(usize::from(config.workers), members.len());
                    self.heard.retain(|(of, _), _| *of != job);
                    if self.share == 0 {
                        let (_, members) = self.registry.session(job).unwrap();
                        let members = members.iter().map(|member| member.nonce).collect();
                        book.begins(self.io.now(), config.cookie, job, members);
                    }
                    self.aggregator.install_job(config).unwrap();
                    for (worker, at) in members {
                        self.aggregator.set_member(job, worker, at).unwrap();
                    }
                }
                Action::Move(job, worker, at) => self.aggregator.set_member(job, worker, at).unwrap(),
                Action::Remove(job) => {
                    self.aggregator.remove_job(job);
                }
                Action::Send(to, bytes) => sends.push((to, bytes)),
                Action::Tell(..) => {}
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("there is no root"),
            }
        }
        for (to, bytes) in sends {
            self.io.send_run(to, &bytes, bytes.len()).unwrap();
        }
    }
}
