//! Vectors of whole sessions (P33): every packet that workers and aggregator exchange for a few all-reduces, as the engine and
//! the aggregator's model make them. Written by the example `vectors`, held to by the test `vectors`.

use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;
use thc_codec::partition;
use thc_codec::rht;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Scalar, Shard, Sink};
use thc_protocol::session::{JoinEvent, Joiner, Joiners};
use thc_protocol::wire::{Form, Header, Kind, MAX_PACKET, Mode, Norm, Table, Tables, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, TableId, WorkerId};
use thc_support::wire_table;
use thc_transport::{IoStats, PacketIo, Peer, RetainedTx, Run};
use thc_worker::{Borrowed, Call, Engine, EngineConfig, Plan, Rounding};

const JOB: JobId = JobId(0x0102);
const CONFIGURED: Cookie = Cookie(0x0BAD_CAFE);
const SESSION: Cookie = Cookie(0x5E55_1011);
const PS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 9000));

/// The vectors as they are in `tests/vectors/all_reduce.json`.
#[must_use]
pub fn text() -> String {
    let narrow = SessionCase {
        workers: 2,
        lane: 8,
        table: LookupTable::solve(4, 30, 1.0 / 32.0).unwrap(),
        job_seed: 0x0123_4567_89AB_CDEF,
        block: 10,
        calls: vec![
            // The last partition is zero on both, so it has no data; the next call's seqs go on.
            CallCase { mode: Mode::Compressed, key: 0, length: 2058, ends: 2048, nan: false },
            CallCase { mode: Mode::Compressed, key: 7, length: 300, ends: 300, nan: false },
            CallCase { mode: Mode::Raw, key: 0, length: 300, ends: 300, nan: false },
            CallCase { mode: Mode::Compressed, key: 0, length: 5, ends: 5, nan: true },
            CallCase { mode: Mode::Compressed, key: 0xFFFF_FFFF_0000_0000, length: 5, ends: 5, nan: false },
        ],
    };
    let wide = SessionCase {
        workers: 3,
        lane: 16,
        table: LookupTable::solve(4, 200, 1.0 / 512.0).unwrap(),
        job_seed: u64::MAX,
        block: 20,
        calls: vec![
            CallCase { mode: Mode::Compressed, key: 1, length: 600, ends: 600, nan: false },
            CallCase { mode: Mode::Raw, key: 0, length: 3, ends: 3, nan: false },
        ],
    };
    let of = |bits: u8, granularity, lane, workers| SessionCase {
        workers,
        lane,
        table: LookupTable::solve(bits, granularity, 0.25).unwrap(),
        job_seed: u64::from(bits),
        block: 10,
        calls: vec![CallCase { mode: Mode::Compressed, key: 0, length: 1030, ends: 1030, nan: false }],
    };
    let one = of(1, 5, 4, 3);
    let two = of(2, 7, 4, 2);
    let three = of(3, 40, 8, 2);
    let eight = of(8, 255, 16, 2);
    // Packed (P44).
    let seven = of(4, 60, 7, 2);
    let nine = of(8, 255, 9, 2);
    let sessions: Vec<Value> = [narrow, wide, one, two, three, eight, seven, nine]
        .iter()
        .map(|plan| Session::begin(plan).run(plan))
        .collect();
    // One line for each session and call: short enough to read, long enough to stay small.
    let mut text = String::from("{\"sessions\": [\n");
    for (i, session) in sessions.iter().enumerate() {
        let Value::Object(mut fields) = session.clone() else { continue };
        let calls = fields.remove("calls").unwrap();
        let head = Value::Object(fields).to_string();
        text.push_str(head.trim_end_matches('}'));
        text.push_str(",\"calls\": [\n");
        let lines: Vec<String> = calls.as_array().unwrap().iter().map(Value::to_string).collect();
        text.push_str(&lines.join(",\n"));
        text.push_str(if i + 1 < sessions.len() { "\n]},\n" } else { "\n]}\n]}\n" });
    }
    text
}

/// One session to record.
struct SessionCase {
    workers: u8,
    /// What sums go down in, as WELCOME says it.
    lane: u8,
    table: LookupTable,
    job_seed: u64,
    block: u8,
    calls: Vec<CallCase>,
}

/// One all-reduce to record. Coordinates from `ends` on are zero.
struct CallCase {
    mode: Mode,
    key: u64,
    length: usize,
    ends: usize,
    /// Whether worker 1's last coordinate is a NaN.
    nan: bool,
}

