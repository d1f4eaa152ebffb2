//! Several packets that go to or come from a device together.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use dpdk_sys::rte_mbuf;

use crate::mbuf::Mbuf;

/// The largest number of packets that go to or come from a device in one call.
pub const BURST: usize = 64;

/// Up to [`BURST`] packets in order. A batch frees its packets when it is dropped.
pub struct Batch {
    /// The first `len` are owned mbufs.
    raw: [MaybeUninit<NonNull<rte_mbuf>>; BURST],
    len: usize,
}

// SAFETY: a batch owns its packets, and any thread may own packets.
unsafe impl Send for Batch {}

impl Default for Batch {
    fn default() -> Self {
        Self { raw: [const { MaybeUninit::uninit() }; BURST], len: 0 }
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The number of packets in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the batch has no room for another packet.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == BURST
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The packet itself, if the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        match self.raw.get_mut(self.len) {
            Some(place) => {
                place.write(packet.into_raw());
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: entries below the old `len` are owned mbufs, and `len` no longer counts this one.
        Some(unsafe { Mbuf::from_raw(self.raw[self.len].assume_init()) })
    }

    /// Takes the last packet, and prefetches what the next ones need.
    #[inline]
    pub fn pop_ahead(&mut self) -> Option<Mbuf> {
        let packet = self.pop()?;
        let ahead = |places| self.packets().get(self.len.wrapping_sub(places));
        if let Some(later) = ahead(4) {
            later.prefetch_record();
        }
        if let Some(next) = ahead(2) {
            next.prefetch();
        }
        Some(packet)
    }

    /// The packets.
    #[inline]
    pub fn packets(&self) -> &[Mbuf] {
        // SAFETY: the first `len` entries are owned mbufs, and `Mbuf` is a transparent `NonNull<rte_mbuf>`.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().cast(), self.len) }
    }

    /// Frees all packets.
    #[inline]
    pub fn clear(&mut self) {
        let len = std::mem::take(&mut self.len);
        if len > 0 {
            // SAFETY: the first `len` entries were owned mbufs, and `len` no longer counts them.
            unsafe { dpdk_sys::rte_pktmbuf_free_bulk(self.raw.as_mut_ptr().cast(), len as u32) }
        }
    }

    /// Hands every packet to `f`, in order, along with the packets behind it. Packets that `f` returns stay in the batch.
    #[inline]
    pub fn sift(&mut self, mut f: impl FnMut(Mbuf, &[Mbuf]) -> Option<Mbuf>) {
        // The batch counts no packet while `f` runs: if `f` panics, packets are leaked instead of freed twice.
        let (len, mut kept) = (std::mem::take(&mut self.len), 0);
        for at in 0..len {
            let (first, rest) = self.raw[at..len].split_at(1);
            // SAFETY: entries below the old `len` are owned mbufs. `f` owns this one now; the batch still owns those behind it.
            let (packet, rest) = unsafe {
                let rest = std::slice::from_raw_parts(rest.as_ptr().cast::<Mbuf>(), rest.len());
                (Mbuf::from_raw(first[0].assume_init()), rest)
            };
            if let Some(packet) = f(packet, rest) {
                self.raw[kept].write(packet.into_raw());
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Lets `write` fill the free entries. `write` returns how many of them, from the front, have become owned mbufs.
    #[inline]
    pub(crate) fn extend_raw(
        &mut self,
        write: impl FnOnce(&mut [MaybeUninit<NonNull<rte_mbuf>>]) -> usize,
    ) -> usize {
        let added = write(&mut self.raw[self.len..]);
        self.len += added;
        added
    }

    /// The entries in the form that DPDK's functions take.
    #[inline]
    pub(crate) fn as_raw(&mut self) -> *mut *mut rte_mbuf {
        self.raw.as_mut_ptr().cast()
    }

    /// Forgets the first `count` packets, which have a new owner, and moves the others to the front.
    #[inline]
    pub(crate) fn remove_front(&mut self, count: usize) {
        debug_assert!(count <= self.len);
        self.raw.copy_within(count..self.len, 0);
        self.len -= count;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}
