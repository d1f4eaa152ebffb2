//! Two ports that rings in memory connect, for tests and benchmarks. Each port receives what the other one sends,
//! without a copy.

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Eal;
use crate::error::{DpdkError, errno, text};

/// The two ends of a pair of rings. Each name can be opened as a device, once.
#[derive(Clone, Debug)]
pub struct RingPair {
    /// The device names.
    pub names: [String; 2],
}

impl RingPair {
    /// Creates a pair whose rings hold `size` packets in each direction, a power of two. The rings stay until the process
    /// ends.
    ///
    /// # Errors
    /// [`DpdkError::Device`].
    pub fn new(eal: &Eal, size: u32) -> Result<RingPair, DpdkError> {
        RingPair::with_queues(eal, size, 1)
    }

    /// Creates a pair with `queues` rings in each direction, which are the queues of the two ports. Such a port does not
    /// look at packets: a packet that enters a queue at one end leaves the same queue at the other end.
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
            // SAFETY: DPDK runs, and it copies the name, which ends with zero. Each direction has one producer and one
            // consumer, since a queue's methods take `&mut self`.
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
            // SAFETY: DPDK copies the name and the arrays of `queues` rings each, and only reads them. The rings are never
            // freed.
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
