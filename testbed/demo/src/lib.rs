//! The program `thc`: the demo, lookup tables, the error of the mean.

pub mod cli;
pub mod demo;
pub mod distribution;
pub mod error;
pub mod loopback;
pub mod nmse;
pub mod sweep;
pub mod table;
