//! What `thc papers` measures: lists of trainings, each for one or more entries.

use super::choice::{Family, Policy};
use super::learner::Optimizer;
use super::schemes::Named;
use super::training::{Course, Cut, Faults, Run};

/// A list of trainings.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// Name of its files.
    pub name: &'static str,
    /// Its trainings; the first is what others are compared with, but for those that have their own of as many workers.
    pub runs: fn() -> Vec<Run>,
}

impl PartialEq for Study {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// THC, Fig. 5: loss and accuracy by bytes, four workers, the schemes of the testbed.
pub const TESTBED: Study = Study { name: "thc-testbed", runs: || plain(4, &SCHEMES) };
/// THC, Fig. 10: 4 to 64 workers, as many bits for all: 4 up, and down what sums of g = 36 need.
pub const WORKERS: Study = Study { name: "thc-workers", runs: workers };
/// THC, Figs. 11 and 16: lost packets and stragglers, ten workers, g = 20, p = 1/512.
pub const FAULTS: Study = Study { name: "thc-faults", runs: faults };
/// THC, Fig. 14: uniform THC with and without rotation and feedback, four workers.
pub const UNIFORM: Study = Study { name: "thc-uniform", runs: uniform };
/// SlimGC, Fig. 9: 1-bit and 2-bit compression of all tensors, and of those from the threshold on.
pub const THRESHOLD: Study = Study { name: "slimgc-threshold", runs: threshold };
/// SlimGC, Fig. 10: thresholds of the 2-bit compression.
pub const TWO_BIT: Study = Study { name: "slimgc-two-bit", runs: two_bit };
/// SlimGC, Fig. 11: thresholds from which tensors are compressed.
pub const COMMUNICATION: Study = Study { name: "slimgc-communication", runs: communication };
/// AQGB, Figs. 2 and 11, Table 2: bits of a fixed quantization, without error feedback.
pub const BITS: Study = Study { name: "aqgb-bits", runs: bits };

/// THC, Fig. 5 with SGD in place of Adam: whether Adam makes up for large errors.
pub const OPTIMIZER: Study =
    Study { name: "thc-optimizer", runs: || SCHEMES.map(|scheme| by_sgd(4, scheme)).to_vec() };
/// THC, Fig. 10 as in the paper from a trained model: whether that makes differences small.
pub const TUNING: Study = Study { name: "thc-tuning", runs: tuning_runs };
/// THC, Fig. 11 with SGD, and for ten times as long: whether replicas drift apart with time, and whether Adam hides it.
pub const DRIFT: Study = Study { name: "thc-drift", runs: drift };
/// THC, section 8.4: 64 workers for twice as many steps.
pub const SIXTY_FOUR: Study = Study { name: "thc-sixty-four", runs: sixty_four };
/// L-GreCo, Tables 2 to 4: parameters for each tensor.
pub const CHOICES: Study = Study { name: "lgreco-choices", runs: choices };
/// AQGB, Fig. 11 and Table 2: as many rounds as each scheme has in 200 s, and as many for all.
pub const ADAPTED: Study = Study { name: "aqgb-adapted", runs: adapted_runs };
/// All four together, and each alone.
pub const TOGETHER: Study = Study { name: "together-all", runs: combined_runs };
/// Outer steps of DiLoCo.
pub const OUTER: Study = Study { name: "together-outer", runs: outer };

/// THC, Fig. 14 with SGD in place of Adam: whether Adam hides what the rotation is worth.
pub const UNIFORM_BY_SGD: Study = Study {
    name: "thc-uniform-sgd",
    runs: || uniform().into_iter().map(|run| by_sgd(run.workers, run.scheme)).collect(),
};
/// THC on a ring in lanes, by what DynamiQ published.
pub const LANES: Study = Study { name: "together-lanes", runs: lanes };

/// Every study.
#[cfg(test)]
pub const ALL: [Study; 18] = [
    TESTBED,
    WORKERS,
    FAULTS,
    UNIFORM,
    THRESHOLD,
    TWO_BIT,
    COMMUNICATION,
    BITS,
    OPTIMIZER,
    TUNING,
    DRIFT,
    SIXTY_FOUR,
    CHOICES,
    ADAPTED,
    TOGETHER,
    OUTER,
    UNIFORM_BY_SGD,
    LANES,
];

const SCHEMES: [Named; 6] = [
    Named::Exact,
    Named::THC,
    Named::TopK { inverse: 10, down: 10 },
    Named::Dgc,
    Named::TernGrad,
    Named::Qsgd { up: 4, down: 8 },
];

/// Bytes from which SlimGC's rule compresses in its Fig. 11, where it reaches the accuracy of exact means.
const THRESHOLD_BYTES: usize = 15_000;
/// Bytes below which biases and normalizations are: exact with all policies of L-GreCo, as is usual.
const THRESHOLD_SMALL: usize = 1500;
/// Rounds in 200 s without quantization, with 4 bits and with AQGB, for every 100 (Fig. 10 as `thc simulate row` has it, 38, 122 and 117).
const AQGB_ROUNDS: [u32; 3] = [38, 122, 117];
/// Percent of steps for whose refinement there is time at 2.5 Gb/s, by the bits that THC in two stages sends beside THC's in `thc simulate row`.
const REFINED: u32 = 80;
/// Thousandths of the 2-bit threshold where it is not varied: the best of those of Fig. 10 here. The paper's is 0.5, for MXNet's sums of gradients.
const USUAL: u32 = 30;

fn plain(workers: u8, schemes: &[Named]) -> Vec<Run> {
    schemes.iter().map(|scheme| Run::plain(workers, *scheme)).collect()
}

fn by_sgd(workers: u8, scheme: Named) -> Run {
    let course = Course { optimizer: Optimizer::Momentum, ..Course::default() };
    Run { course, ..Run::plain(workers, scheme) }
}

/// THC as the paper scales it, and TopK with as many bits: a value of 32 bits and a position of 16 for each coordinate that it sends, up 4 bits a
/// coordinate in the mean, and down as many as sums of g = 36 take.
fn scaled_schemes(workers: u8) -> [Named; 3] {
    let down = if workers <= 7 { 6 } else { 3 };
    [Named::Exact, Named::Thc { bits: 4, granularity: 36, inverse: 32 }, Named::TopK { inverse: 12, down }]
}

fn workers() -> Vec<Run> {
    let of = |workers: u8| {
        let down = if workers <= 7 { 8 } else { 16 };
        let others = [Named::Qsgd { up: 4, down }, Named::TernGrad, Named::SignSgd];
        plain(workers, &[&scaled_schemes(workers)[..], &others[..]].concat())
    };
    [4, 8, 16, 32, 64].into_iter().flat_map(of).collect()
}

fn tuning_runs() -> Vec<Run> {
    let course = Course { warm: 400, ..Course::default() };
    let of =
        |workers: u8| scaled_schemes(workers).map(|scheme| Run { course, ..Run::plain(workers, scheme) });
    [4, 16].into_iter().flat_map(of).collect()
}

fn sixty_four() -> Vec<Run> {
    let thc = Named::Thc { bits: 4, granularity: 36, inverse: 32 };
    let course = Course { length: 200, ..Course::default() };
    [Named::Exact, thc].map(|scheme| Run { course, ..Run::plain(64, scheme) }).to_vec()
}

fn drift() -> Vec<Run> {
    let thc = Named::Thc { bits: 4, granularity: 20, inverse: 512 };
    let run = |scheme, lost, synchronized, optimizer, length| Run {
        cut: Cut::Packets,
        faults: Faults { lost, synchronized, stragglers: 0 },
        course: Course { optimizer, length, ..Course::default() },
        ..Run::plain(10, scheme)
    };
    let mut runs = Vec::new();
    for (optimizer, length) in
        [(Optimizer::Momentum, 100), (Optimizer::Momentum, 1000), (Optimizer::Adam, 1000)]
    {
        runs.extend([
            run(Named::Exact, 0.0, false, optimizer, length),
            run(thc, 0.01, false, optimizer, length),
            run(thc, 0.01, true, optimizer, length),
        ]);
    }
    runs
}

fn choices() -> Vec<Run> {
    let mut runs = vec![Run::plain(4, Named::Exact)];
    for family in [Family::Qsgd, Family::TopK, Family::PowerSgd] {
        for policy in [Policy::Uniform, Policy::LGreco, Policy::KMeans] {
            let cut = Cut::Chosen { family, policy, exact_below: THRESHOLD_SMALL };
            runs.push(Run { cut, ..Run::plain(4, family.usual()) });
        }
    }
    runs.push(Run::plain(4, Family::TopK.usual()));
    runs
}

fn adapted_runs() -> Vec<Run> {
    let run = |scheme, cut, length| Run {
        cut,
        course: Course { length, ..Course::default() },
        ..Run::plain(8, scheme)
    };
    let qsgd = Named::Qsgd { up: 4, down: 4 };
    let truncated = Named::Truncated { bits: 4 };
    let mut runs = Vec::new();
    for lengths in [[100; 3], AQGB_ROUNDS] {
        runs.push(run(Named::Exact, Cut::Whole, lengths[0]));
        runs.push(run(qsgd, Cut::Whole, lengths[1]));
        runs.push(run(truncated, Cut::Blocks, lengths[2]));
    }
    runs
}

fn combined_runs() -> Vec<Run> {
    let run = |scheme, cut, refined| Run {
        cut,
        course: Course { refined, ..Course::default() },
        ..Run::plain(4, scheme)
    };
    let chosen = |exact_below| Cut::Chosen { family: Family::Thc, policy: Policy::LGreco, exact_below };
    vec![
        run(Named::Exact, Cut::Whole, 0),
        run(Named::THC, Cut::Whole, 0),
        run(Named::THC, chosen(0), 0),
        run(Named::THC, Cut::Tensors { exact_below: THRESHOLD_SMALL }, 0),
        run(Named::THC, Cut::Whole, REFINED),
        run(Named::THC, chosen(THRESHOLD_SMALL), REFINED),
    ]
}

fn outer() -> Vec<Run> {
    let run = |scheme, every| Run {
        course: Course { every, length: 200, ..Course::default() },
        ..Run::plain(4, scheme)
    };
    let top_k = Named::TopK { inverse: 32, down: 32 };
    let sparse = |inverse| Named::SparseLoCo { inverse };
    let mut runs = vec![run(Named::Exact, 1)];
    runs.extend([Named::Exact, Named::THC, top_k, sparse(32), sparse(100)].map(|scheme| run(scheme, 10)));
    // Five times as long: what is kept back for long comes late.
    let longer =
        |scheme| Run { course: Course { length: 1000, ..run(scheme, 10).course }, ..run(scheme, 10) };
    runs.extend([Named::Exact, Named::THC, sparse(32), sparse(100)].map(longer));
    runs
}

/// From the beginning, and from a trained model, as DynamiQ fine-tunes.
fn lanes() -> Vec<Run> {
    let lanes = |bits| Named::Lanes { bits, workers: 4 };
    let tuned = Course { warm: 400, ..Course::default() };
    let of = |course| {
        [Named::Exact, lanes(8), lanes(6), lanes(5), Named::THC]
            .map(|scheme| Run { course, ..Run::plain(4, scheme) })
    };
    [Course::default(), tuned].into_iter().flat_map(of).collect()
}

fn faults() -> Vec<Run> {
    let thc = Named::Thc { bits: 4, granularity: 20, inverse: 512 };
    let run = |scheme, lost, synchronized, stragglers| Run {
        cut: Cut::Packets,
        faults: Faults { lost, synchronized, stragglers },
        ..Run::plain(10, scheme)
    };
    vec![
        run(Named::Exact, 0.0, false, 0),
        run(thc, 0.0, false, 0),
        run(thc, 0.001, false, 0),
        run(thc, 0.001, true, 0),
        run(thc, 0.01, false, 0),
        run(thc, 0.01, true, 0),
        run(thc, 0.0, false, 1),
        run(thc, 0.0, false, 2),
        run(thc, 0.0, false, 3),
    ]
}

fn uniform() -> Vec<Run> {
    let of = |rotated, feedback| Named::Uniform { rotated, feedback };
    plain(4, &[Named::Exact, Named::THC, of(true, true), of(true, false), of(false, true), of(false, false)])
}

fn by_tensor(scheme: Named, exact_below: usize) -> Run {
    Run { cut: Cut::Tensors { exact_below }, ..Run::plain(4, scheme) }
}

fn threshold() -> Vec<Run> {
    let two_bit = Named::TwoBit { thousandths: USUAL };
    let mut runs = vec![Run::plain(4, Named::Exact)];
    for scheme in [Named::OneBit, two_bit] {
        runs.extend([by_tensor(scheme, 0), by_tensor(scheme, THRESHOLD_BYTES)]);
    }
    runs
}

fn two_bit() -> Vec<Run> {
    let mut runs = vec![Run::plain(4, Named::Exact)];
    for thousandths in [1, 3, 10, USUAL] {
        let scheme = Named::TwoBit { thousandths };
        runs.extend([by_tensor(scheme, 0), by_tensor(scheme, THRESHOLD_BYTES)]);
    }
    runs
}

fn communication() -> Vec<Run> {
    let mut runs = vec![Run::plain(4, Named::Exact)];
    for scheme in [Named::OneBit, Named::TwoBit { thousandths: USUAL }] {
        runs.extend([0, 1500, THRESHOLD_BYTES, 50_000].map(|exact_below| by_tensor(scheme, exact_below)));
    }
    runs
}

fn bits() -> Vec<Run> {
    let qsgd = |bits| Named::Qsgd { up: bits, down: bits };
    plain(
        4,
        &[
            Named::Exact,
            qsgd(2),
            qsgd(4),
            qsgd(8),
            Named::Tfp { bits: 4 },
            Named::Tfp { bits: 8 },
            Named::OneBit,
        ],
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn studies_have_names_runs_and_something_to_compare_with() {
        let names: HashSet<&str> = ALL.iter().map(|study| study.name).collect();
        assert_eq!(names.len(), ALL.len());
        for study in ALL {
            let runs = (study.runs)();
            assert_eq!(runs[0].scheme, Named::Exact, "{}", study.name);
            let labels: HashSet<String> = runs.iter().map(Run::label).collect();
            assert_eq!(labels.len(), runs.len(), "{}", study.name);
            for run in runs {
                run.scheme.scheme().unwrap().bits(5000, run.workers.into()).unwrap();
            }
        }
    }
}
