//! Tables and figures of the paper on double quantization (AsyLPG).

use super::double_sheets::{METHODS, RATES};
use super::entry::{Entry, Paper, Part, Status};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "double-quantization",
    title: "Yu, Wu, Huang: Double Quantization for Communication-Efficient Distributed Optimization, NeurIPS 2019",
    figures: 6,
    tables: 1,
    claims: 1,
};

const PAGE: &str = "asynchronous.md";
const LOGISTIC: &str = "logistic regression on made-up sparse data of the shapes of rcv1 and real-sim; real processes on one host";
const DIGITS: &str = "scikit-learn's 1797 digits of 8 × 8 in place of MNIST; the same network of 100 hidden units, real processes on one host";
const MU: &str = "thc async mu --data digits --epochs 60";

/// Its tables and figures.
pub const ENTRIES: [Entry; 8] = [
    Entry::figure(1, "", "A server, its workers, and the order of their steps", "", Status::Drawing),
    Entry::figure(
        2,
        "",
        "The μ with which condition (2) holds, by epoch, for 8 and 4 bits",
        "large at the beginning of an epoch, bounded by a constant; curves without numbers",
        Status::Elsewhere {
            how: "digits and data of rcv1's shape in place of covtype",
            command: MU,
            ours: "large at the beginning of an epoch, and falling within it; the pictures async-mu-digits.svg and async-mu-rcv1.svg",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        3,
        "",
        "Logistic regression: loss, time, bits",
        "fewer bits than AsyFPG: AsyLPG 6.48, Sparse-AsyLPG 7.33, Acc-AsyLPG 19.19 times",
        Status::Elsewhere {
            how: LOGISTIC,
            command: "thc async demo --data rcv1 --epochs 60 --rate 0.05,0.1",
            ours: "3.99, 8.10, 11.90 times (on the wire, with zeros left out, 7.10, 8.12, 20.46); seconds on 100 Mb/s: AsyFPG 17.9, AsyLPG 5.9, \
                   Sparse-AsyLPG 4.0",
            page: PAGE,
        },
    )
    .with_reason(
        "8 of 32 bits in each direction are 4 times fewer, and the number of steps is that with floats, so the widths do not explain the paper's 6.48. Momentum needs 3.0 times fewer steps, as in the paper",
    ),
    Entry::figure(
        4,
        "",
        "A network of 100 hidden units on MNIST",
        "low-precision methods converge as full-precision ones; curves without numbers",
        Status::Elsewhere {
            how: DIGITS,
            command: "thc async demo --data digits --until-target --epochs 400",
            ours: "the same; the picture async-digits.svg",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        5,
        "",
        "The error of the quantized model diminishes, μ = 0.6",
        "it falls with iterations; a curve without numbers",
        Status::Elsewhere {
            how: DIGITS,
            command: MU,
            ours: "it falls from epoch to epoch; the picture async-mu-digits.svg",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        6,
        "",
        "ResNet18 on CIFAR-10: loss, accuracy, bits",
        "similar accuracy with fewer bits; curves without numbers",
        Status::Elsewhere {
            how: "a residual network of 9 layers on scikit-learn's digits in place of ResNet18 on CIFAR-10; four processes, one of which is slow; one seed",
            command: "python/bench/unequal --model resnet --pace 0.1 --seconds 60",
            ours: "after 60 s a loss of 0.0002 with 8 bits down and 4 up, 0.0001 with floats; a loss of 0.05 after 4.7 and 5.0 s; 12 bits a coordinate and \
                   exchange in place of 64",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::table(
        1,
        "MNIST: bits until a loss, by method and by μ",
        "fewer bits than AsyFPG: Acc-AsyFPG 3.52, QSVRG 5.38, HALP 3.29, AsyLPG 7.28, Sparse 8.87, Acc 19.13 times; fewest at μ = 0.1 to 50",
        Status::Elsewhere {
            how: DIGITS,
            command: "thc async demo --data digits --until-target --epochs 400; thc async mu --data digits",
            ours: "Acc-AsyFPG 2.72 (2.69 to 2.74), QSVRG 1.81 (1.78 to 1.83), HALP 1.59 (1.57 to 1.60), AsyLPG 5.42 (5.38 to 5.46), Sparse 7.83 \
                   (7.73 to 7.96), Acc 14.4 (14.2 to 14.5) times; fewest at μ = 10",
            page: PAGE,
        },
    )
    .with_reason(
        "by their widths alone AsyLPG can save 5.33 times, QSVRG 1.78 times and HALP 1.6 times. So in the paper quantized methods needed fewer steps than AsyFPG, whose loss fell below 0.05 within one epoch, where much depends on a single run. HALP has no bit-centering in these runs. Two causes were tested with a logistic regression in one process. Step sizes that are tuned for each method, as in the paper, do not explain the ratios (QSVRG 1.7 and AsyLPG 4.5, with the best of five step sizes for each as well as with one for all). Bit-centering sends as many bits to this loss, and only makes the gradient smaller in the end (Claim 1). So the part of the paper's ratios that exceeds the widths stays unexplained",
    )
    .with_parts(&[Part::Sheet(METHODS)]),
    Entry::claim(
        1,
        "Theorems 2 to 4: how fast the methods converge",
        "with an output drawn uniformly ‖G‖² falls as 1/T or faster (AsyLPG, Sparse-AsyLPG); Acc-AsyLPG's distance from the least loss falls as 1/S²",
        Status::Computed { how: "logistic regression on 1000 samples of 64 coordinates in one process, delays drawn from 0 to 4 steps", sheet: RATES },
    )
    .with_reason("none for AsyLPG and Sparse-AsyLPG, whose slopes are those of the theorems. The first steps alone keep the mean over all steps above a constant divided by T, so an output drawn uniformly converges no faster, while the last output falls with the fourth power of T and faster. Acc-AsyLPG is faster than its bound, which does not use that the problem is strongly convex"),
];
