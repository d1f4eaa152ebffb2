//! The arithmetic of a parameter server on the payload of a packet: look up and add.
//!
//! Lanes are held in wire order, so a slot's lanes are the payload of its RESULT packet. 8-bit
//! lanes have no byte order; 16-bit and 32-bit lanes are big endian. Storing them so costs two
//! byte shuffles per vector on each addition, and saves the pass that would convert them when the
//! slot completes.
//!
//! Nothing here checks for overflow: lanes wrap, and the code that creates a job makes sure that granularity
//! × workers fits (see [`table::choose`](crate::table::choose)).

use crate::arch;
pub use crate::arch::prefetch;
use crate::error::CodecError;
use crate::isa::Isa;

#[inline]
fn check(lanes: &[u8], width: usize, packed: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", packed.len() * 2 * width, lanes.len())
}

/// Sets 8-bit lanes to the table values of packed 4-bit indices (first index in the high nibble).
/// `lanes` must be twice as long as `packed`.
#[inline]
pub fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    check(lanes, 1, packed)?;
    arch::aggregate::lookup_set4(Isa::current(), lanes, table, packed);
    Ok(())
}

/// Adds the table values of packed 4-bit indices to 8-bit lanes.
/// `lanes` must be twice as long as `packed`.
#[inline]
pub fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    check(lanes, 1, packed)?;
    arch::aggregate::lookup_add4(Isa::current(), lanes, table, packed);
    Ok(())
}

/// [`lookup_set4`] for big-endian 16-bit lanes. `lanes` must be four times as long as `packed`.
#[inline]
pub fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    check(lanes, 2, packed)?;
    arch::aggregate::lookup_set4_wide(Isa::current(), lanes, table, packed);
    Ok(())
}

/// [`lookup_add4`] for big-endian 16-bit lanes. `lanes` must be four times as long as `packed`.
#[inline]
pub fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    check(lanes, 2, packed)?;
    arch::aggregate::lookup_add4_wide(Isa::current(), lanes, table, packed);
    Ok(())
}

/// [`lookup_set4`] for lanes of 4 bits, two a byte, the first in its high half. `lanes` must be as long as `packed`.
#[inline]
pub fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", packed.len(), lanes.len())?;
    arch::aggregate::lookup_set4_half(Isa::current(), lanes, table, packed);
    Ok(())
}

/// [`lookup_add4`] for lanes of 4 bits, two a byte, the first in its high half. `lanes` must be as long as
/// `packed`. Sums that do not fit carry into the preceding lane.
#[inline]
pub fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", packed.len(), lanes.len())?;
    arch::aggregate::lookup_add4_half(Isa::current(), lanes, table, packed);
    Ok(())
}

/// Sets big-endian 16-bit lanes to values of one byte. `lanes` must be twice as long as `values`.
#[inline]
pub fn set8_wide(lanes: &mut [u8], values: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", 2 * values.len(), lanes.len())?;
    arch::aggregate::set8_wide(Isa::current(), lanes, values);
    Ok(())
}

/// Adds values of one byte to big-endian 16-bit lanes. `lanes` must be twice as long as `values`.
#[inline]
pub fn add8_wide(lanes: &mut [u8], values: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", 2 * values.len(), lanes.len())?;
    arch::aggregate::add8_wide(Isa::current(), lanes, values);
    Ok(())
}

/// Adds bytes to 8-bit lanes, wrapping. Lengths must agree.
#[inline]
pub fn add8(lanes: &mut [u8], values: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", values.len(), lanes.len())?;
    // The compiler takes vectors for this by itself.
    lanes.iter_mut().zip(values).for_each(|(lane, value)| *lane = lane.wrapping_add(*value));
    Ok(())
}

/// Adds big-endian 16-bit values to lanes of the same kind, wrapping. Lengths must agree.
#[inline]
pub fn add16(lanes: &mut [u8], values: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", values.len(), lanes.len())?;
    for (lane, value) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(values.as_chunks::<2>().0) {
        *lane = u16::from_be_bytes(*lane).wrapping_add(u16::from_be_bytes(*value)).to_be_bytes();
    }
    Ok(())
}

/// Adds the words of an uncompressed payload to big-endian 32-bit lanes, wrapping. Lengths must
/// agree and be a multiple of 4.
#[inline]
pub fn raw_add(lanes: &mut [u8], payload: &[u8]) -> Result<(), CodecError> {
    CodecError::check_len("lanes", payload.len(), lanes.len())?;
    CodecError::check_multiple("the payload of 32-bit words", 4, payload.len())?;
    arch::aggregate::raw_add(Isa::current(), lanes, payload);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: [u8; 16] = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30];

    #[test]
    fn high_nibble_is_the_first_coordinate() {
        let mut lanes = [9, 9, 9, 9];
        lookup_set4(&mut lanes, &TABLE, &[0x1F, 0x02]).unwrap();
        assert_eq!(lanes, [3, 30, 0, 5]);
        lookup_add4(&mut lanes, &TABLE, &[0xF0, 0xFF]).unwrap();
        assert_eq!(lanes, [33, 30, 30, 35]);
        let mut wide = [1; 4];
        lookup_set4_wide(&mut wide, &[200; 16], &[0x12]).unwrap();
        lookup_add4_wide(&mut wide, &[200; 16], &[0x12]).unwrap();
        assert_eq!(wide, [1, 144, 1, 144]);
    }

    #[test]
    fn words_are_big_endian_and_wrap() {
        let mut lanes = [0, 0, 1, 255, 0x7F, 255, 255, 255];
        raw_add(&mut lanes, &[0, 0, 0, 1, 0, 0, 0, 1]).unwrap();
        assert_eq!(lanes, [0, 0, 2, 0, 0x80, 0, 0, 0]);
    }

    #[test]
    fn wrong_lengths_are_errors() {
        assert!(lookup_set4(&mut [0; 3], &TABLE, &[0; 2]).is_err());
        assert!(lookup_add4(&mut [0; 5], &TABLE, &[0; 2]).is_err());
        assert!(lookup_set4_wide(&mut [0; 4], &TABLE, &[0; 2]).is_err());
        assert!(lookup_add4_wide(&mut [0; 4], &TABLE, &[0; 2]).is_err());
        assert!(raw_add(&mut [0; 6], &[0; 6]).is_err());
        assert!(raw_add(&mut [0; 4], &[0; 3]).is_err());
    }

    proptest! {
        #[test]
        fn lanes_hold_the_sum_of_table_values(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 33), 1..9),
            table: [u8; 16],
        ) {
            let mut narrow = vec![0xAA; 66];
            let mut wide = vec![0xAA; 132];
            for (i, packed) in packets.iter().enumerate() {
                if i == 0 {
                    lookup_set4(&mut narrow, &table, packed).unwrap();
                    lookup_set4_wide(&mut wide, &table, packed).unwrap();
                } else {
                    lookup_add4(&mut narrow, &table, packed).unwrap();
                    lookup_add4_wide(&mut wide, &table, packed).unwrap();
                }
            }
            for c in 0..66 {
                let sum: u32 = packets
                    .iter()
                    .map(|p| u32::from(table[usize::from((p[c / 2] >> (4 - c % 2 * 4)) & 15)]))
                    .sum();
                prop_assert_eq!(u32::from(narrow[c]), sum & 255);
                prop_assert_eq!(u32::from(u16::from_be_bytes([wide[2 * c], wide[2 * c + 1]])), sum);
            }
        }
    }
}
