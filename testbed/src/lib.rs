//! THC's testbed: the demo, lookup tables and error figures behind the program `thc`.

mod adapt;
mod asynchronous;
pub mod bench;
pub mod cli;
pub mod demo;
pub mod distribution;
pub mod error;
pub mod figures;
pub mod fraction;
pub mod loopback;
pub mod nmse;
mod simulate;
pub mod sweep;
pub mod table;
