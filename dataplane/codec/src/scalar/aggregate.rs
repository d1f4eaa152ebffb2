//! Scalar aggregation kernels. Lengths are checked by `crate::aggregate`.

/// Calls `put` with each pair of lanes and the two values that a packed byte stands for.
#[inline(always)]
fn pairs<const WIDTH: usize>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8], put: impl Fn(&mut [u8], u8)) {
    for (pair, byte) in lanes.chunks_exact_mut(2 * WIDTH).zip(packed) {
        let (first, second) = pair.split_at_mut(WIDTH);
        put(first, table[usize::from(byte >> 4)]);
        put(second, table[usize::from(byte & 15)]);
    }
}

pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    pairs::<1>(lanes, table, packed, |lane, v| lane[0] = v);
}

pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    pairs::<1>(lanes, table, packed, |lane, v| {
        lane[0] = lane[0].wrapping_add(v);
    });
}

pub(crate) fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    pairs::<2>(lanes, table, packed, |lane, v| {
        lane.copy_from_slice(&[0, v]);
    });
}

pub(crate) fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    pairs::<2>(lanes, table, packed, |lane, v| {
        let sum = u16::from_be_bytes([lane[0], lane[1]]).wrapping_add(u16::from(v));
        lane.copy_from_slice(&sum.to_be_bytes());
    });
}

/// Two lanes of 4 bits are added as one number: their sums fit, so nothing is carried from one to the other.
fn halves(table: &[u8; 16], byte: u8) -> u8 {
    (table[usize::from(byte >> 4)] << 4).wrapping_add(table[usize::from(byte & 15)])
}

pub(crate) fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    lanes.iter_mut().zip(packed).for_each(|(two, byte)| *two = halves(table, *byte));
}

pub(crate) fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    lanes.iter_mut().zip(packed).for_each(|(two, byte)| *two = two.wrapping_add(halves(table, *byte)));
}

#[inline(always)]
pub(crate) fn set8_wide(lanes: &mut [u8], values: &[u8]) {
    for (lane, value) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        *lane = u16::from(*value).to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn add8_wide(lanes: &mut [u8], values: &[u8]) {
    for (lane, value) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        *lane = u16::from_be_bytes(*lane).wrapping_add(u16::from(*value)).to_be_bytes();
    }
}

pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
    for (lane, word) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(payload.as_chunks::<4>().0) {
        // Two's complement: wrapping i32 addition is wrapping u32 addition.
        *lane = u32::from_be_bytes(*lane).wrapping_add(u32::from_be_bytes(*word)).to_be_bytes();
    }
}
