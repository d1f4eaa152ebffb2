//! AQGB's tables and figures.

use super::entry::{Entry, Paper, Status};
use super::study::{ADAPTED, BITS};

/// The paper.
pub const PAPER: Paper = Paper {
    name: "aqgb",
    title: "Luo, Liu, Li, Xing, Zhang: Approximate Gradient Synchronization With Adaptive Quantized Gradient Broadcast (AQGB), Future \
            Generation Computer Systems 2025",
    figures: 14,
    tables: 2,
    claims: 0,
};

const SIMULATED: &str = "the paper's simulator, built anew: ResNet-50 on 16 workers, 200 s, 2.5 Gb/s where nothing else is said; q̄ is 0.125, \
                         4 of 32 bits; sizes and times of blocks are those of Table 1";
const PAGE: &str = "simulate.md";
const SLOWEST: &str = "in each round all workers wait for the slowest of 16. It takes 1.63 s in the mean if a worker's whole round is drawn from the paper's distribution, so at most 122 rounds are possible. The paper may also mean that the time of each block's pass is drawn separately. A test of this (--times pieces) gives 127 rounds with 4 bits and 121 with AQGB";
const SMALL: &str = "a character model on a text in place of ResNet-50 on CIFAR-10; four workers";

/// Its tables and figures.
pub const ENTRIES: [Entry; 16] = [
    Entry::figure(1, "", "The steps of training with several workers", "", Status::Drawing),
    Entry::figure(
        2,
        "",
        "Training loss under QSGD and TFP of fixed bits, without error feedback",
        "training with fewer bits learns more slowly; TFP learns like QSGD; curves without numbers",
        Status::Scaled { how: SMALL, study: BITS },
    )
    .with_reason("the order is the paper's: training with few bits learns more slowly, and TFP learns as well as QSGD with the same number of bits, or better. With SGD in place of Adam, QSGD with 2 bits diverges. The paper's curves have no numbers"),
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
        "ratios rise and fall with the bandwidth, between q̄ = 0.375 and 1; a picture without numbers",
        Status::Elsewhere {
            how: "the paper's simulator, built anew: ResNet-50 on 8 workers, a link of 2.5, then 1, then 5 Gb/s",
            command: "thc simulate row --workers 8 --scheme aqgb --least 0.375 --steps 0:2.5gbit,60:1gbit,120:5gbit --svg ratio.svg",
            ours: "mean ratio of the first stage 0.38, 0.38, 0.58, most 0.43, 0.38, 1; with q̄ = 0.125 means 0.35, 0.15, 0.46, \
                   most 0.96, 0.21, 1 (from 5 s after a change on; one seed)",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show"),
    Entry::figure(
        10,
        "",
        "Rounds, waiting and ROW in 200 s",
        "39 rounds without quantization, 130 with 4 bits, 127 with AQGB; bandwidth used 90 %, less than half of AQGB's, 77 %",
        Status::Elsewhere {
            how: SIMULATED,
            command: "thc simulate row",
            ours: "38, 121 to 122, 117 rounds (seeds 1 to 3); bandwidth used 93, 37, 71 %: 4 bits reach 52 % of AQGB's, published less than \
                   half; T_wait / T_comp 2.4, 0.09, 0.13 to 0.14; ROW 0.27, 1.2, 2.7 to 2.8",
            page: PAGE,
        },
    )
    .with_reason(SLOWEST),
    Entry::figure(
        11,
        "",
        "Convergence and accuracy, 8 workers",
        "AQGB converges almost as without quantization, and 4-bit QSGD less well",
        Status::Scaled {
            how: "a character model in four blocks of the sizes of Table 1, 8 workers, with the bits for which AQGB finds time in thc simulate row; first as \
                  many rounds for all, then as many as each has in 200 s",
            study: ADAPTED,
        },
    )
    .with_reason("the order is the paper's. After the same number of rounds AQGB is close to exact means and 4-bit QSGD is worse, and after 200 s AQGB is the best. With 8 workers instead of 16, a link of 2.5 Gb/s leaves AQGB time for 17.6 bits"),
    Entry::figure(
        12,
        "",
        "By bandwidth, 2 to 10 Gb/s",
        "rounds grow without quantization, hardly with 4 bits or AQGB; bandwidth used falls; AQGB's ROW is above that of 4 bits, and falls \
         once communication is no bottleneck; pictures without numbers",
        Status::Elsewhere {
            how: SIMULATED,
            command: "thc simulate row --scheme plain,fixed4,aqgb --rate 2gbit,4gbit,6gbit,8gbit,10gbit",
            ours: "at 2, 4, 6, 8, 10 Gb/s rounds 31, 59, 84, 106, 112 without quantization, 121 to 122 with 4 bits, 116 to 121 with AQGB; \
                   bandwidth used 95 to 69, 47 to 9, 71 to 79 %; AQGB's ROW 2.6, 3.3, 3.8, 2.8, 2.0 (one seed)",
            page: PAGE,
        },
    )
    .with_reason(
        "AQGB's use of the bandwidth rises to 79 % at 6 Gb/s before it falls to 71 %, since AQGB sends more bits when there is time for them: 6.4 of 32 at 2 Gb/s, and 30.6 at 10. In the paper the use falls throughout. In a test with q̄ = 0.375, the paper's value in Figure 9, it falls from 85 through 80 and 76 to 71 %, except for 80 % at 8 Gb/s",
    ),
    Entry::figure(
        13,
        "",
        "With stragglers",
        "4 bits and AQGB improve rounds by \"only about 125.6 % and 118.0 %\" over those without quantization; T_wait and ROW drop by \
         almost an order of magnitude",
        Status::Elsewhere {
            how: "the same simulator, with an exponential tail that has the ends and the mean of the paper's Fig. 8",
            command: "thc simulate row --times stragglers",
            ours: "38 rounds without quantization, 103 to 107 with 4 bits (+171 to +182 %), 100 to 103 with AQGB (+163 to +171 %), seeds 1 to 3; \
                   T_wait of 4 bits grows 2.7 to 3.1 times, ROW falls from 1.2 to 0.5 to 0.6",
            page: PAGE,
        },
    )
    .with_reason(
        "if the percentages are those of additional rounds, the paper has 88 and 85 rounds where it has 39 without quantization. The tail of the distribution decides, of which the paper has only a picture: a heavier tail gives fewer rounds",
    ),
    Entry::figure(
        14,
        "",
        "By the number of blocks, not split and 3 to 6",
        "more blocks give few more rounds and a clearly larger ROW; a picture without numbers",
        Status::Elsewhere {
            how: SIMULATED,
            command: "thc simulate row --scheme aqgb --blocks 1,3,4,5,6",
            ours: "98 rounds not split, 117 with 3 to 5 blocks, 119 to 120 with 6; ROW 0, 2.4, 2.7 to 2.8, 3.6, 4.1 (seeds 1 to 3)",
            page: PAGE,
        },
    )
    .with_reason("none that numbers show. This project chose the times of 5 and 6 blocks, since the paper gives none"),
    Entry::table(1, "The blocks of ResNet-50", "", Status::Drawing),
    Entry::table(
        2,
        "ResNet-50 on CIFAR-10: accuracy, convergence, speed-up",
        "85.36 % without, 82.94 % with 4-bit QSGD, 84.69 % with AQGB; convergence 0.76 and 0.97 times; speed-up 2.54 and 3.15",
        Status::Scaled { how: "as Figure 11", study: ADAPTED },
    )
    .with_reason(
        "as in Figure 11, after the same number of rounds AQGB loses 0.01 nats and 4-bit QSGD 0.07 compared with exact means. Figure 10 has the part of the speed-up that comes from more rounds in the same time: 3.2 times for 4 bits (published 3.33) and 3.1 times for AQGB (published 3.26)",
    ),
];
