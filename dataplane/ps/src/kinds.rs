//! Which kinds of packets the control plane answers (P2), as bits.

use thc_protocol::wire::Kind;

/// All bits of [`kind_bit`].
pub const ALL_CONTROL_KINDS: u8 = kind_bit(Kind::Join as u8) | kind_bit(Kind::Leave as u8);

/// A bit for each kind that the control plane answers (P2), and none for others.
#[must_use]
pub const fn kind_bit(kind: u8) -> u8 {
    const JOIN: u8 = Kind::Join as u8;
    const LEAVE: u8 = Kind::Leave as u8;
    match kind {
        JOIN => 1,
        LEAVE => 2,
        _ => 0,
    }
}
