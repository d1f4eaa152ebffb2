//! Calls whose numbers the caller computes: beside workers that compute them themselves they give the same bits.

use crate::world::{World, gradients, hostile, quiet, saved_feedback, static_job};
use thc_codec::block::Block;
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::{Rounding, Source};
use thc_codec::signs::{GOLDEN_GAMMA, SignKey, mix};
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{Choice, Form, RAW_WORDS, Table, Tables};
use thc_protocol::worker::{CallError, SessionError};
use thc_protocol::{Lane, Policy, TableId};
use thc_support::{SimConfig, SimIo, wire_table};
use thc_worker::{
    Borrowed, Call, Engine, Estimate, Finished, Loan, Numbers, Packed, PackedLayout, PackedPart,
    PackedTensor, Plan, Span, WorkerError,
};

const WORKERS: u8 = 3;
const KEY: u64 = 5;
const PIECE: u8 = 16;

/// Tables of 4 bits in lanes of 8, of 8 bits in lanes of 16 and of 3 bits in lanes of 8.
fn job() -> StaticJob {
    let table = |id, bits, width, lane, granularity| {
        let table = LookupTable::solve(bits, granularity, 1.0 / 32.0).unwrap();
        Table { id: TableId(id), ..wire_table(Form::new(width, lane).unwrap(), &table) }
    };
    let tables =
        [table(3, 4, 4, Lane::Bits8, 30), table(4, 8, 8, Lane::Bits16, 255), table(5, 3, 3, Lane::Bits8, 20)];
    let mut job = static_job(WORKERS, Lane::Bits8, WORKERS, Policy::Reliable);
    job.welcome.tables = Tables::new(&tables).unwrap();
    job.config.tables = tables.iter().map(|table| table.id).collect();
    job.welcome.block = 12;
    job
}

fn plan() -> Vec<Span> {
    let span = |length, choice| Span { length, choice };
    let table = |id| Choice::Table(TableId(id));
    vec![span(70_000, table(3)), span(9_000, Choice::Raw), span(12_345, table(4)), span(5_001, table(5))]
}

/// A worker whose numbers are computed here, as the definitions say.
struct Other {
    worker: u8,
    x: Vec<f32>,
    kept: Vec<f32>,
    left: Vec<f32>,
    layout: PackedLayout,
    call: Option<Packed>,
    has_numbers: bool,
    numbers: Vec<Numbers>,
    outcome: Option<Result<(), WorkerError>>,
}

fn rounding(worker: u8, call: u64, partition: u32) -> Rounding {
    Source::for_worker(42, worker.into()).rounding(call, partition)
}

impl Other {
    fn new(engine: &Engine<SimIo>, worker: u8, length: usize) -> Other {
        Other {
            worker,
            x: Vec::new(),
            kept: vec![0.0; length],
            left: vec![0.0; length],
            layout: engine.packed_layout(&plan(), PIECE).unwrap(),
            call: None,
            has_numbers: false,
            numbers: Vec::new(),
            outcome: None,
        }
    }

    fn submit(&mut self, engine: &mut Engine<SimIo>, x: Vec<f32>) -> Result<(), WorkerError> {
        let norms: Vec<f32> = (self.layout.parts.iter())
            .map(|at| {
                let place = at.part.offset..at.part.offset + at.part.len;
                let (x, kept) = (&x[place.clone()], &self.kept[place]);
                let sum: Vec<f32> = x.iter().zip(kept).map(|(x, e)| x + e).collect();
                if at.choice == Choice::Raw { norm::max_abs(&sum) } else { norm::l2(&sum) }
            })
            .collect();
        let loans = |piece: &thc_worker::Piece| Box::new(vec![0xEE_u8; piece.sums]) as Box<dyn Loan>;
        let sums = self.layout.pieces.iter().map(loans).collect();
        let tensor = PackedTensor { length: x.len(), piece: PIECE, norms: &norms, sums };
        self.call =
            Some(engine.start_packed(tensor, Call { plan: Plan::Spans(&plan()), feedback: Some(KEY) })?);
        (self.x, self.has_numbers, self.outcome) = (x, false, None);
        Ok(())
    }

