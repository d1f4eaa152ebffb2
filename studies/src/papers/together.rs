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
    .because("L-GreCo saves a fifth of the bits up at no loss, the threshold costs few and gains little, and the second stage sends nearly twice as many bits for no better loss: after one \
         call error feedback has what is lost in the next step anyway. All together are as good as THC alone, which is at exact means already: there is nothing left to gain by \
         accuracy"),
    Entry::table(
        2,
        "Outer steps of DiLoCo with THC",
        "SparseLoCo (Sarfi, Thérien, Lidin, Belilovsky 2025, arXiv 2508.15706): 1 to 3 % of the coordinates in 2 bits, \"> 97×\" fewer bytes a \
         synchronization by its authors, with a loss below that of DiLoCo in full precision",
        Status::Scaled { how: "a character model on a text, four workers, ten steps of Adam between outer steps", study: OUTER },
    )
    .because("THC of 4 bits between outer steps loses 0.02 nats beside outer steps in full precision, at 7.8 times fewer bits up and 4 times fewer down; with 10 steps between them 78 times fewer up \
         than every step in full precision. SparseLoCo's 97 times is by synchronization alone, 12 times THC's: it keeps 1 to 3 % of coordinates, which TopK of 1/32, without its \
         schedule and its momentum, does not recover from within 20 outer steps here. Outer steps lose beside a step each in so short a training, in full precision as well"),
    Entry::table(
        3,
        "THC on a ring in lanes",
        "DynamiQ (Han, Vargaftik, Mitzenmacher, Ben Basat 2026, arXiv 2602.08923), which decompresses and compresses again at each hop: 99.9 % of \
         BF16's accuracy with 5 bits a coordinate, in fine-tuning BERT-large and language models of 1 B parameters",
        Status::Scaled { how: "a character model on a text, four workers, from the beginning and from a trained model; bits are those that a worker sends and gets on the ring", study: LANES },
    )
    .because("from a trained model lanes of 8 and 6 bits have 99.9 and 100.0 % of the accuracy of exact means, those of 5 bits 99.8 %, where DynamiQ has 99.9; from the beginning they lose \
         0.000, 0.006 and 0.015 nats. Lanes of 5 bits are DynamiQ's bytes with four workers, and nothing is compressed again; but a lane has to hold the sum, so that with eight \
         workers 5 bits leave 4 values in place of 8, and DynamiQ's bits do not grow with workers. None of its models is at hand, nor its code: its time was not compared"),
    Entry::table(
        4,
        "Parameters by tensor on gradients of real architectures",
        "L-GreCo's Tables 2 and 3: 1.10 to 1.41 (QSGD) and 2.61 to 5.2 times (TopK) fewer bits than uniform parameters",
        Status::Computed { how: "torchvision's ResNet-18 and MobileNetV2, transformers' ViT, GPT-2 and BERT with random weights, small ones, after 24 steps on \
                scikit-learn's digits and the words of Python's documentation; gradients of four workers, chosen by those of the 12 steps before; tensors below 1500 B are exact", sheet: CHOSEN },
    )
    .because("TODO"),
];
