//! Random numbers from a seed (SplitMix64), and seeds of traces.

use std::ops::Range;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(
    /// Its state.
    pub u64,
);

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed ^ 0x5EED_0F7A_CE50_0000);
        rng.next();
        rng
    }

    /// Any number.
    #[allow(clippy::should_implement_trait, reason = "a stream without an end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// One of these, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Says which trace failed. `THC_SEED=n` runs that one alone.
struct Named(&'static str, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed with seed {}: run it alone with THC_SEED={}", self.0, self.1, self.1);
        }
    }
}

/// The seeds of `count` traces (`THC_TRACES` times as many if that is set), or `THC_SEED` alone.
#[must_use]
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("THC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..count * number("THC_TRACES").unwrap_or(1),
    }
}

/// Runs a property on the [`seeds`] of `count` traces. If it panics, it is said with which.
pub fn for_seeds(name: &'static str, count: u64, mut property: impl FnMut(u64)) {
    for seed in seeds(count) {
        let named = Named(name, seed);
        property(seed);
        drop(named);
    }
}
