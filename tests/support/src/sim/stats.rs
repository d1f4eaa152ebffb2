//! What a simulated network counts.

/// What became of the datagrams of a simulated network. Every datagram and every copy ends in
/// exactly one place: `sent + duplicated` = `delivered + lost + partitioned + unreachable +
/// overflowed + checksum_failed` + those still under way ([`SimNet::in_flight`](super::SimNet::in_flight)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Datagrams that endpoints sent.
    pub sent: u64,
    /// Copies the network made.
    pub duplicated: u64,
    /// Datagrams put into a receiver's queue.
    pub delivered: u64,
    /// Dropped by the rate [`LinkConfig::loss`](super::LinkConfig::loss).
    pub lost: u64,
    /// Dropped because sender or receiver was partitioned.
    pub partitioned: u64,
    /// Dropped because nobody had the receiver's address.
    pub unreachable: u64,
    /// Dropped because the receiver's queue was full.
    pub overflowed: u64,
    /// Dropped because the checksum did not match.
    pub checksum_failed: u64,
    /// Datagrams held back so that later ones overtake them (wherever they ended).
    pub reordered: u64,
    /// Datagrams that a queue marked (wherever they ended).
    pub marked: u64,
    /// Datagrams with flipped bits (wherever they ended).
    pub corrupted: u64,
}
