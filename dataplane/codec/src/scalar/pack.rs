//! Indices of 1, 2 and 3 bits beside those of 4. Lengths are checked by `crate::packing`.
//!
//! 16 indices of 4 bits are a number of 64 bits, the first on top. What is too much between them goes out in four steps: from
//! between two, then between pairs, and so on.

/// Every second field of 2^step indices of `width` bits, where each has as much room as if they had 4.
const fn second(width: u32, step: u32) -> u64 {
    let field = u64::MAX >> (64 - (width << step));
    let (mut mask, mut at) = (0, 0);
    while at < 64 {
        mask |= field << at;
        at += 8 << step;
    }
    mask
}

/// 16 indices without what is too much between them, in the low bits.
#[inline(always)]
fn close<const WIDTH: u32>(mut x: u64) -> u64 {
    let masks = const { [second(WIDTH, 0), second(WIDTH, 1), second(WIDTH, 2), second(WIDTH, 3)] };
    for (step, mask) in (0..4).zip(masks) {
        x = x & mask | x >> ((4 - WIDTH) << step) & mask << (WIDTH << step);
    }
    x
}

/// Undoes `close`.
#[inline(always)]
pub(crate) fn open<const WIDTH: u32>(mut x: u64) -> u64 {
    let masks = const { [second(WIDTH, 0), second(WIDTH, 1), second(WIDTH, 2), second(WIDTH, 3)] };
    for (step, mask) in (0..4).zip(masks).rev() {
        x = x & mask | x << ((4 - WIDTH) << step) & mask << (4 << step);
    }
    x
}

/// `BYTES` = 2 `WIDTH`.
#[inline(always)]
pub(crate) fn narrow<const WIDTH: u32, const BYTES: usize>(nibbles: &[u8], out: &mut [u8]) {
    for (out, nibbles) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(nibbles.as_chunks::<8>().0) {
        let closed = close::<WIDTH>(u64::from_be_bytes(*nibbles)).to_be_bytes();
        out.copy_from_slice(&closed[8 - BYTES..]);
    }
}

#[inline(always)]
pub(crate) fn widen<const WIDTH: u32, const BYTES: usize>(packed: &[u8], out: &mut [u8]) {
    for (out, packed) in out.as_chunks_mut::<8>().0.iter_mut().zip(packed.as_chunks::<BYTES>().0) {
        let mut closed = [0; 8];
        closed[8 - BYTES..].copy_from_slice(packed);
        *out = open::<WIDTH>(u64::from_be_bytes(closed)).to_be_bytes();
    }
}

/// Each byte to the two numbers of 4 bits that it has.
#[inline(always)]
pub(crate) fn spread4(packed: &[u8], out: &mut [u8]) {
    for (out, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        *out = [byte >> 4, byte & 15];
    }
}
