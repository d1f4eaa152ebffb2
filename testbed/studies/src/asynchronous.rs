//! `thc async`: asynchronous training with double quantization, with real processes, against its baselines.
//!
//! A model server, a parameter server for each epoch's full-batch gradient, and worker processes, one of them slow, train
//! the same problem by each method in turn; reported are curves, transmitted bits, where the time goes.

mod arguments;
mod condition;
mod data;
mod method;
mod network;
mod problem;
mod report;
mod run;
mod worker;

pub use arguments::AsyncArgs;
pub use worker::run_worker;
