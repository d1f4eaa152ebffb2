//! Forms: how DATA and its RESULT lie in packets (P2 kinds).

use crate::Lane;
use std::fmt;

/// Bits per index upstream and per sum downstream. Indices follow each other, most significant bit first, the
/// first in the most significant bits of the first byte. So do sums of 4 bits; wider sums are big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Form {
    width: Width,
    lane: Lane,
    /// True if a packet has as many coordinates as one with lanes of 16 bits, although these have 8.
    short: bool,
    /// Bits by which sums are narrower on their way down than the lanes that they are added in.
    packed: u8,
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
    pub const USUAL: Form = Form { width: Width::Four, lane: Lane::Bits8, short: false, packed: 0 };

    /// Every form whose sums travel in the lanes in which they are added, by width and then by lane.
    pub const ALL: [Form; 13] = {
        let widths = [Width::One, Width::Two, Width::Three, Width::Four];
        let lanes = [Lane::Bits4, Lane::Bits8, Lane::Bits16];
        // The last is the only one of its width: 255 fits no narrower lane of two workers.
        let mut all = [Form { width: Width::Eight, lane: Lane::Bits16, short: false, packed: 0 }; 13];
        let mut i = 0;
        while i < 12 {
            all[i] = Form { width: widths[i / 3], lane: lanes[i % 3], short: false, packed: 0 };
            i += 1;
        }
        all
    };

    /// The form of indices of `width` bits (1, 2, 3, 4 or 8) and of these lanes, if there is one: 8-bit
    /// indices need 16-bit lanes.
    pub const fn new(width: u8, lane: Lane) -> Option<Form> {
        let width = match (width, lane) {
            (1, _) => Width::One,
            (2, _) => Width::Two,
            (3, _) => Width::Three,
            (4, _) => Width::Four,
            (8, Lane::Bits16) => Width::Eight,
            _ => return None,
        };
        Some(Form { width, lane, short: false, packed: 0 })
    }

    /// The form of indices of `width` bits, and of sums that go down in `sums` bits each, 4 to 16; they are added in the narrowest
    /// lanes that hold them (P44 packed sums).
    #[must_use]
    pub const fn with_sums(width: u8, sums: u8) -> Option<Form> {
        let Some(lane) = Lane::narrowest(sums) else { return None };
        match Form::new(width, lane) {
            Some(form) if lane.bits() == sums => Some(form),
            Some(form) => Some(Form { packed: lane.bits() - sums, ..form }),
            None => None,
        }
    }

    /// Returns how a table's indices and sums lie in memory if no packets carry them: indices of 4 bits, or of 8 for
    /// a table of more bits, and sums of at most `sums` bits, 4 to 16, in bytes or in 16 bits.
    pub const fn without_packets(bits: u8, sums: u8) -> Option<Form> {
        let lane = match sums {
            4..=8 => Lane::Bits8,
            9..=16 => Lane::Bits16,
            _ => return None,
        };
        let width = match bits {
            1..=4 => Width::Four,
            5..=8 => Width::Eight,
            _ => return None,
        };
        Some(Form { width, lane, short: false, packed: 0 })
    }

    /// The forms in which a table of this form travels if workers are in racks whose sums have lanes of
    /// `sums` (P34 levels): between workers and their rack, and between racks and their root, which looks nothing
    /// up. `None` if sums would be narrower than 8 bits or than an index, or wider than the root's.
    pub const fn in_racks(self, sums: Lane) -> Option<(Form, Form)> {
        if self.is_packed() {
            return None;
        }
        let (up, short) = match (sums, self.lane) {
            (Lane::Bits8, Lane::Bits8) => (Width::Eight, false),
            (Lane::Bits8, Lane::Bits16) if !self.is_identity() => (Width::Eight, true),
            (Lane::Bits16, Lane::Bits16) => (Width::Sixteen, false),
            _ => return None,
        };
        let below = Form { width: self.width, lane: sums, short, packed: 0 };
        Some((below, Form { width: up, lane: self.lane, short: false, packed: 0 }))
    }

    /// Bits per index.
    #[inline]
    pub const fn width(self) -> u8 {
        self.width as u8
    }

    /// Returns the lanes in which sums are added.
    #[inline]
    pub const fn lane(self) -> Lane {
        self.lane
    }

    /// Bits of a sum on its way down.
    #[inline]
    pub const fn sums(self) -> u8 {
        self.lane.bits() - self.packed
    }

    /// The largest sum that fits these.
    pub const fn max_sum(self) -> u32 {
        (1 << self.sums()) - 1
    }

    /// Returns whether sums travel in fewer bits than their lanes have (P44 packed sums).
    #[inline]
    pub const fn is_packed(self) -> bool {
        self.packed > 0
    }

    /// Coordinates in one DATA packet and its RESULT.
    #[inline]
    pub const fn coordinates(self) -> usize {
        match self.lane {
            Lane::Bits4 | Lane::Bits8 if !self.short => 1024,
            _ => 512,
        }
    }

    /// Bytes of a DATA payload.
    #[inline]
    pub const fn data_len(self) -> usize {
        self.coordinates() * self.width() as usize / 8
    }

    /// Bytes of a RESULT payload.
    #[inline]
    pub const fn result_len(self) -> usize {
        self.coordinates() * self.sums() as usize / 8
    }

    /// Bytes of a packet's lanes.
    #[inline]
    pub const fn lanes_len(self) -> usize {
        self.coordinates() * self.lane.bits() as usize / 8
    }

    /// Returns whether the index is the value (P6 tables): T[z] = z for all z, so no lookup is needed.
    #[inline]
    pub const fn is_identity(self) -> bool {
        matches!(self.width, Width::Eight | Width::Sixteen)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.width(), self.sums())
    }
}
