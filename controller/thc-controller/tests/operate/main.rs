//! What operators have in hand: commands, certificates, metrics; against the program itself.
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
mod metrics;
mod programs;
mod restarts;
mod scale;
mod strict;
mod tls;
mod unreliable;
