//! Tables of every width in one job, mixed in one call: means and error feedback are those of the definitions, bit for bit, and
//! packets are as long as their form says (P2, P4, P6, P31, P32).

use crate::world::{JOB, World, gradients, hostile, quiet, seeds, static_job};
use std::time::Duration;
use thc_codec::partition::{self, MAX_PARTITION, Partition};
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Source;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{Choice, Form, Table, Tables};
use thc_protocol::worker::SessionError;
use thc_protocol::{Lane, Policy, TableId};
use thc_support::{SimConfig, wire_table};
use thc_worker::{Call, Plan, Span, WorkerError};

const WORKERS: u8 = 3;

/// A table of so many bits in this form.
fn table(id: u8, bits: u8, form: Form) -> Table {
    let most = form.max_sum() / u32::from(WORKERS);
    let granularity = (2 * ((1 << bits) - 1)).min(most).min(255) as u16;
    // Two values must lie close, or what a worker feeds back grows from call to call.
    let fraction = if bits == 1 { 0.5 } else { 1.0 / f64::from(8 << bits.min(5)) };
    let table = LookupTable::solve(bits, granularity, fraction).unwrap();
    Table { id: TableId(id), ..wire_table(form, &table) }
}

/// Every form that sums of three workers fit, each with as many bits as it carries, and one with fewer.
fn tables() -> Vec<Table> {
    let fits = |form: &Form| u32::from(WORKERS) * ((1 << form.width()) - 1) <= form.max_sum();
    // And some whose sums are packed (P44).
    let more = [(4, 6), (8, 10)];
    let more = more.into_iter().filter_map(|(width, lane)| Form::with_sums(width, lane));
    let all = Form::ALL.into_iter().filter(|form| form.width() != 3 || form.lane() == Lane::Bits8);
    let forms = all.chain(more).filter(fits);
    let mut all: Vec<Table> = (10..).zip(forms).map(|(id, form)| table(id, form.width(), form)).collect();
    all.push(table(99, 3, Form::USUAL));
    assert_eq!(all.len(), 13);
    all
}

fn job(tables: &[Table], policy: Policy) -> StaticJob {
    let mut job = static_job(WORKERS, Lane::Bits8, WORKERS, policy);
    job.welcome.tables = Tables::new(tables).unwrap();
    job.config.tables = tables.iter().map(|table| table.id).collect();
    job.welcome.block = 12;
    job
}

/// As `docs/protocol.md` says it, one coordinate after the other.
struct Reference {
    tables: Vec<Table>,
    seed: u64,
    block: u8,
    errors: Vec<Vec<f32>>,
}

impl Reference {
    fn new(job: &StaticJob, length: usize) -> Reference {
        Reference {
            tables: job.welcome.tables.to_vec(),
            seed: job.welcome.job_seed,
            block: job.welcome.block,
            errors: vec![vec![0.0; length]; usize::from(WORKERS)],
        }
    }

    /// The mean of a call; error feedback becomes what it is after it.
    fn mean(&mut self, call: u64, plan: &[Span], inputs: &[Vec<f32>]) -> Vec<f32> {
        let mut mean = vec![0.0; inputs[0].len()];
        let (mut number, mut begin) = (0, 0);
        for span in plan {
            let end = begin + span.length;
            while begin < end {
                let piece = (MAX_PARTITION - begin % MAX_PARTITION).min(end - begin);
                for part in partition::split(piece, self.block) {
                    let part = Partition { index: number, offset: begin + part.offset, ..part };
                    match span.choice {
                        Choice::Raw => self.raw(&part, inputs, &mut mean),
                        Choice::Table(id) => self.compress((call, id), &part, inputs, &mut mean),
                    }
                    number += 1;
                }
                begin += piece;
            }
        }
        mean
    }

    fn add_errors(&self, worker: usize, part: &Partition, inputs: &[Vec<f32>]) -> Vec<f32> {
        let place = part.offset..part.offset + part.len;
        inputs[worker][place.clone()].iter().zip(&self.errors[worker][place]).map(|(x, e)| x + e).collect()
    }

