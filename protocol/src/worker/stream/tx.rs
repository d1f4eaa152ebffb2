//! What sends packets, and may keep them.

use crate::SlotId;

/// Sends packets to the ports of shards.
///
/// A stream keeps what it sends for repetition. Either it does so itself, and hands packets over by [`Self::send`]; or
/// whoever sends has memory that packets go out from, and keeps data packets there: then they are written once
/// ([`Self::pack`]) and never copied.
pub trait Tx {
    /// Sends a run: `contents` is a whole number of packets of `segment` bytes.
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize);

    /// Memory of `len` bytes that the next packet to a data slot goes out from, whatever it held before; it is kept until
    /// the slot's next. `None` if there is none to be had: then the stream keeps the packet.
    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        let _ = (slot, len);
        None
    }

    /// Sends what has been written there, at the latest with the next [`Self::flush`].
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
