//! The shared signs D of the randomized Hadamard transform (P29).
//!
//! All workers of a job must flip the same signs, and the signs must change in every call, so they
//! are a pure function of (job seed, call, partition, coordinate). To reproduce them elsewhere,
//! in wrapping 64-bit arithmetic:
//!
//! ```text
//! G      = 0x9E3779B97F4A7C15
//! mix(z) = z ^= z >> 30; z *= 0xBF58476D1CE4E5B9;
//!          z ^= z >> 27; z *= 0x94D049BB133111EB;
//!          z ^= z >> 31                               (the SplitMix64 finalizer)
//! key    = mix((mix((mix(job_seed + G) ^ call) + G) ^ partition) + G)
//! word(i) = mix(key + (i + 1) * G)
//! ```
//!
//! Bit j of `word(i)`, counted from the least significant, belongs to coordinate 64·i + j of the
//! partition; 1 means negative. `golden/codec.json` has examples.

/// Odd constant by which SplitMix64 steps, 2^64 divided by the golden ratio.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The SplitMix64 finalizer, a bijection on 64-bit words with good avalanche.
#[must_use]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The key from which the keys of all partitions of a call derive: that of partition p is mix((this ^ p) +
/// G).
#[must_use]
pub const fn derive_call(seed: u64, call: u64) -> u64 {
    let k = mix(seed.wrapping_add(GOLDEN_GAMMA));
    mix((k ^ call).wrapping_add(GOLDEN_GAMMA))
}

/// Condenses a seed, a call and a partition to one 64-bit key (formula in the module text).
pub(crate) const fn derive(seed: u64, call: u64, partition: u32) -> u64 {
    mix((derive_call(seed, call) ^ partition as u64).wrapping_add(GOLDEN_GAMMA))
}

/// Names one sign vector. Workers with equal keys flip equal signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignKey {
    /// Seed that all workers of the job share.
    pub job_seed: u64,
    /// Number of the all-reduce.
    pub call: u64,
    /// [`Partition::index`](crate::partition::Partition::index) within the tensor.
    pub partition: u32,
}

impl SignKey {
    /// The generator for this key.
    #[must_use]
    pub const fn signs(self) -> Signs {
        Signs { key: derive(self.job_seed, self.call, self.partition) }
    }
}

/// Random access to the signs of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signs {
    key: u64,
}

impl Signs {
    /// The 64-bit key that all words derive from.
    #[must_use]
    pub const fn key(self) -> u64 {
        self.key
    }

    /// Signs of coordinates 64·i to 64·i + 63, least significant bit first, 1 is negative.
    #[inline]
    #[must_use]
    pub const fn word(self, i: u64) -> u64 {
        mix(self.key.wrapping_add(i.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
    }

    /// `true` if coordinate `i` is negated.
    #[inline]
    #[must_use]
    pub(crate) const fn is_negative(self, i: u64) -> bool {
        (self.word(i / 64) >> (i % 64)) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SignKey = SignKey { job_seed: 7, call: 3, partition: 2 };

    #[test]
    fn finalizer_matches_published_splitmix64() {
        // First outputs of SplitMix64 seeded with 1234567, as in its author's reference.
        let mut state = 1_234_567_u64;
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for want in expected {
            state = state.wrapping_add(GOLDEN_GAMMA);
            assert_eq!(mix(state), want);
        }
    }

    #[test]
    fn every_part_of_the_key_changes_half_of_the_signs() {
        let other =
            [SignKey { job_seed: 8, ..KEY }, SignKey { call: 4, ..KEY }, SignKey { partition: 3, ..KEY }];
        let words = 4096;
        for key in other {
            let differing: u32 =
                (0..words).map(|i| (KEY.signs().word(i) ^ key.signs().word(i)).count_ones()).sum();
            // 262144 fair coins: 131072 with a standard deviation of 256.
            assert!(differing.abs_diff(131_072) < 5 * 256, "{key:?} {differing}");
        }
    }

    #[test]
    fn signs_are_balanced_and_neighbours_independent() {
        let signs = KEY.signs();
        let (mut ones, mut equal) = (0_u32, 0_u32);
        for i in 0..4096 {
            let w = signs.word(i);
            let next = (w >> 1) | (signs.word(i + 1) << 63);
            ones += w.count_ones();
            equal += (!(w ^ next)).count_ones();
        }
        assert!(ones.abs_diff(131_072) < 5 * 256);
        assert!(equal.abs_diff(131_072) < 5 * 256);
        assert_eq!(signs.is_negative(130), (signs.word(2) >> 2) & 1 == 1);
    }
}
