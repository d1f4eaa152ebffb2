//! The sender of packets, which may keep them.

use crate::SlotId;

/// Sends packets to the ports of shards.
///
/// The packets of a stream are kept for repetition. Either the stream keeps it and hands packets over by
/// [`Self::send`], or the sender keeps data packets in memory from which they are sent: then they are written
/// once ([`Self::pack`]) and never copied.
pub trait Tx {
    /// Sends a run: `contents` is a whole number of packets of `segment` bytes.
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize);

    /// Memory of `len` bytes, with arbitrary content, from which the next packet to a data slot is sent. It
    /// is kept until the slot's next packet. `None` if there is no such memory: then the stream keeps the
    /// packet.
    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        let _ = (slot, len);
        None
    }

    /// Sends what was written there, with the next [`Self::flush`] at the latest.
    fn send_packed(&mut self, shard: u8, slot: SlotId) {
        let _ = (shard, slot);
    }

    /// Sends it again, now, with these flags ([`Header::set_flags`]).
    fn repeat_packed(&mut self, shard: u8, slot: SlotId, flags: u8) {
        let _ = (shard, slot, flags);
    }

    /// Ends a run of packets that were sent one by one.
    fn flush(&mut self) {}
}
