//! The random stream of a worker, for stochastic rounding.
//!
//! Errors of workers that round independently average out (paper A.2). With stratified rounding they also
//! partly cancel: the workers of a job share one stream, and each takes its draws from its own stratum
//! ([`Rounding::stratum`]). The stream is a pure function of (private seed, call, partition, coordinate), so
//! a partition quantized in chunks gives the same indices as in one go. It consists of 32-bit words, computed
//! only with 32-bit lane operations because every SIMD instruction set has those; a word serves four
//! coordinates 16 apart, so that vectors of 4, 8 or 16 coordinates take their draws from vectors of words
//! without moving them between lanes:
//!
//! ```text
//! key = as in the `signs` module, from (private_seed XOR 0x524F554E44494E47, call, partition)
//! k0  = low 32 bits of key, k1 = high 32 bits of key
//! word(i): x = (i mod 2^32) + k0;
//!          x ^= x >> 17; x *= 0xED5AD4BB;
//!          x ^= x >> 11; x += k1; x *= 0xAC4C1B51;
//!          x ^= x >> 15; x *= 0x31848BAB;
//!          x ^= x >> 14                                  (wrapping 32-bit arithmetic)
//! draw(i) = word(16 ⌊i / 64⌋ + i mod 16) XOR stratum, rotated right by 8 · (⌊i / 16⌋ mod 4) bits, its low 23 bits
//! ```
//!
//! The leading eight bits of the four draws of a word are its four bytes, so a draw has the resolution of a float's mantissa,
//! and depends on another of its word by no more than 2^-8: that of one says where in its last 256th the other lies.
//!
//! Quantizing coordinate i uses `draw(i)`. [`Rounding::uniform`], a whole word per number, is for callers
//! that need more bits.
//!
//! The stratum is a pattern of eight bits, four times, so that it is the same in all four draws of a word.
//! With any pattern the draws of one worker are uniform, so its rounding stays unbiased and has the same
//! variance. Two workers whose patterns are complements draw u and 1 − u: where one rounds up, the other
//! tends to round down. Patterns that differ in their leading bits draw from different halves, quarters and
//! so on of [0, 1), so that of several workers with similar values the right share rounds up. Over fractions
//! that are independent of each other the variance of the sum is half of that of independent draws for an
//! even number of workers, and (n + 1) / 2n of it for an odd one.
//!
//! The multipliers and shifts are those that Wellons found by search for three-round 32-bit mixers
//! ("triple32"; two rounds leave a measurable dependence between coordinates 1024 apart). The
//! second key word keeps two workers from having shifted copies of one sequence.

use crate::signs::{GOLDEN_GAMMA, derive, derive_call};

/// Keeps the rounding stream apart from the signs even if both were given the same seed.
const DOMAIN: u64 = 0x524F_554E_4449_4E47;

/// Multipliers of the three rounds of the mixer.
pub(crate) const MULTIPLIERS: [u32; 3] = [0xED5A_D4BB, 0xAC4C_1B51, 0x3184_8BAB];

/// Random access to the rounding stream of one worker, call and partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounding {
    pub(crate) k0: u32,
    pub(crate) k1: u32,
    pub(crate) stratum: u32,
}

/// A seed and a stratum, from which all roundings of a worker derive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    seed: u64,
    stratum: u32,
}

