//! Members that come and go (P42, P43).

use super::world::{
    COOKIE, JOB, Ps, World, gradients, host_of, hostile, ps_addr, quiet, seeds, share_addr, static_job,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::session::{JoinEvent, Joiner, Joiners, Sizes, StaticJob};
use thc_protocol::wire::{
    BOUNDARY_LEN, Boundary, Choice, Form, HEADER_LEN, Header, Kind, Members, Shares, Table, Tables, Welcome,
    What,
};
use thc_protocol::worker::{CallError, SessionError};
use thc_protocol::{Lane, Policy, TableId, WorkerId};
use thc_support::{SimConfig, SimIo, SimNet, wire_table};
use thc_transport::PacketIo;
use thc_worker::{
    Borrowed, Call, Engine, EngineConfig, Loan, Membership, Mode, PackedTensor, Plan, Span, WorkerError,
};

const LEN: usize = 200_000;
const FEEDBACK: Call<'static> = Call { plan: Plan::Whole(Mode::Compressed), feedback: Some(9) };

/// The table of sessions of so many workers.
fn table(workers: u8) -> Table {
    let granularity = 20 + 2 * u16::from(workers);
    let solved = LookupTable::solve(4, granularity, 1.0 / 32.0).unwrap();
    Table { id: TableId(3 + workers), ..wire_table(Form::USUAL, &solved) }
}

/// A job of one number of workers, with the same table as a session of so many.
fn fixed_job(workers: u8) -> StaticJob {
    let mut job = static_job(workers, Lane::Bits8, workers, Policy::Reliable);
    job.welcome.tables = Tables::one(table(workers));
    job.welcome.block = 13;
    job.config.tables = vec![table(workers).id];
    job
}

fn job(least: u8, most: u8) -> StaticJob {
    let shape = |workers| {
        let StaticJob { config, welcome, .. } = fixed_job(workers);
        let members = Some(Members::default());
        (config, Welcome { min_workers: least, max_workers: most, members, ..welcome })
    };
    let shapes: Vec<_> = (least..=most).map(shape).collect();
    let (config, welcome) = shapes.last().unwrap().clone();
    let (gone_after, gather) = (Duration::from_millis(1500), Duration::from_millis(500));
    StaticJob { config, welcome, root: None, sizes: Some(Arc::new(Sizes { shapes, gone_after, gather })) }
}

/// What a process does: it joins, and then it calls.
struct Process {
    seat: u8,
    io: Option<SimIo>,
    joiners: Option<Joiners>,
    engine: Option<Engine<SimIo>>,
    /// The call under way, and its data.
    call: Option<(u64, Vec<f32>)>,
    /// Whether it waits at a boundary.
    stops: bool,
    done: Option<Result<Vec<f32>, WorkerError>>,
}

struct Party {
    net: SimNet,
    ps: Ps,
    others: Vec<Ps>,
    processes: Vec<Process>,
    lives: u8,
    /// Whether the first server has been killed for good.
    first_is_dead: bool,
}

impl Party {
    fn new(job: &StaticJob, faults: SimConfig) -> Party {
        let net = SimNet::new(faults);
        let ps = Ps::new(&net, job.clone(), 0);
        let others =
            (1..job.welcome.shares.servers()).map(|share| Ps::new(&net, job.clone(), share)).collect();
        Party { net, ps, others, processes: Vec::new(), lives: 0, first_is_dead: false }
    }

    /// A new process with this seat.
    fn start(&mut self, seat: u8, wants: u8) -> usize {
        self.lives += 1;
        let io = self.net.endpoint(SocketAddr::from((Ipv4Addr::new(10, 0, self.lives, seat + 1), 5000)));
        let nonce = 1000 + u64::from(self.lives);
        let joiner = Joiner::new(JOB, WorkerId(seat), COOKIE, nonce, 0, io.now()).with_wanted_workers(wants);
        let joiners = Some(Joiners::new(joiner));
        let process =
            Process { seat, io: Some(io), joiners, engine: None, call: None, stops: false, done: None };
        self.processes.push(process);
        self.processes.len() - 1
    }

    fn turn(&mut self) {
        let mut busy = !self.first_is_dead && self.ps.serve() > 0;
        self.others.iter_mut().for_each(|share| busy |= share.serve() > 0);
        let mut due = Vec::new();
        for process in &mut self.processes {
            busy |= process.step();
            due.extend(process.engine.as_ref().and_then(Engine::deadline));
            due.extend(process.joiners.as_ref().and_then(Joiners::deadline));
        }
        if !busy {
            let now = self.net.now();
            let next = self.net.next_event().into_iter().chain(due).min();
            let soon = now + Duration::from_millis(20);
            self.net.advance_to(next.unwrap_or(soon).min(soon).max(now + Duration::from_micros(10)));
        }
    }

    /// Goes on until that is so.
    fn run_until(&mut self, what: &str, so: impl Fn(&Party) -> bool) {
        let end = self.net.now() + Duration::from_secs(60);
        while !so(self) {
            assert!(self.net.now() < end, "no end: {what}");
            self.turn();
        }
    }

    fn is_member(&self, process: usize) -> bool {
        self.processes[process].engine.is_some()
    }

    fn membership(&self, process: usize) -> Membership {
        self.processes[process].engine.as_ref().unwrap().membership()
    }

    fn call(&mut self, process: usize, data: Vec<f32>) {
        let process = &mut self.processes[process];
        let number = process.engine.as_mut().unwrap().submit(data.len(), FEEDBACK).unwrap();
        process.call = Some((number, data));
    }

    /// All of these reduce; what each has then.
    fn reduce(&mut self, who: &[usize], data: &[Vec<f32>]) -> Vec<Vec<f32>> {
        who.iter().zip(data).for_each(|(&process, data)| self.call(process, data.clone()));
        self.finish(who).into_iter().map(Result::unwrap).collect()
    }

    fn finish(&mut self, who: &[usize]) -> Vec<Result<Vec<f32>, WorkerError>> {
        let who = who.to_vec();
        self.run_until("a call", |party| who.iter().all(|&process| party.processes[process].done.is_some()));
        who.iter().map(|&process| self.processes[process].done.take().unwrap()).collect()
    }

    fn kill(&mut self, process: usize) {
        let process = &mut self.processes[process];
        (process.engine, process.joiners, process.io) = (None, None, None);
        process.call = None;
    }
}

impl Process {
    fn step(&mut self) -> bool {
        if let (Some(io), Some(joiners)) = (&mut self.io, &mut self.joiners) {
            let (now, mut buffer) = (io.now(), [0; 64]);
            while let Some((share, packet)) = joiners.poll(now, &mut buffer) {
                io.send_run(share_addr(share as u8), packet, packet.len()).unwrap();
            }
            let mut welcomed = None;
            let got = io.recv_burst(&mut |from, packet| {
                let share = usize::from(host_of(from) - 100);
                if let Some(JoinEvent::Welcome(w, n)) = joiners.handle(now, share, packet) {
                    welcomed = Some((w, n));
                }
            });
            let got = got.unwrap();
            if let Some((welcome, n)) = welcomed {
                let config = EngineConfig {
                    ps: ps_addr(),
                    job: JOB,
                    worker: WorkerId(self.seat),
                    timeout: Duration::from_secs(20),
                    patience: Duration::ZERO,
                    min_rto: Duration::from_millis(2),
                    seed: None,
                    threads: 1,
                };
                let (io, joiners) = (self.io.take().unwrap(), self.joiners.take().unwrap());
                self.engine = Some(Engine::new(io, config, joiners, &welcome, n, 4096).unwrap());
            }
            return got > 0;
        }
        let Some(engine) = &mut self.engine else { return false };
        if self.stops {
            self.stops = engine.stop_at_boundary();
        }
        let busy = match &mut self.call {
            Some((number, data)) => {
                let busy = engine.step(&mut Borrowed::new(*number, data));
                if let Some(outcome) = engine.take_outcome(*number) {
                    self.done = Some(outcome.map(|()| std::mem::take(data)));
                    self.call = None;
                }
                busy
            }
            None => engine.step(&mut Borrowed::empty()),
        };
        if engine.failure().is_some() {
            engine.serve_others().unwrap();
        }
        busy
    }
}

/// A session of as many as there can be.
fn whole_party(job: &StaticJob, faults: SimConfig) -> (Party, Vec<usize>) {
    let mut party = Party::new(job, faults);
    let all: Vec<usize> = (0..job.welcome.max_workers).map(|seat| party.start(seat, 0)).collect();
    let who = all.clone();
    party.run_until("joining", |party| who.iter().all(|&process| party.is_member(process)));
    (party, all)
}

/// What so many workers of a fixed job get for the first call, with error feedback, and for one after it.
fn reference(calls: &[Vec<Vec<f32>>]) -> Vec<Vec<f32>> {
    let workers = calls[0].len();
    let mut world = World::new(fixed_job(workers as u8), quiet());
    let means = calls.iter().map(|data| {
        let mut data = data.clone();
        for outcome in world.allreduce(&mut data, &vec![FEEDBACK; workers], |_, _| {}) {
            outcome.unwrap();
        }
        assert!(data.iter().all(|mean| *mean == data[0]));
        data.swap_remove(0)
    });
    means.collect()
}

/// The same of some workers.
fn select<T: Clone>(all: &[T], which: &[usize]) -> Vec<T> {
    which.iter().map(|&i| all[i].clone()).collect()
}

#[test]
fn a_session_begins_with_fewer_than_the_most_when_nobody_new_comes() {
    let job = job(2, 4);
    let mut party = Party::new(&job, quiet());
    let (first, second) = (party.start(1, 0), party.start(3, 0));
    party.run_until("joining", |party| party.is_member(first) && party.is_member(second));
    // A server that has just started waits for members of a session that it may have forgotten.
    assert!(party.net.now() >= Duration::from_secs(3), "{:?}", party.net.now());
    assert_eq!(party.membership(first), Membership { epoch: 1, workers: 2, number: 0, newcomers: true });
    assert_eq!(party.membership(second), Membership { epoch: 1, workers: 2, number: 1, newcomers: true });
    let data = gradients(2, LEN, 3);
    let means = party.reduce(&[first, second], &data);
    assert!(means[0] == means[1] && means[0] == reference(&[data])[0]);
}

#[test]
fn a_worker_that_is_killed_in_a_call_is_done_without_and_the_call_is_that_of_the_others() {
    for seed in seeds(8) {
        let faults = if seed == 0 { quiet() } else { hostile(seed) };
        let (mut party, all) = whole_party(&job(2, 4), faults);
        let (one, two) = (gradients(4, LEN, 2 * seed), gradients(4, LEN, 2 * seed + 1));
        let dead = (seed % 4) as usize;
        let left: Vec<usize> = all.iter().copied().filter(|&process| process != dead).collect();
        all.iter().for_each(|&process| party.call(process, one[process].clone()));
        // At another moment each time; from late ones on some may have finished.
        for _ in 0..20 + 60 * seed {
            party.turn();
        }
        let before: Vec<bool> = left.iter().map(|&process| party.processes[process].done.is_some()).collect();
        party.kill(dead);
        let outcomes = party.finish(&left);
        let means: Vec<Vec<f32>> = outcomes.into_iter().map(Result::unwrap).collect();
        assert!(means.iter().all(|mean| *mean == means[0]), "seed {seed}");
        // Somebody had finished, so all have what all four gave; or nobody had, and it is what three give in a new session.
        let three = reference(&[select(&one, &left), select(&two, &left)]);
        let four = reference(std::slice::from_ref(&one));
        assert!(means[0] == four[0] || (means[0] == three[0] && !before.contains(&true)), "seed {seed}");
        let again = means[0] == three[0];
        let means = party.reduce(&left, &select(&two, &left));
        assert!(means.iter().all(|mean| *mean == means[0]), "seed {seed}");
        // Error feedback has had the first call once.
        assert!(!again || means[0] == three[1], "seed {seed}");
        for (number, &process) in (0..).zip(&left) {
            assert_eq!(
                party.membership(process),
                Membership { epoch: 2, workers: 3, number, newcomers: false }
            );
            let engine = party.processes[process].engine.as_mut().unwrap();
            assert_eq!(engine.take_change().map(|change| change.workers), Some(3));
            assert_eq!(engine.take_change(), None);
        }
    }
}

#[test]
fn what_one_has_finished_all_finish_with_all_in_it() {
    let mut finished_first = 0;
    for seed in seeds(12) {
        let (mut party, all) = whole_party(&job(1, 3), hostile(100 + seed));
        let data = gradients(3, LEN, seed);
        all.iter().for_each(|&process| party.call(process, data[process].clone()));
        party.run_until("one", |party| all.iter().any(|&process| party.processes[process].done.is_some()));
        // Whoever is not the first to finish is killed, and the first has its mean.
        let first = all.iter().copied().find(|&process| party.processes[process].done.is_some()).unwrap();
        let dead = (first + 1) % 3;
        finished_first += usize::from(party.processes[dead].done.is_none());
        party.kill(dead);
        let left = [first, (first + 2) % 3];
        let means: Vec<Vec<f32>> = party.finish(&left).into_iter().map(Result::unwrap).collect();
        assert!(means[0] == means[1] && means[0] == reference(&[data])[0], "seed {seed}");
        party.run_until("two", |party| left.iter().all(|&process| party.membership(process).workers == 2));
    }
    assert!(finished_first > 0);
}

#[test]
fn who_leaves_at_the_end_takes_nothing_from_the_others_last_call() {
    for seed in seeds(8) {
        let (mut party, all) = whole_party(&job(2, 3), hostile(50 + seed));
        let data = gradients(3, LEN, seed);
        all.iter().for_each(|&process| party.call(process, data[process].clone()));
        let mut means: Vec<Option<Vec<f32>>> = vec![None; 3];
        // Each leaves as soon as it has its mean, so that fewer are left than the least.
        while means.iter().any(Option::is_none) {
            party.turn();
            for &process in &all {
                if let Some(outcome) = party.processes[process].done.take() {
                    means[process] = Some(outcome.unwrap());
                    party.processes[process].engine.as_mut().unwrap().leave();
                }
            }
        }
        let one = reference(&[data]);
        assert!(means.iter().all(|mean| mean.as_ref() == Some(&one[0])), "seed {seed}");
        party.run_until("leaving", |party| {
            all.iter().all(|&process| party.processes[process].engine.as_ref().unwrap().has_left())
        });
    }
}

#[test]
fn who_comes_is_let_in_where_all_stop_at_the_same_boundary() {
    for seed in seeds(8) {
        let faults = if seed == 0 { quiet() } else { hostile(seed) };
        let job = job(2, 3);
        let mut party = Party::new(&job, faults);
        let old = [party.start(0, 0), party.start(2, 0)];
        party.run_until("joining", |party| old.iter().all(|&process| party.is_member(process)));
        let new = party.start(1, 0);
        // Two calls between boundaries; the two are not at the same place when the third comes.
        let mut made = [0u64; 2];
        let stopped = |party: &Party, i: usize| {
            let process = &party.processes[old[i]];
            process.call.is_none() && process.done.is_none() && !process.stops
        };
        while !(0..2).all(|i| party.membership(old[i]).workers == 3 && stopped(&party, i)) {
            party.turn();
            for i in 0..2 {
                party.processes[old[i]].done.take().into_iter().for_each(|outcome| drop(outcome.unwrap()));
                if stopped(&party, i) && party.membership(old[i]).workers == 2 {
                    if made[i] % 2 == 0 {
                        let process = &mut party.processes[old[i]];
                        process.stops = process.engine.as_mut().unwrap().stop_at_boundary();
                        if process.stops {
                            continue;
                        }
                    }
                    let data = gradients(2, 5_000, made[i]).swap_remove(i);
                    party.call(old[i], data);
                    made[i] += 1;
                }
            }
            assert!(party.net.now() < Duration::from_secs(60), "seed {seed}: {made:?}");
        }
        assert_eq!((made[0], made[0] % 2), (made[1], 0), "seed {seed}");
        party.run_until("the third", |party| party.is_member(new));
        let who = [old[0], new, old[1]];
        for (number, &process) in (0..).zip(&who) {
            assert_eq!(
                party.membership(process),
                Membership { epoch: 2, workers: 3, number, newcomers: true },
                "seed {seed}"
            );
        }
        let means = party.reduce(&who, &gradients(3, 5_000, seed));
        assert!(means.iter().all(|mean| *mean == means[0]), "seed {seed}");
    }
}

#[test]
fn a_server_that_is_restarted_finds_a_session_of_fewer_again() {
    let (mut party, all) = whole_party(&job(1, 3), quiet());
    party.kill(1);
    let left = [all[0], all[2]];
    party.run_until("two", |party| left.iter().all(|&process| party.membership(process).workers == 2));
    let data = gradients(2, LEN, 4);
    left.iter().zip(&data).for_each(|(&process, data)| party.call(process, data.clone()));
    (0..100).for_each(|_| party.turn());
    party.ps.restart();
    let means: Vec<_> = party.finish(&left).into_iter().map(Result::unwrap).collect();
    assert!(means[0] == means[1] && means[0] == reference(&[data])[0]);
    assert!(left.iter().all(|&process| party.membership(process).epoch == 2));
    // The next session has the next number, although the server has forgotten how many there were.
    let third = party.start(1, 0);
    while !party.is_member(third) {
        left.iter().for_each(|&process| party.processes[process].stops = true);
        party.turn();
        assert!(party.net.now() < Duration::from_secs(60));
    }
    assert_eq!(party.membership(third), Membership { epoch: 3, workers: 3, number: 1, newcomers: true });
}

#[test]
fn a_whole_world_that_is_started_anew_begins_at_once_in_place_of_a_dead_one() {
    let (mut party, all) = whole_party(&job(1, 4), quiet());
    all.iter().for_each(|&process| party.kill(process));
    let (before, seats) = (party.net.now(), [0, 1, 2]);
    let new: Vec<usize> = seats.iter().map(|&seat| party.start(seat, 3)).collect();
    party.run_until("three", |party| new.iter().all(|&process| party.is_member(process)));
    // As long as their predecessors are asked, and not until the fourth, whose seat nobody wants, is found to be gone.
    let took = party.net.now() - before;
    assert!(took < Duration::from_millis(900), "{took:?}");
    assert!(new.iter().all(|&process| party.membership(process).workers == 3));
    let data = gradients(3, LEN, 6);
    let means = party.reduce(&new, &data);
    assert!(means[0] == reference(&[data])[0]);
}

#[test]
fn fewer_than_the_least_end_the_session_with_an_error() {
    let (mut party, all) = whole_party(&job(3, 3 + 1), quiet());
    party.kill(0);
    let left = &all[1..];
    party.run_until("three", |party| left.iter().all(|&process| party.membership(process).workers == 3));
    left.iter().for_each(|&process| party.call(process, vec![1.0; 5000]));
    party.kill(1);
    for outcome in party.finish(&left[1..]) {
        assert!(matches!(outcome, Err(WorkerError::Session(SessionError::Reforming { .. }))), "{outcome:?}");
    }
}

#[test]
fn members_change_where_a_spare_stands_by() {
    let mut job = job(1, 3);
    let at: Vec<_> = (0..2).map(share_addr).collect();
    let shares = Shares::new(&at, 1).unwrap();
    let members = Some(Members { spares: 1, ..Members::default() });
    let mut sizes = (*job.sizes.take().unwrap()).clone();
    for (_, welcome) in &mut sizes.shapes {
        (welcome.shares, welcome.members) = (shares, members);
    }
    job.welcome = sizes.shapes.last().unwrap().1;
    job.sizes = Some(Arc::new(sizes));
    let (mut party, all) = whole_party(&job, quiet());
    party.kill(1);
    let left = [all[0], all[2]];
    party.run_until("two", |party| left.iter().all(|&process| party.membership(process).workers == 2));
    let calls = [gradients(2, LEN, 4), gradients(2, LEN, 5)];
    let expected = reference(&calls);
    assert!(party.reduce(&left, &calls[0])[0] == expected[0]);
    // The first dies in the next call, for good.
    left.iter().zip(&calls[1]).for_each(|(&process, data)| party.call(process, data.clone()));
    (0..60).for_each(|_| party.turn());
    assert!(left.iter().all(|&process| party.processes[process].done.is_none()));
    party.first_is_dead = true;
    let means: Vec<_> = party.finish(&left).into_iter().map(Result::unwrap).collect();
    assert!(means[0] == means[1] && means[0] == expected[1]);
}

#[test]
fn who_is_told_to_hold_and_hears_no_more_fails_within_the_time_out() {
    let (mut party, all) = whole_party(&job(1, 2), quiet());
    all.iter().for_each(|&process| party.call(process, vec![1.0; 5000]));
    party.kill(1);
    // The server dies when it has said that a member is gone, and before the next session begins.
    let told = std::rc::Rc::new(std::cell::Cell::new(false));
    let says = std::rc::Rc::clone(&told);
    party.ps.admits = Box::new(move |_, packet| {
        says.set(says.get() || packet[1] == Kind::Position as u8);
        !says.get()
    });
    party.run_until("to hold", |_| told.get());
    party.first_is_dead = true;
    let [Err(WorkerError::Session(SessionError::Silent { waited }))] = party.finish(&all[..1])[..] else {
        panic!("it is not silent");
    };
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(24), "{waited:?}");
}

