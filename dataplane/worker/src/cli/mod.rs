//! The command line of `thc-worker`.

pub mod doctor;
pub mod options;
pub mod output;
pub mod run;
pub mod signals;
pub mod spans;
pub mod tensors;
