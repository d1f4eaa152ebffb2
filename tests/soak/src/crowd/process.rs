//! A worker's process in a job whose members come and go: it joins, is told how far the others are, and calls, with boundaries now and then.

use super::book::Book;
use super::host::address;
use super::jobs::{Counts, Job};
use crate::mean::{Input, Output};
use crate::plan::{COOKIE, CallPlan, KEYS};
use fastrand::Rng;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_codec::definitions;
use thc_p4::rows::address_number;
use thc_protocol::session::{JoinEvent, Joiner, Joiners};
use thc_protocol::wire::{Mode, Welcome};
use thc_protocol::worker::CallError;
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_support::{SimIo, SimNet};
use thc_transport::PacketIo;
use thc_worker::{Borrowed, Call, Engine, EngineConfig, Handle, Plan, WorkerError};

/// Packets that a receive buffer holds, at least.
const CAPACITY: usize = 1024;
/// How often an idle process looks whether anybody needs it.
const IDLE: Duration = Duration::from_millis(10);

/// A call under way.
struct Flight {
    /// Its number among all that this process ever made.
    call: u64,
    /// Index of the tensor whose error feedback it uses.
    key: Option<usize>,
    /// Whether it tells how far its members are.
    tells: bool,
    /// Until its outcome is taken.
    handle: Option<Handle>,
}

enum Stage {
    /// With an interface of its own, or with that of the engine that it had before.
    Joining(Option<SimIo>, Box<Joiners>),
    Member,
    Leaving,
}

pub struct Process {
    pub job: JobId,
    most: u8,
    alike: bool,
    counts: Counts,
    stretch: u64,
    seat: u8,
    pub address: SocketAddr,
    pub nonce: u64,
    stage: Stage,
    engine: Option<Engine<SimIo>>,
    session: Option<Cookie>,
    flights: VecDeque<Flight>,
    errors: [Vec<f32>; KEYS.len()],
    /// How far its program is: the same on all members between two calls.
    place: u64,
    /// Whether it must hear first how far the others are.
    lost: bool,
    /// The last place at which it has let others in.
    passed: Option<u64>,
    /// Calls made and finished in its life.
    made: u64,
    pub finished: u64,
    /// Calls that it keeps under way.
    at_once: usize,
    pub away_until: Duration,
    pub busy_until: Duration,
    /// When it has its next turn.
    pub due: Duration,
    /// Whether something was done to it since the last calm that may end its session.
    pub excused: bool,
    /// The longest that it computes between calls.
    dawdle: Duration,
    rng: Rng,
    /// All-reduces that have ended well here.
    pub done: u64,
    /// How many had when disturbances ceased last.
    pub done_before: u64,
    /// Sessions that have ended for it by an error.
    pub ended: u64,
}

impl Process {
    pub fn new(net: &SimNet, job: &Job, seat: u8, life: u32, mut rng: Rng) -> Process {
        let number = job.number.0 as u8;
        let address = SocketAddr::from((Ipv4Addr::new(10, 1 + seat, number, (life % 250) as u8), 5000));
        let io = net.endpoint(address);
        let nonce = rng.u64(1..);
        let joiners = Box::new(Joiners::new(joiner(job.number, seat, nonce, io.now())));
        Process {
            job: job.number,
            most: job.seats.len() as u8,
            alike: job.alike,
            counts: job.counts,
            stretch: job.stretch,
            seat,
            address,
            nonce,
            stage: Stage::Joining(Some(io), joiners),
            engine: None,
            session: None,
            flights: VecDeque::new(),
            errors: KEYS.map(|length| vec![0.0; length]),
            place: 0,
            lost: true,
            passed: None,
            made: 0,
            finished: 0,
            at_once: rng.usize(1..=3),
            away_until: Duration::ZERO,
            busy_until: Duration::ZERO,
            due: Duration::ZERO,
            excused: false,
            dawdle: Duration::from_micros([20_000, 50_000, 100_000][rng.usize(..3)]),
            rng,
            done: 0,
            done_before: 0,
            ended: 0,
        }
    }

