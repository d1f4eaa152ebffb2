//! What sums cost on their way down, in bytes and in error: in lanes of 8 bits, packed at fewer (P44), told in 4 bits (P45), and in the
//! ways of telling them in 4 that P45 is not: to the nearest, by chance, and with error feedback of the server's own.
//! docs/measuring.md has the tables.
//!
//! `cargo run --release -p thc-studies --example narrow_sums`

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use thc_codec::quantizer::Quantizer;
use thc_codec::requantize::{self, GROUP, told_len};
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::{LookupTable, choose};
use thc_codec::{CodecError, norm, rht};

/// Coordinates of a block, and of a gradient.
const BLOCK: usize = 1 << 13;
/// Coordinates of a packet.
const PACKET: usize = 1024;
/// Headers of a packet, from IPv4 on.
const HEADERS: f64 = 48.0;
/// Calls whose means are added up, and what stays of the gradient's common part from one to the next.
const CALLS: [usize; 3] = [1, 10, 100];
const STAYS: f32 = 0.99;
/// Samples of the training, of each worker's batch, steps, and how often the loss is taken.
const SAMPLES: usize = 4096;
const BATCH: usize = 32;
const STEPS: u64 = 600;
const EVERY: u64 = 10;
const RATE: f32 = 2.0;

/// What the sums become.
#[derive(Clone, Copy, PartialEq)]
enum Down {
    /// Themselves, in so many bits.
    Sums(u8),
    /// Told in 4 bits (P45).
    Told,
    /// 4 bits, to the nearest of 16 in the range of each group.
    Nearest,
    /// The same by chance.
    Chance,
    /// To the nearest, and the server adds what is lost to its next sums.
    Feedback,
}

struct Way {
    name: String,
    table: LookupTable,
    down: Down,
    /// Whether all calls have the same signs, which a server's feedback would need in order not to transform what it keeps.
    fixed: bool,
}

impl Way {
    /// Bytes up and down for each coordinate.
    fn bytes(&self) -> (f64, f64) {
        let of = |bits: f64| (bits * PACKET as f64 / 8.0 + HEADERS) / PACKET as f64;
        match self.down {
            Down::Sums(bits) => (of(4.0), of(bits.into())),
            _ => (of(4.0), (HEADERS + (PACKET / GROUP * told_len(8)) as f64) / PACKET as f64),
        }
    }
}

/// The best table of 4 bits whose sums of `workers` fit so many bits, if there is one.
fn best(bits: u8, workers: u8) -> Option<LookupTable> {
    if bits == 8 {
        return choose(4, 8, workers.into()).ok().map(|choice| choice.table);
    }
    let most = ((1u32 << bits) - 1) / u32::from(workers);
    let tables = (15..=most as u16)
        .flat_map(|g| (0..48).filter_map(move |i| LookupTable::solve(4, g, 0.25 * 0.85f64.powi(i)).ok()));
    let error = |t: &LookupTable| t.quantization_error() / f64::from(workers) + t.truncation_error();
    tables.min_by(|a, b| error(a).total_cmp(&error(b)))
}

/// A job's workers and its server, which remember what rounding has lost.
struct Job {
    quantizer: Quantizer,
    table: LookupTable,
    down: Down,
    fixed: bool,
    lost: Vec<Vec<f32>>,
    lost_below: Vec<f32>,
    round: u64,
}

impl Job {
    fn new(way: &Way, workers: u8, length: usize) -> Result<Job, CodecError> {
        Ok(Job {
            quantizer: Quantizer::new(&way.table),
            table: way.table.clone(),
            down: way.down,
            fixed: way.fixed,
            lost: vec![vec![0.0; length]; workers.into()],
            lost_below: vec![0.0; length],
            round: 0,
        })
    }

