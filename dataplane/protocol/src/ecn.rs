//! Congestion marks of IP headers (RFC 3168).

/// The low two bits of IPv4's TOS byte, of a datagram that is received or sent (P46 marks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// A full queue drops it.
    #[default]
    NotEct = 0,
    /// A queue may mark it. This code never sends this codepoint.
    Ect1 = 1,
    /// A queue may mark it.
    Ect0 = 2,
    /// A queue has marked it: congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in a TOS byte, whatever its upper bits.
    #[inline]
    pub const fn of_bits(tos: u8) -> Ecn {
        match tos & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The bits of the answer to a packet with these bits: queues may mark the answer if they may mark the
    /// packet.
    #[inline]
    pub const fn of_answer(self) -> Ecn {
        match self {
            Ecn::NotEct => Ecn::NotEct,
            _ => Ecn::Ect0,
        }
    }
}
