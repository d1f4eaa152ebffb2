//! Plain UDP sockets that join a server as workers, and the model that they are held against.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use thc_protocol::aggregator::{
    Aggregator, DropReason, Endpoint, Event, JobConfig, JobCounters, Scalar, Shard, Sink, WorkerCounters,
};
use thc_protocol::session::{JoinEvent, Joiner};
use thc_protocol::wire::{Header, Kind, Mode, Norm, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, Round, SlotId, TableId, WorkerId};
use thc_ps::{JobOptions, JobStats, ServerOptions, WorkerStats};

/// Nothing here takes that long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(600);
pub const COOKIE: u32 = 0x0bad_cafe;

/// Options of a server on a port of its own with one job, number 1.
pub fn options(workers: u8, shards: u64) -> ServerOptions {
    let job = JobOptions {
        job: Some(1),
        cookie: Some(u64::from(COOKIE).into()),
        workers: Some(u64::from(workers)),
        granularity: Some(30),
        fraction: Some(thc_ps::Fraction(1.0 / 32.0)),
        data_slots: Some(256),
        norm_slots: Some(128),
        ..JobOptions::default()
    };
    ServerOptions {
        listen: Some("127.0.0.1:0".into()),
        shards: Some(shards),
        job: vec![job],
        ..ServerOptions::default()
    }
}

/// A worker without a library: it sends what a test says and keeps what comes.
pub struct RawWorker {
    pub number: WorkerId,
    pub socket: UdpSocket,
    pub server: SocketAddr,
    pub joiner: Joiner,
    pub welcome: Option<Welcome>,
    started: Instant,
}

impl RawWorker {
    pub fn new(number: u8, server: SocketAddr, nonce: u64) -> RawWorker {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let number = WorkerId(number);
        let joiner = Joiner::new(JobId(1), number, Cookie(COOKIE), nonce, 0, Duration::ZERO);
        RawWorker { number, socket, server, joiner, welcome: None, started: Instant::now() }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Sends what the joiner wants sent now.
    pub fn poll(&mut self) {
        let mut buffer = [0; 256];
        let now = self.started.elapsed();
        while let Some(packet) = self.joiner.poll(now, &mut buffer) {
            self.socket.send_to(packet, self.server).unwrap();
        }
    }

    /// The next packet, if one comes within the socket's timeout.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 2048];
        match self.socket.recv_from(&mut buffer) {
            Ok((len, _)) => Some(buffer[..len].to_vec()),
            // ConnectionRefused is an ICMP message about a server that was killed.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock
                        | ErrorKind::TimedOut
                        | ErrorKind::Interrupted
                        | ErrorKind::ConnectionRefused
                ) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a packet. A WELCOME more is the answer to a JOIN that was repeated while the first was under way.
    pub fn expect(&self) -> Vec<u8> {
        let start = Instant::now();
        loop {
            if let Some(packet) =
                self.receive().filter(|packet| packet.get(1) != Some(&(Kind::Welcome as u8)))
            {
                return packet;
            }
            assert!(start.elapsed() < PATIENCE, "worker {} waits in vain", self.number);
        }
    }

    /// Takes one packet as the joiner does.
    pub fn hear(&mut self) -> Option<JoinEvent> {
        let packet = self.receive()?;
        let event = self.joiner.handle(self.started.elapsed(), &packet);
        if let Some(JoinEvent::Welcome(welcome)) = event {
            self.welcome = Some(welcome);
        }
        event
    }

    /// Waits until the joiner says something that `wanted` takes.
    pub fn wait_until<T>(&mut self, mut wanted: impl FnMut(JoinEvent) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.poll();
            if let Some(found) = self.hear().and_then(&mut wanted) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "worker {} waits in vain", self.number);
        }
    }

    /// Introduces the worker again, as after a long silence.
    pub fn resume(&mut self) {
        self.joiner.resume(self.started.elapsed());
        self.welcome = None;
    }

    pub fn leave(&mut self) {
        self.joiner.leave(self.started.elapsed());
    }

    /// A header of the session.
    pub fn header(&self, kind: Kind, slot: u16, round: u32) -> Header {
        let welcome = self.welcome.unwrap();
        Header {
            table: if kind == Kind::Data { welcome.tables.first().id } else { TableId(0) },
            round: Round(round),
            slot: SlotId(slot),
            ..Header::new(kind, welcome.workers, JobId(1), self.number, welcome.session)
        }
    }

    /// The port that serves a slot.
    pub fn port_of(&self, slot: u16) -> SocketAddr {
        let shard = Shard::index_of(SlotId(slot), self.welcome.unwrap().shards);
        SocketAddr::from((self.server.ip(), self.server.port() + u16::from(shard)))
    }

    pub fn send(&self, packet: &[u8], slot: u16) {
        self.socket.send_to(packet, self.port_of(slot)).unwrap();
    }
}

