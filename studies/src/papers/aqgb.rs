//! AQGB's tables and figures.

use super::entry::{Entry, Paper, Status};
use super::study::BITS;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "aqgb",
    title: "Luo and others: adaptive quantization of gradients by bandwidth (AQGB), Future Generation Computer Systems 2025",
    figures: 14,
    tables: 2,
};

const CHANGING: &str = "two processes with 11.3 M parameters on a CPU, whose links change between 0.3, 1 and 10 Gb/s; refinement in two stages \
                        (wrap(refine=…)) in place of broadcasts among 8 to 16 workers";
const SIMULATOR: &str = "the paper's simulator of ResNet-50 on 16 workers at 2.5 Gb/s, with SCALE-SIM's times of layers, is not rebuilt here";
const COMMAND: &str = "python/bench/run changing";
const PAGE: &str = "pytorch-measured.md";
const SMALL: &str = "a character model on a text in place of ResNet-50 on CIFAR-10; four workers";

/// Its tables and figures.
pub const ENTRIES: [Entry; 16] = [
    Entry::figure(1, "", "The steps of training with several workers", "", Status::Drawing),
    Entry::figure(
        2,
        "",
        "Training loss under QSGD and TFP of fixed bits, without error feedback",
        "fewer bits learn slower; TFP as QSGD; curves without numbers",
        Status::Scaled { how: SMALL, study: BITS },
    )
    .because("few, small steps with Adam: differences between 4 and 8 bits are within the spread of seeds"),
    Entry::figure(3, "", "An example of the metric ROW", "", Status::Drawing),
    Entry::figure(4, "", "Broadcasting in two stages", "", Status::Drawing),
    Entry::figure(5, "", "Examples of both stages", "", Status::Drawing),
    Entry::figure(6, "", "Truncating a float", "", Status::Drawing),
    Entry::figure(7, "", "Rounding at random", "", Status::Drawing),
    Entry::figure(8, "", "The distribution of times that the simulator draws from", "", Status::Drawing),
    Entry::figure(
        9,
        "",
        "The ratio follows the bandwidth",
        "ratios rise and fall with the bandwidth; a picture without numbers",
        Status::Elsewhere { how: CHANGING, command: COMMAND, ours: "widths of each link, printed by the command", page: PAGE },
    )
    .because("none that numbers show"),
    Entry::figure(
        10,
        "",
        "Rounds, waiting and ROW in 200 s",
        "39 rounds without quantization, 127 with AQGB, 130 with 4 bits; bandwidth used 90, 77 and less than half of it",
        Status::Elsewhere {
            how: CHANGING,
            command: COMMAND,
            ours: "step and waiting in ms with 4 bits, refined, and both: 205 and 72, 230 and 72, 305 and 126 (warm-up) at 1 Gb/s; \
                   383 and 251, 381 and 250, 200 and 51 at 0.3 Gb/s",
            page: PAGE,
        },
    )
    .because("links and computing are in another proportion, and two ranks share two cores with the network"),
    Entry::figure(
        11,
        "",
        "Convergence and accuracy, 8 workers",
        "AQGB nearly as without quantization, 4-bit QSGD below",
        Status::Scaled { how: "fixed bits alone; AQGB's own loss on a changing link is in docs/pytorch-measured.md", study: BITS },
    )
    .because("as Figure 2"),
    Entry::figure(12, "", "By bandwidth, 2 to 10 Gb/s", "with more bandwidth less is gained; pictures without numbers", Status::NotRun(SIMULATOR)),
    Entry::figure(13, "", "With stragglers", "rounds 125.6 % (4 bits) and 118.0 % (AQGB) of those without quantization", Status::NotRun(SIMULATOR)),
    Entry::figure(14, "", "By the number of blocks, 3 to 6", "few more rounds, clearly larger ROW; a picture without numbers", Status::NotRun(SIMULATOR)),
    Entry::table(1, "The blocks of ResNet-50", "", Status::Drawing),
    Entry::table(
        2,
        "ResNet-50 on CIFAR-10: accuracy, convergence, speed-up",
        "85.36 % without, 82.94 % with 4-bit QSGD, 84.69 % with AQGB; convergence 0.76 and 0.97 times; speed-up 2.54 and 3.15",
        Status::Scaled { how: "accuracy of fixed bits alone", study: BITS },
    )
    .because("as Figure 2; a speed-up needs the paper's simulator"),
];
