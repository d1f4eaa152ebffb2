//! One packet.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use dpdk_sys::rte_mbuf;

/// A packet, owned: nobody else changes it, and it goes back to its pool when dropped.
///
/// Usually one segment. There may be several references to it ([`Mbuf::share`]), and a chain's last segment may be shared
/// with other packets ([`SharedMbuf`]); what is shared is never written.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf is plain memory, its owner may be any thread, and its reference count is atomic.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads what nobody writes.
unsafe impl Sync for Mbuf {}

/// Points to a field of a live mbuf. The C compiler told its place (wrapper.h), so the pointer is aligned and within
/// the mbuf, and the type is the field's.
macro_rules! field {
    ($raw:expr, $offset:ident: $type:ty) => {
        $raw.as_ptr().wrapping_byte_add(dpdk_sys::$offset as usize).cast::<$type>()
    };
}

impl Mbuf {
    /// # Safety
    /// `raw` is a live mbuf, the first of its chain, and this reference to it is the caller's to give away.
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

    /// Bytes of the whole packet.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        // SAFETY: see `field!`.
        unsafe { field!(self.0, MBUF_PKT_LEN: u32).read() as usize }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Segments.
    #[inline]
    #[must_use]
    pub fn segments(&self) -> usize {
        usize::from(self.u16(field!(self.0, MBUF_NB_SEGS: u16)))
    }

    /// References to its first segment.
    #[inline]
    #[must_use]
    pub fn references(&self) -> u16 {
        let count = field!(self.0, MBUF_REFCNT: std::sync::atomic::AtomicU16);
        // SAFETY: the count is a live, aligned u16 that DPDK changes atomically too. Whoever finds itself alone may write,
        // after all that others have read before they gave up their references.
        unsafe { (*count).load(std::sync::atomic::Ordering::Acquire) }
    }

