//! The parameter server: registry and aggregators, tied together as `thc-ps` does it.

use crate::plan::{COOKIE, JOB};
use fastrand::Rng;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::aggregator::{Aggregator, Endpoint, Kernels, Outcome, Shard, Sink};
use thc_protocol::session::{Action, Registry, StaticJob};
use thc_protocol::wire::{Header, Kind, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, MAX_WORKERS, WorkerId};
use thc_support::{SimIo, SimNet};
use thc_transport::{Origin, PacketIo};

/// Bytes of slots that a server may have.
const MEMORY: usize = 64 << 20;

/// Shards that a job may have.
pub const MAX_SHARDS: u8 = 3;

/// Where a shard listens.
pub fn address(shard: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 100), 9000 + u16::from(shard)))
}

/// Where an aggregator's packets go.
pub struct Out<'a>(pub &'a mut SimIo);

impl Sink for Out<'_> {
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        self.0.send_run_with(to.addr, packet, packet.len(), ecn.bits()).unwrap();
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        for &member in members {
            self.unicast(member, ecn, packet);
        }
    }
}

struct ShardServer<K: Kernels> {
    io: SimIo,
    aggregator: Aggregator<K>,
}

/// A server's process.
pub struct Server<K: Kernels> {
    net: SimNet,
    pub job: StaticJob,
    shards: Vec<ShardServer<K>>,
    registry: Registry,
    /// The session that the aggregators have.
    pub installed: Option<Cookie>,
    /// When each worker's packets were last let in.
    heard: [Option<Duration>; MAX_WORKERS],
    /// Where session cookies come from.
    cookies: Rng,
    /// Until when the process is not there, and until when it is stopped: what comes meanwhile waits in its sockets.
    pub down_until: Duration,
    pub stopped_until: Duration,
    /// Sessions begun and ended so far.
    pub begun: u64,
    pub removed: u64,
}

impl<K: Kernels> Server<K> {
    pub fn new(net: &SimNet, job: StaticJob, seed: u64) -> Server<K> {
        let mut server = Server {
            net: net.clone(),
            shards: Vec::new(),
            registry: Registry::default(),
            installed: None,
            heard: [None; MAX_WORKERS],
            cookies: Rng::with_seed(seed ^ 0xC00C_1E55),
            down_until: Duration::ZERO,
            stopped_until: Duration::ZERO,
            begun: 0,
            removed: 0,
            job: job.clone(),
        };
        server.restart(job);
        server
    }

    /// A new process, which knows nothing but its configuration.
    pub fn restart(&mut self, job: StaticJob) {
        let count = job.welcome.shards;
        self.shards.clear();
        for index in 0..count {
            let mut aggregator = Aggregator::new(Shard { index, count }, MEMORY);
            for table in job.welcome.tables.iter() {
                aggregator.install_table(table.id, table.into()).unwrap();
            }
            self.shards.push(ShardServer { io: self.net.endpoint(address(index)), aggregator });
        }
        self.registry = Registry::new([job.clone()]);
        self.installed = None;
        self.heard = [None; MAX_WORKERS];
        self.job = job;
    }

    /// Shards that it has.
    pub fn shards(&self) -> u8 {
        self.shards.len() as u8
    }

    /// The control plane starts anew and is given what it had: that of a switch, whose slots stay.
    pub fn restart_control(&mut self) {
        let before = self.registry.session(JOB);
        self.registry = Registry::new([self.job.clone()]);
        if let Some((session, members)) = before {
            assert!(self.registry.restore(self.net.now(), JOB, session, &members));
        }
    }

    /// The slots are emptied, and nothing else: a switch that was switched off.
    pub fn forget_slots(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.aggregator.forget_slots());
    }

    /// Bytes that what is kept of sessions takes, roughly.
    pub fn registry_size(&self) -> usize {
        format!("{:?}", self.registry).len()
    }

    /// Handles what has come. Whether anything had.
    pub fn serve(&mut self, now: Duration) -> bool {
        if now < self.stopped_until {
            return false;
        }
        let mut any = false;
        let mut control = Vec::new();
        for shard in 0..self.shards.len() {
            let mut burst = Vec::new();
            let ShardServer { io, aggregator } = &mut self.shards[shard];
            io.recv_burst(&mut |origin, packet| burst.push((origin, packet.to_vec()))).unwrap();
            if now < self.down_until {
                continue;
            }
            any |= !burst.is_empty();
            for (Origin { from, ecn, .. }, packet) in burst {
                let kind = packet.get(1).copied();
                if shard == 0 && (kind == Some(Kind::Join as u8) || kind == Some(Kind::Leave as u8)) {
                    control.push((from, packet));
                } else if let Outcome::Handled(_) =
                    aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), &packet, &mut Out(io))
                {
                    self.heard[usize::from(packet[6])] = Some(now);
                }
            }
        }
        for (from, packet) in control {
            self.control(now, from, &packet);
        }
        any
    }

    fn control(&mut self, now: Duration, from: SocketAddr, packet: &[u8]) {
        let (heard, cookies) = (&self.heard, &mut self.cookies);
        let alive = |_, worker: WorkerId| {
            heard.get(usize::from(worker.0)).copied().flatten().map(|at| now.saturating_sub(at))
        };
        let actions = self.registry.handle(now, from, packet, alive, || cookies.u32(..));
        let mut sends = Vec::new();
        for action in actions {
            match action {
                Action::Install(config, members) => {
                    assert!(config.cookie != Cookie(0) && config.cookie != COOKIE);
                    self.installed = Some(config.cookie);
                    self.begun += 1;
                    for shard in &mut self.shards {
                        shard.aggregator.remove_job(JOB);
                        shard.aggregator.install_job(config.clone()).unwrap();
                        for &(worker, at) in &members {
                            shard.aggregator.set_member(JOB, worker, at).unwrap();
                        }
                    }
                }
                Action::Move(_, worker, at) => {
                    for shard in &mut self.shards {
                        shard.aggregator.set_member(JOB, worker, at).unwrap();
                    }
                }
                Action::Remove(_) => {
                    assert!(self.installed.take().is_some(), "nothing to remove");
                    self.removed += 1;
                    self.shards.iter_mut().for_each(|shard| {
                        shard.aggregator.remove_job(JOB);
                    });
                }
                Action::Send(to, bytes) => sends.push((to, bytes)),
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("there is no root"),
            }
        }
        for (to, bytes) in sends {
            let (header, payload) = Header::parse(&bytes).expect("what is sent is a packet");
            if header.kind == Kind::Welcome {
                let session = Welcome::parse(payload).expect("a WELCOME is one").session;
                assert_eq!(Some(session), self.installed, "WELCOME goes out for what is installed");
            }
            self.shards[0].io.send_run(to, &bytes, bytes.len()).unwrap();
        }
    }
}
