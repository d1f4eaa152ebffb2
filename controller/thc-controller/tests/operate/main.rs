//! What operators have in hand: commands, certificates, metrics, packaging; against the program itself.
#![allow(clippy::unwrap_used, missing_docs)]

mod aggregator;
mod authority;
mod awaits;
mod certificates;
mod commands;
mod controller;
mod converge;
mod day;
mod declared;
mod faults;
mod joining;
mod lag;
mod logs;
mod metrics;
mod packaging;
mod programs;
mod prometheus;
mod restarts;
mod scale;
mod strict;
mod tls;
mod unreliable;
