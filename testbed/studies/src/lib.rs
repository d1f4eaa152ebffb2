//! The laboratory beside THC: what measures, simulates and compares it. It uses all of the product, and nothing of the product uses it.

pub mod bench;
pub mod cli;
mod papers;
mod simulate;
mod table;
mod units;

use thc_demo::error;