#[test]
fn what_was_told_before_and_comes_late_frees_nobody_who_holds() {
    let (mut party, all) = whole_party(&job(1, 3), quiet());
    let who = |party: &mut Party, process: usize| {
        let engine = party.processes[process].engine.as_mut().unwrap();
        (engine.io_mut().local(), engine.parameters().cookie)
    };
    let ((first, cookie), (second, _)) = (who(&mut party, all[0]), who(&mut party, all[1]));
    party.kill(2);
    // The second holds as well, and the server does not hear of it.
    let positions = std::rc::Rc::new(std::cell::Cell::new([0, 0]));
    let heard = std::rc::Rc::clone(&positions);
    party.ps.admits = Box::new(move |from, packet| {
        let [mut one, mut two] = heard.get();
        if packet[1] == Kind::Position as u8 {
            (one, two) = (one + u32::from(from == first), two + u32::from(from == second));
        }
        heard.set([one, two]);
        from != second || packet[1] != Kind::Position as u8
    });
    party.run_until("to hold", |_| positions.get().iter().all(|&count| count > 0));
    for what in [What::GoOn, What::Ask, What::Stop] {
        let header = Header::new(Kind::Boundary, 3, JOB, WorkerId(0), cookie);
        let late = Boundary { what, because_of: WorkerId(2), question: 0, calls: 0 };
        let mut packet = [0; HEADER_LEN + BOUNDARY_LEN];
        header.emit_packet(&mut packet, &late.to_bytes());
        party.ps.io.send_run(first, &packet, packet.len()).unwrap();
        let end = party.net.now() + Duration::from_millis(150);
        while party.net.now() < end {
            party.turn();
        }
        let said = positions.get()[0];
        party.run_until("it still holds", |_| positions.get()[0] > said + 2);
        let engine = party.processes[all[0]].engine.as_mut().unwrap();
        assert!(engine.stop_at_boundary(), "{what:?} has freed it");
    }
    party.ps.admits = Box::new(|_, _| true);
    let left = &all[..2];
    party.run_until("two", |party| left.iter().all(|&process| party.membership(process).workers == 2));
    let data = gradients(2, 5_000, 7);
    assert!(party.reduce(left, &data)[0] == reference(&[data])[0]);
}