    fn compress(
        &mut self,
        (call, id): (u64, TableId),
        part: &Partition,
        inputs: &[Vec<f32>],
        mean: &mut [f32],
    ) {
        let told = self.tables.iter().find(|table| table.id == id).unwrap();
        let identity: Vec<u8> = (0..=255).collect();
        let values = if told.bits == 8 { &identity[..] } else { &told.values[..1 << told.bits] };
        let quantizer = Quantizer::new(&LookupTable::from_values(values, told.fraction).unwrap());
        let (d, place) = (part.padded, part.offset..part.offset + part.len);
        let key = SignKey { job_seed: self.seed, call, partition: part.index };
        let norms =
            inputs.iter().zip(&self.errors).map(|(x, e)| norm::l2_sum(&x[place.clone()], &e[place.clone()]));
        let largest = norms.fold(0.0, f32::max);
        let range = (told.t_p / (d as f64).sqrt() * f64::from(largest)) as f32;
        let mut sums = vec![0u32; d];
        for worker in 0..inputs.len() {
            let mut x = self.add_errors(worker, part, inputs);
            x.resize(d, 0.0);
            rht::forward(&mut x, key).unwrap();
            let rounding = Source::for_worker(self.seed, worker as u16).rounding(call, part.index);
            let mut indices = vec![0; d];
            quantizer.quantize(&mut x, range, &rounding, 0, &mut indices).unwrap();
            sums.iter_mut().zip(indices).for_each(|(sum, z)| *sum += u32::from(values[usize::from(z)]));
            rht::inverse(&mut x, key).unwrap();
            self.errors[worker][place.clone()].copy_from_slice(&x[..part.len]);
        }
        assert!(sums.iter().all(|&sum| sum <= told.form.lane().max_sum()));
        let step =
            (2.0 * f64::from(range) / f64::from(u32::from(told.granularity) * inputs.len() as u32)) as f32;
        let mut estimate: Vec<f32> = sums.iter().map(|&sum| sum as f32 * step + -range).collect();
        rht::inverse(&mut estimate, key).unwrap();
        mean[place].copy_from_slice(&estimate[..part.len]);
    }

