//! What it costs to hold a rotation for several rounds, which would let error feedback stay in the rotated
//! domain and save one of three transforms (docs/architecture.md has the outcome).
//!
//! Four workers reduce gradients that change slowly from round to round, with error feedback, with signs that
//! change every `held` rounds. Printed: the NMSE of single rounds, and of the sum over all rounds, in which error
//! feedback makes up for what single rounds lose.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Rounding;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{CodecError, norm, rht};

const D: usize = 1 << 14;
const WORKERS: usize = 4;
const ROUNDS: u64 = 256;

fn main() -> Result<(), CodecError> {
    println!("{:>22} {:>6} {:>16} {:>16}", "table", "held", "NMSE of a round", "NMSE of the sum");
    for (bits, granularity, fraction) in [(4, 30, 1.0 / 32.0), (2, 20, 1.0 / 32.0)] {
        let table = LookupTable::solve(bits, granularity, fraction)?;
        for held in [1, 4, 16, 64, ROUNDS] {
            let (round, sum) = train(&table, held)?;
            println!(
                "{:>22} {held:>6} {round:>16.5} {sum:>16.3e}",
                format!("b={bits} g={granularity} p=1/32")
            );
        }
    }
    Ok(())
}

fn train(table: &LookupTable, held: u64) -> Result<(f64, f64), CodecError> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let quantizer = Quantizer::new(table);
    let mut normal = move || (0..4).map(|_| random.random::<f32>() - 0.5).sum::<f32>();
    // Heavy tails, as gradients have them.
    let common: Vec<f32> = (0..D).map(|_| normal().powi(3)).collect();
    let mut feedback = vec![vec![0f32; D]; WORKERS];
    let (mut exact_sum, mut estimate_sum) = (vec![0f64; D], vec![0f64; D]);
    let mut single = 0.0;
    for round in 0..ROUNDS {
        let x: Vec<Vec<f32>> = feedback
            .iter()
            .map(|e| common.iter().zip(e).map(|(c, e)| c + 0.3 * normal().powi(3) + e).collect())
            .collect();
        let key = SignKey { job_seed: 5, call: round / held, partition: 0 };
        let largest = x.iter().map(|x| norm::l2(x)).fold(0f32, f32::max);
        let range = (table.t_p() / (D as f64).sqrt()) as f32 * largest;
        let mut estimate = vec![0f64; D];
        for (w, (x, e)) in x.iter().zip(&mut feedback).enumerate() {
            let mut rotated = x.clone();
            rht::forward(&mut rotated, key)?;
            let mut indices = vec![0; D];
            quantizer.quantize(&mut rotated, range, &Rounding::new(w as u64, round, 0), 0, &mut indices)?;
            rht::inverse(&mut rotated, key)?;
            for i in 0..D {
                let gradient = f64::from(x[i]) - f64::from(e[i]);
                exact_sum[i] += gradient / WORKERS as f64;
                estimate[i] += f64::from(x[i] - rotated[i]) / WORKERS as f64;
            }
            e.copy_from_slice(&rotated);
        }
        let mean = |i: usize| x.iter().map(|x| f64::from(x[i])).sum::<f64>() / WORKERS as f64;
        let error: f64 = (0..D).map(|i| (mean(i) - estimate[i]).powi(2)).sum();
        single += error / (0..D).map(|i| mean(i).powi(2)).sum::<f64>() / ROUNDS as f64;
        estimate_sum.iter_mut().zip(&estimate).for_each(|(s, e)| *s += e);
    }
    let error: f64 = exact_sum.iter().zip(&estimate_sum).map(|(a, b)| (a - b).powi(2)).sum();
    Ok((single, error / exact_sum.iter().map(|a| a * a).sum::<f64>()))
}