#[test]
fn no_call_comes_before_one_that_was_begun_before_it_and_must_be_begun_again() {
    let (mut party, all) = whole_party(&job(1, 3), quiet());
    let plan = [Span { length: 8192, choice: Choice::Raw }];
    let packed = |engine: &mut Engine<SimIo>| {
        let layout = engine.packed_layout(&plan, 13).unwrap();
        let sums = layout.pieces.iter().map(|piece| Box::new(vec![0_u8; piece.sums]) as Box<dyn Loan>);
        let norms = vec![1.0; layout.parts.len()];
        let sums = sums.collect();
        let tensor = PackedTensor { length: 8192, piece: 13, norms: &norms, sums };
        engine.start(tensor, Call { plan: Plan::Spans(&plan), feedback: None })
    };
    // A call whose indices somebody else makes, and one behind it; another member has begun only the first.
    let engine = party.processes[all[0]].engine.as_mut().unwrap();
    let mut first = packed(engine).unwrap();
    let second = engine.start(vec![1.0; 8192], FEEDBACK).unwrap();
    let dropped = engine.start(vec![1.0; 8192], Call::default()).unwrap();
    let other = packed(party.processes[all[1]].engine.as_mut().unwrap()).unwrap();
    party.kill(2);
    let left = &all[..2];
    party.run_until("two", |party| left.iter().all(|&process| party.membership(process).workers == 2));
    let changed = |error: &WorkerError| matches!(error, WorkerError::Call(CallError::MembersChanged));
    // Until the program knows of all that it has to begin again, nothing goes before it.
    let engine = party.processes[all[0]].engine.as_mut().unwrap();
    assert!(changed(&packed(engine).err().unwrap()));
    assert!(changed(&first.receive().err().unwrap()));
    assert!(changed(&engine.start(vec![1.0; 10], FEEDBACK).unwrap_err()));
    assert!(second.is_done());
    assert!(changed(&second.wait().unwrap_err()));
    assert!(changed(&engine.start(vec![1.0; 10], FEEDBACK).unwrap_err()));
    drop(dropped);
    assert_eq!(engine.pending_calls(), 0);
    packed(engine).unwrap();
    let engine = party.processes[all[1]].engine.as_mut().unwrap();
    assert!(changed(&packed(engine).err().unwrap()));
    drop(other);
    packed(engine).unwrap();
}

