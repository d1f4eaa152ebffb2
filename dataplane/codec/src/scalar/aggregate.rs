//! Scalar aggregation kernels. Lengths are checked by `crate::aggregate`.

/// Sets lanes of 8 bits to the table's values of packed indices, or adds these.
pub(crate) fn lookup4<const ADD: bool>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    for (pair, byte) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        let values = [table[usize::from(byte >> 4)], table[usize::from(byte & 15)]];
        for (lane, value) in pair.iter_mut().zip(values) {
            *lane = if ADD { lane.wrapping_add(value) } else { value };
        }
    }
}

/// `lookup4` for big-endian lanes of 16 bits.
pub(crate) fn lookup4_wide<const ADD: bool>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    for (pair, byte) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(packed) {
        values_wide::<ADD>(pair, &[table[usize::from(byte >> 4)], table[usize::from(byte & 15)]]);
    }
}

/// `lookup4` for lanes of 4 bits. Two of them are added as one number: their sums fit, so nothing is carried from one to
/// the other.
pub(crate) fn lookup4_half<const ADD: bool>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    for (two, byte) in lanes.iter_mut().zip(packed) {
        let values = (table[usize::from(byte >> 4)] << 4).wrapping_add(table[usize::from(byte & 15)]);
        *two = if ADD { two.wrapping_add(values) } else { values };
    }
}

/// Sets big-endian lanes of 16 bits to values of one byte, or adds these.
#[inline(always)]
pub(crate) fn values_wide<const ADD: bool>(lanes: &mut [u8], values: &[u8]) {
    for (lane, value) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        let before = if ADD { u16::from_be_bytes(*lane) } else { 0 };
        *lane = before.wrapping_add(u16::from(*value)).to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
    for (lane, word) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(payload.as_chunks::<4>().0) {
        // Two's complement: wrapping i32 addition is wrapping u32 addition.
        *lane = u32::from_be_bytes(*lane).wrapping_add(u32::from_be_bytes(*word)).to_be_bytes();
    }
}
