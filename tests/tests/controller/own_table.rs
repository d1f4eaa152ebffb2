//! A job with a lookup table of its own: over a thc-ps that is configured by hand, and through the controller on each kind of target, workers
//! end with the mean that the codec's definitions give.

use super::site::Site;
use super::{reference_of, section};
use thc_codec::quantizer::Quantizer;
use thc_codec::rounding::Source;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};
use thc_tests::{COOKIE_NUMBER, gradient};
use tonic::Code;

/// Ends where the table of `Ps::start` does, and has other values between.
const VALUES: [u8; 16] = [0, 1, 2, 4, 7, 10, 12, 14, 16, 18, 20, 23, 26, 28, 29, 30];
const SEED: u64 = 77;
/// One block.
const COORDINATES: usize = 1 << 13;

/// The mean of two workers' first call.
fn model() -> Vec<u8> {
    let table = LookupTable::from_values(&VALUES, 1.0 / 32.0).unwrap();
    let quantizer = Quantizer::new(&table);
    let key = SignKey { job_seed: SEED, call: 0, partition: 0 };
    let inputs: Vec<Vec<f32>> = (0..2).map(|worker| gradient(COORDINATES, worker)).collect();
    let zeros = vec![0.0; COORDINATES];
    let largest = inputs.iter().map(|x| norm::l2_sum(x, &zeros)).fold(0.0, f32::max);
    let range = (table.t_p() / (COORDINATES as f64).sqrt() * f64::from(largest)) as f32;
    let mut sums = vec![0u32; COORDINATES];
    for (worker, mut x) in (0..).zip(inputs) {
        rht::forward(&mut x, key).unwrap();
        let mut indices = vec![0; COORDINATES];
        let rounding = Source::for_worker(SEED, worker).rounding(0, 0);
        quantizer.quantize(&mut x, range, &rounding, 0, &mut indices).unwrap();
        sums.iter_mut().zip(indices).for_each(|(sum, z)| *sum += u32::from(VALUES[usize::from(z)]));
    }
    let step = (2.0 * f64::from(range) / 60.0) as f32;
    let mut mean: Vec<f32> = sums.iter().map(|&sum| sum as f32 * step + -range).collect();
    rht::inverse(&mut mean, key).unwrap();
    mean.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn own_table(site: &mut Site) {
    let expected = model();
    let numbers = VALUES.map(|value| value.to_string()).join(",");
    let (seed, values) = (SEED.to_string(), format!("table = [{numbers}]"));
    assert!(reference_of(COORDINATES, &[], &[]) != expected, "the solved table is another one");
    let by_hand = super::reference_with(COORDINATES, &["--table", &numbers, "--seed", &seed], &[]);
    assert!(by_hand == expected, "thc-ps with a table of the job's own");
    let keys = |table: &str| {
        format!(
            "job = 1\ncookie = {COOKIE_NUMBER}\nworkers = 2\nseed = \"{SEED}\"\nfraction = \"1/32\"\n{table}"
        )
    };
    let job = site.create(&section("own", &keys(&values))).unwrap();
    assert!(site.all_reduce(COORDINATES, &[]).iter().all(|mean| *mean == expected), "{}", job.section);
    assert_eq!(site.rows_of(0, "lookup"), 1);
    site.delete("own").unwrap();
    for (table, says) in [
        ("table = [0, 1, 1, 2]", "job own: table is [0, 1, 1, 2]: values must increase, and 1 follows 1"),
        ("method = \"thc-paper\"\nbits = 3", "bits is 3: method = thc-paper fixes bits = 4"),
    ] {
        let refused = site.create(&section("own", &keys(table))).unwrap_err();
        assert!(refused.code() == Code::InvalidArgument && refused.message().contains(says), "{refused}");
    }
    // The published method, and what the job shows of it.
    let job = site.create(&section("published", &keys("method = \"thc-paper\""))).unwrap();
    for key in ["method = \"thc-paper\"", "granularity = 30", "block = 20"] {
        assert!(job.section.contains(key), "{}", job.section);
    }
    site.all_reduce(20_000, &["--method", "thc-paper"]);
    site.delete("published").unwrap();
}