#[test]
fn newcomers_are_told_at_the_same_boundary_also_when_somebody_is_gone_just_then() {
    for seed in seeds(6) {
        let (mut party, all) = whole_party(&job(1, 3), hostile(seed));
        party.processes[all[1]].engine.as_mut().unwrap().take_change();
        party.kill(1);
        let left = [all[0], all[2]];
        // One calls on, and one has stopped: that somebody is gone reaches them at different places.
        let data = gradients(3, 5_000, seed);
        left.iter().for_each(|&process| party.call(process, data[process].clone()));
        let outcomes = party.finish(&left);
        assert!(outcomes.iter().all(Result::is_ok), "seed {seed}");
        let new = party.start(1, 0);
        let end = party.net.now() + Duration::from_secs(60);
        while !party.is_member(new) {
            left.iter().for_each(|&process| {
                if party.processes[process].done.is_none() {
                    party.processes[process].stops = true;
                }
            });
            party.turn();
            assert!(party.net.now() < end, "seed {seed}");
        }
        // Another goes before anybody has asked what has changed.
        party.kill(2);
        let left = [all[0], new];
        party.run_until("two", |party| left.iter().all(|&process| party.membership(process).epoch == 4));
        let change = |party: &mut Party, process: usize| {
            party.processes[process].engine.as_mut().unwrap().take_change().unwrap()
        };
        assert!(change(&mut party, all[0]).newcomers, "seed {seed}");
        assert!(!party.membership(all[0]).newcomers, "seed {seed}");
        let means = party.reduce(&left, &data[..2]);
        assert!(means[0] == means[1], "seed {seed}");
    }
}

