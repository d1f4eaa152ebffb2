//! A worker's network in a benchmark: a server that answers while the worker waits.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use thc_bench::thread_time;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Lookup, Scalar, Shard, Sink};
use thc_protocol::wire::Form;
use thc_protocol::{Cookie, Ecn, JobId, TableId, WorkerId};
use thc_transport::{IoStats, PacketIo, Peer, RetainedTx, Run, UdpConfig, UdpIo};

pub const SLOTS: u32 = 1024;
/// RESULTs that a kernel merges at most: 64 KiB.
pub const RUN: usize = 62;
pub const PS: Peer = Peer::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9000));
pub const SESSION: Cookie = Cookie(7);
pub const JOB: JobId = JobId(1);
/// What passes when the worker waits, and when it looks for packets in vain.
const TRIP: Duration = Duration::from_micros(100);
const LOOK: Duration = Duration::from_micros(1);

/// Answers of one length, back to back.
#[derive(Default)]
struct Answers {
    packets: Vec<u8>,
    segment: usize,
}

/// What the aggregator sends.
#[derive(Default)]
struct TxBatch {
    /// Packets of equal lengths that follow each other are one run.
    runs: Vec<Answers>,
    /// Whether nothing is added to the last one.
    is_closed: bool,
}

impl TxBatch {
    /// What came in one piece is answered: as thc-ps does, a run ends there if it is nearly full.
    fn end_piece(&mut self) {
        self.is_closed =
            self.runs.last().is_some_and(|last| last.packets.len() >= RUN * 7 / 8 * last.segment);
    }
}

impl Sink for TxBatch {
    fn unicast(&mut self, _: Endpoint, _: Ecn, packet: &[u8]) {
        match self.runs.last_mut() {
            Some(last)
                if !self.is_closed
                    && last.segment == packet.len()
                    && last.packets.len() < RUN * packet.len() =>
            {
                last.packets.extend_from_slice(packet);
            }
            _ => self.runs.push(Answers { packets: packet.to_vec(), segment: packet.len() }),
        }
        self.is_closed = false;
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        self.unicast(members[0], ecn, packet);
    }
}

/// A server of a job of one worker.
struct Server {
    aggregator: Aggregator<Scalar>,
    worker: Endpoint,
    batch: TxBatch,
}

impl Server {
    fn new(worker: Peer, table: &LookupTable) -> Server {
        let mut aggregator = Aggregator::new(Shard::WHOLE, 64 << 20);
        aggregator.install_table(TableId(1), Lookup { form: Form::USUAL, values: table.values16() }).unwrap();
        let config = JobConfig {
            data_slots: SLOTS,
            norm_slots: SLOTS,
            ..JobConfig::new(JOB, SESSION, 1, vec![TableId(1)])
        };
        aggregator.install_job(config).unwrap();
        let worker = Endpoint::udp(worker);
        aggregator.set_member(JOB, WorkerId(0), worker).unwrap();
        Server { aggregator, worker, batch: TxBatch::default() }
    }

    fn handle(&mut self, packet: &[u8]) {
        self.aggregator.handle(self.worker, packet, &mut self.batch);
    }
}

/// How RESULTs come to the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Runs,
    OneByOne,
    Udp,
}

fn open() -> UdpIo {
    UdpIo::bind(UdpConfig::new(([127, 0, 0, 1], 0).into())).unwrap()
}

/// The worker's network: while the worker waits, the server answers, and that time does not count.
pub struct Net {
    way: Way,
    server: Server,
    /// What the worker has sent, in memory, and what it has not received.
    sent: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// The sockets of the worker and of the server.
    udp: Option<(UdpIo, UdpIo)>,
    now: Duration,
    /// Processor time of the server, and packets that the engine has sent.
    pub paused: Duration,
    pub packets: u64,
}

impl Net {
    pub fn new(way: Way, table: &LookupTable) -> Net {
        Net {
            way,
            server: Server::new(PS, table),
            sent: Vec::new(),
            bytes: Vec::new(),
            udp: (way == Way::Udp).then(|| (open(), open())),
            now: Duration::from_secs(1),
            paused: Duration::ZERO,
            packets: 0,
        }
    }

    pub fn ps(&self) -> Peer {
        self.udp.as_ref().map_or(PS, |(_, server)| server.local())
    }