    /// The bytes of the first segment: all of them, unless the packet has several.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let len = usize::from(self.u16(field!(self.0, MBUF_DATA_LEN: u16)));
        // SAFETY: DPDK keeps data_len bytes from `start` on within the buffer, and nobody writes them while we own or
        // share the segment.
        unsafe { std::slice::from_raw_parts(self.start(), len) }
    }

    /// The whole packet in one piece, put together in `scratch` if it has several segments; `None` if it is longer
    /// than `scratch` then.
    #[must_use]
    pub fn contiguous<'a>(&'a self, scratch: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.segments() <= 1 {
            return Some(self.data());
        }
        let len = self.len();
        let room = scratch.get_mut(..len)?;
        // SAFETY: the mbuf is live, `room` is `len` bytes long; the result points to `len` bytes in `room` or, if they
        // lie in one segment, there. It is null if the chain is shorter than it says.
        unsafe {
            let at = dpdk_sys::rte_pktmbuf_read(self.0.as_ptr(), 0, len as u32, room.as_mut_ptr().cast());
            (!at.is_null()).then(|| std::slice::from_raw_parts(at.cast(), len))
        }
    }

    /// Appends `len` bytes, whatever they held before; `None` if they do not fit, or if the packet is not one
    /// segment of ours alone.
    #[inline]
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let data_len = field!(self.0, MBUF_DATA_LEN: u16);
        let used = usize::from(self.u16(data_len));
        let offset = usize::from(self.u16(field!(self.0, MBUF_DATA_OFF: u16)));
        let size = usize::from(self.u16(field!(self.0, MBUF_BUF_LEN: u16)));
        if self.segments() != 1 || self.references() != 1 || len > size.saturating_sub(offset + used) {
            return None;
        }
        // SAFETY: offset + used + len is within the buffer, which is ours alone; the lengths fit their fields because
        // the buffer's length fits u16. Buffers come from zeroed or earlier written memory.
        unsafe {
            data_len.write((used + len) as u16);
            field!(self.0, MBUF_PKT_LEN: u32).write((used + len) as u32);
            Some(std::slice::from_raw_parts_mut(self.start().add(used), len))
        }
    }

    /// The bytes of the first segment, to be changed; `None` if others have a reference to it.
    #[inline]
    pub fn data_mut(&mut self) -> Option<&mut [u8]> {
        if self.references() != 1 {
            return None;
        }
        let len = usize::from(self.u16(field!(self.0, MBUF_DATA_LEN: u16)));
        // SAFETY: as in `data`, and the segment is ours alone.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(), len) })
    }

    fn start(&self) -> *mut u8 {
        let offset = usize::from(self.u16(field!(self.0, MBUF_DATA_OFF: u16)));
        // SAFETY: see `field!`; DPDK keeps data_off within the buffer.
        unsafe { field!(self.0, MBUF_BUF_ADDR: *mut u8).read().add(offset) }
    }

    /// Whether the device has checked the IPv4 header and the UDP checksum and found both right.
    #[inline]
    #[must_use]
    pub fn checksums_good(&self) -> (bool, bool) {
        // SAFETY: see `field!`.
        let flags = unsafe { field!(self.0, MBUF_OL_FLAGS: u64).read() };
        (
            flags & dpdk_sys::FLAG_RX_IP_CKSUM_MASK == dpdk_sys::FLAG_RX_IP_CKSUM_GOOD,
            flags & dpdk_sys::FLAG_RX_L4_CKSUM_MASK == dpdk_sys::FLAG_RX_L4_CKSUM_GOOD,
        )
    }

    /// Makes it an empty packet again; whether it is one segment of ours alone, otherwise it stays as it is.
    #[inline]
    pub fn clear(&mut self) -> bool {
        let alone = self.segments() == 1 && self.references() == 1;
        if alone {
            // SAFETY: see `field!`; the segment is ours alone.
            unsafe {
                field!(self.0, MBUF_DATA_LEN: u16).write(0);
                field!(self.0, MBUF_PKT_LEN: u32).write(0);
            }
        }
        alone
    }

    /// Makes a packet that was received an empty one, as if it came from its pool; whether that can be done: not if it has
    /// several segments, or if others have a reference to it or to its buffer.
    #[inline]
    pub fn renew(&mut self) -> bool {
        // SAFETY: see `field!`.
        let flags = unsafe { field!(self.0, MBUF_OL_FLAGS: u64).read() };
        let borrowed = dpdk_sys::FLAG_INDIRECT | dpdk_sys::FLAG_EXTERNAL;
        if flags & borrowed != 0 || !self.clear() {
            return false;
        }
        let headroom = self.u16(field!(self.0, MBUF_BUF_LEN: u16)).min(dpdk_sys::MBUF_HEADROOM as u16);
        // SAFETY: see `field!`; the segment and its buffer are ours alone, and the offset lies within that.
        unsafe {
            field!(self.0, MBUF_DATA_OFF: u16).write(headroom);
            field!(self.0, MBUF_OL_FLAGS: u64).write(0);
        }
        true
    }

    /// Has an empty packet of ours alone begin `bytes` later in its buffer; whether there is room for that.
    #[inline]
    pub fn indent(&mut self, bytes: u16) -> bool {
        let offset = field!(self.0, MBUF_DATA_OFF: u16);
        let size = self.u16(field!(self.0, MBUF_BUF_LEN: u16));
        let later = self.u16(offset).saturating_add(bytes);
        let may = self.is_empty() && self.segments() == 1 && self.references() == 1 && later <= size;
        if may {
            // SAFETY: see `field!`; the segment is ours alone, and the offset stays within its buffer.
            unsafe { offset.write(later) };
        }
        may
    }

    /// Another reference to the same packet, so that it can be given away and kept. As long as there are two, nobody
    /// writes it. `None` if it has several segments.
    #[inline]
    #[must_use]
    pub fn share(&self) -> Option<Mbuf> {
        if self.segments() != 1 || self.references() == u16::MAX / 2 {
            return None;
        }
        // SAFETY: a live mbuf, to which a reference is counted for the new handle. All that writes asks for a count of 1.
        unsafe { dpdk_sys::rte_mbuf_refcnt_update(self.0.as_ptr(), 1) };
        Some(Mbuf(self.0))
    }

    /// Has the device fill in IPv4 and UDP checksums of an Ethernet frame without options. The UDP checksum field must
    /// hold the sum of the pseudo header. Not for packets that others have a reference to.
    pub fn offload_checksums(&mut self) {
        if self.references() != 1 {
            return;
        }
        let flags = dpdk_sys::FLAG_TX_IPV4 | dpdk_sys::FLAG_TX_IP_CKSUM | dpdk_sys::FLAG_TX_UDP_CKSUM;
        // SAFETY: writes fields of a live mbuf that is ours.
        unsafe { dpdk_sys::thc_mbuf_tx_offload(self.0.as_ptr(), flags, 14, 20) }
    }

    /// Asks the processor to have the first bytes at hand soon. The packet's own record must be at hand.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(self.start());
    }

    /// The same for `len` bytes from the first one on.
    #[inline]
    pub fn prefetch_many(&self, len: usize) {
        let start = self.start();
        let mut at = 0;
        while at < len {
            prefetch(start.wrapping_add(at));
            at += CACHE_LINE;
        }
    }

    /// The same for DPDK's record of the packet, which has its place and length.
    #[inline]
    pub fn prefetch_record(&self) {
        prefetch(self.0.as_ptr().cast());
        prefetch(self.0.as_ptr().cast::<u8>().wrapping_add(CACHE_LINE));
    }
}