#[test]
fn who_leaves_while_another_leaves_is_not_let_in_again() {
    let (mut party, all) = whole_party(&job(1, 3), quiet());
    // The first LEAVEs of the second do not come, so that the server counts on it for the session after the first one's leaving.
    let until = party.net.now() + Duration::from_millis(400);
    let net = party.net.clone();
    let second = party.processes[all[1]].engine.as_mut().unwrap().io_mut().local();
    party.ps.admits =
        Box::new(move |from, packet| from != second || packet[1] != Kind::Leave as u8 || net.now() >= until);
    for &process in &all[..2] {
        party.processes[process].engine.as_mut().unwrap().leave();
    }
    party.run_until("leaving", |party| {
        all[..2].iter().all(|&process| party.processes[process].engine.as_ref().unwrap().has_left())
    });
    party.run_until("one", |party| party.membership(all[2]).workers == 1);
}

#[test]
fn who_has_stopped_before_the_others_goes_on_to_where_they_are() {
    let mut party = Party::new(&job(2, 3), quiet());
    let old = [party.start(0, 0), party.start(2, 0)];
    party.run_until("joining", |party| old.iter().all(|&process| party.is_member(process)));
    let data = gradients(2, 5_000, 1);
    party.reduce(&old, &data);
    // The second does not hear that somebody waits, and passes the boundary at which the first stops.
    let [_, second] = old.map(|process| party.processes[process].engine.as_mut().unwrap().io_mut().local());
    party.net.set_loss(ps_addr(), second, 1.0);
    let new = party.start(1, 0);
    party.processes[old[0]].stops = true;
    let asked = party.net.now() + Duration::from_millis(300);
    while party.net.now() < asked {
        party.turn();
        party.processes[old[0]].stops = true;
    }
    assert!(!party.processes[old[1]].engine.as_mut().unwrap().stop_at_boundary());
    party.call(old[1], data[1].clone());
    party.turn();
    party.net.reset_link(ps_addr(), second);
    party.run_until("to go on", |party| !party.processes[old[0]].stops);
    party.call(old[0], data[0].clone());
    party.finish(&old);
    let end = party.net.now() + Duration::from_secs(60);
    while !party.is_member(new) {
        old.iter().for_each(|&process| party.processes[process].stops = true);
        party.turn();
        assert!(party.net.now() < end);
    }
    let all = [old[0], new, old[1]];
    let means = party.reduce(&all, &gradients(3, 5_000, 2));
    assert!(means.iter().all(|mean| *mean == means[0]));
}