    /// The estimate of the gradients' mean.
    fn mean(&mut self, gradients: &[Vec<f32>]) -> Result<Vec<f32>, CodecError> {
        let n = gradients.len();
        let mut mean = vec![0.0; gradients[0].len()];
        for (index, part) in (0u32..).zip(0..mean.len() / BLOCK) {
            let range = part * BLOCK..(part + 1) * BLOCK;
            let call = if self.fixed { 0 } else { self.round };
            let key = SignKey { job_seed: 7, call, partition: index };
            let own = |worker: usize| -> Vec<f32> {
                let pairs = gradients[worker][range.clone()].iter().zip(&self.lost[worker][range.clone()]);
                pairs.map(|(g, e)| g + e).collect()
            };
            let mut all: Vec<Vec<f32>> = (0..n).map(own).collect();
            let largest = all.iter().map(|x| norm::l2(x)).fold(0.0, f32::max);
            let m = (self.table.t_p() / (BLOCK as f64).sqrt() * f64::from(largest)) as f32;
            let step = 2.0 * m / f32::from(self.table.granularity());
            let mut sums = vec![0.0f32; BLOCK];
            let mut indices = vec![0u8; BLOCK];
            for (worker, x) in all.iter_mut().enumerate() {
                rht::forward(x, key)?;
                let rounding = Rounding::new(100 + worker as u64, self.round, index);
                self.quantizer.quantize(x, m, &rounding, 0, &mut indices)?;
                let values = self.table.values();
                sums.iter_mut().zip(&indices).for_each(|(sum, &z)| *sum += f32::from(values[usize::from(z)]));
                rht::inverse_into(x, &mut self.lost[worker][range.clone()], key)?;
            }
            match self.down {
                Down::Sums(_) => {}
                Down::Told => tell(&mut sums, (self.round as u32, index as u16))?,
                _ => self.round_again(&mut sums, step / n as f32, range.clone(), key)?,
            }
            sums.iter_mut().for_each(|sum| *sum = *sum * step / n as f32 - m);
            rht::inverse_into(&mut sums, &mut mean[range], key)?;
        }
        self.round += 1;
        Ok(mean)
    }

    /// In groups with a range of their own, as P45 has them. What the server keeps is a gradient's, `unit` to a sum's step: signs, norms
    /// and so the grid are others in each call.
    fn round_again(
        &mut self,
        sums: &mut [f32],
        unit: f32,
        range: std::ops::Range<usize>,
        key: SignKey,
    ) -> Result<(), CodecError> {
        let mut lost = self.lost_below[range.clone()].to_vec();
        rht::forward(&mut lost, key)?;
        if self.down == Down::Feedback {
            sums.iter_mut().zip(&lost).for_each(|(sum, lost)| *sum += lost / unit);
        }
        let rounding = Rounding::new(99, self.round, key.partition);
        for (group, (sums, lost)) in (0u64..).zip(sums.chunks_mut(GROUP).zip(lost.chunks_mut(GROUP))) {
            let lo = sums.iter().copied().fold(f32::MAX, f32::min);
            let d = (sums.iter().copied().fold(f32::MIN, f32::max) - lo) / 15.0;
            for (i, (sum, lost)) in (0u64..).zip(sums.iter_mut().zip(lost)) {
                let at = if d == 0.0 { 0.0 } else { (*sum - lo) / d };
                let draw = if self.down == Down::Chance { rounding.uniform(group * 64 + i) } else { 0.5 };
                let told = lo + (at + draw).floor() * d;
                (*sum, *lost) = (told, (*sum - told) * unit);
            }
        }
        rht::inverse_into(&mut lost, &mut self.lost_below[range], key)
    }
}

/// What workers take for these sums when they are told (P45), all of a block as if one slot had them.
fn tell(sums: &mut [f32], (round, slot): (u32, u16)) -> Result<(), CodecError> {
    let key = requantize::key(1, round, slot);
    let mut lanes: Vec<u8> = sums.iter().map(|&sum| sum as u8).collect();
    requantize::requantize(8, key, &mut lanes)?;
    let told = lanes[..lanes.len() / GROUP * told_len(8)].to_vec();
    requantize::restore(8, key, &told, &mut lanes)?;
    sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum = lane.into());
    Ok(())
}

