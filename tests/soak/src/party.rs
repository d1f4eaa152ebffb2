//! A worker's process and what its application does: it joins, reduces one tensor after the other, joins anew when the
//! session is over, leaves, stalls, dies and comes back.

use crate::ledger::Ledger;
use crate::mean::{Input, Output};
use crate::plan::{COOKIE, CallPlan, JOB, KEYS};
use crate::server::address;
use fastrand::Rng;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_codec::definitions;
use thc_codec::feedback::ErrorFeedback;
use thc_protocol::session::{JoinEvent, Joiner, Joiners};
use thc_protocol::wire::Welcome;
use thc_protocol::worker::CallError;
use thc_protocol::{Cookie, WorkerId};
use thc_support::{SimIo, SimNet};
use thc_transport::PacketIo;
use thc_worker::{Borrowed, Call, Engine, EngineConfig, Handle, Plan, Rounding, WorkerError};

/// Packets that a receive buffer holds, at least.
const CAPACITY: usize = 4096;
/// How often an idle process looks whether anybody needs it.
const IDLE: Duration = Duration::from_millis(10);

/// A call under way.
struct Flight {
    plan: CallPlan,
    /// Its number in the session.
    call: u64,
    data: Data,
}

enum Data {
    /// Lent to every step. The number is the engine's, which counts through all sessions.
    Lent { number: u64, data: Vec<f32> },
    /// The engine's until it is done.
    Owned(Option<Handle>),
}

/// Where a process is in its life.
enum Stage {
    Down,
    /// With an interface of its own, or with that of the engine that it had before.
    Joining(Option<SimIo>, Box<Joiner>),
    Member,
    Leaving,
}

/// A worker's process.
pub struct Party {
    net: SimNet,
    pub number: u8,
    pub address: SocketAddr,
    stage: Stage,
    engine: Option<Engine<SimIo>>,
    session: Option<Cookie>,
    flights: VecDeque<Flight>,
    /// The error feedback that the engine must have, by tensor: that after the last call that ended well.
    errors: [Vec<f32>; KEYS.len()],
    next_call: u64,
    /// Calls that it keeps under way.
    most: usize,
    /// Not there, or not even answering, until then.
    pub away_until: Duration,
    /// Busy with something else until then; the library answers meanwhile.
    pub busy_until: Duration,
    /// The longest that it computes between calls.
    pub dawdle: Duration,
    rng: Rng,
    /// All-reduces that have ended well here, and when the last one did.
    pub done: u64,
    pub done_at: Duration,
    /// Sessions that it was welcomed to.
    pub welcomes: u64,
    /// Packets that earlier engines have sent again.
    before: u64,
}

impl Party {
    pub fn new(net: &SimNet, number: u8, seed: u64) -> Party {
        Party {
            net: net.clone(),
            number,
            address: SocketAddr::from((Ipv4Addr::new(10, 0, 0, number + 1), 5000)),
            stage: Stage::Down,
            engine: None,
            session: None,
            flights: VecDeque::new(),
            errors: KEYS.map(|length| vec![0.0; length]),
            next_call: 0,
            most: 1,
            away_until: Duration::ZERO,
            busy_until: Duration::ZERO,
            dawdle: Duration::ZERO,
            rng: Rng::with_seed(seed ^ (u64::from(number) << 56)),
            done: 0,
            done_at: Duration::ZERO,
            welcomes: 0,
            before: 0,
        }
    }

    /// Packets that it has sent again.
    pub fn repeat_count(&self) -> u64 {
        self.before + self.engine.as_ref().map_or(0, |engine| engine.stats().retransmissions)
    }

    /// What it does, for reports.
    pub fn describe(&self) -> String {
        let stage = match &self.stage {
            Stage::Down => "down",
            Stage::Joining(..) => "joining",
            Stage::Member => "a member",
            Stage::Leaving => "leaving",
        };
        let engine = self.engine.as_ref().map(|engine| (engine.stats(), engine.deadline(), engine.failure()));
        format!("{stage} since {:?}, busy until {:?}: {engine:?}", self.session, self.busy_until)
    }

    /// Whether it is in this session.
    pub fn is_in(&self, session: Cookie) -> bool {
        self.session == Some(session)
    }

    /// The process dies at once. The next one may be at another address.
    pub fn die(&mut self, moved: bool) {
        self.stage = Stage::Down;
        self.before = self.repeat_count();
        self.engine = None;
        self.session = None;
        self.flights.clear();
        self.errors = KEYS.map(|length| vec![0.0; length]);
        if moved {
            self.address.set_port(5000 + self.rng.u16(..20_000));
        }
    }

    /// The application ends as it should, and comes back later.
    pub fn leave(&mut self) {
        match (&mut self.engine, &self.stage) {
            (Some(engine), Stage::Member) => {
                engine.leave();
                self.flights.clear();
                self.stage = Stage::Leaving;
            }
            _ => self.die(false),
        }
    }