#[test]
fn who_hears_of_a_newcomer_between_a_boundary_and_its_call_takes_the_others_along() {
    let mut party = Party::new(&job(2, 3), quiet());
    let old = [party.start(0, 0), party.start(2, 0)];
    party.run_until("joining", |party| old.iter().all(|&process| party.is_member(process)));
    let data = gradients(2, 5_000, 1);
    party.reduce(&old, &data);
    // The second passes the boundary and computes, as training does, when it hears that somebody waits. The first stops at that boundary.
    assert!(!party.processes[old[1]].engine.as_mut().unwrap().stop_at_boundary());
    let new = party.start(1, 0);
    let computed = party.net.now() + Duration::from_millis(500);
    while party.net.now() < computed {
        party.turn();
        party.processes[old[0]].stops = true;
    }
    party.call(old[1], data[1].clone());
    party.run_until("to go on", |party| !party.processes[old[0]].stops);
    party.call(old[0], data[0].clone());
    party.finish(&old);
    let end = party.net.now() + Duration::from_secs(60);
    while !party.is_member(new) {
        old.iter().for_each(|&process| party.processes[process].stops = true);
        party.turn();
        assert!(party.net.now() < end);
    }
    let all = [old[0], new, old[1]];
    let means = party.reduce(&all, &gradients(3, 5_000, 2));
    assert!(means.iter().all(|mean| *mean == means[0]));
}

