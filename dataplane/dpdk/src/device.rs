//! A device in use, which a port and its queues keep alive.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dpdk_sys as ffi;

use crate::pool::Mempool;

/// What a port and its queues keep alive.
pub(crate) struct OpenDevice {
    pub id: u16,
    pub name: String,
    /// The device that [`ffi::rte_dev_remove`] takes.
    pub device: *mut ffi::rte_device,
    pub started: bool,
    /// Packets in the device's rings come from these; dropped after the port is closed.
    pub _pools: Vec<Mempool>,
}

// SAFETY: `device` is DPDK's own record of the device, used once, in `drop`, under CONTROL; statistics may be read on
// any thread.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

/// Devices come and go one at a time: DPDK's lists of them are not made for more. Holds the names in use.
static CONTROL: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Nobody else opens or closes a device as long as this lives.
pub(crate) fn control() -> MutexGuard<'static, BTreeSet<String>> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let mut names = control();
        // SAFETY: the port is ours until it is closed; no queue is left to use it. The device is DPDK's record of it, valid
        // until it is removed here.
        unsafe {
            if self.started {
                ffi::rte_eth_dev_stop(self.id);
            }
            ffi::rte_eth_dev_close(self.id);
            if !self.device.is_null() {
                ffi::rte_dev_remove(self.device);
            }
        }
        names.remove(&self.name);
    }
}