    /// Does what there is to do. Whether there was anything.
    pub fn turn(&mut self, now: Duration, ledger: &mut Ledger) -> bool {
        if now < self.away_until {
            return false;
        }
        match &mut self.stage {
            Stage::Down => {
                let io = self.net.endpoint(self.address);
                self.stage = Stage::Joining(Some(io), Box::new(joiner(self.number, &mut self.rng, now)));
                true
            }
            Stage::Joining(..) => self.join(now, ledger),
            Stage::Member => self.work(now, ledger),
            Stage::Leaving => {
                let engine = self.engine.as_mut().expect("a member has an engine");
                engine.serve_others().unwrap();
                if engine.has_left() {
                    self.die(false);
                }
                false
            }
        }
    }

    /// When there is something to do at the latest.
    pub fn deadline(&self, now: Duration) -> Duration {
        if now < self.away_until {
            return self.away_until;
        }
        let due = match &self.stage {
            Stage::Down => Some(now),
            Stage::Joining(_, joiner) => joiner.deadline(),
            Stage::Member | Stage::Leaving => self.engine.as_ref().and_then(Engine::deadline),
        };
        let busy = (self.busy_until > now).then_some(self.busy_until);
        [due, busy].into_iter().flatten().min().unwrap_or(now + IDLE).min(now + IDLE)
    }

    /// As `Group::join` and `Group::rejoin` do.
    fn join(&mut self, now: Duration, ledger: &mut Ledger) -> bool {
        let Stage::Joining(own, joiner) = &mut self.stage else { return false };
        let io = match (own, &mut self.engine) {
            (Some(io), _) => io,
            (None, Some(engine)) => engine.io_mut(),
            (None, None) => unreachable!("an interface is here or there"),
        };
        let mut buffer = [0; 128];
        if let Some(packet) = joiner.poll(now, &mut buffer) {
            io.send_run(address(0), packet, packet.len()).unwrap();
        }
        let mut event = None;
        let got = io
            .recv_burst(&mut |origin, packet| {
                if origin.from == address(0)
                    && event.is_none()
                    && let Some(new) = joiner.handle(now, packet)
                    && !matches!(new, JoinEvent::Pending(..))
                {
                    event = Some(new);
                }
            })
            .unwrap();
        match event {
            Some(JoinEvent::Welcome(welcome)) => self.begin(now, &welcome, ledger),
            Some(JoinEvent::Failed(_)) => {
                // Whoever starts it does so again after a while.
                self.die(false);
                self.away_until = now + Duration::from_millis(100);
            }
            _ => {}
        }
        got > 0
    }

    fn begin(&mut self, now: Duration, welcome: &Welcome, ledger: &mut Ledger) {
        ledger.note_welcome(welcome);
        let Stage::Joining(io, joiner) = std::mem::replace(&mut self.stage, Stage::Member) else { return };
        match (io, &mut self.engine) {
            (None, Some(engine)) => {
                engine.restart(Joiners::new(*joiner), welcome, CAPACITY).unwrap();
            }
            (Some(io), _) => {
                let config = EngineConfig {
                    ps: address(0),
                    job: JOB,
                    worker: WorkerId(self.number),
                    timeout: Duration::from_secs(20),
                    patience: Duration::ZERO,
                    min_rto: Duration::from_millis([1, 2, 20][self.rng.usize(..3)]),
                    rounding: Rounding::Stratified,
                    threads: 1,
                };
                let capacity = if self.rng.u8(..4) == 0 { self.rng.usize(1..40) } else { CAPACITY };
                self.engine =
                    Some(Engine::new(io, config, Joiners::new(*joiner), welcome, capacity).unwrap());
            }
            (None, None) => unreachable!("an interface is here or there"),
        }
        self.session = Some(welcome.session);
        self.next_call = 0;
        self.most = self.rng.usize(1..=3);
        self.busy_until = now;
        self.welcomes += 1;
    }

    fn work(&mut self, now: Duration, ledger: &mut Ledger) -> bool {
        let engine = self.engine.as_mut().expect("a member has an engine");
        if engine.failure().is_some() {
            // What ended before that is as good as ever.
            self.collect(now, ledger);
            self.fail(now);
            return true;
        }
        let mut busy = false;
        while now >= self.busy_until && self.flights.len() < self.most {
            let lends = self.flights.iter().any(|flight| matches!(flight.data, Data::Lent { .. }));
            if !self.submit(lends, ledger) {
                break;
            }
            busy = true;
            self.busy_until = now + self.dawdle.mul_f64(self.rng.f64());
        }
        let engine = self.engine.as_mut().expect("a member has an engine");
        let lent = self.flights.iter_mut().find_map(|flight| match &mut flight.data {
            Data::Lent { number, data } => Some((*number, data)),
            Data::Owned(_) => None,
        });
        busy |= match lent {
            Some((call, data)) => engine.step(&mut Borrowed::new(call, data)),
            None => engine.step(&mut Borrowed::empty()),
        };
        self.collect(now, ledger) || busy
    }

