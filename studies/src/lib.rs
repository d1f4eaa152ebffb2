//! The laboratory beside THC: what measures, simulates and compares it. It uses all of the product, and nothing of the product uses it.

mod asynchronous;
pub mod bench;
mod charts;
pub mod cli;
pub mod figures;
mod papers;
mod progress;
mod simulate;
mod units;

use thc_demo::error;