    fn raw(&mut self, part: &Partition, inputs: &[Vec<f32>], mean: &mut [f32]) {
        let all: Vec<Vec<f32>> =
            (0..inputs.len()).map(|worker| self.add_errors(worker, part, inputs)).collect();
        let largest = all.iter().flatten().fold(0f32, |max, x| max.max(x.abs()));
        let exponent = (f64::from(largest).to_bits() >> 52) as i32 - 1022;
        let scale = 2f64.powi(30 - exponent - (inputs.len() as f64).log2().ceil() as i32);
        let factor = 1.0 / (scale * inputs.len() as f64);
        for (i, at) in (part.offset..part.offset + part.len).enumerate() {
            let sum: i64 = all.iter().map(|x| (f64::from(x[i]) * scale).round_ties_even() as i64).sum();
            mean[at] = (sum as f64 * factor) as f32;
            self.errors.iter_mut().for_each(|error| error[at] = 0.0);
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Calls with these plans, with error feedback; every mean must be the reference's. Also the bytes that worker 0 got before.
fn run(job: StaticJob, network: SimConfig, threads: usize, plans: &[Vec<Span>]) -> (World, u64) {
    let length = plans[0].iter().map(|span| span.length).sum();
    let mut reference = Reference::new(&job, length);
    let mut world = World::with_threads(job, network, threads);
    let joining = world.engines[0].stats().bytes_down;
    for (number, plan) in plans.iter().enumerate() {
        let data = gradients(WORKERS.into(), length, number as u64 + 1);
        let mean = reference.mean(number as u64, plan, &data);
        let mut out = data.clone();
        let call = Call { plan: Plan::Spans(plan), feedback: Some(7) };
        for outcome in world.allreduce(&mut out, &[call; WORKERS as usize], |_, _| {}) {
            outcome.unwrap();
        }
        for out in &out {
            let wrong = bits(&mean).iter().zip(bits(out)).position(|(a, b)| *a != b);
            assert_eq!(wrong, None, "call {number} as {plan:?}");
        }
    }
    (world, joining)
}

fn spans(lengths: &[usize], choices: &[Choice]) -> Vec<Span> {
    lengths.iter().zip(choices).map(|(&length, &choice)| Span { length, choice }).collect()
}

/// As many packets as P4 says, each as long as P2 says: the server has counted them, and their bytes.
#[test]
fn every_width_and_lane_gives_the_mean_of_the_definitions_in_packets_of_its_length() {
    const LENGTH: usize = 21_000;
    for table in tables() {
        let plan = spans(&[LENGTH], &[Choice::Table(table.id)]);
        let (world, joining) = run(job(&[table], Policy::Reliable), quiet(), 1, &[plan.clone(), plan]);
        let padded: usize = partition::split(LENGTH, 12).map(|part| part.padded).sum();
        let (norms, packets) = (partition::split(LENGTH, 12).count(), padded / table.form.coordinates());
        let payload = packets * table.form.data_len();
        assert_eq!(payload, padded * usize::from(table.form.width()) / 8, "{}", table.form);
        let counters = world.ps.aggregator.job_counters(JOB).unwrap();
        for worker in 0..WORKERS {
            let counted = counters.worker(thc_protocol::WorkerId(worker));
            let expected = 2 * (norms * 40 + packets * 20 + payload);
            assert_eq!(counted.bytes, expected as u64, "{}", table.form);
        }
        // As the network has them, with 28 bytes of IP and UDP each.
        let down = 2 * (norms * 68 + packets * (48 + table.form.result_len()));
        assert_eq!(world.engines[0].stats().bytes_down - joining, down as u64, "{}", table.form);
    }
}

/// What is sent at more bits than it has is the same.
#[test]
fn a_table_gives_the_same_mean_in_every_form() {
    for of_bits in 1..=4 {
        let mut means: Vec<Vec<u32>> = Vec::new();
        let least = Form::new(of_bits, Lane::Bits4).filter(|_| of_bits <= 2).unwrap_or(Form::USUAL);
        let table = table(5, of_bits, least);
        let all =
            (of_bits..=4).flat_map(|width| (4..=16).filter_map(move |sums| Form::with_sums(width, sums)));
        for form in all.filter(|form| u32::from(WORKERS) * u32::from(table.granularity) <= form.max_sum()) {
            let same = Table { form, ..table };
            let mut world = World::new(job(&[same], Policy::Reliable), quiet());
            let mut data = gradients(WORKERS.into(), 9000, 3);
            let plan = spans(&[9000], &[Choice::Table(TableId(5))]);
            let call = Call { plan: Plan::Spans(&plan), feedback: None };
            for outcome in world.allreduce(&mut data, &[call; WORKERS as usize], |_, _| {}) {
                outcome.unwrap();
            }
            means.push(bits(&data[0]));
        }
        assert!(means.len() >= 2 && means.iter().all(|mean| *mean == means[0]), "{of_bits} bits");
    }
}

/// Choices change from call to call, and error feedback goes along, also over what the network does.
#[test]
fn one_call_mixes_choices_and_loss_changes_no_bit() {
    let tables = tables();
    let all: Vec<Choice> = tables.iter().map(|table| Choice::Table(table.id)).chain([Choice::Raw]).collect();
    let lengths = [1, 5000, 1024, 70_000, 1023, 1025, 3, 9000, 2048, 1, 100, 4096, 66_000];
    let plans: Vec<Vec<Span>> = (0..4)
        .map(|call| {
            let mut choices = all.clone();
            choices.rotate_left(3 * call);
            spans(&lengths, &choices)
        })
        .collect();
    run(job(&tables, Policy::Reliable), quiet(), 1, &plans);
    run(job(&tables, Policy::Reliable), quiet(), 3, &plans);
    for seed in seeds(3) {
        println!("THC_SEED={seed}");
        run(job(&tables, Policy::Reliable), hostile(seed), 1, &plans[..2]);
    }
}

/// No partition lies across a multiple of 2^20 coordinates.
#[test]
fn spans_are_cut_at_multiples_of_the_largest_partition() {
    let tables = tables();
    let mut job = job(&tables, Policy::Reliable);
    job.welcome.block = 20;
    job.welcome.data_slots = 512;
    job.config.data_slots = 512;
    let plan = [
        Span { length: (1 << 20) - 3000, choice: Choice::Table(TableId(10)) },
        Span { length: 7000, choice: Choice::Table(TableId(99)) },
    ];
    run(job, quiet(), 1, &[plan.to_vec(), plan.to_vec()]);
}

/// What is lost under best-effort comes back with the next call, whatever it travels as.
#[test]
fn what_is_lost_returns_to_error_feedback() {
    let tables = tables();
    let choices: Vec<Choice> = tables.iter().map(|table| Choice::Table(table.id)).collect();
    let plan = spans(&[4096; 12], &choices);
    let lossy = SimConfig { loss: 0.05, ..quiet() };
    let mut job = job(&tables, Policy::BestEffort);
    job.welcome.deadline = Duration::from_micros(300);
    let mut world = World::new(job, lossy);
    let data = gradients(WORKERS.into(), 12 * 4096, 5);
    let mean = crate::world::exact_mean(&data);
    let (mut total, mut last) = (vec![0f64; mean.len()], 0.0);
    for number in 1..=24 {
        let mut out = data.clone();
        let call = Call { plan: Plan::Spans(&plan), feedback: Some(7) };
        for outcome in world.allreduce(&mut out, &[call; WORKERS as usize], |_, _| {}) {
            outcome.unwrap();
        }
        total.iter_mut().zip(&out[0]).for_each(|(sum, x)| *sum += f64::from(*x));
        last =
            total.iter().zip(&mean).map(|(sum, x)| (sum / f64::from(number) - f64::from(*x)).powi(2)).sum();
    }
    assert!(world.engines.iter().map(|engine| engine.stats().lost).sum::<u64>() > 0);
    let norm: f64 = mean.iter().map(|x| f64::from(*x).powi(2)).sum();
    assert!(last / norm < 0.05, "NMSE of the average of 24 calls: {}", last / norm);
}

#[test]
fn plans_that_make_no_sense_are_errors_in_one_line() {
    let mut world = World::new(job(&tables(), Policy::Reliable), quiet());
    let engine = &mut world.engines[0];
    let mut said = |lengths: &[usize], choices: &[Choice]| {
        let error = engine
            .submit(10, Call { plan: Plan::Spans(&spans(lengths, choices)), feedback: None })
            .unwrap_err()
            .to_string();
        assert!(!error.contains('\n'));
        error
    };
    assert!(
        said(&[4, 5], &[Choice::Raw; 2])
            .starts_with("the plan's spans have 9 coordinates together, the tensor has 10")
    );
    assert!(said(&[usize::MAX, 11], &[Choice::Raw; 2]).contains("the tensor has 10"));
    assert!(said(&[4, 0, 6], &[Choice::Raw; 3]).starts_with("span 1 of the plan"));
    let lacks = said(&[10], &[Choice::Table(TableId(77))]);
    assert!(
        lacks.starts_with("the job has no table 77: its tables are 10, 11, ") && lacks.ends_with("\"raw\""),
        "{lacks}"
    );
}

/// Ranks that plan differently are told at once, whether they differ in a choice, in where spans end, or in that alone, which
/// shows in no field of a NORM that they all send.
#[test]
fn different_plans_are_a_mismatch() {
    let (a, b) = (Choice::Table(TableId(10)), Choice::Table(TableId(99)));
    let plan = spans(&[1000, 3000], &[a, b]);
    let one = spans(&[4096], &[a]);
    for (plan, other) in [
        (&plan, spans(&[1000, 3000], &[a, Choice::Raw])),
        (&plan, spans(&[1000, 3000], &[b, a])),
        (&plan, spans(&[3000, 1000], &[a, b])),
        (&plan, spans(&[1000, 2000, 1000], &[a, b, b])),
        (&plan, spans(&[1001, 2999], &[a, b])),
        (&one, spans(&[2048, 2048], &[a, a])),
        (&one, spans(&[3072, 1024], &[a, a])),
    ] {
        let mut world = World::new(job(&tables(), Policy::Reliable), quiet());
        let length = plan.iter().map(|span| span.length).sum();
        let mut data = gradients(WORKERS.into(), length, 1);
        let (begin, plan) = (world.net.now(), &plan[..]);
        let calls = [plan, plan, &other[..]].map(|plan| Call { plan: Plan::Spans(plan), feedback: None });
        for outcome in world.allreduce(&mut data, &calls, |_, _| {}) {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, WorkerError::Session(SessionError::Mismatch { .. })),
                "{other:?}: {error}"
            );
        }
        // Long before anybody repeats anything.
        assert!(world.net.now() - begin < Duration::from_millis(5), "{other:?}");
    }
}
