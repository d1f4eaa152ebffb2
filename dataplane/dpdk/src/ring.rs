//! Two ports joined by rings in memory, for tests and benchmarks: what one sends the other receives, uncopied.

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Eal;
use crate::error::{DpdkError, errno, text};

/// The two ends. Their names open as devices, once each.
#[derive(Clone, Debug)]
pub struct RingPair {
    /// The device names.
    pub names: [String; 2],
}

impl RingPair {
    /// A pair whose rings hold `size` packets each way (a power of two). The rings stay until the process ends.
    ///
    /// # Errors
    /// [`DpdkError::Device`].
    pub fn new(_: &Eal, size: u32) -> Result<RingPair, DpdkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let failed = |device: &str| DpdkError::Device { device: device.to_owned(), cause: text(errno()) };
        let c_string = |name: &str| CString::new(name).map_err(|_| DpdkError::Text { text: name.to_owned() });
        let mut rings = [std::ptr::null_mut(); 2];
        for (direction, ring) in rings.iter_mut().enumerate() {
            let name = format!("thc_ring_{number}_{direction}");
            let c_name = c_string(&name)?;
            let flags = dpdk_sys::RING_SP_ENQ | dpdk_sys::RING_SC_DEQ;
            // SAFETY: DPDK runs, the name ends with zero and is copied. Each direction has one producer and one consumer:
            // a queue's methods take `&mut self`.
            *ring = unsafe { dpdk_sys::rte_ring_create(c_name.as_ptr(), size, -1, flags) };
            if ring.is_null() {
                return Err(failed(&name));
            }
        }
        let mut names = [const { String::new() }; 2];
        for (end, name) in names.iter_mut().enumerate() {
            let short = format!("thc{number}{}", ['a', 'b'][end]);
            let c_name = c_string(&short)?;
            let (mut receive, mut send) = (rings[end], rings[1 - end]);
            // SAFETY: the name is copied, and so are the arrays of one ring each; the rings are never freed.
            let port = unsafe {
                dpdk_sys::rte_eth_from_rings(c_name.as_ptr(), &raw mut receive, 1, &raw mut send, 1, 0)
            };
            if port < 0 {
                return Err(failed(&short));
            }
            *name = format!("net_ring_{short}");
        }
        Ok(RingPair { names })
    }
}
