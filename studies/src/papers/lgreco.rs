//! L-GreCo's tables and figures.

use super::entry::{Entry, Paper, Part, Status};
use super::lgreco_speed::{BUCKETS, LINKS, OVERHEAD, SPEED};
use super::study::CHOICES;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "lgreco",
    title: "Markov, Alimohammadi, Frantar, Alistarh: L-GreCo: Layerwise-adaptive Gradient Compression for Efficient Data-parallel Deep \
            Learning, MLSys 2024",
    figures: 7,
    tables: 4,
    claims: 0,
};

const TRANSFORMER: &str = "a transformer of 78 tensors on characters in place of Transformer-XL on WikiText-103; two ranks, three seeds";
const CHARACTERS: &str = "a character model of seven tensors on a text, four workers; the four large tensors have parameters of their own";
const ADAPT: &str = "make bench-adapt";
const PAGE: &str = "adapt.md";
const MODEL: &str = "Transformer-XL's own layers at 18 TFLOP/s, a quarter of an RTX 3090's F16, with the published ratios; 14 Gb/s between the 8 GPUs of a \
                     host, 10 Gb/s between four hosts";

/// Its tables and figures; those of its appendix are not in the text that is at hand.
pub const ENTRIES: [Entry; 13] = [
    Entry::figure(
        1,
        "",
        "Ranks that are chosen for PowerSGD on Transformer-XL",
        "ranks of layers lie above and below the uniform rank; a picture without numbers",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "the picture adapt-choices.svg",
            page: PAGE,
        },
    )
    .with_reason("the model is another one. The choices spread over the range as in the paper"),
    Entry::figure(
        2,
        "",
        "Perplexity by time of a step, PowerSGD",
        "better perplexity and shorter steps than uniform ranks; a picture without numbers",
        Status::Computed { how: MODEL, sheet: SPEED },
    )
    .with_reason("the paper's figure has no numbers. Table 3 has perplexity and bits, and this figure computes the time of a step. The published ratios are those of Table 4"),
    Entry::figure(
        3,
        "",
        "Throughput on four hosts",
        "up to 2.4 times uniform compression",
        Status::Computed { how: MODEL, sheet: SPEED },
    )
    .with_reason("the order is the paper's except for k-means and Accordion, which are close to each other. L-GreCo is 1.52 times as fast, where the paper has 2.08 (Table 4), and 2.02 times with Accordion, where the paper has 2.44. Uniform ranks are nearer to L-GreCo here, since their step spends 64 % of its time on the link. The actual speed of the cloud's links (\"up to 10 Gb/s\") is not known. Slower links were tested (the second table). At 3 Gb/s L-GreCo with Accordion reaches 2.42, but L-GreCo alone cannot exceed 1.67, the ratio of 23.5 to 14.1, however slow the links are. So bytes alone do not explain its 2.08")
    .with_parts(&[Part::Sheet(LINKS)]),
    Entry::figure(
        4,
        "",
        "Throughput on one host",
        "up to 25 % above uniform compression",
        Status::Computed { how: MODEL, sheet: SPEED },
    )
    .with_reason("the order is the paper's. L-GreCo is 1.17 times as fast, where the paper has 1.31, and 1.21 times with Accordion, where the paper has 1.25"),
    Entry::figure(
        5,
        "",
        "Where the time of a step goes, without compression and with PowerSGD, rank 32",
        "compression takes less than 10 % of a step",
        Status::Computed { how: MODEL, sheet: SPEED },
    )
    .with_reason("three products with rank 32 and four passes over the memory take 3 % of a step. This does not include the orthogonalization and launches of kernels, for which the paper, which gives no number, may have more"),
    Entry::figure(
        6,
        "a",
        "The ratio during a training: L-GreCo, Accordion, both",
        "ratios 23.5, 23.9, 36.9 (Table 4)",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "8.2, 7.8, 12.2 (uniform 5.7); the picture adapt-dynamics.svg",
            page: PAGE,
        },
    )
    .with_reason(
        "ranks 4 to 16 of small matrices leave less to compress than ranks 8 to 64 of large ones. Here both together lose accuracy (11.4 % of perplexity), which they do not in the paper, because in so few steps Accordion chooses the stronger compression early. The gain over uniform ranks is 1.44, 1.37 and 2.14 times, and in the paper 1.67, 1.70 and 2.62",
    ),
    Entry::figure(
        6,
        "b",
        "What each bucket sends: L-GreCo, Accordion, k-means",
        "L-GreCo sends half of Accordion's last bucket",
        Status::Scaled { how: CHARACTERS, study: CHOICES },
    )
    .with_reason("the table shows the bits of the whole model, since four tensors have no buckets. L-GreCo sends 0.8 (QSGD), 0.46 (TopK) and 0.7 (PowerSGD) of the bits of uniform parameters, and k-means 0.8, 0.65 and 0.74. The throughput in Table 4 includes the effect that L-GreCo compresses the last bucket the most"),
    Entry::figure(
        7,
        "a",
        "The loss and the error as measures of a layer's sensitivity",
        "high correlation; coefficients in a picture without numbers",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "0.89 to 0.98, of ranks 0.77 to 0.86",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        7,
        "b",
        "What a bucket's bytes cost in time",
        "the slopes are nearly the same for all buckets, and the regression's score is close to 1",
        Status::Computed { how: "the regression of objective=\"time\" over 200 steps of Transformer-XL's buckets with ratios drawn at random", sheet: BUCKETS },
    )
    .with_reason("the score is the paper's. Slopes double from the first bucket to the last one, because early buckets hide behind the rest of the backward pass. In the paper slopes are nearly the same, as they are if links are so slow that nothing hides"),
    Entry::table(
        1,
        "What choosing costs, as a share of training",
        "PowerSGD 0.56 and 0.15 %, QSGD 0.14 and 0.04 %, TopK 0.38 and 0.33 % (Transformer-XL, ResNet-50)",
        Status::Elsewhere {
            how: "milliseconds of one choice on a CPU, and (the table) an epoch of the real layers on a GPU: operations and memory of an RTX 3090, 2.3 ns for a state of the dynamic \
                  program on a core",
            command: ADAPT,
            ours: "9 to 138 ms for the errors and 13 to 178 ms for the choice in steps (exact: 0.3 to 20 ms)",
            page: PAGE,
        },
    )
    .with_reason("the computed shares are within a factor of three for TopK (0.62 and 0.25 %, published 0.38 and 0.33) and for PowerSGD on Transformer-XL (0.21 %, published 0.56). For the others they are three to ten times smaller, since memory and operations are not all that takes time. In the paper measuring the errors takes nearly all of the time, and here half of it: a core takes as long for the dynamic program as a GPU for the errors. In a measurement, choosing every 40 steps takes 3.2 % (QSGD), 7.8 % (TopK) and 2.1 % (PowerSGD) of the transformer's small training on a busy CPU (python/bench/run adapt --parts tables --tasks transformer --seeds 1 --steps 120), whose epochs have 40 steps, while the paper's have hundreds or thousands")
    .with_parts(&[Part::Sheet(OVERHEAD)]),
    Entry::table(
        2,
        "Accuracy and ratio, image classification",
        "ratios of L-GreCo over uniform: QSGD 1.10 and 1.41, TopK 3.78 and 2.67, PowerSGD 1.85 and 1.44; accuracy within 1 % of the baseline",
        Status::Elsewhere {
            how: "a small network of convolutions on scikit-learn's digits; two ranks, three seeds",
            command: ADAPT,
            ours: "QSGD 1.13, TopK 4.20, PowerSGD 1.38, THC 1.38; accuracy 0.943, 0.831, 0.923, 0.944 (none: 0.941)",
            page: PAGE,
        },
    )
    .with_reason(
        "TopK with 1 % does not recover within these few steps, nor does it with uniform ratios, so its ratio of 4.20 is not a success. PowerSGD's matrices are so small that rank 4 is a generous default",
    ),
    Entry::table(
        3,
        "Perplexity and ratio, language modeling",
        "ratios of L-GreCo over uniform: QSGD 1.16 and 1.26, TopK 2.61 and 5.2, PowerSGD 1.48 and 1.76; perplexity at most 0.85 above the baseline",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "QSGD 1.25, TopK 3.04, PowerSGD 1.42, THC 1.29; perplexity 14.5, 15.6, 14.8, 14.6 (none: 14.3)",
            page: PAGE,
        },
    )
    .with_reason("in 300 steps a training does not make up for the delay that compression causes, as it does in a training to convergence"),
    Entry::table(
        4,
        "L-GreCo beside Accordion, k-means and both, PowerSGD on Transformer-XL",
        "ratios: uniform 14.1, L-GreCo 23.5, Accordion 23.9, k-means 21.6, L-GreCo with Accordion 36.9; 110k to 144k tokens/s",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "uniform 5.7, L-GreCo 8.2, Accordion 7.8, both 12.2; perplexity 14.8, 15.0, 15.5, 15.9; k-means and tokens/s are in the tables",
            page: PAGE,
        },
    )
    .with_reason("ratios differ as in Figure 6a, and throughput as in Figures 3 and 4. k-means and global TopK (over all tensors at once) were run with the character model: L-GreCo sends fewer bits than k-means with every scheme, and global TopK sends as many bits as uniform ratios for each tensor and learns as well")
    .with_parts(&[Part::Study(CHOICES), Part::Sheet(SPEED)]),
];
