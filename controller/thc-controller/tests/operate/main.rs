//! What operators have in hand: commands, certificates, page, metrics, packaging; against the program itself.
#![allow(clippy::unwrap_used, missing_docs)]

mod aggregator;
mod authority;
mod awaits;
mod certificates;
mod chromium;
mod commands;
mod controller;
mod converge;
mod day;
mod declared;
mod faults;
mod health;
mod joining;
mod lag;
mod logs;
mod metrics;
mod packaging;
mod page;
mod programs;
mod prometheus;
mod roles;
mod socket;
mod strict;
mod tls;
mod unreliable;
