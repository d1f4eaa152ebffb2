//! Rows that none of the papers has: the schemes together.

use super::entry::{Entry, Paper, Status};
use super::study::{OUTER, TOGETHER};

/// What stands for a paper.
pub const PAPER: Paper = Paper {
    name: "together",
    title: "What none of the papers has: their schemes together, and THC between outer steps",
    figures: 0,
    tables: 2,
    claims: 0,
};

/// Its tables.
pub const ENTRIES: [Entry; 2] = [
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
];
