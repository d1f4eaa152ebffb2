//! How far a trace may go: one that never ends fails, and says of which seed it is.

use std::time::Duration;

/// Steps in which virtual time may stand still.
const STILL: u64 = 1_000_000;
/// Virtual time of a trace, and of each all-reduce of its goal.
const LONGEST: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(10));
/// Steps of a trace, and of each all-reduce of its goal.
const STEPS: (u64, u64) = (10_000_000, 100_000);

/// The steps of a trace.
#[derive(Debug)]
pub struct Pace {
    seed: u64,
    goal: u64,
    pub steps: u64,
    /// Since which step time has stood still, and where.
    still: (u64, Duration),
}

impl Pace {
    /// The trace of a seed with this many all-reduces as its goal.
    pub fn new(seed: u64, goal: u64) -> Pace {
        Pace { seed, goal, steps: 0, still: (0, Duration::ZERO) }
    }

    /// Another step. An error if there were too many.
    pub fn step(&mut self, now: Duration) -> Result<(), String> {
        self.steps += 1;
        if now > self.still.1 {
            self.still = (self.steps, now);
        }
        let (seed, steps) = (self.seed, self.steps);
        let goal = u32::try_from(self.goal).unwrap_or(u32::MAX);
        if steps - self.still.0 > STILL {
            Err(format!("seed {seed}: time has stood still at {now:?} for {STILL} steps"))
        } else if now > LONGEST.0 + LONGEST.1.saturating_mul(goal) {
            Err(format!("seed {seed}: {now:?} of virtual time were not enough"))
        } else if steps > STEPS.0 + STEPS.1.saturating_mul(self.goal) {
            Err(format!("seed {seed}: {steps} steps were not enough, up to {now:?} of virtual time"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_in_which_time_stands_still_fails_and_names_its_seed() {
        let mut pace = Pace::new(7, 10);
        let error = (0..=STILL + 1).find_map(|_| pace.step(Duration::from_secs(1)).err()).unwrap();
        assert!(error.starts_with("seed 7: time has stood still at 1s"), "{error}");
    }

    #[test]
    fn a_trace_that_goes_on_for_ever_fails() {
        let mut pace = Pace::new(7, 10);
        let steps = STEPS.0 + STEPS.1 * 10;
        let error = (1..=steps + 1).find_map(|step| pace.step(Duration::from_nanos(step)).err()).unwrap();
        assert!(error.contains("steps were not enough"), "{error}");
        let error = Pace::new(7, 10).step(Duration::from_secs(4000)).unwrap_err();
        assert!(error.contains("of virtual time were not enough"), "{error}");
    }
}
