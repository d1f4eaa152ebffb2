//! Indices of 1, 2 and 3 bits beside those of 4: 16 of them are one number of 64 bits, and BMI2, which every processor with
//! AVX-512 has, closes and opens the room between them in one operation.

use crate::scalar::pack as scalar;
use core::arch::x86_64::{_pdep_u64, _pext_u64};

/// The bits of 16 indices of `width` bits that have as much room as if they had 4.
const fn used_bits(width: u32) -> u64 {
    u64::MAX / 15 * ((1 << width) - 1)
}

/// `BYTES` = 2 `WIDTH`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
#[inline]
fn narrow<const WIDTH: u32, const BYTES: usize>(nibbles: &[u8], out: &mut [u8]) {
    for (out, nibbles) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(nibbles.as_chunks::<8>().0) {
        let closed = _pext_u64(u64::from_be_bytes(*nibbles), const { used_bits(WIDTH) }).to_be_bytes();
        out.copy_from_slice(&closed[8 - BYTES..]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
#[inline]
fn widen<const WIDTH: u32, const BYTES: usize>(packed: &[u8], out: &mut [u8]) {
    for (out, packed) in out.as_chunks_mut::<8>().0.iter_mut().zip(packed.as_chunks::<BYTES>().0) {
        let mut closed = [0; 8];
        closed[8 - BYTES..].copy_from_slice(packed);
        *out = _pdep_u64(u64::from_be_bytes(closed), const { used_bits(WIDTH) }).to_be_bytes();
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn narrow1(nibbles: &[u8], out: &mut [u8]) {
    narrow::<1, 2>(nibbles, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn narrow2(nibbles: &[u8], out: &mut [u8]) {
    narrow::<2, 4>(nibbles, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn narrow3(nibbles: &[u8], out: &mut [u8]) {
    narrow::<3, 6>(nibbles, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn widen1(packed: &[u8], out: &mut [u8]) {
    widen::<1, 2>(packed, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn widen2(packed: &[u8], out: &mut [u8]) {
    widen::<2, 4>(packed, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(crate) fn widen3(packed: &[u8], out: &mut [u8]) {
    widen::<3, 6>(packed, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn spread4(packed: &[u8], out: &mut [u8]) {
    scalar::spread4(packed, out);
}
