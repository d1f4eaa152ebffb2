//! Rows that none of the papers has: the schemes together.

use super::entry::{Entry, Paper, Status};
use super::layers::CHOSEN;
use super::study::{LANES, OUTER, TOGETHER};

/// What stands for a paper.
pub const PAPER: Paper = Paper {
    name: "together",
    title: "What none of the papers has: their schemes together, and THC between outer steps",
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
            how: "a character model of seven tensors on a text, four workers; of the second stage so much as 2.5 Gb/s leave time for in thc simulate row",
            study: TOGETHER,
        },
    )
    .with_reason("L-GreCo saves a fifth of the bits up at no loss, the threshold costs few and gains little, and the second stage sends nearly twice as many bits for no better loss: after one \
         call error feedback has what is lost in the next step anyway. All together are as good as THC alone, which is at exact means already: there is nothing left to gain by \
         accuracy"),
    Entry::table(
        2,
        "Outer steps of DiLoCo with THC",
        "SparseLoCo (Sarfi, Thérien, Lidin, Belilovsky 2025, arXiv 2508.15706): 1 to 3 % of the coordinates in 2 bits, \"> 97×\" fewer bytes a \
         synchronization by its authors, with a loss below that of DiLoCo in full precision",
        Status::Scaled { how: "a character model on a text, four workers, ten steps of Adam between outer steps", study: OUTER },
    )
    .with_reason("THC of 4 bits between outer steps loses 0.02 nats beside outer steps in full precision after 20 of them, and nothing after 100 (2.91 against 2.92), at 7.9 times fewer bits up and \
         3.9 times fewer down; with 10 steps between them 79 times fewer up than every step in full precision. SparseLoCo, built anew by its description (0.95 of what was not sent in \
         place of the outer momentum, chunks of 4096, 2 bits), sends 71 times fewer bits a synchronization with 1/32 of the coordinates and 200 times with 1/100, published more than \
         97. With 1/32 it is better than TopK with the momentum, but 0.13 nats behind full precision after 20 outer steps and 0.16 after 100, where the paper has it ahead: so more \
         outer steps are not what it lacks, up to there; a larger model and ten times as many were not tried. Outer steps lose beside a step each in so short a training, in full \
         precision as well"),
    Entry::table(
        3,
        "THC on a ring in lanes",
        "DynamiQ (Han, Vargaftik, Mitzenmacher, Ben Basat 2026, arXiv 2602.08923), which decompresses and compresses again at each hop: 99.9 % of \
         BF16's accuracy with 5 bits a coordinate, in fine-tuning BERT-large and language models of 1 B parameters",
        Status::Scaled { how: "a character model on a text, four workers, from the beginning and from a trained model; bits are those that a worker sends and gets on the ring", study: LANES },
    )
    .with_reason("from a trained model lanes of 8 and 6 bits have 99.9 and 100.0 % of the accuracy of exact means, those of 5 bits 99.8 %, where DynamiQ has 99.9; from the beginning they lose \
         0.000, 0.006 and 0.015 nats. Lanes of 5 bits are DynamiQ's bytes with four workers, and nothing is compressed again; but a lane has to hold the sum, so that with eight \
         workers 5 bits leave 4 values in place of 8, and DynamiQ's bits do not grow with workers. None of its models is at hand, nor its code: its time was not compared"),
    Entry::table(
        4,
        "Parameters by tensor on gradients of real architectures",
        "L-GreCo's Tables 2 and 3: 1.10 to 1.41 (QSGD) and 2.61 to 5.2 times (TopK) fewer bits than uniform parameters",
        Status::Computed { how: "torchvision's ResNet-18 and MobileNetV2, transformers' ViT, GPT-2 and BERT with random weights, small ones, after 24 steps on \
                scikit-learn's digits and the words of Python's documentation; gradients of four workers, chosen by those of the 12 steps before; tensors below 1500 B are exact", sheet: CHOSEN },
    )
    .with_reason("L-GreCo sends 1.6 to 1.9 (QSGD), 2.0 to 8.6 (TopK) and 1.08 to 1.19 times (THC, 1.3 to 1.9 up, since sums have 8 bits whatever is chosen) fewer bits than uniform parameters: \
         more than in the paper, whose gains are those of whole trainings that keep their accuracy. Its bound holds for the gradients it chose by; on those of the next step the \
         error is 0.7 to 1.5 times that of uniform parameters. k-means has no bound, and shows it: 0.07 to 24 times"),
];