fn normal(random: &mut ChaCha8Rng, length: usize) -> Vec<f32> {
    (0..length).map(|_| StandardNormal.sample(random)).collect()
}

fn squares(x: impl Iterator<Item = f32>) -> f64 {
    x.map(|x| f64::from(x).powi(2)).sum()
}

/// ‖estimate − mean‖² / ‖mean‖² of the sum of so many all-reduces as [`CALLS`] says. Half of a gradient is what all workers have in common,
/// which drifts; coordinates are normal, or, `heavy`, of very different sizes.
fn errors(way: &Way, workers: u8, heavy: bool) -> Result<Vec<f64>, CodecError> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let length = 2 * BLOCK;
    let size = |z: f32| if heavy { (1.5 * z).exp() } else { 1.0 };
    let sizes: Vec<f32> = normal(&mut random, length).into_iter().map(size).collect();
    let sized = |random: &mut ChaCha8Rng| -> Vec<f32> {
        normal(random, length).iter().zip(&sizes).map(|(x, size)| x * size).collect()
    };
    let mut common = sized(&mut random);
    let mut job = Job::new(way, workers, length)?;
    let (mut total, mut exact) = (vec![0.0f32; length], vec![0.0f32; length]);
    let mut found = Vec::new();
    for call in 1..=CALLS[2] {
        let fresh = sized(&mut random);
        let drift = (1.0 - STAYS * STAYS).sqrt();
        common.iter_mut().zip(fresh).for_each(|(common, x)| *common = STAYS * *common + drift * x);
        let own = |random: &mut ChaCha8Rng| -> Vec<f32> {
            sized(random).iter().zip(&common).map(|(own, common)| own + common).collect()
        };
        let gradients: Vec<Vec<f32>> = (0..workers).map(|_| own(&mut random)).collect();
        let estimate = job.mean(&gradients)?;
        total.iter_mut().zip(&estimate).for_each(|(total, x)| *total += x);
        exact.iter_mut().enumerate().for_each(|(i, exact)| {
            *exact += gradients.iter().map(|g| g[i]).sum::<f32>() / f32::from(workers);
        });
        if CALLS.contains(&call) {
            let error = squares(total.iter().zip(&exact).map(|(a, b)| a - b));
            found.push(error / squares(exact.iter().copied()));
        }
    }
    Ok(found)
}

/// Logistic regression on samples that a hidden vector labels: a number of features that matter less and less.
struct Training {
    features: Vec<Vec<f32>>,
    labels: Vec<f32>,
}

impl Training {
    fn new() -> Training {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let hidden = normal(&mut random, BLOCK);
        let feature = |random: &mut ChaCha8Rng| -> Vec<f32> {
            normal(random, BLOCK).iter().zip(1u32..).map(|(x, i)| x / (i as f32).powf(0.4)).collect()
        };
        let features: Vec<Vec<f32>> = (0..SAMPLES).map(|_| feature(&mut random)).collect();
        let label = |x: &Vec<f32>| if dot(x, &hidden) > 0.0 { 1.0 } else { 0.0 };
        let labels = features.iter().map(label).collect();
        Training { features, labels }
    }

    fn gradient(&self, weights: &[f32], random: &mut ChaCha8Rng) -> Vec<f32> {
        let mut gradient = vec![0.0; BLOCK];
        for _ in 0..BATCH {
            let sample = random.random_range(0..SAMPLES);
            let x = &self.features[sample];
            let error = (1.0 / (1.0 + (-dot(x, weights)).exp()) - self.labels[sample]) / BATCH as f32;
            gradient.iter_mut().zip(x).for_each(|(g, x)| *g += error * x);
        }
        gradient
    }

    fn loss(&self, weights: &[f32]) -> f64 {
        let of = |(x, &label): (&Vec<f32>, &f32)| {
            let z = f64::from(dot(x, weights));
            (1.0 + z.exp()).ln() - f64::from(label) * z
        };
        self.features.iter().zip(&self.labels).map(of).sum::<f64>() / SAMPLES as f64
    }

