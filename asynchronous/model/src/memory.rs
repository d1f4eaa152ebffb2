//! The server's memory. Models and workers' requests reserve it before they are admitted.

use std::path::Path;
use std::sync::{Arc, Mutex};

use thc_values::Size;

use crate::lock::lock;
use crate::payload;
use crate::shard::buffers;
use crate::spec::Spec;

/// What a peer may send on a stream before it is read.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// The window of a connection, each way.
pub(crate) const WINDOW: u32 = 8 << 20;

/// The server's memory, and its reserved part.
#[derive(Debug)]
pub(crate) struct Memory {
    most: u64,
    reserved: Mutex<u64>,
}

/// A reserved part of the memory, which is released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, reserved: Mutex::default() })
    }

    /// The reserved bytes, and the limit.
    pub fn usage(&self) -> (u64, u64) {
        (*lock(&self.reserved), self.most)
    }

    /// Reserves `bytes` bytes for `what`.
    ///
    /// # Errors
    /// A line that says how the memory is used.
    pub fn reserve(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Reservation, String> {
        let mut reserved = lock(&self.reserved);
        let sum = reserved.saturating_add(bytes);
        if sum > self.most {
            let [bytes, reserved, most] = [bytes, *reserved, self.most].map(|bytes| Size(bytes as usize));
            return Err(format!(
                "{what} may take {bytes} of the server's memory, beside {reserved} that models and workers have, above its {most} (--memory)"
            ));
        }
        *reserved = sum;
        Ok(Reservation { memory: Arc::clone(self), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *lock(&self.memory.reserved) -= self.bytes;
    }
}

/// Bytes of a model: its vectors, those that steps beside readers write, and if it is kept a copy of all while files are written.
pub(crate) fn of_model(spec: &Spec, kept: bool) -> u64 {
    let vectors = spec.vectors().into_iter().map(u64::from).sum::<u64>();
    4 * (vectors * (1 + u64::from(kept)) + buffers::buffer_limit(spec) as u64) * spec.coordinates
}

/// Bytes of the state of a shard of so many coordinates, on its way to a spare.
pub(crate) fn of_state(spec: &Spec, coordinates: usize) -> usize {
    let vectors = spec.vectors().into_iter().map(usize::from).sum::<usize>();
    256 + 16 * usize::from(spec.workers) + 4 * vectors * coordinates
}

/// What of a stream's bytes waits on its way, each way.
pub(crate) fn window(coordinates: usize) -> u32 {
    STREAM_WINDOW.min(payload::max_len(coordinates) as u32)
}

/// Bytes of a worker's stream for a shard: a request, and the vector that it holds or the answer.
pub(crate) fn of_stream(coordinates: usize) -> u64 {
    (payload::max_len(coordinates) + 4 * coordinates) as u64
}

/// By how much a stream with a window of `more` widens that of its connection, whose other streams have windows of `before` together.
pub(crate) fn window_growth(before: u32, more: u32) -> u32 {
    before.saturating_add(more).min(WINDOW) - before.min(WINDOW)
}

/// Three quarters of what this machine or its control group has; everything where that cannot be read.
pub(crate) fn usual() -> u64 {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    let all = machine.unwrap_or(u64::MAX).min(group.unwrap_or(u64::MAX));
    all / 4 * 3
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn what_is_taken_is_given_back() {
        let memory = Memory::new(1000);
        let first = memory.reserve(600, "one").unwrap();
        let message = memory.reserve(401, "worker 7").unwrap_err();
        assert!(message.contains("worker 7") && message.contains("--memory"), "{message}");
        let second = memory.reserve(400, "two").unwrap();
        assert_eq!(memory.usage(), (1000, 1000));
        assert!(memory.reserve(u64::MAX, "all").is_err());
        drop((first, second));
        assert_eq!(memory.usage(), (0, 1000));
    }

    #[test]
    fn bytes_by_hand() {
        assert_eq!(of_model(&Spec::sgd(100, 0.1), false), 3 * 400);
        let corrected = Spec::asylpg(100, 0.1, NonZeroU32::MIN);
        assert_eq!(of_model(&corrected, true), (2 * 3 + 3) * 400);
        assert_eq!(of_model(&Spec { accelerated: true, ..corrected }, false), (5 + 5) * 400);
        assert_eq!(of_stream(1000), 6032 + 4000);
        assert_eq!(of_stream(1 << 20), 32 + (10 << 20));
        assert_eq!((window(1000), window(1 << 20)), (6032, 1 << 20));
        // However many shards a model has, a connection's window is the most that waits.
        let growths = [0, WINDOW - 1000, WINDOW, u32::MAX].map(|before| window_growth(before, 6032));
        assert_eq!(growths, [6032, 1000, 0, 0]);
        assert!(usual() > 1 << 28);
    }
}
