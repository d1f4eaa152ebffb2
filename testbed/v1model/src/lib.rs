//! Runs the program for BMv2 without BMv2: what p4c makes of `p4/v1model` (`p4/build/thc.json`), with simple_switch's rules for
//! metadata, replication and recirculation. A controller writes its rows by P4Runtime, and hosts are UDP sockets of this machine.
#![forbid(unsafe_code)]

mod cable;
mod load;
mod program;
mod rows;
mod run;
mod server;
mod switch;

pub use cable::{Cable, Site};
pub use rows::Refused;
pub use server::serve;
pub use switch::{Counted, Switch};