/// Bytes that processors fetch together.
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
        // SAFETY: this reference is ours to give up; segments that others refer to stay.
        unsafe { dpdk_sys::rte_pktmbuf_free(self.0.as_ptr()) }
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf").field("len", &self.len()).field("segments", &self.segments()).finish()
    }
}

/// A payload that several packets end with: each has headers of its own, and all refer to the same bytes.
#[derive(Debug)]
pub struct SharedMbuf {
    payload: Mbuf,
    /// References counted in the payload already for packets that are still to come.
    spare: u16,
}

impl SharedMbuf {
    /// Shares a packet's bytes; `None` if it is not one segment of ours alone.
    #[must_use]
    pub fn new(payload: Mbuf) -> Option<SharedMbuf> {
        (payload.segments() == 1 && payload.references() == 1).then_some(SharedMbuf { payload, spare: 0 })
    }

    /// The bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.payload.data()
    }

    /// Says that so many packets more will end with it: counting them at once is cheaper than one by one.
    pub fn expect(&mut self, packets: u16) {
        // All references must fit the count, which is 16 bits wide.
        let most = u16::MAX / 2 - self.payload.references().min(u16::MAX / 2);
        let packets = packets.min(most);
        self.spare += packets;
        self.count(packets as i16);
    }

    fn count(&self, packets: i16) {
        if packets != 0 {
            // SAFETY: the payload is a live mbuf. More references are taken by whoever has one; `spare` ones are given up
            // by whoever took them.
            unsafe { dpdk_sys::rte_mbuf_refcnt_update(self.payload.0.as_ptr(), packets) };
        }
    }

    /// Puts the payload behind `head`; gives `head` back if it is not one segment of ours alone.
    ///
    /// # Errors
    /// `head` itself.
    #[inline]
    pub fn append_to(&mut self, head: Mbuf) -> Result<Mbuf, Mbuf> {
        if head.segments() != 1 || head.references() != 1 {
            return Err(head);
        }
        if self.spare == 0 {
            self.expect(1);
        }
        if self.spare == 0 {
            return Err(head);
        }
        self.spare -= 1;
        let (first, payload) = (head.0, self.payload.0);
        let whole = head.len() + self.payload.len();
        // SAFETY: both are live single segments, the first one ours alone. The payload's `next` is null and stays so, as
        // every chain's last must; the chain has the reference to it that `spare` is one less by.
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
        // Our own reference stays, until `payload` is dropped.
        self.count(-(self.spare as i16));
    }
}
