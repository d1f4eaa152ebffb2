//! The command line of `thc-worker`.

pub mod options;
pub mod run;
pub mod tensors;
