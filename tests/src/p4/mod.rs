//! Runs P4 programs for Tofino without a chip, as p4c's front end hands them to its backend. What the backend makes of
//! them (stages, containers, the assembly) is not in it.

mod chip;
mod expression;
mod lex;
mod program;
mod read;
mod run;
mod state;

pub use chip::{Chip, Order};
pub use read::check;
