//! A whole job in virtual time: workers' engines, the server's registry and aggregators, and a network that loses,
//! doubles, delays and corrupts. Anything may restart, stall, leave or be cut off at any moment, and the server may come
//! back configured otherwise.
//!
//! What must hold: every all-reduce that ends well ends with the mean of what the members of its session put in, bit for
//! bit; and whenever disturbances cease for a while, all-reduces go on. A trace is a function of its seed.
#![allow(clippy::unwrap_used)]

mod held;
mod ledger;
mod mean;
mod pace;
mod party;
mod plan;
mod server;
mod stranger;
mod trace;

pub use trace::{Report, Trace};

use thc_protocol::aggregator::Scalar;
use thc_ps::Simd;

/// Bytes that a trace may hold at most.
const MOST_HELD: i64 = 192 << 20;
/// Bytes that may be left of one: what is computed once for all, and buffers of the thread.
const LEFT: i64 = 1 << 20;

/// Runs the trace of a seed until `goal` all-reduces have ended well on all workers.
///
/// # Panics
/// If something does not hold.
#[must_use]
pub fn run(seed: u64, goal: u64) -> Report {
    weigh(seed, || {
        if seed.is_multiple_of(4) {
            Trace::<Scalar>::new(seed).run(goal)
        } else {
            Trace::<Simd>::new(seed).run(goal)
        }
    })
}

/// Runs a trace, and looks what it holds and leaves in memory.
fn weigh(seed: u64, trace: impl FnOnce() -> Report) -> Report {
    let before = held::now();
    held::take_most();
    let report = trace();
    let (most, left) = (held::take_most() - before, held::now() - before);
    assert!(most < MOST_HELD, "seed {seed}: it has held {most} bytes");
    assert!(left < LEFT, "seed {seed}: {left} bytes are left of it");
    Report { held: most.unsigned_abs(), ..report }
}