    /// The losses at every so-many-th step; without a way by exact means.
    fn run(&self, way: Option<&Way>, workers: u8) -> Result<Vec<f64>, CodecError> {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut job = way.map(|way| Job::new(way, workers, BLOCK)).transpose()?;
        let mut weights = vec![0.0f32; BLOCK];
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let gradients: Vec<_> = (0..workers).map(|_| self.gradient(&weights, &mut random)).collect();
            let mean = match &mut job {
                Some(job) => job.mean(&gradients)?,
                None => (0..BLOCK)
                    .map(|i| gradients.iter().map(|g| g[i]).sum::<f32>() / f32::from(workers))
                    .collect(),
            };
            weights.iter_mut().zip(&mean).for_each(|(w, g)| *w -= RATE * g);
            if (step + 1) % EVERY == 0 {
                losses.push(self.loss(&weights));
            }
        }
        Ok(losses)
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let lanes = a.chunks_exact(8).zip(b.chunks_exact(8));
    let sums = lanes.fold([0.0f32; 8], |mut sums, (a, b)| {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
        sums
    });
    sums.iter().sum()
}

/// All ways of so many workers.
fn ways(workers: u8) -> Vec<Way> {
    let mut ways = Vec::new();
    for bits in [8, 7, 6] {
        if let Some(table) = best(bits, workers) {
            ways.push(Way { name: format!("{bits} bits"), table, down: Down::Sums(bits), fixed: false });
        }
    }
    let Some(table) = best(8, workers) else { return ways };
    for (name, down, fixed) in [
        ("4 bits, told (P45)", Down::Told, false),
        ("4 bits, to the nearest", Down::Nearest, false),
        ("4 bits, by chance", Down::Chance, false),
        ("4 bits with feedback", Down::Feedback, false),
        ("8 bits, the same signs", Down::Sums(8), true),
        ("4 bits with feedback, the same signs", Down::Feedback, true),
    ] {
        ways.push(Way { name: name.to_owned(), table: table.clone(), down, fixed });
    }
    ways
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("NMSE of the sum of {CALLS:?} means: normal coordinates, coordinates of different sizes");
    for workers in [2u8, 4, 8, 16] {
        for way in ways(workers) {
            print!("{workers:>2} {:<38} g = {:>3}", way.name, way.table.granularity());
            for heavy in [false, true] {
                errors(&way, workers, heavy)?.iter().for_each(|error| print!(" {error:>10.6}"));
            }
            println!();
        }
    }
    let training = Training::new();
    for workers in [4u8, 8] {
        let exact = training.run(None, workers)?;
        let target = exact[exact.len() * 4 / 5];
        println!("{workers} workers; loss {target:.4} takes {} steps of exact means", STEPS * 4 / 5 + EVERY);
        println!(
            "{:<38} {:>7} {:>7} {:>9} {:>6} {:>6} {:>8}",
            "down", "up", "down", "bytes", "steps", "time", "last"
        );
        let mut usual = None;
        for way in ways(workers).iter().filter(|way| !way.fixed) {
            let (up, down) = way.bytes();
            let losses = training.run(Some(way), workers)?;
            let steps = losses.iter().position(|&loss| loss <= target).map(|i| (i as u64 + 1) * EVERY);
            let time = steps.map(|steps| steps as f64 * (up + down));
            let (bytes_before, time_before) = *usual.get_or_insert((up + down, time));
            let ratio = time.zip(time_before).map(|(time, before)| format!("{:.2}", time / before));
            println!(
                "{:<38} {up:>7.3} {down:>7.3} {:>9.3} {:>6} {:>6} {:>8.4}",
                way.name,
                (up + down) / bytes_before,
                steps.map_or("-".to_owned(), |steps| steps.to_string()),
                ratio.unwrap_or("-".to_owned()),
                losses.last().copied().unwrap_or(f64::NAN),
            );
        }
    }
    Ok(())
}
