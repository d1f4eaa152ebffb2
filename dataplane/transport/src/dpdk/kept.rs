//! Frames kept for repetition, in the packets from which they were sent.
//!
//! A frame that is being sent has two references, the device's and the one here. When the device has released
//! its own, the packet is reused for the next datagram under that number, so in the long run no packet is
//! allocated or freed.

use thc_dpdk::Mbuf;

/// Numbers are below this.
const NUMBERS: usize = 1 << 16;

/// Packets by number.
pub(super) struct Kept {
    packets: Vec<Option<Mbuf>>,
    count: usize,
    /// Most packets kept: the others are for receiving and sending.
    limit: usize,
}

impl Kept {
    pub fn new(limit: usize) -> Kept {
        Kept { packets: Vec::new(), count: 0, limit }
    }

    /// Returns whether another number may get a packet.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.count < self.limit
    }

    #[inline]
    pub fn get(&self, number: usize) -> Option<&Mbuf> {
        self.packets.get(number)?.as_ref()
    }

    /// Prefetches the packets of the numbers that will probably follow, since there are more than caches
    /// hold.
    #[inline]
    pub fn prefetch_behind(&self, number: usize, len: usize) {
        if let Some(packet) = self.get(number + 2) {
            packet.prefetch_record();
        }
        if let Some(packet) = self.get(number + 1) {
            packet.prefetch_many(len);
        }
    }

    /// Empties the packet of a number if nothing else refers to it; otherwise the device frees it, and the
    /// number has none any more. Returns whether there is an empty packet now.
    #[inline]
    pub fn reuse(&mut self, number: usize) -> bool {
        let Some(place) = self.packets.get_mut(number) else { return false };
        let Some(packet) = place else { return false };
        let empty = packet.clear();
        if !empty {
            *place = None;
            self.count -= 1;
        }
        empty
    }

    /// Puts a packet under a number, in the place of the one that it has.
    pub fn put(&mut self, number: usize, packet: Mbuf) {
        if number >= self.packets.len() && number < NUMBERS {
            self.packets.resize_with((number + 1).next_power_of_two(), || None);
        }
        if let Some(place) = self.packets.get_mut(number) {
            self.count += usize::from(place.is_none());
            *place = Some(packet);
        }
    }

    /// Appends bytes to the packet of a number.
    #[inline]
    pub fn grow(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        self.packets.get_mut(number)?.as_mut()?.append(len)
    }

    /// The frame of a number, to be changed, unless it is on its way out.
    #[inline]
    pub fn frame(&mut self, number: usize) -> Option<&mut [u8]> {
        self.packets.get_mut(number)?.as_mut()?.data_mut()
    }

    /// A second reference to the packet of a number, to be sent; `offload` has the device fill in checksums.
    #[inline]
    pub fn share(&mut self, number: usize, offload: bool) -> Option<Mbuf> {
        let packet = self.packets.get_mut(number)?.as_mut()?;
        if offload {
            packet.offload_checksums();
        }
        packet.share()
    }
}
