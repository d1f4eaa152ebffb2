//! Pools of packet buffers.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::batch::{BURST, Batch};
use crate::error::{DpdkError, errno, text};
use crate::mbuf::Mbuf;
use crate::{Eal, thread};

/// The largest number of packets in a thread's own cache, which is what DPDK allows. Further packets go through a ring
/// of all packets, and have left the processor's caches when they come back.
const CACHE: u32 = 512;

/// A pool of packet buffers. Clones refer to the same pool. Its memory is freed when the last clone is dropped and all
/// packets have come back.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: NonNull<dpdk_sys::rte_mempool>,
    packets: u32,
}

// SAFETY: several threads may use an rte_mempool at once: its ring allows many producers and consumers, and each
// registered thread has a cache of its own.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Mempool {
    /// Creates a pool of `packets` buffers that hold frames of `frame` bytes in one piece.
    ///
    /// # Errors
    /// [`DpdkError::Pool`] if there is not enough memory.
    pub fn new(eal: &Eal, packets: u32, frame: u16) -> Result<Mempool, DpdkError> {
        let room = (dpdk_sys::MBUF_DEFAULT_ROOM as u16).max(dpdk_sys::MBUF_HEADROOM as u16 + frame);
        Mempool::with_room(eal, packets, room)
    }

    /// Creates a pool of `packets` short buffers of `len` bytes, for the headers in front of a
    /// [`SharedMbuf`](crate::SharedMbuf).
    ///
    /// # Errors
    /// [`DpdkError::Pool`] if there is not enough memory.
    pub fn for_heads(eal: &Eal, packets: u32, len: u16) -> Result<Mempool, DpdkError> {
        Mempool::with_room(eal, packets, dpdk_sys::MBUF_HEADROOM as u16 + len)
    }

    fn with_room(_: &Eal, packets: u32, room: u16) -> Result<Mempool, DpdkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("thc_pool_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(|error| DpdkError::Text { text: error.to_string() })?;
        // DPDK requires that a pool holds one and a half caches.
        let cache = CACHE.min(packets / 2);
        // SAFETY: DPDK runs (there is an `Eal`), and it copies `name`, which ends with zero.
        let raw = unsafe { dpdk_sys::thc_pool_create(name.as_ptr(), packets, cache, room) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Mempool(Arc::new(Inner { raw, packets }))),
            None => Err(DpdkError::Pool { packets, cause: text(errno()) }),
        }
    }

    /// The number of packets of the pool.
    pub fn packets(&self) -> u32 {
        self.0.packets
    }

    /// The number of free packets, including those in the caches of threads. This is slow, and exact only while no thread
    /// uses the pool.
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as `self`.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.raw()) }
    }

    /// Fills all of `batch` with empty packets. Returns false, and adds none, if the pool has too few.
    #[inline]
    pub fn fill(&self, batch: &mut Batch) -> bool {
        thread::register();
        batch.extend_raw(|free| {
            // SAFETY: the pool lives as long as `self`, and `free` has room for `free.len()` pointers, all of which the call
            // writes if and only if it returns 0. Packets from the pool have no other owner.
            let failed = unsafe {
                dpdk_sys::rte_pktmbuf_alloc_bulk(self.raw(), free.as_mut_ptr().cast(), free.len() as u32)
            };
            if failed == 0 { free.len() } else { 0 }
        });
        batch.len() == BURST
    }

    /// Takes one empty packet.
    pub fn take(&self) -> Option<Mbuf> {
        thread::register();
        let mut raw = std::ptr::null_mut();
        // SAFETY: as in `fill`, for one packet.
        let failed = unsafe { dpdk_sys::rte_pktmbuf_alloc_bulk(self.raw(), &raw mut raw, 1) };
        // SAFETY: a packet from the pool has no other owner.
        (failed == 0).then(|| NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })).flatten()
    }

    pub(crate) fn raw(&self) -> *mut dpdk_sys::rte_mempool {
        self.0.raw.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the pool still exists.
        let available = unsafe { dpdk_sys::rte_mempool_avail_count(self.raw.as_ptr()) };
        if available == self.packets {
            // SAFETY: there is no handle to the pool any more, and all of its packets have come back.
            unsafe { dpdk_sys::rte_mempool_free(self.raw.as_ptr()) }
        } else {
            // Freeing the pool would free the memory of packets that are still in use.
            tracing::warn!(
                "{} packets never came back, so the memory of their pool is not freed",
                self.packets - available
            );
        }
    }
}
