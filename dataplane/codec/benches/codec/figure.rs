//! Ratios of times, measured in turns.

use serde_json::{Value, json};
use thc_bench::{median, seconds};
use thc_codec::isa::Isa;

/// Repetitions per figure.
pub const REPETITIONS: usize = 60;

/// One line of the report.
pub struct Figure {
    pub name: String,
    pub ratio: f64,
    pub aim: f64,
    pub floor: f64,
    pub detail: String,
}

impl Figure {
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "ratio": (self.ratio * 1000.0).round() / 1000.0,
            "better": "lower",
            "aim": self.aim,
            "floor": self.floor,
            "detail": self.detail,
        })
    }
}

/// The number of times that the scheduler has taken the processor from this thread, on systems that count them.
fn preemptions() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("nonvoluntary_ctxt_switches"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A kernel is measured against the one of these that takes longest.
pub type Yardsticks<'a> = Vec<Box<dyn FnMut() + 'a>>;

/// One thing to measure against.
pub fn one<'a>(yardstick: impl FnMut() + 'a) -> Yardsticks<'a> {
    vec![Box::new(yardstick)]
}

/// Times `work` against its yardsticks, interleaved; the ratio of a repetition is of its times. `warm` says whether each
/// is run once before it is timed, which warms the memory that the others displaced. Repetitions in which another thread
/// got the processor are discarded, unless all are.
pub fn compare(
    name: impl Into<String>,
    (aim, floor): (f64, f64),
    warm: bool,
    mut yardsticks: Yardsticks<'_>,
    mut work: impl FnMut(),
) -> Figure {
    let (mut clean, mut all) = (Vec::new(), Vec::new());
    work();
    let time = |f: &mut dyn FnMut()| {
        if warm {
            f();
        }
        let before = preemptions();
        let time = seconds(f);
        (time, before == preemptions())
    };
    while clean.len() < REPETITIONS && all.len() < 3 * REPETITIONS {
        let (mut yard, mut undisturbed) = (0.0_f64, true);
        for yardstick in &mut yardsticks {
            let (seconds, calm) = time(yardstick);
            yard = yard.max(seconds);
            undisturbed &= calm;
        }
        let (seconds, calm) = time(&mut work);
        all.push((seconds, yard));
        if calm && undisturbed {
            clean.push((seconds, yard));
        }
    }
    let interrupted = all.len() - clean.len();
    let kept = if clean.is_empty() { all } else { clean };
    let ratio = median(kept.iter().map(|(time, yard)| time / yard));
    let least = |pick: fn(&(f64, f64)) -> f64| kept.iter().map(pick).fold(f64::MAX, f64::min);
    let (least_time, least_yard) = (least(|k| k.0), least(|k| k.1));
    Figure {
        name: name.into(),
        ratio,
        aim,
        floor,
        detail: format!(
            "{:.1} us against {:.1} us, {}, median of {} repetitions ({interrupted} interrupted); least {:.1} against {:.1}, ratio {:.2}",
            median(kept.iter().map(|k| k.0)) * 1e6,
            median(kept.iter().map(|k| k.1)) * 1e6,
            Isa::current().name(),
            kept.len(),
            least_time * 1e6,
            least_yard * 1e6,
            least_time / least_yard,
        ),
    }
}
