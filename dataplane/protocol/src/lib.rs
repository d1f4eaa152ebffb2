//! THC's wire format and state machines, without I/O, clocks or unsafe code.
//!
//! * [`wire`]: one module per packet form; byte order lives only there.
//! * [`aggregator`]: what a switch or parameter server does with a packet (P7–P17, P21).
//! * [`worker`]: window, retransmission, calls: the sender's side (P4, P14, P18–P20).
//! * [`session`]: how workers find each other in a static job (P22–P25), both sides.
//!
//! Rules are cited by their numbers in `docs/protocol.md`.
#![forbid(unsafe_code)]

pub mod aggregator;
mod ecn;
mod ids;
pub mod session;
pub mod wire;
pub mod worker;

pub use ecn::Ecn;
pub use ids::{Cookie, JobId, Lane, MAX_WORKERS, Policy, Rank, Round, SlotId, TableId, WorkerId};
