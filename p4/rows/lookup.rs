//! Lookup tables: table `lookup`, and tables `lookup_a0`, `lookup_b0`, … by bytes of indices, the same rows in each.

use super::{Fields, row};
use thc_protocol::wire::Form;

row! {
    /// Table `lookup`: a lookup table T (P6).
    #[derive(Clone, Debug, PartialEq, Eq)]
    LookupRow of "lookup", "set_values",
    key {
        /// Key: its id.
        table: u8,
    }
    params {
        /// T\[0\] to T\[15\].
        values: [u8; 16],
        /// The form of packets that name it.
        form: Form,
    }
}

/// The parameters `width` and `lane`.
impl Fields for Form {
    fn put(&self, _: &'static str, to: &mut Vec<(&'static str, u128)>) {
        to.extend([("width", self.width().into()), ("lane", self.sums().into())]);
    }
}

/// A lookup table on a chip that looks up a byte of indices at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupBytes {
    /// Its number on the chip.
    pub number: u8,
    /// T\[0\] to T\[15\].
    pub values: [u8; 16],
    /// The form of packets that name it.
    pub form: Form,
}

impl LookupBytes {
    /// The lanes for which a byte of indices stands, with the first index in the upper bits of both. An index
    /// without a value in the table stands for 0, as in T (P6).
    #[must_use]
    pub fn lanes(&self, indices: u8) -> u128 {
        let (width, lane) = (u32::from(self.form.width()), u32::from(self.form.lane().bits()));
        (0..8 / width).fold(0, |lanes, at| {
            let index = indices >> (8 - width * (at + 1)) & (0xFF >> (8 - width));
            // Indices of 8 bits are their own values.
            let value = if width == 8 { index } else { self.values[usize::from(index)] };
            lanes << lane | u128::from(value)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn form(name: &str) -> Form {
        Form::ALL.into_iter().find(|form| form.to_string() == name).unwrap()
    }

    #[test]
    fn a_byte_stands_for_as_many_lanes_as_indices() {
        let mut values = [0; 16];
        values.copy_from_slice(&[0, 1, 2, 3, 5, 7, 8, 10, 11, 13, 16, 18, 20, 24, 27, 30]);
        let lanes = |name: &str, byte| LookupBytes { number: 0, values, form: form(name) }.lanes(byte);
        assert_eq!((lanes("4/8", 0x4F), lanes("4/16", 0x4F)), (0x051E, 0x0005_001E));
        assert_eq!(lanes("2/4", 0b00_01_10_11), 0x0123);
        assert_eq!((lanes("8/16", 0xAB), lanes("8/16", 0)), (0xAB, 0));
    }
}