impl CallCase {
    fn gradient(&self, worker: u8) -> Vec<f32> {
        let mut x = crate::gradient(self.length, u64::from(worker) + 10 * self.length as u64);
        x[self.ends..].fill(0.0);
        if self.nan && worker == 1 {
            x[self.length - 1] = f32::NAN;
        }
        x
    }
}

/// What a worker's interface has received and sent. Time stands still, so nothing is repeated.
#[derive(Default)]
struct Mail {
    inbox: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct MailIo(Rc<RefCell<Mail>>, Peer);

impl RetainedTx for MailIo {}

impl PacketIo for MailIo {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let packets = std::mem::take(&mut self.0.borrow_mut().inbox);
        packets.iter().for_each(|packet| f(Run::single(PS.into(), packet)));
        Ok(packets.len())
    }

    fn send_run_with(&mut self, _: Peer, contents: &[u8], segment: usize, _: u8) -> io::Result<()> {
        self.0.borrow_mut().sent.extend(contents.chunks(segment).map(<[u8]>::to_vec));
        Ok(())
    }

    fn wait(&mut self, _timeout: Duration) -> io::Result<bool> {
        Ok(true)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn local(&self) -> Peer {
        self.1
    }

    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}

/// What the aggregator sends to all, each packet once.
#[derive(Default)]
struct Down(Vec<Vec<u8>>);

impl Sink for Down {
    fn unicast(&mut self, _to: Endpoint, _: Ecn, _packet: &[u8]) {
        unreachable!("nothing is repeated and nobody is late");
    }

    fn multicast(&mut self, _job: JobId, _members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }
}

struct Session {
    welcome: Welcome,
    aggregator: Aggregator<Scalar>,
    workers: Vec<(Engine<MailIo>, Rc<RefCell<Mail>>)>,
    welcomes: Vec<String>,
}

fn address(worker: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, worker + 1), 5000))
}

fn nonce(worker: u8) -> u64 {
    0x1122_3344_5566_7700 + u64::from(worker)
}

