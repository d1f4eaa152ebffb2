//! What a network thread has counted, for others to read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::IoStats;

/// [`IoStats`], field by field.
#[derive(Default)]
pub(super) struct Counters([AtomicU64; 7]);

impl Counters {
    pub fn write(&self, stats: IoStats) {
        let IoStats { packets_in, bytes_in, packets_out, bytes_out, send_errors, recv_bursts, send_calls } =
            stats;
        let all = [packets_in, bytes_in, packets_out, bytes_out, send_errors, recv_bursts, send_calls];
        self.0.iter().zip(all).for_each(|(counter, count)| counter.store(count, Ordering::Relaxed));
    }

    pub fn read(&self) -> IoStats {
        let [packets_in, bytes_in, packets_out, bytes_out, send_errors, recv_bursts, send_calls] =
            self.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        IoStats { packets_in, bytes_in, packets_out, bytes_out, send_errors, recv_bursts, send_calls }
    }
}