    /// Does what there is to do.
    fn turn(&mut self) {
        let Some(mut call) = self.call.take_if(|call| call.is_ready()) else { return };
        if !self.has_numbers {
            match call.numbers() {
                Ok(numbers) => self.numbers = numbers,
                Err(error) => {
                    self.outcome = Some(Err(error));
                    return;
                }
            }
            self.has_numbers = true;
            // The last first: their order is free.
            for piece in (0..self.layout.pieces.len()).rev() {
                let indices = self.compress(&call, piece);
                call.send(piece, Box::new(indices));
            }
        }
        while call.is_ready() {
            match call.receive() {
                Ok(Some(finished)) => self.finish(&call, &finished),
                Ok(None) => {
                    std::mem::swap(&mut self.kept, &mut self.left);
                    self.outcome = Some(Ok(()));
                    return;
                }
                Err(error) => {
                    self.outcome = Some(Err(error));
                    return;
                }
            }
        }
        self.call = Some(call);
    }

    fn block<'a>(&self, call: &Packed, quantizer: &'a Quantizer, at: &PackedPart, range: f32) -> Block<'a> {
        let key = SignKey { job_seed: 42, call: call.number(), partition: at.part.index };
        let signs = mix((call.keys().signs ^ u64::from(at.part.index)).wrapping_add(GOLDEN_GAMMA));
        assert_eq!(signs, key.signs().key());
        let own = Source::for_worker(42, self.worker.into());
        assert_eq!(
            (call.keys().roundings, call.keys().stratum),
            (own.derive_call(call.number()), own.stratum())
        );
        let rounding = rounding(self.worker, call.number(), at.part.index);
        Block { quantizer, key, rounding, range, next: [&[]; 2], far: false }
    }

    fn compress(&mut self, call: &Packed, piece: usize) -> Vec<u8> {
        let tables = job().welcome.tables;
        let mut packed = vec![0; self.layout.pieces[piece].indices];
        let mut begin = 0;
        for number in self.layout.pieces[piece].parts.clone() {
            let (at, numbers) = (self.layout.parts[number], self.numbers[number]);
            let place = at.part.offset..at.part.offset + at.part.len;
            let Choice::Table(id) = at.choice else {
                let out = &mut packed[begin..begin + 4 * at.part.padded];
                begin += out.len();
                if numbers.raw == 0.0 {
                    self.left[place.clone()].copy_from_slice(&self.kept[place]);
                    continue;
                }
                let sums = self.x[place.clone()].iter().zip(&self.kept[place.clone()]).map(|(x, e)| x + e);
                for (word, x) in out.chunks_exact_mut(4).zip(sums) {
                    let value = (f64::from(x) * numbers.raw).round_ties_even() as i32;
                    word.copy_from_slice(&value.to_be_bytes());
                }
                self.left[place].fill(0.0);
                continue;
            };
            let told = tables.iter().find(|table| table.id == id).unwrap();
            let out = &mut packed[begin..begin + at.part.padded * usize::from(told.form.width()) / 8];
            begin += out.len();
            if numbers.affine.lo == 0.0 {
                self.left[place.clone()].copy_from_slice(&self.kept[place]);
                continue;
            }
            let identity: Vec<u8> = (0..=255).collect();
            let values = if told.form.is_identity() { &identity[..] } else { &told.values[..1 << told.bits] };
            let table = LookupTable::with_threshold(values, told.fraction, told.t_p).unwrap();
            let quantizer = Quantizer::new(&table).with_width(told.form.width()).unwrap();
            let range = -numbers.affine.lo;
            assert_eq!(quantizer.affine(range).unwrap(), numbers.affine);
            let block = self.block(call, &quantizer, &at, range);
            let mut work = vec![0.0; at.part.padded];
            let fed = Some((&self.kept[place.clone()], &mut self.left[place.clone()]));
            block.compress(&self.x[place], fed, &mut work, out).unwrap();
        }
        packed
    }

    fn finish(&mut self, call: &Packed, finished: &Finished) {
        let tables = job().welcome.tables;
        let sums = (*finished.sums).as_ref();
        let mut estimates = finished.estimates.iter();
        let mut begin = 0;
        for number in self.layout.pieces[finished.piece].parts.clone() {
            let at = self.layout.parts[number];
            let form =
                tables.iter().find(|table| at.choice == Choice::Table(table.id)).map(|table| table.form);
            let (per_packet, len) =
                form.map_or((RAW_WORDS, 1024), |form| (form.coordinates(), form.result_len()));
            let mut out = Vec::new();
            for _ in 0..at.part.padded / per_packet {
                let (&Estimate { step, lo, raw }, bytes) =
                    (estimates.next().unwrap(), &sums[begin..begin + len]);
                begin += len;
                match form.map(Form::lane) {
                    None => {
                        out.extend(bytes.chunks_exact(4).map(|word| {
                            (f64::from(i32::from_be_bytes(word.try_into().unwrap())) * raw) as f32
                        }));
                    }
                    Some(Lane::Bits16) => out.extend(
                        bytes
                            .chunks_exact(2)
                            .map(|two| f32::from(u16::from_be_bytes([two[0], two[1]])) * step + lo),
                    ),
                    Some(_) => out.extend(bytes.iter().map(|sum| f32::from(*sum) * step + lo)),
                }
            }
            let zero = self.numbers[number] == Numbers::default();
            if form.is_some() && !zero {
                let key = SignKey { job_seed: 42, call: call.number(), partition: at.part.index };
                rht::inverse(&mut out, key).unwrap();
            }
            if zero {
                out.fill(0.0);
            }
            self.x[at.part.offset..at.part.offset + at.part.len].copy_from_slice(&out[..at.part.len]);
        }
        assert_eq!(estimates.count(), 0);
    }
}

