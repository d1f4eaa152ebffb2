//! The counters of a simulated network.

/// Counters of the datagrams of a simulated network. Every datagram and every copy has exactly one
/// outcome: `sent + duplicated` = `delivered + lost + partitioned + unreachable + overflowed +
/// checksum_failed` + those still under way ([`SimNet::in_flight`](super::SimNet::in_flight)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Datagrams that endpoints sent.
    pub sent: u64,
    /// Copies that the network made.
    pub duplicated: u64,
    /// Datagrams put into a receiver's queue.
    pub delivered: u64,
    /// Datagrams dropped at random, at the rate [`LinkConfig::loss`](super::LinkConfig::loss).
    pub lost: u64,
    /// Datagrams dropped because sender or receiver was partitioned.
    pub partitioned: u64,
    /// Datagrams dropped because no endpoint had the receiver's address.
    pub unreachable: u64,
    /// Datagrams dropped because the receiver's queue was full.
    pub overflowed: u64,
    /// Datagrams dropped because the checksum did not match.
    pub checksum_failed: u64,
    /// Datagrams held back so that later ones overtake them, whatever their outcome.
    pub reordered: u64,
    /// Datagrams that a queue marked, whatever their outcome.
    pub marked: u64,
    /// Datagrams with flipped bits, whatever their outcome.
    pub corrupted: u64,
}
