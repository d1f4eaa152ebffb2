//! One packet.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dpdk_sys::rte_mbuf;

/// An owned packet, which returns to its pool when it is dropped.
///
/// A packet usually is one segment. There may be several references to a packet ([`Mbuf::share`]), and the last segment
/// of a chain may be shared with other packets ([`SharedMbuf`]). Shared segments are never written.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf is plain memory, any thread may own it, and its reference count is atomic.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads memory that no other thread writes.
unsafe impl Sync for Mbuf {}

/// Points to a field of a live mbuf. The C compiler computes the field's offset (wrapper.h), so the pointer is aligned
/// and within the mbuf, and its type is the field's.
macro_rules! field {
    ($raw:expr, $offset:ident: $type:ty) => {
        $raw.as_ptr().wrapping_byte_add(dpdk_sys::$offset as usize).cast::<$type>()
    };
}

impl Mbuf {
    /// # Safety
    /// `raw` must be a live mbuf and the first of its chain, and the caller must own the reference that it passes.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<rte_mbuf>) -> Mbuf {
        Mbuf(raw)
    }

    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<rte_mbuf> {
        ManuallyDrop::new(self).0
    }

    fn u16(&self, field: *mut u16) -> u16 {
        // SAFETY: `field` came from `field!` for this live mbuf.
        unsafe { field.read() }
    }

    /// The number of bytes of the whole packet.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: see `field!`.
        unsafe { field!(self.0, MBUF_PKT_LEN: u32).read() as usize }
    }

    /// Returns whether the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of segments.
    #[inline]
    pub fn segments(&self) -> usize {
        usize::from(self.u16(field!(self.0, MBUF_NB_SEGS: u16)))
    }

    /// The number of references to the packet's first segment.
    #[inline]
    pub fn references(&self) -> u16 {
        let count = field!(self.0, MBUF_REFCNT: std::sync::atomic::AtomicU16);
        // SAFETY: the count is a live, aligned u16, which DPDK changes atomically too. The holder of the only reference may
        // write, and acquire ordering puts its writes after everything that others read before they gave up theirs.
        unsafe { (*count).load(std::sync::atomic::Ordering::Acquire) }
    }

    /// The bytes of the first segment, which are all bytes of the packet unless it has several segments.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let len = usize::from(self.u16(field!(self.0, MBUF_DATA_LEN: u16)));
        // SAFETY: DPDK keeps data_len bytes from `start` on within the buffer, and no thread writes them while we own or
        // share the segment.
        unsafe { std::slice::from_raw_parts(self.start(), len) }
    }

    /// The whole packet in one piece, which is copied to `scratch` if the packet has several segments. `None` if such a
    /// packet is longer than `scratch`.
    pub fn contiguous<'a>(&'a self, scratch: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.segments() <= 1 {
            return Some(self.data());
        }
        let len = self.len();
        let room = scratch.get_mut(..len)?;
        // SAFETY: the mbuf is live, and `room` is `len` bytes long. The result points to `len` bytes in `room`, or in a
        // segment that has all of them. It is null if the chain is shorter than its length says.
        unsafe {
            let at = dpdk_sys::rte_pktmbuf_read(self.0.as_ptr(), 0, len as u32, room.as_mut_ptr().cast());
            (!at.is_null()).then(|| std::slice::from_raw_parts(at.cast(), len))
        }
    }

    /// Appends `len` bytes, whose contents are unspecified. `None` if they do not fit, if the packet has several
    /// segments, or if there are other references to it.
    #[inline]
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let data_len = field!(self.0, MBUF_DATA_LEN: u16);
        let used = usize::from(self.u16(data_len));
        let offset = usize::from(self.u16(field!(self.0, MBUF_DATA_OFF: u16)));
        let size = usize::from(self.u16(field!(self.0, MBUF_BUF_LEN: u16)));
        if self.segments() != 1 || self.references() != 1 || len > size.saturating_sub(offset + used) {
            return None;
        }
        // SAFETY: offset + used + len is within the buffer, to which this is the only reference. The lengths fit their
        // fields because the buffer's length fits u16. The memory of buffers is initialized: DPDK zeroes it at first.
        unsafe {
            data_len.write((used + len) as u16);
            field!(self.0, MBUF_PKT_LEN: u32).write((used + len) as u32);
            Some(std::slice::from_raw_parts_mut(self.start().add(used), len))
        }
    }

    /// The bytes of the first segment, for writing. `None` if there are other references to it.
    #[inline]
    pub fn data_mut(&mut self) -> Option<&mut [u8]> {
        if self.references() != 1 {
            return None;
        }
        let len = usize::from(self.u16(field!(self.0, MBUF_DATA_LEN: u16)));
        // SAFETY: as in `data`, and there is no other reference to the segment.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(), len) })
    }

    fn start(&self) -> *mut u8 {
        let offset = usize::from(self.u16(field!(self.0, MBUF_DATA_OFF: u16)));
        // SAFETY: see `field!`; DPDK keeps data_off within the buffer.
        unsafe { field!(self.0, MBUF_BUF_ADDR: *mut u8).read().add(offset) }
    }

    /// Returns whether the device has checked the IPv4 header and the UDP checksum and found both correct.
    #[inline]
    pub fn checksums_good(&self) -> (bool, bool) {
        // SAFETY: see `field!`.
        let flags = unsafe { field!(self.0, MBUF_OL_FLAGS: u64).read() };
        (
            flags & dpdk_sys::FLAG_RX_IP_CKSUM_MASK == dpdk_sys::FLAG_RX_IP_CKSUM_GOOD,
            flags & dpdk_sys::FLAG_RX_L4_CKSUM_MASK == dpdk_sys::FLAG_RX_L4_CKSUM_GOOD,
        )
    }

    /// Empties the packet. Returns false, and changes nothing, if the packet has several segments or other references.
    #[inline]
    pub fn clear(&mut self) -> bool {
        let alone = self.segments() == 1 && self.references() == 1;
        if alone {
            // SAFETY: see `field!`; there is no other reference to the segment.
            unsafe {
                field!(self.0, MBUF_DATA_LEN: u16).write(0);
                field!(self.0, MBUF_PKT_LEN: u32).write(0);
            }
        }
        alone
    }

    /// Empties a received packet, as if it had just come from its pool. Returns false, and changes nothing, if the packet
    /// has several segments, or if there are other references to it or to its buffer.
    #[inline]
    pub fn renew(&mut self) -> bool {
        // SAFETY: see `field!`.
        let flags = unsafe { field!(self.0, MBUF_OL_FLAGS: u64).read() };
        let borrowed = dpdk_sys::FLAG_INDIRECT | dpdk_sys::FLAG_EXTERNAL;
        if flags & borrowed != 0 || !self.clear() {
            return false;
        }
        let headroom = self.u16(field!(self.0, MBUF_BUF_LEN: u16)).min(dpdk_sys::MBUF_HEADROOM as u16);
        // SAFETY: see `field!`; there is no other reference to the segment or its buffer, and the offset lies within that.
        unsafe {
            field!(self.0, MBUF_DATA_OFF: u16).write(headroom);
            field!(self.0, MBUF_OL_FLAGS: u64).write(0);
        }
        true
    }

    /// Makes an empty packet begin `bytes` later in its buffer. There must be no other reference to it. Returns false if
    /// the buffer has no room for that.
    #[inline]
    pub fn indent(&mut self, bytes: u16) -> bool {
        let offset = field!(self.0, MBUF_DATA_OFF: u16);
        let size = self.u16(field!(self.0, MBUF_BUF_LEN: u16));
        let later = self.u16(offset).saturating_add(bytes);
        let may = self.is_empty() && self.segments() == 1 && self.references() == 1 && later <= size;
        if may {
            // SAFETY: see `field!`; there is no other reference to the segment, and the offset stays within its buffer.
            unsafe { offset.write(later) };
        }
        may
    }

    /// Returns another reference to the same packet, so that the packet can be both sent and kept. As long as there are
    /// two references, neither allows writing. `None` if the packet has several segments.
    #[inline]
    #[must_use]
    pub fn share(&self) -> Option<Mbuf> {
        if self.segments() != 1 || self.references() == u16::MAX / 2 {
            return None;
        }
        // SAFETY: a live mbuf, whose count includes the new handle's reference. Every method that writes requires a count of 1.
        unsafe { dpdk_sys::rte_mbuf_refcnt_update(self.0.as_ptr(), 1) };
        Some(Mbuf(self.0))
    }

    /// Makes the device fill in the IPv4 and UDP checksums of an Ethernet frame without options. The UDP checksum field
    /// must hold the sum of the pseudo header, and there must be no other reference to the packet.
    pub fn offload_checksums(&mut self) {
        if self.references() != 1 {
            return;
        }
        let flags = dpdk_sys::FLAG_TX_IPV4 | dpdk_sys::FLAG_TX_IP_CKSUM | dpdk_sys::FLAG_TX_UDP_CKSUM;
        // SAFETY: this writes fields of a live mbuf that is ours.
        unsafe { dpdk_sys::thc_mbuf_tx_offload(self.0.as_ptr(), flags, 14, 20) }
    }

    /// Prefetches the first bytes. DPDK's record of the packet must be in the cache.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(self.start());
    }

    /// Prefetches `len` bytes from the first one on.
    #[inline]
    pub fn prefetch_many(&self, len: usize) {
        let start = self.start();
        let mut at = 0;
        while at < len {
            prefetch(start.wrapping_add(at));
            at += CACHE_LINE;
        }
    }

    /// Prefetches DPDK's record of the packet, which holds its position and length.
    #[inline]
    pub fn prefetch_record(&self) {
        prefetch(self.0.as_ptr().cast());
        prefetch(self.0.as_ptr().cast::<u8>().wrapping_add(CACHE_LINE));
    }
}

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle owns the reference that it gives up. Segments with other references stay.
        unsafe { dpdk_sys::rte_pktmbuf_free(self.0.as_ptr()) }
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf").field("len", &self.len()).field("segments", &self.segments()).finish()
    }
}

