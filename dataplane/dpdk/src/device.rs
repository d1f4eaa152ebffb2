//! An open device, which a port and its queues keep alive.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dpdk_sys as ffi;

use crate::pool::Mempool;

/// The device that a port and its queues keep open.
pub(crate) struct OpenDevice {
    pub id: u16,
    pub name: String,
    /// The device for [`ffi::rte_dev_remove`].
    pub device: *mut ffi::rte_device,
    pub started: bool,
    /// The pools of the packets in the device's rings. They must outlive the open port.
    pub _pools: Vec<Mempool>,
}

// SAFETY: `device` is DPDK's own record of the device, used once, in `drop`, under CONTROL; statistics may be read on
// any thread.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

/// The names of the open devices. The lock makes threads open and close devices one after the other, since DPDK's lists
/// of devices allow no more.
static CONTROL: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// No other thread opens or closes a device as long as this guard lives.
pub(crate) fn control() -> MutexGuard<'static, BTreeSet<String>> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let mut names = control();
        // SAFETY: the port is ours until it is closed, and no queue is left that could use it. `device` is DPDK's record
        // of the device, which stays valid until this function removes it.
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
