//! Forms: how DATA and its RESULT lie in packets (P2).

use crate::Lane;
use std::fmt;

/// Bits per index upstream and per sum downstream. Indices lie one behind the other, most significant bit first, the first in the
/// most significant bits of the first byte; so do sums of 4 bits, and wider sums are big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Form {
    width: Width,
    lane: Lane,
    /// Whether a packet has as many coordinates as one with lanes of 16 bits, although these have 8 (P34).
    short: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Width {
    One = 1,
    Two = 2,
    Three = 3,
    #[default]
    Four = 4,
    Eight = 8,
    /// Only between racks and their root.
    Sixteen = 16,
}

impl Form {
    /// 4-bit indices and 8-bit lanes.
    pub const USUAL: Form = Form { width: Width::Four, lane: Lane::Bits8, short: false };

    /// Every form that a job's table can have, by width and then by lane.
    pub const ALL: [Form; 13] = {
        let widths = [Width::One, Width::Two, Width::Three, Width::Four];
        let lanes = [Lane::Bits4, Lane::Bits8, Lane::Bits16];
        // The last is the only one of its width: 255 fits no narrower lane of two workers.
        let mut all = [Form { width: Width::Eight, lane: Lane::Bits16, short: false }; 13];
        let mut i = 0;
        while i < 12 {
            all[i] = Form { width: widths[i / 3], lane: lanes[i % 3], short: false };
            i += 1;
        }
        all
    };

    /// The form of indices of `width` bits (1, 2, 3, 4 or 8) and of lanes, if there is one: 8-bit indices go with 16-bit lanes only.
    #[must_use]
    pub const fn new(width: u8, lane: Lane) -> Option<Form> {
        let width = match (width, lane) {
            (1, _) => Width::One,
            (2, _) => Width::Two,
            (3, _) => Width::Three,
            (4, _) => Width::Four,
            (8, Lane::Bits16) => Width::Eight,
            _ => return None,
        };
        Some(Form { width, lane, short: false })
    }

    /// What a table of this form travels as where workers are in racks, whose sums have lanes of `sums` (P34): between workers and
    /// their rack, and between racks and their root, which looks nothing up. None where sums would be narrower than 8 bits, wider
    /// than the root's, or than an index.
    #[must_use]
    pub const fn in_racks(self, sums: Lane) -> Option<(Form, Form)> {
        let (up, short) = match (sums, self.lane) {
            (Lane::Bits8, Lane::Bits8) => (Width::Eight, false),
            (Lane::Bits8, Lane::Bits16) if !self.is_identity() => (Width::Eight, true),
            (Lane::Bits16, Lane::Bits16) => (Width::Sixteen, false),
            _ => return None,
        };
        let below = Form { width: self.width, lane: sums, short };
        Some((below, Form { width: up, lane: self.lane, short: false }))
    }

    /// Bits per index.
    #[inline]
    #[must_use]
    pub const fn width(self) -> u8 {
        self.width as u8
    }

    /// Width of its sums.
    #[inline]
    #[must_use]
    pub const fn lane(self) -> Lane {
        self.lane
    }

    /// Coordinates in one DATA packet and its RESULT.
    #[inline]
    #[must_use]
    pub const fn coordinates(self) -> usize {
        match self.lane {
            Lane::Bits4 | Lane::Bits8 if !self.short => 1024,
            _ => 512,
        }
    }

    /// Bytes of a DATA payload.
    #[inline]
    #[must_use]
    pub const fn data_len(self) -> usize {
        self.coordinates() * self.width() as usize / 8
    }

    /// Bytes of a RESULT payload.
    #[inline]
    #[must_use]
    pub const fn result_len(self) -> usize {
        self.coordinates() * self.lane.bits() as usize / 8
    }

    /// Whether the index is the value (P6): T[z] = z for all, and nobody looks anything up.
    #[inline]
    #[must_use]
    pub const fn is_identity(self) -> bool {
        matches!(self.width, Width::Eight | Width::Sixteen)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.width(), self.lane.bits())
    }
}
