//! `thc bench`: what an all-reduce takes, in real processes on links of a given rate.

mod arguments;
mod crew;
mod local;
pub mod part;
mod place;
mod plot;
mod report;
mod run;

pub use arguments::{AllreduceArgs, BenchArgs};
pub use place::Place;
pub use report::Measured;
pub use run::measure;