/// Calls of three workers, `others` of whom compute their numbers here; each call's means and what is left of the last.
fn run(faults: SimConfig, others: &[u8], calls: &[Vec<Vec<f32>>]) -> (Vec<Vec<f32>>, Vec<Vec<u8>>) {
    let length = calls[0][0].len();
    let mut world = World::new(job(), faults);
    let mut other: Vec<Option<Other>> = (0..WORKERS)
        .map(|w| others.contains(&w).then(|| Other::new(&world.engines[usize::from(w)], w, length)))
        .collect();
    let mut means = Vec::new();
    for inputs in calls {
        let mut data = inputs.clone();
        let mut numbers = vec![0; data.len()];
        let mut done = vec![false; data.len()];
        for (w, engine) in world.engines.iter_mut().enumerate() {
            match &mut other[w] {
                Some(other) => other.submit(engine, data[w].clone()).unwrap(),
                None => {
                    numbers[w] = engine
                        .submit(length, Call { plan: Plan::Spans(&plan()), feedback: Some(KEY) })
                        .unwrap();
                }
            }
        }
        let mut turns = 0;
        while done.iter().any(|done| !done) {
            turns += 1;
            assert!(turns < 1_000_000, "no end");
            world.turn(|w, engine| {
                let Some(other) = &mut other[w] else {
                    let busy = engine.step(&mut Borrowed::new(numbers[w], &mut data[w]));
                    if let Some(outcome) = engine.take_outcome(numbers[w]) {
                        outcome.unwrap();
                        done[w] = true;
                    }
                    return busy;
                };
                let busy = engine.step(&mut Borrowed::empty());
                other.turn();
                if let Some(outcome) = other.outcome.take() {
                    outcome.unwrap();
                    data[w] = std::mem::take(&mut other.x);
                    done[w] = true;
                }
                busy
            });
        }
        assert!(data.iter().all(|mean| bits(mean) == bits(&data[0])), "all workers have the same mean");
        means.push(data.swap_remove(0));
    }
    let floats = |x: &[f32]| x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let left = world.engines.iter().zip(&other).map(|(engine, other)| match other {
        Some(other) => floats(&other.kept),
        None => saved_feedback(engine)[0].1[16..].to_vec(),
    });
    (means, left.collect())
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn inputs() -> Vec<Vec<Vec<f32>>> {
    let length = plan().iter().map(|span| span.length).sum();
    let mut calls: Vec<_> = (0..3).map(|seed| gradients(usize::from(WORKERS), length, seed)).collect();
    // Partitions of nothing: 4096 coordinates of the first table, and all of the span that goes RAW.
    for x in &mut calls[0] {
        x[4096..8192].fill(0.0);
        x[70_000..79_000].fill(0.0);
    }
    calls
}

#[test]
fn whoever_computes_the_bits_are_the_same() {
    let calls = inputs();
    let want = run(quiet(), &[], &calls);
    for others in [&[1][..], &[0, 2], &[0, 1, 2]] {
        let got = run(quiet(), others, &calls);
        assert!(want.0.iter().zip(&got.0).all(|(want, got)| bits(want) == bits(got)), "means, {others:?}");
        assert!(want.1 == got.1, "error feedback, {others:?}");
    }
}

#[test]
fn also_where_packets_are_lost() {
    let calls = inputs();
    let want = run(quiet(), &[], &calls);
    for seed in 0..3 {
        let got = run(hostile(seed), &[1], &calls);
        assert!(want.0.iter().zip(&got.0).all(|(want, got)| bits(want) == bits(got)) && want.1 == got.1);
    }
}

#[test]
fn a_nan_fails_the_call_alike_and_the_session_goes_on() {
    let calls = inputs();
    let length = calls[0][0].len();
    let mut world = World::new(job(), quiet());
    let mut other = Other::new(&world.engines[1], 1, length);
    for (number, poison) in [true, false].into_iter().enumerate() {
        let mut data = calls[0].clone();
        if poison {
            data[1][50_000] = f32::NAN;
        }
        other.submit(&mut world.engines[1], data[1].clone()).unwrap();
        for w in [0, 2] {
            world.engines[w]
                .submit(length, Call { plan: Plan::Spans(&plan()), feedback: Some(KEY) })
                .unwrap();
        }
        let mut outcomes: [Option<Result<(), WorkerError>>; 3] = [None, None, None];
        while outcomes.iter().any(Option::is_none) {
            world.turn(|w, engine| {
                let busy = engine.step(&mut Borrowed::new(number as u64, &mut data[w]));
                if w == 1 {
                    other.turn();
                    outcomes[1] = outcomes[1].take().or_else(|| other.outcome.take());
                } else if outcomes[w].is_none() {
                    outcomes[w] = engine.take_outcome(number as u64);
                }
                busy
            });
        }
        for outcome in outcomes {
            let outcome = outcome.unwrap();
            if poison {
                assert!(
                    matches!(outcome, Err(WorkerError::Call(CallError::NonFinite { worker })) if worker.0 == 1),
                    "{outcome:?}"
                );
            } else {
                outcome.unwrap();
            }
        }
    }
    assert_eq!(world.engines[1].stats().failed, 1);
}

#[test]
fn memory_that_does_not_fit_is_refused_and_a_call_given_up_ends_the_session() {
    let length = plan().iter().map(|span| span.length).sum();
    let mut world = World::new(job(), quiet());
    let engine = &mut world.engines[0];
    let layout = engine.packed_layout(&plan(), PIECE).unwrap();
    let norms = vec![1.0; layout.parts.len()];
    let loans = |less: usize| -> Vec<Box<dyn Loan>> {
        layout.pieces.iter().map(|piece| Box::new(vec![0_u8; piece.sums - less]) as Box<dyn Loan>).collect()
    };
    let mut submit = |norms: &[f32], sums| {
        let tensor = PackedTensor { length, piece: PIECE, norms, sums };
        engine.start_packed(tensor, Call { plan: Plan::Spans(&plan()), feedback: None })
    };
    for (norms, sums) in [(&norms[1..], loans(0)), (&norms[..], loans(1)), (&norms[..], Vec::new())] {
        let refused = submit(norms, sums).err().unwrap();
        assert!(matches!(refused, WorkerError::PackedMemory { .. }), "{refused}");
    }
    let mut call = submit(&norms, loans(0)).unwrap();
    call.send(0, Box::new(vec![0_u8; 3]));
    engine.step(&mut Borrowed::empty());
    assert!(matches!(call.numbers(), Err(WorkerError::PackedMemory { actual: 3, .. })));
    assert!(engine.failure().is_some());
    let engine = &mut world.engines[1];
    let tensor = PackedTensor { length, piece: PIECE, norms: &norms, sums: loans(0) };
    drop(engine.start_packed(tensor, Call { plan: Plan::Spans(&plan()), feedback: None }).unwrap());
    engine.step(&mut Borrowed::empty());
    assert!(matches!(engine.failure(), Some(WorkerError::Abandoned)), "{:?}", engine.failure());
}

#[test]
fn another_key_is_another_collective() {
    let length = plan().iter().map(|span| span.length).sum();
    let mut world = World::new(job(), quiet());
    let mut other = Other::new(&world.engines[1], 1, length);
    let data = gradients(3, length, 1);
    other.submit(&mut world.engines[1], data[1].clone()).unwrap();
    let mut lent = data.clone();
    let numbers: Vec<u64> = [0, 2]
        .into_iter()
        .map(|w| {
            world.engines[w]
                .submit(length, Call { plan: Plan::Spans(&plan()), feedback: Some(KEY + 1) })
                .unwrap()
        })
        .collect();
    for _ in 0..2000 {
        world.turn(|w, engine| {
            if engine.failure().is_some() {
                engine.serve_others().unwrap();
                return false;
            }
            let busy = engine.step(&mut Borrowed::new(numbers[0], &mut lent[w]));
            if w == 1 {
                other.turn();
            }
            busy
        });
    }
    let outcome = other.outcome.unwrap();
    assert!(matches!(outcome, Err(WorkerError::Session(SessionError::Mismatch { .. }))), "{outcome:?}");
}
