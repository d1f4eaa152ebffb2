//! Data packets on network threads: each has a stripe of the slots, sends their packets and gathers their results ([`handler`]).
//!
//! The engine deals out compressed packets in batches of up to 64, and gets each batch back when its results
//! are in. It keeps what stripes have in common: joining, norms, the order of calls, time-outs of the
//! session. Only indices that are no longer written and counters are shared.

mod batch;
mod handler;
mod report;

pub(super) use batch::{Batch, News, Order, Outside, Stripes};
pub(super) use handler::StripeHandler;
pub(super) use report::Shared;
