//! Where packet buffers come from.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::batch::{BURST, Batch};
use crate::error::{DpdkError, errno, text};
use crate::mbuf::Mbuf;
use crate::{Eal, thread};

/// Packets that each thread keeps to itself, at most: as many as DPDK allows. What does not fit goes through a ring of all
/// packets and comes back when no cache knows it any more.
const CACHE: u32 = 512;

/// A pool of packet buffers. Clones are the same pool; its memory goes when the last is gone and all packets have
/// come back.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: NonNull<dpdk_sys::rte_mempool>,
    packets: u32,
}

// SAFETY: rte_mempool is made for use by several threads at once: its ring takes producers and consumers, and caches
// belong to registered threads.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Mempool {
    /// A pool of `packets` buffers that hold frames of `frame` bytes in one piece.
    ///
    /// # Errors
    /// [`DpdkError::Pool`] if there is not enough memory.
    pub fn new(eal: &Eal, packets: u32, frame: u16) -> Result<Mempool, DpdkError> {
        let room = (dpdk_sys::MBUF_DEFAULT_ROOM as u16).max(dpdk_sys::MBUF_HEADROOM as u16 + frame);
        Mempool::with_room(eal, packets, room)
    }

    /// A pool of `packets` short buffers of `len` bytes, for what goes in front of a [`SharedMbuf`](crate::SharedMbuf).
    ///
    /// # Errors
    /// [`DpdkError::Pool`] if there is not enough memory.
    pub fn of_heads(eal: &Eal, packets: u32, len: u16) -> Result<Mempool, DpdkError> {
        Mempool::with_room(eal, packets, dpdk_sys::MBUF_HEADROOM as u16 + len)
    }

    fn with_room(_: &Eal, packets: u32, room: u16) -> Result<Mempool, DpdkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("thc_pool_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).map_err(|error| DpdkError::Text { text: error.to_string() })?;
        // DPDK wants one and a half caches to fit.
        let cache = CACHE.min(packets / 2);
        // SAFETY: DPDK runs (there is an `Eal`), and `name` ends with zero and is copied.
        let raw = unsafe { dpdk_sys::thc_pool_create(name.as_ptr(), packets, cache, room) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Mempool(Arc::new(Inner { raw, packets }))),
            None => Err(DpdkError::Pool { packets, cause: text(errno()) }),
        }
    }

    /// How many packets it has in all.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.0.packets
    }

    /// How many are free, those in threads' caches included. Slow, and only exact while nobody uses the pool.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as `self`.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.raw()) }
    }

    /// Fills `batch` up with empty packets, all of them or none. Whether there were enough.
    #[inline]
    pub fn fill(&self, batch: &mut Batch) -> bool {
        thread::register();
        batch.extend_raw(|free| {
            // SAFETY: the pool lives as long as `self`, and `free` has room for `free.len()` pointers, which are all
            // written if and only if 0 is returned. Packets from the pool are nobody else's.
            let failed = unsafe {
                dpdk_sys::rte_pktmbuf_alloc_bulk(self.raw(), free.as_mut_ptr().cast(), free.len() as u32)
            };
            if failed == 0 { free.len() } else { 0 }
        });
        batch.len() == BURST
    }

    /// One empty packet.
    #[must_use]
    pub fn take(&self) -> Option<Mbuf> {
        thread::register();
        let mut raw = std::ptr::null_mut();
        // SAFETY: as in `fill`, for one packet.
        let failed = unsafe { dpdk_sys::rte_pktmbuf_alloc_bulk(self.raw(), &raw mut raw, 1) };
        // SAFETY: the pool gave this packet to us alone.
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
            // SAFETY: nobody holds a handle to the pool any more, and no packet of it is out.
            unsafe { dpdk_sys::rte_mempool_free(self.raw.as_ptr()) }
        } else {
            // Freeing it would pull the memory from under packets that are still used.
            tracing::warn!("{} packets never came back: their pool is kept", self.packets - available);
        }
    }
}
