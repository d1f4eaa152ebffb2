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
    pub fn new(eal: &Eal, size: u32) -> Result<RingPair, DpdkError> {
        RingPair::with_queues(eal, size, 1)
    }

    /// The same with so many rings each way, which are the queues of the two ports. Such a port does not look at packets:
    /// what goes into a queue at one end comes out of that queue at the other.
    ///
    /// # Errors
    /// [`DpdkError::Device`].
    pub fn with_queues(_: &Eal, size: u32, queues: u8) -> Result<RingPair, DpdkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let failed = |device: &str| DpdkError::Device { device: device.to_owned(), cause: text(errno()) };
        let c_string = |name: &str| CString::new(name).map_err(|_| DpdkError::Text { text: name.to_owned() });
        let mut rings = [(); 2].map(|()| vec![std::ptr::null_mut(); usize::from(queues)]);
        let each = rings
            .iter_mut()
            .enumerate()
            .flat_map(|(d, rings)| rings.iter_mut().enumerate().map(move |(q, ring)| (d, q, ring)));
        for (direction, queue, ring) in each {
            let name = format!("thc_ring_{number}_{direction}_{queue}");
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
            let [receive, send] = [end, 1 - end].map(|direction| rings[direction].as_ptr().cast_mut());
            let queues = u32::from(queues);
            // SAFETY: the name is copied, and so are the arrays of `queues` rings each, which are only read; the rings are
            // never freed.
            let port =
                unsafe { dpdk_sys::rte_eth_from_rings(c_name.as_ptr(), receive, queues, send, queues, 0) };
            if port < 0 {
                return Err(failed(&short));
            }
            *name = format!("net_ring_{short}");
        }
        Ok(RingPair { names })
    }
}