#[test]
fn who_is_let_in_while_yet_another_waits_begins_its_call_with_those_who_wait_at_the_boundary() {
    let mut party = Party::new(&job(2, 4), quiet());
    let old = [party.start(0, 0), party.start(3, 0)];
    party.run_until("joining", |party| old.iter().all(|&process| party.is_member(process)));
    party.reduce(&old, &gradients(2, 5_000, 1));
    let third = party.start(1, 0);
    let end = party.net.now() + Duration::from_secs(60);
    while !party.is_member(third) {
        old.iter().for_each(|&process| party.processes[process].stops = true);
        party.turn();
        assert!(party.net.now() < end);
    }
    // The fourth asks while the first two still are at the boundary, and the third has not begun its call.
    let fourth = party.start(2, 0);
    let asked = party.net.now() + Duration::from_millis(500);
    while party.net.now() < asked {
        party.turn();
        old.iter().for_each(|&process| party.processes[process].stops = true);
    }
    let data = gradients(3, 5_000, 2);
    party.call(third, data[1].clone());
    party.run_until("to go on", |party| old.iter().all(|&process| !party.processes[process].stops));
    let three = [old[0], third, old[1]];
    party.call(old[0], data[0].clone());
    party.call(old[1], data[2].clone());
    party.finish(&three);
    let end = party.net.now() + Duration::from_secs(60);
    while !party.is_member(fourth) {
        three.iter().for_each(|&process| party.processes[process].stops = true);
        party.turn();
        assert!(party.net.now() < end);
    }
    let all = [old[0], third, fourth, old[1]];
    let means = party.reduce(&all, &gradients(4, 5_000, 3));
    assert!(means.iter().all(|mean| *mean == means[0]));
}

