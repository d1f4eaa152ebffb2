//! One queue of a port, for one thread at a time.

use std::sync::Arc;

use crate::batch::Batch;
use crate::device::OpenDevice;
use crate::thread;

/// A queue of received packets.
pub struct RxQueue {
    pub(crate) port: Arc<OpenDevice>,
    pub(crate) queue: u16,
    /// False while the port is stopped ([`Port::reconnect`](crate::Port::reconnect)), when DPDK would complain of every burst.
    pub(crate) live: bool,
}

/// A queue of packets to send.
pub struct TxQueue {
    pub(crate) port: Arc<OpenDevice>,
    pub(crate) queue: u16,
    /// False while the port is stopped ([`Port::reconnect`](crate::Port::reconnect)), when DPDK would complain of every burst.
    pub(crate) live: bool,
}

impl RxQueue {
    /// Appends received packets to `batch`, as far as it has room. Returns their number.
    #[inline]
    pub fn burst(&mut self, batch: &mut Batch) -> usize {
        if !self.live {
            return 0;
        }
        thread::register();
        let (port, queue) = (self.port.id, self.queue);
        batch.extend_raw(|free| {
            // SAFETY: the port is started and has this queue as long as `self.port` lives. No other thread polls it, because
            // it has one RxQueue and `self` is borrowed mutably. `free` has room for `free.len()` pointers, and we own the
            // packets that the call returns.
            let got = unsafe {
                dpdk_sys::rte_eth_rx_burst(port, queue, free.as_mut_ptr().cast(), free.len() as u16)
            };
            usize::from(got)
        })
    }
}

impl TxQueue {
    /// Hands the first packets of `batch` to the device, as many as it takes, and returns their number. The others stay
    /// in the batch, in order.
    #[inline]
    pub fn burst(&mut self, batch: &mut Batch) -> usize {
        if !self.live {
            return 0;
        }
        thread::register();
        let (port, queue, len) = (self.port.id, self.queue, batch.len() as u16);
        // SAFETY: as in `RxQueue::burst`. The first `len` entries are packets that we own, and the first `taken` of them
        // belong to the device afterwards.
        let taken = usize::from(unsafe { dpdk_sys::rte_eth_tx_burst(port, queue, batch.as_raw(), len) });
        batch.remove_front(taken);
        taken
    }
}
