//! What compression costs a core, by scheme: measured by `thc papers --costs`, and kept here as constants, so that what is
//! computed from them is the same on every machine.

use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use thc_baselines::{Message, Participant};
use thc_bench::{median, thread_time};

use super::schemes::Named;
use crate::charts::Table;
use crate::error::Result;

/// Coordinates of a partition of BytePS: 4 MiB.
pub const PARTITION: usize = 1 << 20;
/// Workers of the testbed.
pub const WORKERS: u32 = 4;

/// Nanoseconds a coordinate, of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub scheme: Named,
    /// A worker's message, its mean of the result, and whatever it learns from that.
    pub worker: f64,
    /// The server's part for each message.
    pub decode: f64,
    /// The server's part for each result.
    pub encode: f64,
}

const fn cost(scheme: Named, worker: f64, decode: f64, encode: f64) -> Cost {
    Cost { scheme, worker, decode, encode }
}

/// TopK and DGC of a tenth, and QSGD with as many bits as THC has.
pub const TOP_K: Named = Named::TopK { inverse: 10, down: 10 };
pub const QSGD: Named = Named::Qsgd { up: 4, down: 8 };

/// Medians of a release build on a core of an Intel Xeon that other work shared, in the thread's own time. No compression sends and adds floats
/// as they are; THC has the costs of worker and server in `thc simulate`, whose kernels do that work in earnest. The others are the plain code of
/// thc-baselines, in which packing a field takes 4 to 11 ns.
pub const COSTS: [Cost; 6] = [
    cost(Named::Exact, 0.0, 0.95, 0.0),
    cost(Named::THC, 0.99, 0.15, 0.15),
    cost(TOP_K, 10.0, 1.55, 6.08),
    cost(Named::Dgc, 11.4, 1.17, 6.56),
    cost(Named::TernGrad, 19.6, 0.28, 4.70),
    cost(QSGD, 16.9, 12.5, 7.41),
];

/// The cost of a scheme; nothing where it was not measured.
pub fn cost_of(scheme: Named) -> Cost {
    let known = COSTS.iter().find(|cost| cost.scheme == scheme);
    known.copied().unwrap_or(cost(scheme, 0.0, 0.0, 0.0))
}

/// How often each is measured.
const TIMES: usize = 7;

/// Nanoseconds a coordinate that this took.
fn coordinate_time(began: Duration) -> f64 {
    (thread_time() - began).as_secs_f64() * 1e9 / PARTITION as f64
}

/// Measures a scheme on this core.
fn measure(scheme: Named) -> Result<Cost> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let normal = LogNormal::new(0.0, 1.0).map_err(|error| crate::error::Error::Failure(error.to_string()))?;
    let made = scheme.scheme()?;
    let mut gradient = || -> Vec<f32> {
        (0..PARTITION).map(|i| normal.sample(&mut random) * if i % 2 == 0 { 1.0 } else { -1.0 }).collect()
    };
    let gradients: Vec<Vec<f32>> = (0..WORKERS).map(|_| gradient()).collect();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(made.worker(Participant::worker(PARTITION, WORKERS, number, 1))?);
    }
    let mut server = made.server(Participant::server(PARTITION, WORKERS, 1))?;
    let (mut of_worker, mut one, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let mut announced = Vec::new();
        let mut spent = 0.0;
        for (number, (worker, gradient)) in workers.iter_mut().zip(&gradients).enumerate() {
            let began = thread_time();
            announced.push(worker.announce(gradient)?);
            spent += if number == 0 { coordinate_time(began) } else { 0.0 };
        }
        let agreed = server.agree(&announced)?;
        let mut messages: Vec<Message> = Vec::new();
        for (number, (worker, gradient)) in workers.iter_mut().zip(&gradients).enumerate() {
            let began = thread_time();
            messages.push(worker.compress(gradient, &agreed)?);
            spent += if number == 0 { coordinate_time(began) } else { 0.0 };
        }
        let began = thread_time();
        std::hint::black_box(server.aggregate(&messages[..1])?);
        one.push(coordinate_time(began));
        let began = thread_time();
        let result = server.aggregate(&messages)?;
        all.push(coordinate_time(began));
        let began = thread_time();
        std::hint::black_box(workers[0].decompress(&result, WORKERS)?);
        workers[0].learn(&result, WORKERS)?;
        of_worker.push(spent + coordinate_time(began));
        for worker in &mut workers[1..] {
            worker.learn(&result, WORKERS)?;
        }
    }
    let (one, all) = (median(one), median(all));
    let decode = ((all - one) / f64::from(WORKERS - 1)).max(0.0);
    Ok(Cost { scheme, worker: median(of_worker), decode, encode: (one - decode).max(0.0) })
}

/// Measures all schemes: nanoseconds a coordinate on this core, beside those that figures are computed with.
pub fn table() -> Result<Table> {
    let header = ["scheme", "worker, ns", "decode, ns", "encode, ns", "kept: worker", "decode", "encode"];
    let mut rows = Vec::new();
    for kept in COSTS {
        let found = measure(kept.scheme)?;
        let numbers = [found.worker, found.decode, found.encode, kept.worker, kept.decode, kept.encode];
        rows.push(
            std::iter::once(kept.scheme.label())
                .chain(numbers.iter().map(|number| format!("{number:.3}")))
                .collect(),
        );
    }
    Ok(Table::new(&header, rows))
}