impl Source {
    /// The source of a worker whose roundings are stratified with those of its job's other workers, by its
    /// number in the job. Groups of 256 workers share a stream.
    #[must_use]
    pub const fn for_worker(job_seed: u64, worker: u16) -> Source {
        let [group, place] = worker.to_be_bytes();
        let seed = job_seed.wrapping_add((group as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
        Source { seed, stratum: Rounding::stratum(place) }
    }

    /// The source of a worker that rounds independently of others, which must have different seeds.
    #[must_use]
    pub const fn independent(seed: u64) -> Source {
        Source { seed, stratum: 0 }
    }

    /// Its stream for a partition of a call.
    #[must_use]
    pub const fn rounding(self, call: u64, partition: u32) -> Rounding {
        Rounding { stratum: self.stratum, ..Rounding::new(self.seed, call, partition) }
    }

    /// The key from which the streams of all partitions of a call derive, as signs do from
    /// [`signs::derive_call`](derive_call).
    #[must_use]
    pub const fn derive_call(self, call: u64) -> u64 {
        derive_call(self.seed ^ DOMAIN, call)
    }

    /// The stratum of its draws.
    #[must_use]
    pub const fn stratum(self) -> u32 {
        self.stratum
    }
}

impl Rounding {
    /// The stream of one seed for one partition of one call, in the stratum that changes nothing. Such
    /// workers must have different seeds.
    #[must_use]
    pub const fn new(seed: u64, call: u64, partition: u32) -> Self {
        let key = derive(seed ^ DOMAIN, call, partition);
        Self { k0: key as u32, k1: (key >> 32) as u32, stratum: 0 }
    }

    /// This stream in a [stratum](Self::stratum).
    #[cfg(test)]
    pub(crate) const fn in_stratum(self, stratum: u32) -> Self {
        Self { stratum, ..self }
    }

    /// The stratum of one of up to 256 workers of a stream: that of worker 2k + 1 is the complement of that
    /// of worker 2k, and the first 2^j pairs differ in their leading j + 1 bits.
    #[must_use]
    pub const fn stratum(worker: u8) -> u32 {
        let pair = (worker & !1).reverse_bits();
        // The leading bit of a draw is bit 22 of its word, which is bit 6 of each byte.
        let leading = if worker & 1 == 0 { pair } else { !pair };
        u32::from_ne_bytes([leading.rotate_right(1); 4])
    }

    /// The 32 random bits of word `i` (taken modulo 2^32).
    #[inline]
    #[must_use]
    pub const fn word(self, i: u64) -> u32 {
        let x = (i as u32).wrapping_add(self.k0);
        let x = (x ^ (x >> 17)).wrapping_mul(MULTIPLIERS[0]);
        let x = (x ^ (x >> 11)).wrapping_add(self.k1).wrapping_mul(MULTIPLIERS[1]);
        let x = (x ^ (x >> 15)).wrapping_mul(MULTIPLIERS[2]);
        x ^ (x >> 14)
    }

    /// The 23 random bits that round coordinate `i`.
    #[inline]
    #[must_use]
    pub const fn draw(self, i: u64) -> u32 {
        let word = self.word(i / 64 * 16 + i % 16) ^ self.stratum;
        word.rotate_right((i / 16 % 4 * 8) as u32) & 0x7F_FFFF
    }

    /// A number in [0, 1), a multiple of 2^-24, from word `i`.
    #[inline]
    #[must_use]
    pub const fn uniform(self, i: u64) -> f32 {
        (self.word(i) >> 8) as f32 * (1.0 / 16_777_216.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of `counts` against equal expectation, as a number of standard deviations.
    fn deviation(counts: &[u32], total: u32) -> f64 {
        let expected = f64::from(total) / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    /// Two-dimensional chi-square of pairs of uniforms on a 16 x 16 grid.
    fn pair_deviation(n: u32, pair: impl Fn(u64) -> (u32, u32)) -> f64 {
        let mut counts = [0_u32; 256];
        for i in 0..u64::from(n) {
            let (a, b) = pair(i);
            counts[((a >> 28) << 4 | (b >> 28)) as usize] += 1;
        }
        deviation(&counts, n)
    }

    #[test]
    fn top_bits_and_low_bits_are_uniform() {
        for seed in 0..20 {
            let r = Rounding::new(seed, 1, 0);
            let mut top = [0_u32; 1024];
            let mut low = [0_u32; 1024];
            for i in 0..1 << 18 {
                let w = r.word(i);
                top[(w >> 22) as usize] += 1;
                low[(w >> 8) as usize & 1023] += 1;
            }
            // A stream of 2^18 distinct 32-bit words is very slightly too even, never too uneven.
            assert!(deviation(&top, 1 << 18).abs() < 5.0, "seed {seed}");
            assert!(deviation(&low, 1 << 18).abs() < 5.0, "seed {seed}");
        }
    }

    #[test]
    fn workers_rounds_and_partitions_are_independent() {
        let n = 1 << 18;
        for k in 0..20_u64 {
            let base = Rounding::new(k, k, 0);
            for other in [
                Rounding::new(k + 1, k, 0),
                Rounding::new(k, k + 1, 0),
                Rounding::new(k, k, 1),
                Rounding::new(k ^ (1 << 63), k, 0),
            ] {
                let d = pair_deviation(n, |i| (base.word(i), other.word(i)));
                assert!(d.abs() < 5.0, "{k}: {d}");
            }
        }
    }

    #[test]
    fn neighbouring_coordinates_are_independent() {
        for seed in 0..10 {
            let r = Rounding::new(seed, 0, 0);
            for lag in [1, 2, 3, 4, 8, 16, 64, 1024, 65_536] {
                let d = pair_deviation(1 << 18, |i| (r.word(i), r.word(i + lag)));
                assert!(d.abs() < 5.5, "seed {seed} lag {lag}: {d}");
            }
        }
    }

    #[test]
    fn draws_are_uniform_and_independent_of_their_neighbours() {
        for seed in 0..10 {
            let r = Rounding::new(seed, 0, 0);
            let (mut low, mut high) = ([0_u32; 256], [0_u32; 256]);
            for i in 0..1 << 18 {
                low[r.draw(i) as usize & 255] += 1;
                high[r.draw(i) as usize >> 15] += 1;
            }
            assert!(deviation(&low, 1 << 18).abs() < 5.0, "seed {seed}");
            assert!(deviation(&high, 1 << 18).abs() < 5.0, "seed {seed}");
            let high = |i| r.draw(i) << 9;
            // 16, 32 and 48 coordinates away are other bits of the same word, or of another.
            for lag in [1, 2, 8, 15, 16, 17, 32, 48, 64, 1024, 65_536] {
                let d = pair_deviation(1 << 18, |i| (high(i), high(i + lag)));
                assert!(d.abs() < 5.5, "seed {seed} lag {lag}: {d}");
            }
        }
    }

    /// The draws of the first 2^n workers differ in their leading n bits, those of a pair are complements, and those of each
    /// worker are uniform.
    #[test]
    fn strata_tell_workers_apart_by_their_leading_bits() {
        let of = |worker: u8| Rounding::new(1, 2, 3).in_stratum(Rounding::stratum(worker));
        for bits in 1..=8_u32 {
            for i in [0, 5, 16, 40, 63, 1000] {
                let leading = |worker: u16| of(worker as u8).draw(i) >> (23 - bits);
                let mut found: Vec<u32> = (0..1_u16 << bits).map(leading).collect();
                found.sort_unstable();
                assert_eq!(found, (0..1 << bits).collect::<Vec<u32>>(), "{bits} bits, coordinate {i}");
            }
        }
        for pair in 0..128 {
            for i in 0..200 {
                assert_eq!(of(2 * pair).draw(i) ^ of(2 * pair + 1).draw(i), 0x7F_FFFF, "{pair}, {i}");
            }
        }
        for worker in [1, 2, 7, 100, 255] {
            let mut counts = [0_u32; 256];
            (0..1 << 18).for_each(|i| counts[of(worker).draw(i) as usize >> 15] += 1);
            assert!(deviation(&counts, 1 << 18).abs() < 5.0, "{worker}");
        }
    }

    /// The variance of the error of a sum of roundings is that of the module's documentation, and each worker's mean is its value.
    #[test]
    fn errors_of_strata_cancel() {
        let (rounds, own) = (1 << 18, Rounding::new(6, 0, 0));
        let values = Rounding::new(7, 0, 0);
        for n in [2_u8, 3, 4, 5, 8, 16] {
            let [mut independent, mut strata, mut alike] = [0.0_f64; 3];
            for i in 0..rounds {
                let error = |value: f64, draw: u32| {
                    f64::from(u8::from(f64::from(draw) / 8_388_608.0 < value)) - value
                };
                let value = |w: u8| f64::from(values.uniform(u64::from(w) << 32 >> 8 | i));
                let in_stratum = |w: u8| own.in_stratum(Rounding::stratum(w)).draw(i);
                let alone = |w: u8| Rounding::new(u64::from(w) + 10, 0, 0).draw(i);
                independent += (0..n).map(|w| error(value(w), alone(w))).sum::<f64>().powi(2);
                strata += (0..n).map(|w| error(value(w), in_stratum(w))).sum::<f64>().powi(2);
                alike += (0..n).map(|w| error(value(0), in_stratum(w))).sum::<f64>().powi(2);
            }
            let (ratio, n) = (strata / independent, f64::from(n));
            let expected = if n % 2.0 == 0.0 { 0.5 } else { (n + 1.0) / (2.0 * n) };
            assert!((ratio - expected).abs() < 0.02, "{n} workers: {ratio} for {expected}");
            // Equal values: of n draws in n strata, all but one or two are decided.
            assert!(alike / (f64::from(rounds as u32)) < 0.5, "{n} workers: {alike}");
        }
    }

    #[test]
    fn mean_over_rounds_is_half_for_every_coordinate() {
        // Rounding of a coordinate is unbiased if its word is uniform over many rounds.
        let rounds = 4096_u64;
        for i in [0, 1, 7, 1023, 65_536, (1 << 20) - 1] {
            let sum: f64 = (0..rounds).map(|round| f64::from(Rounding::new(3, round, 5).uniform(i))).sum();
            let sigma = (1.0 / 12.0 / rounds as f64).sqrt();
            assert!((sum / rounds as f64 - 0.5).abs() < 5.0 * sigma, "{i}");
        }
    }

    #[test]
    fn flipping_an_index_bit_flips_half_of_the_word() {
        for bit in 0..22 {
            let r = Rounding::new(11, 13, 17);
            let flips: u32 = (0..4096)
                .map(|i: u64| (r.word(i * 1021) ^ r.word((i * 1021) ^ (1 << bit))).count_ones())
                .sum();
            let mean = f64::from(flips) / 4096.0;
            assert!((mean - 16.0).abs() < 0.5, "bit {bit}: {mean}");
        }
    }
}