    /// Begins the next call. Whether that was possible.
    fn submit(&mut self, lends: bool, ledger: &mut Ledger) -> bool {
        let (engine, session) = (self.engine.as_mut().unwrap(), self.session.unwrap());
        let (call, workers) = (self.next_call, engine.parameters().workers);
        let plan = CallPlan::draw(session, call, workers);
        if plan.key.is_some() && self.flights.iter().any(|flight| flight.plan.key == plan.key) {
            return false;
        }
        let x = plan.tensor(session, call, self.number);
        let error = plan.key.map(|key| self.errors[key].clone());
        let options = Call { plan: Plan::Whole(plan.mode), feedback: plan.key.map(|key| key as u64) };
        let input = Input { x: x.clone(), error };
        let data = if lends || self.rng.bool() {
            Data::Owned(Some(engine.start(x, options).unwrap()))
        } else {
            Data::Lent { number: engine.submit(x.len(), options).unwrap(), data: x }
        };
        ledger.note_submit(session, call, self.number, &plan, input);
        self.next_call += 1;
        self.flights.push_back(Flight { plan, call, data });
        true
    }

    /// Takes what has ended, and checks it.
    fn collect(&mut self, now: Duration, ledger: &mut Ledger) -> bool {
        let mut any = false;
        while let Some(flight) = self.flights.front_mut() {
            let engine = self.engine.as_mut().unwrap();
            let outcome = match &mut flight.data {
                Data::Lent { number, data } => {
                    engine.take_outcome(*number).map(|outcome| outcome.map(|()| std::mem::take(data)))
                }
                Data::Owned(handle) => handle.take_if(|handle| handle.is_done()).map(Handle::wait),
            };
            let Some(outcome) = outcome else { break };
            let flight = self.flights.pop_front().unwrap();
            any = true;
            if matches!(outcome, Err(WorkerError::Session(_) | WorkerError::Join(_))) {
                // The session is over, and all further calls with it.
                self.flights.clear();
                break;
            }
            self.check(now, &flight, outcome, ledger);
        }
        any
    }

    /// Nothing is under way: the error feedback is that of the calls that ended well.
    fn check_feedback(&self) {
        let saved = self.engine.as_ref().unwrap().feedback().expect("nothing is under way");
        for (key, saved) in saved.to_bytes() {
            let (kept, length) = (&self.errors[key as usize], KEYS[key as usize]);
            let saved = ErrorFeedback::from_bytes(length, &saved).unwrap();
            assert!(saved.as_slice() == kept, "worker {}: another error feedback is left", self.number);
        }
    }

    fn check(
        &mut self,
        now: Duration,
        flight: &Flight,
        outcome: Result<Vec<f32>, WorkerError>,
        ledger: &mut Ledger,
    ) {
        let (session, number, call) = (self.session.unwrap(), self.number, flight.call);
        let here = || format!("worker {number}, call {call}: {:?}", flight.plan);
        let output = ledger.output(session, call).unwrap_or_else(|| panic!("{} ended without all", here()));
        let well = match (&outcome, output) {
            (Ok(data), Output::Mean { mean, errors }) => {
                assert_eq!(data.len(), mean.len(), "{}", here());
                // By bits: a NaN would equal nothing, and −0 equals 0.
                let wrong = data.iter().zip(mean).position(|(a, b)| a.to_bits() != b.to_bits());
                assert!(wrong.is_none(), "{}: wrong at {wrong:?}", here());
                if let (Some(key), Some(error)) = (flight.plan.key, &errors[usize::from(number)]) {
                    self.errors[key].copy_from_slice(error);
                }
                true
            }
            (Err(WorkerError::Call(CallError::NonFinite { worker })), Output::NonFinite(expected)) => {
                assert_eq!(worker, expected, "{}", here());
                false
            }
            (outcome, _) => panic!("{}: {:?}", here(), outcome.as_ref().err()),
        };
        ledger.note_end(session, call, number, well);
        if well {
            self.done += 1;
            self.done_at = now;
        }
        if self.flights.is_empty() && call.is_multiple_of(4) {
            self.check_feedback();
        }
    }

    /// The session is over: joins anew, with what the engine has kept.
    fn fail(&mut self, now: Duration) {
        let engine = self.engine.as_ref().unwrap();
        let error = engine.failure().unwrap();
        assert!(matches!(error, WorkerError::Session(_) | WorkerError::Join(_)), "{error}");
        self.session = None;
        self.flights.clear();
        self.check_feedback();
        self.stage = Stage::Joining(None, Box::new(joiner(self.number, &mut self.rng, now)));
    }
}

fn joiner(number: u8, rng: &mut Rng, now: Duration) -> Joiner {
    Joiner::new(JOB, WorkerId(number), COOKIE, rng.u64(1..), definitions::digest(), now)
}