/// A payload with which several packets end. Each packet has headers of its own, and all refer to the same bytes.
#[derive(Debug)]
pub struct SharedMbuf {
    payload: Mbuf,
    /// References that the payload's count already includes, for packets that do not exist yet.
    spare: u16,
}

impl SharedMbuf {
    /// Shares a packet's bytes. `None` if the packet has several segments or other references.
    pub fn new(payload: Mbuf) -> Option<SharedMbuf> {
        (payload.segments() == 1 && payload.references() == 1).then_some(SharedMbuf { payload, spare: 0 })
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        self.payload.data()
    }

    /// Announces that this many more packets will end with the payload. Counting their references at once is cheaper than
    /// one after the other.
    pub fn add_references(&mut self, packets: u16) {
        // All references must fit the count, which has 16 bits.
        let most = u16::MAX / 2 - self.payload.references().min(u16::MAX / 2);
        let packets = packets.min(most);
        self.spare += packets;
        self.count(packets as i16);
    }

    fn count(&self, packets: i16) {
        if packets != 0 {
            // SAFETY: the payload is a live mbuf. The holder of a reference may take more of them, and `spare` says how many
            // taken references it may give up.
            unsafe { dpdk_sys::rte_mbuf_refcnt_update(self.payload.0.as_ptr(), packets) };
        }
    }

    /// Appends the payload to `head`.
    ///
    /// # Errors
    /// `head` itself, if it has several segments or other references.
    #[inline]
    pub fn append_to(&mut self, head: Mbuf) -> Result<Mbuf, Mbuf> {
        if head.segments() != 1 || head.references() != 1 {
            return Err(head);
        }
        if self.spare == 0 {
            self.add_references(1);
        }
        if self.spare == 0 {
            return Err(head);
        }
        self.spare -= 1;
        let (first, payload) = (head.0, self.payload.0);
        let whole = head.len() + self.payload.len();
        // SAFETY: both are live single segments, and there is no other reference to the first one. The payload's `next` is
        // null and stays null, as that of a chain's last segment must. The chain takes over one of the `spare` references.
        unsafe {
            field!(first, MBUF_NEXT: *mut rte_mbuf).write(payload.as_ptr());
            field!(first, MBUF_NB_SEGS: u16).write(2);
            field!(first, MBUF_PKT_LEN: u32).write(whole as u32);
        }
        Ok(head)
    }
}

impl Drop for SharedMbuf {
    #[inline]
    fn drop(&mut self) {
        // Our own reference stays until `payload` is dropped.
        self.count(-(self.spare as i16));
    }
}
