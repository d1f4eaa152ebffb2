//! One queue of a port, for one thread at a time.

use std::sync::Arc;

use crate::batch::Batch;
use crate::device::OpenDevice;
use crate::thread;

/// Where packets come in.
pub struct RxQueue {
    pub(crate) port: Arc<OpenDevice>,
    pub(crate) queue: u16,
    /// Not while its port is stopped ([`Port::reconnect`](crate::Port::reconnect)): DPDK would complain of every burst.
    pub(crate) live: bool,
}

/// Where packets go out.
pub struct TxQueue {
    pub(crate) port: Arc<OpenDevice>,
    pub(crate) queue: u16,
    /// Not while its port is stopped ([`Port::reconnect`](crate::Port::reconnect)): DPDK would complain of every burst.
    pub(crate) live: bool,
}

impl RxQueue {
    /// Appends what has come to `batch`, as far as there is room; returns how many packets.
    #[inline]
    pub fn burst(&mut self, batch: &mut Batch) -> usize {
        if !self.live {
            return 0;
        }
        thread::register();
        let (port, queue) = (self.port.id, self.queue);
        batch.extend_raw(|free| {
            // SAFETY: the port is started and has this queue as long as `self.port` lives; nobody else polls it, because
            // there is one RxQueue for it and `self` is borrowed mutably. `free` has room for `free.len()` pointers,
            // and the first ones returned are packets that are ours now.
            let got = unsafe {
                dpdk_sys::rte_eth_rx_burst(port, queue, free.as_mut_ptr().cast(), free.len() as u16)
            };
            usize::from(got)
        })
    }
}

impl TxQueue {
    /// Hands the first packets of `batch` to the device, as many as it takes; returns how many. The others stay, in order.
    #[inline]
    pub fn burst(&mut self, batch: &mut Batch) -> usize {
        if !self.live {
            return 0;
        }
        thread::register();
        let (port, queue, len) = (self.port.id, self.queue, batch.len() as u16);
        // SAFETY: as in `RxQueue::burst`; the first `len` entries are packets of ours, and the first `taken` of them belong
        // to the device afterwards.
        let taken = usize::from(unsafe { dpdk_sys::rte_eth_tx_burst(port, queue, batch.as_raw(), len) });
        batch.remove_front(taken);
        taken
    }
}
