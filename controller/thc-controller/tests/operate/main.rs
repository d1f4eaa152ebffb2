//! What operators have in hand: commands, certificates, page, metrics, packaging; against the program itself.
#![allow(clippy::unwrap_used, missing_docs)]

mod aggregator;
mod awaits;
mod chromium;
mod commands;
mod controller;
mod converge;
mod declared;
mod faults;
mod installation;
mod joining;
mod lag;
mod metrics;
mod packaging;
mod page;
mod programs;
mod prometheus;
mod strict;
mod tls;
mod unreliable;