impl Session {
    fn begin(plan: &SessionCase) -> Session {
        let form = Form::with_sums(plan.table.bits(), plan.lane).unwrap();
        let table = Table { id: TableId(3), ..wire_table(form, &plan.table) };
        let welcome = Welcome {
            session: SESSION,
            data_slots: 4,
            norm_slots: 2,
            job_seed: plan.job_seed,
            block: plan.block,
            ..Welcome::new(plan.workers, Tables::one(table))
        };
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 24);
        aggregator.install_table(table.id, (&table).into()).unwrap();
        aggregator.install_job(JobConfig::from_welcome(JOB, SESSION, &welcome)).unwrap();
        let mut session = Session { welcome, aggregator, workers: Vec::new(), welcomes: Vec::new() };
        for worker in 0..plan.workers {
            session.aggregator.set_member(JOB, WorkerId(worker), Endpoint::udp(address(worker))).unwrap();
            session.admit(plan, worker);
        }
        session
    }

    fn admit(&mut self, plan: &SessionCase, worker: u8) {
        let header = Header::new(Kind::Welcome, plan.workers, JOB, WorkerId(worker), SESSION);
        let body = Welcome { nonce: nonce(worker), ..self.welcome }.to_bytes();
        let mut buffer = [0; MAX_PACKET];
        let packet = header.emit_packet(&mut buffer, &body);
        self.welcomes.push(hex(packet));
        let mut joiner = Joiner::new(JOB, WorkerId(worker), CONFIGURED, nonce(worker), 0, Duration::ZERO);
        let Some(JoinEvent::Welcome(welcome)) = joiner.handle(Duration::ZERO, packet) else {
            panic!("a joiner takes the WELCOME with its nonce");
        };
        let config = EngineConfig {
            ps: PS,
            job: JOB,
            worker: WorkerId(worker),
            timeout: Duration::from_secs(1),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
            rounding: Rounding::Stratified,
            threads: 1,
        };
        let mail = Rc::new(RefCell::new(Mail::default()));
        let io = MailIo(Rc::clone(&mail), address(worker));
        let engine = Engine::new(io, config, Joiners::new(joiner), &welcome, MAX_PACKET * 64).unwrap();
        self.workers.push((engine, mail));
    }

    fn run(mut self, plan: &SessionCase) -> Value {
        let calls: Vec<Value> = plan
            .calls
            .iter()
            .enumerate()
            .map(|(number, call)| self.call(plan, number as u64, call))
            .collect();
        json!({
            "workers": plan.workers,
            "job": JOB.0,
            "cookie": SESSION.0,
            "welcomes": self.welcomes,
            "calls": calls,
        })
    }

    /// One all-reduce on every worker, in turns.
    fn call(&mut self, plan: &SessionCase, number: u64, call: &CallCase) -> Value {
        // Only a call with error feedback has a key, and a tensor's first has none to add (P3).
        let options = Call { plan: Plan::Whole(call.mode), feedback: (call.key != 0).then_some(call.key) };
        let gradients: Vec<Vec<f32>> = (0..plan.workers).map(|worker| call.gradient(worker)).collect();
        let mut data = gradients.clone();
        let mut up = vec![Vec::new(); data.len()];
        let mut down = Vec::new();
        let mut outcomes = vec![None; data.len()];
        let mut submitted = vec![None; data.len()];
        while outcomes.iter().any(Option::is_none) {
            let mut answers = Down::default();
            for (worker, (engine, mail)) in self.workers.iter_mut().enumerate() {
                let id = *submitted[worker]
                    .get_or_insert_with(|| engine.submit(data[worker].len(), options).unwrap());
                assert_eq!(id, number);
                while engine.step(&mut Borrowed::new(id, &mut data[worker])) {}
                if let Some(outcome) = engine.take_outcome(id) {
                    outcomes[worker] = Some(outcome);
                }
                for packet in std::mem::take(&mut mail.borrow_mut().sent) {
                    self.aggregator.handle(Endpoint::udp(address(worker as u8)), &packet, &mut answers);
                    up[worker].push(packet);
                }
            }
            for packet in answers.0 {
                self.workers.iter().for_each(|(_, mail)| mail.borrow_mut().inbox.push_back(packet.clone()));
                down.push(packet);
            }
        }
        let failed = outcomes.iter().flatten().any(Result::is_err);
        assert!(failed == call.nan && outcomes.iter().flatten().all(|outcome| outcome.is_err() == failed));
        assert!(failed || data.iter().all(|mean| floats(mean) == floats(&data[0])), "all have the same bits");
        let mut entry = json!({
            "mode": call.mode as u8,
            "length": call.length,
            "key": (call.key ^ (call.key >> 32)) as u32,
            "gradients": gradients.iter().map(|x| floats(x)).collect::<Vec<_>>(),
            "up": up.iter().map(|packets| packets.iter().map(|p| hex(p)).collect()).collect::<Vec<Vec<_>>>(),
            "down": down.iter().map(|packet| hex(packet)).collect::<Vec<_>>(),
        });
        if failed {
            entry["fails_because_of"] = 1.into();
            return entry;
        }
        entry["mean"] = floats(&data[0]).into();
        if call.mode == Mode::Compressed {
            entry["partitions"] = partitions(plan, number, &gradients, &down);
        }
        entry
    }
}

/// What each partition goes through (P29 to P31).
fn partitions(plan: &SessionCase, call: u64, gradients: &[Vec<f32>], down: &[Vec<u8>]) -> Value {
    let maxima = down.iter().filter_map(|packet| {
        let (header, payload) = Header::parse(packet).unwrap();
        (header.kind == Kind::NormResult).then(|| Norm::parse(payload).unwrap().value)
    });
    let describe = |(part, maximum): (partition::Partition, u32)| {
        let d = part.padded;
        let transformed = |gradient: &Vec<f32>| {
            let mut x = vec![0.0; d];
            x[..part.len].copy_from_slice(&gradient[part.offset..][..part.len]);
            let key = SignKey { job_seed: plan.job_seed, call, partition: part.index };
            rht::forward(&mut x, key).unwrap();
            floats(&x)
        };
        let mut entry = json!({ "d": d, "norm": format!("{maximum:08x}") });
        if maximum != 0 {
            let range = (plan.table.t_p() / (d as f64).sqrt() * f64::from(f32::from_bits(maximum))) as f32;
            let sums = f64::from(plan.table.granularity()) * f64::from(plan.workers);
            let step = (2.0 * f64::from(range) / sums) as f32;
            entry["transformed"] = gradients.iter().map(transformed).collect::<Vec<_>>().into();
            entry["range"] = floats(&[range]).into();
            entry["step"] = floats(&[step]).into();
        }
        entry
    };
    partition::split(gradients[0].len(), plan.block).zip(maxima).map(describe).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bits of floats, eight digits each.
fn floats(x: &[f32]) -> String {
    x.iter().map(|v| format!("{:08x}", v.to_bits())).collect()
}
