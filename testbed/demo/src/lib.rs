//! The program `thc`: the demo, lookup tables, the error of the mean.

pub mod cli;
pub mod demo;
pub mod error;
pub mod nmse;
pub mod table;
mod testbed;
