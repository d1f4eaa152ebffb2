//! Experiments that none of the papers has: their schemes together.

use super::entry::{Entry, Paper, Status};
use super::layers::CHOSEN;
use super::study::{LANES, OUTER, TOGETHER};

/// What stands for a paper.
pub const PAPER: Paper = Paper {
    name: "together",
    title: "Experiments that none of the papers has: their schemes combined, and THC between outer steps",
    figures: 0,
    tables: 4,
    claims: 0,
};

/// Its tables.
pub const ENTRIES: [Entry; 4] = [
    Entry::table(
        1,
        "THC with L-GreCo's choices, SlimGC's threshold and AQGB's second stage, each alone and all together",
        "nothing: no paper combines them",
        Status::Scaled {
            how: "a character model of seven tensors on a text, four workers; the second stage sends what a link of 2.5 Gb/s leaves time for in thc simulate row",
            study: TOGETHER,
        },
    )
    .with_reason("L-GreCo saves a fifth of the bits up without increasing the loss. The threshold costs few bits and gains little. The second stage sends nearly twice as many bits and does not decrease the loss, because error feedback adds the lost part to the next step anyway. All schemes together are as good as THC alone, which already equals exact means, so accuracy leaves nothing to gain"),
    Entry::table(
        2,
        "Outer steps of DiLoCo with THC",
        "SparseLoCo (Sarfi, Thérien, Lidin, Belilovsky 2025, arXiv 2508.15706): 1 to 3 % of the coordinates in 2 bits, \"> 97×\" fewer bytes a \
         synchronization by its authors, with a loss below that of DiLoCo in full precision",
        Status::Scaled { how: "a character model on a text, four workers, ten steps of Adam between outer steps", study: OUTER },
    )
    .with_reason("THC with 4 bits between outer steps loses 0.02 nats compared with outer steps in full precision after 20 outer steps, and nothing after 100 (2.91 against 2.92). It sends 7.9 times fewer bits up and 3.9 times fewer down, and with 10 steps between outer steps 79 times fewer bits up than a training that averages every step in full precision. SparseLoCo was implemented from its description (0.95 of what was not sent in place of the outer momentum, chunks of 4096, 2 bits). It sends 71 times fewer bits per synchronization with 1/32 of the coordinates and 200 times fewer with 1/100; published are more than 97 times. With 1/32 it is better than TopK with momentum, but 0.13 nats behind full precision after 20 outer steps and 0.16 after 100, where the paper has it ahead. So more outer steps do not help up to this number. A larger model and ten times as many steps were not tried. In so short a training outer steps lose compared with averaging every step, in full precision as well"),
    Entry::table(
        3,
        "THC on a ring in lanes",
        "DynamiQ (Han, Vargaftik, Mitzenmacher, Ben Basat 2026, arXiv 2602.08923), which decompresses and compresses again at each hop: 99.9 % of \
         BF16's accuracy with 5 bits a coordinate, in fine-tuning BERT-large and language models of 1 B parameters",
        Status::Scaled { how: "a character model on a text, four workers, from the beginning and from a trained model; bits are those that a worker sends and gets on the ring", study: LANES },
    )
    .with_reason("if training starts from a trained model, lanes of 8 and 6 bits reach 99.9 and 100.0 % of the accuracy of exact means, and those of 5 bits 99.8 %, where DynamiQ has 99.9 %. From the beginning they lose 0.000, 0.006 and 0.015 nats. With four workers lanes of 5 bits send as many bytes as DynamiQ, and no hop compresses anything again. But a lane has to hold the sum, so that 5 bits leave 4 values instead of 8 with eight workers, while DynamiQ's bits do not grow with the number of workers. Neither its models nor its code are available, so times were not compared"),
    Entry::table(
        4,
        "Parameters by tensor on gradients of real architectures",
        "L-GreCo's Tables 2 and 3: 1.10 to 1.41 (QSGD) and 2.61 to 5.2 times (TopK) fewer bits than uniform parameters",
        Status::Computed { how: "torchvision's ResNet-18 and MobileNetV2, transformers' ViT, GPT-2 and BERT with random weights, small ones, after 24 steps on \
                scikit-learn's digits and the words of Python's documentation; gradients of four workers, chosen by those of the 12 steps before; tensors below 1500 B are exact", sheet: CHOSEN },
    )
    .with_reason("L-GreCo sends 1.6 to 1.9 (QSGD), 2.0 to 8.6 (TopK) and 1.08 to 1.19 times fewer bits than uniform parameters (THC; 1.3 to 1.9 times fewer up, since sums have 8 bits in any case). These gains are larger than the paper's, which are those of whole trainings that keep their accuracy. L-GreCo's bound holds for the gradients by which it chooses. On those of the next step the error is 0.7 to 1.5 times that of uniform parameters. k-means has no bound, and its error is 0.07 to 24 times as large"),
];
