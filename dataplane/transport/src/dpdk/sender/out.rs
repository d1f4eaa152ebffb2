//! One device's send queue.

use std::time::{Duration, Instant};

use thc_dpdk::{Batch, PortInfo, TxQueue};

use crate::link::MacAddr;
use crate::link::frame::Checksums;

/// The wait for a full send ring before the remaining packets count as lost.
const PATIENCE: Duration = Duration::from_millis(5);

/// One device's send queue.
pub(super) struct Out {
    pub queue: TxQueue,
    pub mac: MacAddr,
    pub checksums: Checksums,
    /// True if a packet may have several segments.
    pub multi_segment: bool,
    /// Packets that wait to be handed to the device.
    pub batch: Batch,
    /// The ring stayed full: until it takes a packet, none waits for it.
    stuck: bool,
}

impl Out {
    /// `checksums` says whether datagrams have UDP checksums.
    pub fn new(queue: TxQueue, info: &PortInfo, checksums: bool) -> Out {
        let checksums = match (checksums, info.tx_checksum) {
            (false, _) => Checksums::None,
            (true, true) => Checksums::Device,
            (true, false) => Checksums::Software,
        };
        let (mac, multi_segment) = (MacAddr(info.mac), info.multi_segment);
        Out { queue, mac, checksums, multi_segment, batch: Batch::new(), stuck: false }
    }

    /// Hands the batch to the device. Returns how many packets were lost because the ring stayed full.
    pub fn flush(&mut self) -> u64 {
        if self.queue.burst(&mut self.batch) > 0 {
            self.stuck = false;
        }
        if self.batch.is_empty() { 0 } else { self.insist() }
    }

    /// The ring is full: the packets in it need a moment.
    #[cold]
    fn insist(&mut self) -> u64 {
        let since = Instant::now();
        while !self.stuck && !self.batch.is_empty() {
            if self.queue.burst(&mut self.batch) == 0 {
                self.stuck = since.elapsed() >= PATIENCE;
                std::thread::yield_now();
            }
        }
        let lost = self.batch.len() as u64;
        self.batch.clear();
        lost
    }
}