#[test]
fn a_next_session_and_that_somebody_is_gone_from_it_may_come_together() {
    let mut party = Party::new(&job(2, 4), quiet());
    let old = [party.start(0, 0), party.start(2, 0)];
    party.run_until("joining", |party| old.iter().all(|&process| party.is_member(process)));
    for &process in &old {
        party.processes[process].engine.as_mut().unwrap().take_change();
    }
    let pause = |party: &mut Party, time: u64, stops: usize| {
        let end = party.net.now() + Duration::from_millis(time);
        while party.net.now() < end {
            party.processes[stops].stops = true;
            party.turn();
        }
    };
    // Two wait, of whom one dies before it is let in; one member has stopped.
    let new = [party.start(1, 0), party.start(3, 0)];
    pause(&mut party, 300, old[1]);
    party.kill(new[1]);
    pause(&mut party, 1000, old[1]);
    // What comes for it from now on, it finds all together.
    let engine = party.processes[old[1]].engine.take();
    party.processes[old[0]].stops = true;
    pause(&mut party, 900, old[0]);
    assert_eq!(party.membership(old[0]).workers, 4);
    party.processes[old[1]].engine = engine;
    let all = [old[0], new[0], old[1]];
    party.run_until("three", |party| {
        all.iter().all(|&process| party.is_member(process) && party.membership(process).workers == 3)
    });
    for process in old {
        let change = party.processes[process].engine.as_mut().unwrap().take_change().unwrap();
        assert!(change.newcomers, "{process} was not told that others were let in");
    }
    let means = party.reduce(&all, &gradients(3, 5_000, 2));
    assert!(means.iter().all(|mean| *mean == means[0]));
}

#[test]
fn a_server_that_was_cut_off_takes_nobody_for_gone() {
    let (mut party, all) = whole_party(&job(1, 2), quiet());
    let epoch = party.membership(all[0]).epoch;
    let wait = |party: &mut Party, milliseconds: u64| {
        let end = party.net.now() + Duration::from_millis(milliseconds);
        while party.net.now() < end {
            party.turn();
        }
    };
    wait(&mut party, 2000);
    party.net.partition(ps_addr());
    wait(&mut party, 800);
    party.net.heal(ps_addr());
    // One answers a little later than the other.
    let engine = party.processes[all[1]].engine.take();
    wait(&mut party, 600);
    party.processes[all[1]].engine = engine;
    let data = gradients(2, LEN, 5);
    let means = party.reduce(&all, &data);
    assert!(means[0] == means[1] && means[0] == reference(&[data])[0]);
    assert!(all.iter().all(|&process| party.membership(process).epoch == epoch));
    // Who does not answer then is gone after all.
    party.net.partition(ps_addr());
    wait(&mut party, 1000);
    party.kill(all[1]);
    party.net.heal(ps_addr());
    wait(&mut party, 3000);
    assert_eq!(
        party.membership(all[0]),
        Membership { epoch: epoch + 1, workers: 1, number: 0, newcomers: false }
    );
}

#[test]
fn who_was_cut_off_while_it_waited_has_its_time_in_the_session_that_begins() {
    let mut party = Party::new(&job(1, 2), quiet());
    let first = party.start(0, 0);
    party.run_until("joining", |party| party.is_member(first));
    let second = party.start(1, 0);
    let wait = |party: &mut Party, milliseconds: u64| {
        let end = party.net.now() + Duration::from_millis(milliseconds);
        while party.net.now() < end {
            party.turn();
        }
    };
    wait(&mut party, 300);
    // Silent for longer than members may be, and not for so long that it is forgotten.
    let joiners = party.processes[second].joiners.take();
    wait(&mut party, 2000);
    party.processes[first].stops = true;
    party.run_until("two", |party| party.membership(first).workers == 2);
    wait(&mut party, 500);
    party.processes[second].joiners = joiners;
    party.run_until("both", |party| party.is_member(second));
    let data = gradients(2, LEN, 6);
    let means = party.reduce(&[first, second], &data);
    assert!(means[0] == means[1] && means[0] == reference(&[data])[0]);
    assert_eq!(party.membership(first).epoch, 2);
}

#[test]
fn when_nobody_is_left_the_session_ends() {
    let (mut party, all) = whole_party(&job(1, 2), quiet());
    all.iter().for_each(|&process| party.kill(process));
    let end = party.net.now() + Duration::from_secs(5);
    while party.net.now() < end {
        party.turn();
    }
    assert!(party.ps.registry.session(JOB).is_none(), "it is still there");
}
