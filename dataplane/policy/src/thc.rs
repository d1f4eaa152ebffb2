//! The cost and the error of THC with a lookup table, in closed form.
//!
//! After the rotation a layer's coordinates are close to normal (paper, section 4.2), so the share that a table loses of
//! them does not depend on the layer: its error is ‖x‖² times a constant of the table. Therefore a table of errors needs
//! one norm per layer, and no trial compression.
//!
//! The model has limits. Partitions of few non-zero coordinates are not normal after the rotation (a single one becomes
//! ±‖x‖/√d everywhere). If norms differ between workers, the range follows from the largest norm, so that the steps of
//! other workers are coarser than necessary. Padding, at most 1023 coordinates, carries a share of the last
//! partition's error away.

use crate::error::{AdaptError, check};
use thc_codec::partition;
use thc_codec::table::LookupTable;

/// Bytes of a packet's IPv4, UDP and THC headers.
const HEADERS: f64 = 20.0 + 8.0 + 20.0;
/// Bytes of the payload of NORM and NORM_RESULT.
const NORM: f64 = 20.0;
/// Bytes of the payload of a RESULT.
const RESULT: f64 = 1024.0;
/// Coordinates of a RAW packet.
const RAW: f64 = 256.0;

/// The bytes that a worker sends and receives for a tensor, headers from IPv4 on included.
///
/// `index_bits` and `lane_bits` are the bits of an index and of a sum on the wire. A packet has 1024 coordinates, or 512
/// with sums of 16 bits. `block` is log₂ of a full partition.
///
/// # Errors
/// [`AdaptError::Parameter`] unless an index has 1, 2, 3, 4 or 8 bits and a sum has 4, 8 or 16.
pub fn bytes(coordinates: usize, index_bits: u8, lane_bits: u8, block: u8) -> Result<f64, AdaptError> {
    if ![1, 2, 3, 4, 8].contains(&index_bits) {
        let value = f64::from(index_bits);
        return Err(AdaptError::Parameter { what: "the bits of an index", value, range: "1, 2, 3, 4 or 8" });
    }
    if ![4, 8, 16].contains(&lane_bits) {
        let value = f64::from(lane_bits);
        return Err(AdaptError::Parameter { what: "the bits of a sum", value, range: "4, 8 or 16" });
    }
    let per_packet = if lane_bits == 16 { 512.0 } else { 1024.0 };
    let data = 2.0 * HEADERS + per_packet * f64::from(index_bits + lane_bits) / 8.0;
    let total = partition::split(coordinates, block)
        .map(|part| 2.0 * (HEADERS + NORM) + (part.padded as f64 / per_packet).ceil() * data);
    Ok(total.sum())
}

/// The bytes that a worker sends and receives for a tensor as 32-bit integers (P32), headers included. `block` is log₂ of
/// a full partition.
#[must_use]
pub fn raw_bytes(coordinates: usize, block: u8) -> f64 {
    let packets = |part: partition::Partition| (part.padded as f64 / RAW).ceil();
    partition::split(coordinates, block)
        .map(|part| 2.0 * (HEADERS + NORM) + packets(part) * 2.0 * (HEADERS + RESULT))
        .sum()
}

/// The mean squared error of the mean of `workers` gradients of equal norm, divided by the square of that norm.
///
/// Errors of rounding are independent between workers, so they fall with the number of workers. Errors of truncation are
/// the same on all workers where their gradients agree, so they stay. Between unrelated gradients errors of truncation
/// fall too, and this function is an upper bound.
#[must_use]
pub fn nmse(table: &LookupTable, workers: u8) -> f64 {
    table.quantization_error() / f64::from(workers.max(1)) + table.truncation_error()
}

/// The residual ω that a table leaves of one worker's gradient: the squared norm of its rounding and truncation errors,
/// divided by that of the gradient.
///
/// Error feedback adds the residual to the next gradient. With unrelated gradients ‖e‖² becomes ω(‖x‖² + ‖e‖²) in each step.
/// It converges to ω / (1 − ω) gradients, and from ω = 1 on it grows without end. A policy should choose no table with ω
/// above one half: up to there error feedback is no more than one gradient. A worker whose norm is √½ of the largest one
/// loses twice as much of its own gradient, because the largest norm decides the range, and is still below 1. Tables of
/// one bit chosen for 3 workers or more leave more (for 10 or more, above 1), because averaging over workers reduces
/// errors of rounding but not each worker's own error feedback. Tables of two bits and more never do.
#[must_use]
pub fn residual(table: &LookupTable) -> f64 {
    nmse(table, 1)
}