/// A packet as bytes.
pub fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + payload.len()];
    header.emit_packet(&mut bytes, payload);
    bytes
}

/// The payload of a NORM for a call of `length` coordinates.
pub fn norm(value: f32, length: u32) -> [u8; 20] {
    let norm = Norm {
        tag: 0,
        value: value.to_bits(),
        length,
        call: 0,
        table: TableId(1),
        mode: Mode::Compressed as u8,
        key: 0,
    };
    norm.with_tag(1).to_bytes()
}

/// Lets workers join until all are welcome.
pub fn join_all(workers: &mut [RawWorker]) {
    let start = Instant::now();
    while workers.iter().any(|worker| worker.welcome.is_none()) {
        for worker in workers.iter_mut().filter(|worker| worker.welcome.is_none()) {
            worker.poll();
            worker.hear();
        }
        assert!(start.elapsed() < PATIENCE, "the session does not form");
    }
}

/// Keeps this thread on its core. Loopback delivers in order what one core sends, from however many
/// sockets; the model depends on that order.
pub fn keep_order() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// New workers 0 to n − 1 in a session.
pub fn session(workers: u8, server: SocketAddr) -> Vec<RawWorker> {
    let mut all: Vec<RawWorker> =
        (0..workers).map(|number| RawWorker::new(number, server, 100 + u64::from(number))).collect();
    join_all(&mut all);
    all
}

/// What the model sends, by receiver.
#[derive(Default)]
pub struct Sent(pub BTreeMap<SocketAddr, Vec<Vec<u8>>>);

impl Sink for Sent {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.entry(to.addr).or_default().push(packet.to_vec());
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        for member in members {
            self.unicast(*member, Ecn::NotEct, packet);
        }
    }
}

/// The model of a whole server: an aggregator per shard.
pub struct Model {
    pub shards: Vec<Aggregator<Scalar>>,
    pub sent: Sent,
}

impl Model {
    /// With the session that the workers are in.
    pub fn from_workers(workers: &[RawWorker]) -> Model {
        let welcome = workers[0].welcome.unwrap();
        let shards = (0..welcome.shards).map(|index| {
            let mut shard = Aggregator::new(Shard { index, count: welcome.shards }, 1 << 30);
            for table in welcome.tables.iter() {
                shard.install_table(table.id, table.into()).unwrap();
            }
            shard.install_job(JobConfig::from_welcome(JobId(1), welcome.session, &welcome)).unwrap();
            for worker in workers {
                shard.set_member(JobId(1), worker.number, Endpoint::udp(worker.address())).unwrap();
            }
            shard
        });
        Model { shards: shards.collect(), sent: Sent::default() }
    }

    pub fn handle(&mut self, shard: usize, from: SocketAddr, packet: &[u8]) {
        self.shards[shard].handle(Endpoint::udp(from), packet, &mut self.sent);
    }

    /// What it has sent to an address since it was last asked, sorted.
    pub fn take(&mut self, to: SocketAddr) -> Vec<Vec<u8>> {
        let mut packets = self.sent.0.remove(&to).unwrap_or_default();
        packets.sort();
        packets
    }

    pub fn counters(&self) -> JobCounters {
        let mut all = self.shards[0].job_counters(JobId(1)).unwrap().clone();
        for shard in &self.shards[1..] {
            all.merge(shard.job_counters(JobId(1)).unwrap());
        }
        all
    }

    /// Packets of no job, by reason.
    pub fn global_drops(&self) -> [u64; 4] {
        let mut drops = [0; 4];
        for shard in &self.shards {
            drops.iter_mut().zip(shard.counters().drops).for_each(|(sum, count)| *sum += count);
        }
        drops
    }
}

/// Holds a worker's reported counters against the model's.
pub fn assert_counters(stats: &WorkerStats, model: &WorkerCounters, name: &str) {
    assert_eq!((stats.packets, stats.bytes), (model.packets, model.bytes), "{name}: packets and bytes");
    for (event, count) in Event::ALL.iter().zip(model.events) {
        assert_eq!(stats.count(*event), count, "{name}: {}", event.name());
    }
    for (reason, count) in DropReason::ALL.iter().zip(model.drops).skip(4) {
        assert_eq!(stats.drops[reason.name()], count, "{name}: dropped for {}", reason.name());
    }
}

/// Holds a job's reported counters against the model's.
pub fn assert_job(stats: &JobStats, model: &JobCounters) {
    assert_eq!(
        (stats.results, stats.resent, stats.nudges),
        (model.results, model.resent, model.nudges),
        "results, resent, nudges"
    );
    for worker in &stats.members {
        let number = WorkerId(worker.worker);
        assert_counters(worker, model.worker(number), &format!("worker {number}"));
    }
}

/// Random indices of a DATA packet.
pub fn indices(random: &mut fastrand::Rng, welcome: &Welcome) -> Vec<u8> {
    (0..welcome.tables.first().form.data_len()).map(|_| random.u8(..)).collect()
}