    pub fn session(&self) -> Option<Cookie> {
        self.session
    }

    pub fn leave(&mut self) {
        if let (Some(engine), Stage::Member) = (&mut self.engine, &self.stage) {
            engine.leave();
            self.stage = Stage::Leaving;
            self.due = Duration::ZERO;
        }
    }

    pub fn leaves(&self) -> bool {
        matches!(self.stage, Stage::Leaving)
    }

    pub fn has_left(&self) -> bool {
        matches!(self.stage, Stage::Leaving) && self.engine.as_ref().is_none_or(Engine::has_left)
    }

    /// Packets that it has sent again.
    pub fn repeat_count(&self) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.stats().retransmissions)
    }

    pub fn describe(&self) -> String {
        let stage = match &self.stage {
            Stage::Joining(..) => "joining",
            Stage::Member => "member",
            Stage::Leaving => "leaving",
        };
        let membership = self.engine.as_ref().map(Engine::membership);
        format!(
            "seat {} {stage}, {membership:?}, {} done, {} under way, place {}",
            self.seat,
            self.done,
            self.flights.len(),
            self.place
        )
    }

    /// When there is something to do at the latest.
    pub fn deadline(&self, now: Duration) -> Duration {
        if now < self.away_until {
            return self.away_until;
        }
        let due = match &self.stage {
            Stage::Joining(_, joiners) => joiners.deadline(),
            Stage::Member | Stage::Leaving => self.engine.as_ref().and_then(Engine::deadline),
        };
        let busy = (self.busy_until > now).then_some(self.busy_until);
        [due, busy].into_iter().flatten().min().unwrap_or(now + IDLE).min(now + IDLE)
    }

    /// Does what there is to do; whether there was anything. Sessions may end by an error if that is `excused`.
    pub fn turn(&mut self, now: Duration, book: &mut Book, excused: bool) -> bool {
        if now < self.away_until {
            return false;
        }
        match &mut self.stage {
            Stage::Joining(..) => self.join(now, book),
            Stage::Member => self.work(now, book, excused),
            Stage::Leaving => {
                let engine = self.engine.as_mut().expect("a member has an engine");
                engine.serve_others().unwrap();
                false
            }
        }
    }

    fn join(&mut self, now: Duration, book: &mut Book) -> bool {
        let Stage::Joining(own, joiners) = &mut self.stage else { return false };
        let io = match (own, &mut self.engine) {
            (Some(io), _) => io,
            (None, Some(engine)) => engine.io_mut(),
            (None, None) => unreachable!("an interface is here or there"),
        };
        let mut buffer = [0; 128];
        while let Some((share, packet)) = joiners.poll(now, &mut buffer) {
            io.send_run(address(share), packet, packet.len()).unwrap();
        }
        let mut event = None;
        let got = io
            .recv_burst(&mut |from, packet| {
                let share = usize::from((address_number(from.ip()) as u8) - 100);
                if event.is_none()
                    && let Some(
                        new @ (JoinEvent::Welcome(..) | JoinEvent::Failed(_) | JoinEvent::Reforming(_)),
                    ) = joiners.handle(now, share, packet)
                {
                    event = Some(new);
                }
            })
            .unwrap();
        match event {
            Some(JoinEvent::Welcome(welcome, workers)) => self.begin(now, &welcome, workers, book),
            // Somebody is still in its seat, or its session is over already: it asks again.
            Some(JoinEvent::Failed(_) | JoinEvent::Reforming(_)) => {
                self.away_until = now + Duration::from_millis(100);
                **joiners = Joiners::new(joiner(self.job, self.seat, self.nonce, now));
            }
            _ => {}
        }
        got > 0
    }

    fn begin(&mut self, now: Duration, welcome: &Welcome, workers: u8, book: &mut Book) {
        let Stage::Joining(io, joiners) = std::mem::replace(&mut self.stage, Stage::Member) else { return };
        match (io, &mut self.engine) {
            (None, Some(engine)) => engine.restart(*joiners, welcome, workers, CAPACITY).unwrap(),
            (Some(io), _) => {
                let config = EngineConfig {
                    ps: address(0),
                    job: self.job,
                    worker: WorkerId(self.seat),
                    timeout: Duration::from_secs(60),
                    patience: Duration::ZERO,
                    min_rto: Duration::from_millis([1, 2, 20][self.rng.usize(..3)]),
                    seed: None,
                    threads: 1,
                };
                let mut engine = Engine::new(io, config, *joiners, welcome, workers, CAPACITY).unwrap();
                engine.count_from(self.counts.call, self.counts.seq);
                self.engine = Some(engine);
            }
            (None, None) => unreachable!("an interface is here or there"),
        }
        book.enters(self.nonce, welcome.session, self.finished);
        self.session = Some(welcome.session);
        (self.lost, self.busy_until) = (true, now);
    }

    fn work(&mut self, now: Duration, book: &mut Book, excused: bool) -> bool {
        let engine = self.engine.as_mut().expect("a member has an engine");
        if let Some(error) = engine.failure() {
            assert!(excused || self.excused, "job {}, seat {}: {error}", self.job, self.seat);
            assert!(matches!(error, WorkerError::Session(_) | WorkerError::Join(_)), "{error}");
            // What ended before that is as good as ever.
            self.collect(book);
            self.flights.clear();
            self.ended += 1;
            // What it made and did not finish is not made.
            self.made = self.finished;
            self.session = None;
            self.nonce = self.rng.u64(1..);
            self.stage =
                Stage::Joining(None, Box::new(Joiners::new(joiner(self.job, self.seat, self.nonce, now))));
            return true;
        }
        let busy = self.program(now, book);
        let engine = self.engine.as_mut().expect("a member has an engine");
        let stepped = engine.step(&mut Borrowed::empty());
        // What has ended did so before the next session began.
        let collected = self.collect(book);
        let engine = self.engine.as_mut().expect("a member has an engine");
        let session = engine.parameters().cookie;
        if Some(session) != self.session && engine.failure().is_none() {
            book.enters(self.nonce, session, self.finished);
            self.session = Some(session);
        }
        busy || stepped || collected
    }

    /// What the application does between two steps of the library.
    fn program(&mut self, now: Duration, book: &mut Book) -> bool {
        let mut busy = false;
        while now >= self.busy_until && self.flights.len() < self.at_once {
            let next = self.place + self.flights.len() as u64;
            if self.lost {
                if !self.flights.is_empty() {
                    break;
                }
                self.tell(book);
                return true;
            }
            if self.flights.iter().any(|flight| flight.tells) {
                break;
            }
            if next.is_multiple_of(self.stretch) && self.passed != Some(next) {
                let engine = self.engine.as_mut().expect("a member has an engine");
                if engine.stop_at_boundary() {
                    break;
                }
                self.passed = Some(next);
                self.lost = engine.take_change().is_some_and(|change| change.newcomers);
                if self.rng.bool() {
                    // As training does, which computes a gradient between a boundary and the call for it.
                    self.busy_until = now + self.dawdle.mul_f64(self.rng.f64());
                    return true;
                }
                continue;
            }
            if !self.submit(next, book) {
                break;
            }
            busy = true;
        }
        if busy {
            // It has begun all that it can for now, up to a boundary or as many as it keeps under way.
            self.busy_until = now + self.dawdle.mul_f64(self.rng.f64());
        }
        busy
    }

    /// All say how far they are: who is new goes on from there.
    fn tell(&mut self, book: &mut Book) {
        let mut x = vec![0.0; 2 * usize::from(self.most)];
        x[2 * usize::from(self.seat)] = 1.0;
        x[2 * usize::from(self.seat) + 1] = self.place as f32;
        // It is told once; what is heard of it comes with the flight.
        self.lost = false;
        self.launch(x, Mode::Raw, None, None, book);
    }

    fn submit(&mut self, place: u64, book: &mut Book) -> bool {
        let plan = if self.alike {
            CallPlan::like_all_others(self.most)
        } else {
            CallPlan::draw(Cookie(self.job.0.into()), place, self.most)
        };
        if plan.key.is_some() && self.flights.iter().any(|flight| flight.key == plan.key) {
            return false;
        }
        let x = plan.tensor(Cookie(self.job.0.into()), place, self.seat);
        self.launch(x, plan.mode, plan.key, Some(place), book);
        true
    }

    /// A call of the program at this place, or, at none, one in which all tell how far they are.
    fn launch(&mut self, x: Vec<f32>, mode: Mode, key: Option<usize>, place: Option<u64>, book: &mut Book) {
        let tells = place.is_none();
        let error = key.map(|key| self.errors[key].clone());
        book.note_submit(self.nonce, self.made, place, mode, Input { x: x.clone(), error });
        let options = Call { plan: Plan::Whole(mode), feedback: key.map(|key| key as u64) };
        let engine = self.engine.as_mut().expect("a member has an engine");
        let handle = Some(engine.start(x, options).expect("the session goes on"));
        self.flights.push_back(Flight { call: self.made, key, tells, handle });
        self.made += 1;
    }

    /// Takes what has ended, and checks it.
    fn collect(&mut self, book: &mut Book) -> bool {
        let mut any = false;
        while let Some(flight) = self.flights.front_mut() {
            let done = flight.handle.take_if(|handle| handle.is_done());
            let Some(outcome) = done.map(Handle::wait) else { break };
            if matches!(outcome, Err(WorkerError::Session(_) | WorkerError::Join(_))) {
                // The session is over, and all further calls with it.
                self.flights.clear();
                break;
            }
            let flight = self.flights.pop_front().expect("it was there");
            self.check(&flight, outcome, book);
            any = true;
        }
        any
    }

    fn check(&mut self, flight: &Flight, outcome: Result<Vec<f32>, WorkerError>, book: &mut Book) {
        let session = self.session.expect("a member has a session");
        let here = format!("job {}, seat {}, call {} in {session:?}", self.job, self.seat, flight.call);
        let (output, number, new) = book.output(self.nonce, session, flight.call);
        self.finished = flight.call + 1;
        self.place += u64::from(!flight.tells);
        let well = match (&outcome, output) {
            (Ok(data), Output::Mean { mean, errors }) => {
                assert_eq!(data.len(), mean.len(), "{here}");
                // By bits: a NaN would equal nothing, and −0 equals 0.
                let wrong = data.iter().zip(mean).position(|(a, b)| a.to_bits() != b.to_bits());
                assert!(wrong.is_none(), "{here}: wrong at {wrong:?}");
                if let (Some(key), Some(error)) = (flight.key, &errors[number]) {
                    self.errors[key].copy_from_slice(error);
                }
                true
            }
            (Err(WorkerError::Call(CallError::NonFinite { worker })), Output::NonFinite(expected)) => {
                assert_eq!(worker, expected, "{here}");
                false
            }
            (outcome, _) => panic!("{here}: {:?}", outcome.as_ref().err()),
        };
        book.complete += u64::from(well && new);
        book.failed += u64::from(!well && new);
        book.results += u64::from(well);
        self.done += u64::from(well && !flight.tells);
        if let (true, Ok(data)) = (flight.tells, &outcome) {
            let told =
                data.chunks_exact(2).filter(|each| each[0] > 0.0).map(|each| (each[1] / each[0]).round());
            let farthest = told.fold(0.0, f32::max) as u64;
            assert!(farthest >= self.place, "{here}: it was forgotten");
            (self.place, self.passed) = (farthest, Some(farthest));
        }
    }
}

fn joiner(job: JobId, seat: u8, nonce: u64, now: Duration) -> Joiner {
    Joiner::new(job, WorkerId(seat), COOKIE, nonce, definitions::digest(), now)
}