/// The errors of one layer by choice of table, as squared L2 norms. They are one row of a
/// [`Problem`](crate::layerwise::Problem).
///
/// # Errors
/// [`AdaptError::Value`] for a norm that is negative or not finite.
pub fn errors(norm: f64, tables: &[LookupTable], workers: u8) -> Result<Vec<f64>, AdaptError> {
    let norm = check("the norm", || "the layer".to_owned(), norm)?;
    Ok(tables.iter().map(|table| norm * norm * nmse(table, workers)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_codec::norm;
    use thc_codec::quantizer::{Quantizer, dequantize8};
    use thc_codec::rht;
    use thc_codec::rounding::Rounding;
    use thc_codec::signs::{SignKey, mix};

    /// A log-normal or normal gradient of a layer whose scale varies along it.
    fn gradient(len: usize, seed: u64, log_normal: bool) -> Vec<f32> {
        let uniform = |i: u64| ((mix(seed.wrapping_add(i)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let normal =
            |i: u64| (-2.0 * uniform(2 * i).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos();
        let value = |i: u64| {
            let z = normal(i);
            let scale = 1.0 + 5.0 * (i as f64 / len as f64);
            let sign = if mix(!seed ^ i) & 1 == 0 { 1.0 } else { -1.0 };
            (scale * if log_normal { sign * z.exp() } else { z }) as f32
        };
        (0..len as u64).map(value).collect()
    }

    /// ‖x − mean of the workers' estimates‖² / ‖x‖², where all workers have the same gradient.
    fn sampled_nmse(table: &LookupTable, x: &[f32], workers: u8, seed: u64) -> f64 {
        let key = SignKey { job_seed: seed, call: 1, partition: 0 };
        let quantizer = Quantizer::new(table);
        let d = x.len();
        let range = table.t_p() as f32 * rht::scale(d) * norm::l2(x);
        let mut mean = vec![0.0f32; d];
        for worker in 0..workers {
            let mut rotated = x.to_vec();
            rht::forward(&mut rotated, key).unwrap();
            let rounding = Rounding::new(seed ^ u64::from(worker) << 32, 1, 0);
            let mut indices = vec![0; d];
            quantizer.quantize(&mut rotated, range, &rounding, 0, &mut indices).unwrap();
            let sums: Vec<u8> = indices.iter().map(|&i| table.values16()[usize::from(i)]).collect();
            let mut estimate = vec![0.0; d];
            dequantize8(&sums, 1, table.granularity().into(), range, &mut estimate).unwrap();
            mean.iter_mut().zip(&estimate).for_each(|(mean, e)| *mean += e / f32::from(workers));
        }
        rht::inverse(&mut mean, key).unwrap();
        let square = |v: f64| v * v;
        let lost: f64 = x.iter().zip(&mean).map(|(&x, &m)| square(f64::from(x) - f64::from(m))).sum();
        lost / x.iter().map(|&x| square(f64::from(x))).sum::<f64>()
    }

    #[test]
    fn closed_form_errors_are_within_5_per_cent_of_measured_ones() {
        for (bits, granularity, fraction) in [(2, 7, 0.2), (3, 14, 1.0 / 16.0), (4, 30, 1.0 / 32.0)] {
            let table = LookupTable::solve(bits, granularity, fraction).unwrap();
            for (workers, log_normal) in [(1, true), (4, true), (4, false), (8, true)] {
                let trials = 6;
                let mean: f64 = (0..trials)
                    .map(|seed| sampled_nmse(&table, &gradient(1 << 14, seed, log_normal), workers, seed))
                    .sum::<f64>()
                    / trials as f64;
                let ratio = mean / nmse(&table, workers);
                assert!((0.95..1.05).contains(&ratio), "b = {bits}, {workers} workers: {ratio}");
            }
        }
    }

    /// ‖e‖² / ‖x‖² after `steps` steps of error feedback, each with another gradient of the same norm.
    fn fed_back(table: &LookupTable, steps: u64) -> f64 {
        let quantizer = Quantizer::new(table);
        let d = 1 << 12;
        let mut kept = vec![0.0f32; d];
        let mut ratio = 0.0;
        for step in 0..steps {
            let x = gradient(d, step << 32, false);
            let mut sum: Vec<f32> = x.iter().zip(&kept).map(|(x, e)| x + e).collect();
            let key = SignKey { job_seed: 5, call: step, partition: 0 };
            let range = table.t_p() as f32 * rht::scale(d) * norm::l2(&sum);
            rht::forward(&mut sum, key).unwrap();
            // The residual replaces the gradient in the buffer.
            quantizer.quantize(&mut sum, range, &Rounding::new(9, step, 0), 0, &mut vec![0; d]).unwrap();
            rht::inverse(&mut sum, key).unwrap();
            kept = sum;
            ratio = f64::from(norm::l2(&kept)).powi(2) / f64::from(norm::l2(&x)).powi(2);
        }
        ratio
    }

    /// Error feedback either grows without end or stays as predicted, which is what the limit distinguishes.
    #[test]
    fn tables_that_leave_too_much_are_told_from_others() {
        let best = |bits, lane, workers| thc_codec::table::choose(bits, lane, workers).unwrap().table;
        for (bits, lane, workers) in [(1, 4, 2), (2, 4, 5), (2, 8, 4), (2, 8, 64), (3, 8, 8), (4, 8, 8)] {
            let table = best(bits, lane, workers);
            assert!(residual(&table) <= 0.5, "b = {bits}, {workers} workers: {}", residual(&table));
            let foretold = residual(&table) / (1.0 - residual(&table));
            let ratio = fed_back(&table, 40) / foretold;
            assert!((0.9..1.1).contains(&ratio), "b = {bits}, {workers} workers: {ratio} of {foretold}");
        }
        for workers in [3, 4, 8, 16, 64] {
            assert!(residual(&best(1, 8, workers)) > 0.5);
        }
        assert!(fed_back(&best(1, 8, 16), 40) > 1e3);
    }

    #[test]
    fn a_lone_coordinate_is_where_it_fails() {
        let table = LookupTable::solve(1, 1, 0.25).unwrap();
        let mut x = vec![0.0; 1 << 14];
        x[77] = 1.0;
        // ±1/√d everywhere: all coordinates have the same distance from the values of the table.
        let ratio = sampled_nmse(&table, &x, 1, 3) / nmse(&table, 1);
        assert!(!(0.95..1.05).contains(&ratio), "{ratio}");
    }

    #[test]
    fn bytes_are_those_of_the_packets() {
        // 2^20 coordinates, 8-bit sums: 1024 packets of 48 + 512 up and 48 + 1024 down, a norm of 68 each way.
        assert_eq!(bytes(1 << 20, 4, 8, 20).unwrap(), 1024.0 * (560.0 + 1072.0) + 136.0);
        assert_eq!(bytes(1, 4, 8, 20).unwrap(), 560.0 + 1072.0 + 136.0);
        // 16-bit sums: twice as many packets of half as many indices.
        assert_eq!(bytes(1 << 20, 4, 16, 20).unwrap(), 2048.0 * (304.0 + 1072.0) + 136.0);
        // 2-bit indices and 4-bit sums.
        assert_eq!(bytes(1 << 20, 2, 4, 20).unwrap(), 1024.0 * (304.0 + 560.0) + 136.0);
        assert_eq!(bytes(0, 4, 8, 20).unwrap(), 0.0);
        assert_eq!(raw_bytes(1 << 20, 20), 4096.0 * 2.0 * 1072.0 + 136.0);
        assert_eq!(raw_bytes(1, 20), 4.0 * 2.0 * 1072.0 + 136.0);
        assert!(bytes(1, 5, 8, 20).is_err() && bytes(1, 4, 9, 20).is_err());
    }
}