    fn answer(&mut self) {
        let Net { server, sent, bytes, udp, .. } = self;
        server.batch.runs.clear();
        if let Some((worker, socket)) = udp {
            while let (1.., runs) = socket.recv_all_runs().unwrap() {
                for run in runs {
                    run.datagrams().for_each(|packet| server.handle(packet));
                    server.batch.end_piece();
                }
            }
            for answers in &server.batch.runs {
                socket.send_run(worker.local(), &answers.packets, answers.segment).unwrap();
            }
            return;
        }
        let mut rest = bytes.as_slice();
        for (len, segment) in sent.drain(..) {
            let (run, behind) = rest.split_at(len);
            run.chunks(segment).for_each(|packet| server.handle(packet));
            server.batch.end_piece();
            rest = behind;
        }
        bytes.clear();
    }
}

/// Runs that a worker sends before it waits, half of its slots.
const AHEAD: usize = SLOTS as usize / 2 / RUN;
/// How long nothing may come until packets count as lost.
const HANG: Duration = Duration::from_secs(60);

/// The system calls of a worker over kernel UDP, with packets that nobody fills or reads.
pub struct SystemCalls {
    worker: UdpIo,
    server: UdpIo,
    data: Vec<u8>,
    results: Vec<u8>,
}

impl SystemCalls {
    /// Of packets with so many bytes.
    pub fn new(data: usize, result: usize) -> SystemCalls {
        SystemCalls {
            worker: open(),
            server: open(),
            data: vec![1; RUN * data],
            results: vec![2; RUN * result],
        }
    }

    /// Nanoseconds of the worker for a pair, over `pairs` of them or a few more.
    pub fn turn(&mut self, pairs: usize) -> f64 {
        let SystemCalls { worker, server, data, results } = self;
        let (mut took, mut done) = (Duration::ZERO, 0);
        while done < pairs {
            took += send(worker, server.local(), data);
            receive(server, data.len() / RUN);
            send(server, worker.local(), results);
            took += receive(worker, results.len() / RUN);
            done += AHEAD * RUN;
        }
        took.as_nanos() as f64 / done as f64
    }
}

/// Sends a run as often as a worker may; the processor time of that.
fn send(io: &mut UdpIo, to: Peer, run: &[u8]) -> Duration {
    let began = thread_time();
    (0..AHEAD).for_each(|_| io.send_run(to, run, run.len() / RUN).unwrap());
    thread_time() - began
}

/// Receives what [`send`] has sent; the processor time of that.
fn receive(io: &mut UdpIo, segment: usize) -> Duration {
    let (began, mut got) = (thread_time(), 0);
    while got < AHEAD * RUN {
        let burst = io.recv_runs(&mut |run| assert_eq!(run.segment, segment)).unwrap();
        got += burst;
        assert!(burst > 0 || io.wait(HANG).unwrap(), "{got} packets came");
    }
    thread_time() - began
}

impl RetainedTx for Net {}

impl PacketIo for Net {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        if let Some((worker, _)) = &mut self.udp {
            let got = worker.recv_runs(f)?;
            self.now += if got == 0 { LOOK } else { Duration::ZERO };
            return Ok(got);
        }
        let mut got = 0;
        for Answers { packets, segment } in self.server.batch.runs.drain(..) {
            got += packets.len() / segment;
            let packets = Arc::new(packets);
            let run = Run { from: PS, at: None, ecn: 0, contents: &packets, segment, memory: Some(&packets) };
            match self.way {
                Way::OneByOne => run.datagrams().for_each(|packet| f(Run::single(run.origin(), packet))),
                _ => f(run),
            }
        }
        self.now += if got == 0 { LOOK } else { Duration::ZERO };
        Ok(got)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        self.packets += (contents.len() / segment) as u64;
        if let Some((worker, _)) = &mut self.udp {
            return worker.send_run_with(to, contents, segment, ecn);
        }
        self.sent.push((contents.len(), segment));
        self.bytes.extend_from_slice(contents);
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> io::Result<bool> {
        let began = thread_time();
        self.now += TRIP;
        self.answer();
        self.paused += thread_time() - began;
        Ok(true)
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn local(&self) -> Peer {
        Peer::from(([10, 0, 0, 2], 9000))
    }

    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}
