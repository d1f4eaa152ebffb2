//! What `thc papers` measures: lists of trainings, each for one or more entries.

use super::schemes::Named;
use super::training::{Cut, Faults, Run};

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

/// Every study.
#[cfg(test)]
pub const ALL: [Study; 8] = [TESTBED, WORKERS, FAULTS, UNIFORM, THRESHOLD, TWO_BIT, COMMUNICATION, BITS];

const SCHEMES: [Named; 6] = [
    Named::Exact,
    Named::THC,
    Named::TopK { inverse: 10 },
    Named::Dgc,
    Named::TernGrad,
    Named::Qsgd { up: 4, down: 8 },
];

/// Bytes from which SlimGC's rule compresses in its Fig. 11, where it reaches the accuracy of exact means.
const THRESHOLD_BYTES: usize = 15_000;
/// Thousandths of the 2-bit threshold where it is not varied: the best of those of Fig. 10 here. The paper's is 0.5, for MXNet's sums of gradients.
const USUAL: u32 = 30;

fn plain(workers: u8, schemes: &[Named]) -> Vec<Run> {
    schemes.iter().map(|scheme| Run::plain(workers, *scheme)).collect()
}

fn workers() -> Vec<Run> {
    let of = |workers: u8| {
        // TopK sends a value of 32 bits and a position of 16 for each coordinate that it sends.
        let down = if workers <= 7 { 8 } else { 16 };
        let thc = Named::Thc { granularity: 36, inverse: 32 };
        let others =
            [Named::TopK { inverse: 12 }, Named::Qsgd { up: 4, down }, Named::TernGrad, Named::SignSgd];
        plain(workers, &[&[Named::Exact, thc], &others[..]].concat())
    };
    [4, 8, 16, 32, 64].into_iter().flat_map(of).collect()
}

fn faults() -> Vec<Run> {
    let thc = Named::Thc { granularity: 20, inverse: 512 };
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
