//! L-GreCo's tables and figures.

use super::entry::{Entry, Paper, Status};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "lgreco",
    title: "Markov, Alimohammadi, Frantar, Alistarh: L-GreCo: Layerwise-adaptive Gradient Compression for Efficient Data-parallel Deep \
            Learning, MLSys 2024",
    figures: 7,
    tables: 4,
};

const TRANSFORMER: &str = "a transformer of 78 tensors on characters in place of Transformer-XL on WikiText-103; two ranks, three seeds";
const ADAPT: &str = "make bench-adapt";
const PAGE: &str = "adapt.md";
const NO_GPUS: &str = "throughput of 4 to 16 GPUs: none is at hand";

/// Its tables and figures; those of its appendix are not in the text that is at hand.
pub const ENTRIES: [Entry; 13] = [
    Entry::figure(
        1,
        "",
        "Ranks that are chosen for PowerSGD on Transformer-XL",
        "ranks above and below the uniform one, by layer; a picture without numbers",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "the picture adapt-choices.svg",
            page: PAGE,
        },
    )
    .because("another model; the choices spread over the range as in the paper"),
    Entry::figure(
        2,
        "",
        "Perplexity by time of a step, PowerSGD",
        "better perplexity and shorter steps than uniform ranks; a picture without numbers",
        Status::NotRun(NO_GPUS),
    ),
    Entry::figure(3, "", "Throughput on four hosts", "up to 2.4 times uniform compression", Status::NotRun(NO_GPUS)),
    Entry::figure(4, "", "Throughput on one host", "up to 25 % above uniform compression", Status::NotRun(NO_GPUS)),
    Entry::figure(
        5,
        "",
        "Where the time of a step goes, without compression and with PowerSGD, rank 32",
        "compression takes less than 10 % of a step",
        Status::NotRun(NO_GPUS),
    ),
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
    .because(
        "ranks 4 to 16 of small matrices leave less to compress than ranks 8 to 64 of large ones. Ours loses accuracy with both together \
         (11.4 % perplexity), the paper's does not: with so few steps Accordion takes the larger loss early. Over uniform the gain is 1.44, \
         1.37 and 2.14 times, in the paper 1.67, 1.70 and 2.62",
    ),
    Entry::figure(
        6,
        "b",
        "What each bucket sends: L-GreCo, Accordion, k-means",
        "L-GreCo sends half of Accordion's last bucket",
        Status::NotRun("CGX's k-means is not built here"),
    ),
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
    .because("none that numbers show"),
    Entry::figure(
        7,
        "b",
        "What a bucket's bytes cost in time",
        "nearly the same for all buckets; the regression's score is close to 1",
        Status::NotRun("the regression is built (objective=\"time\") and tested; its coefficients on several GPUs cannot be measured here"),
    ),
    Entry::table(
        1,
        "What choosing costs, as a share of training",
        "PowerSGD 0.56 and 0.15 %, QSGD 0.14 and 0.04 %, TopK 0.38 and 0.33 % (Transformer-XL, ResNet-50)",
        Status::Elsewhere {
            how: "milliseconds of one choice on a CPU",
            command: ADAPT,
            ours: "9 to 138 ms for the errors and 13 to 178 ms for the choice in steps (exact: 0.3 to 20 ms)",
            page: PAGE,
        },
    )
    .because("a share of a training of minutes on a CPU would say nothing of one of hours on GPUs"),
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
    .because(
        "TopK of 1 % does not recover within these few steps, with uniform ratios either, so its 4.20 is no success; PowerSGD's matrices are \
         too small for rank 4 to be a tight default",
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
    .because("300 steps: what compression delays is not made up for at the end, as it is in a training to convergence"),
    Entry::table(
        4,
        "L-GreCo beside Accordion, k-means and both, PowerSGD on Transformer-XL",
        "ratios: uniform 14.1, L-GreCo 23.5, Accordion 23.9, k-means 21.6, L-GreCo with Accordion 36.9; 110k to 144k tokens/s",
        Status::Elsewhere {
            how: TRANSFORMER,
            command: ADAPT,
            ours: "uniform 5.7, L-GreCo 8.2, Accordion 7.8, both 12.2; perplexity 14.8, 15.0, 15.5, 15.9; k-means and tokens/s not run",
            page: PAGE,
        },
    )
    .because("as Figure 6a"),
];
