//! Sums told in 4 bits (P45), a group at a time: lengths are whole groups. Division by D is multiplication by
//! its inverse, which is exact as long as dividend · D is below the power of two of which the inverse was
//! taken.

use crate::arguments::{GROUP, told_len};
use crate::signs::Signs;

/// The largest D: of the largest range.
const MOST8: u16 = 17;
const MOST16: u32 = 4369;

#[inline(always)]
fn draws8(key: Signs, group: usize) -> [u16; GROUP] {
    let mut bytes = [0; GROUP];
    for (i, eight) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *eight = key.word((group * (GROUP / 8) + i) as u64).to_le_bytes();
    }
    bytes.map(u16::from)
}

#[inline(always)]
fn draws16(key: Signs, group: usize) -> [u32; GROUP] {
    let mut draws = [0; GROUP];
    for (i, four) in draws.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let word = key.word((group * (GROUP / 4) + i) as u64);
        for (j, draw) in four.iter_mut().enumerate() {
            *draw = (word >> (16 * j)) as u32 & 0xFFFF;
        }
    }
    draws
}

#[inline(always)]
fn pack(nibbles: &[u8; GROUP], out: &mut [u8]) {
    for (out, two) in out.iter_mut().zip(nibbles.as_chunks::<2>().0) {
        *out = two[0] << 4 | two[1];
    }
}

#[inline(always)]
fn unpack(packed: &[u8]) -> [u8; GROUP] {
    let mut nibbles = [0; GROUP];
    for (two, byte) in nibbles.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        *two = [byte >> 4, byte & 15];
    }
    nibbles
}

#[inline(always)]
pub(crate) fn tell8(key: Signs, lanes: &mut [u8]) {
    for group in 0..lanes.len() / GROUP {
        let Some(&sums) = lanes[group * GROUP..].first_chunk::<GROUP>() else { return };
        let lo = sums.iter().copied().fold(u8::MAX, u8::min);
        let hi = sums.iter().copied().fold(0, u8::max);
        let d = u16::from(hi - lo).div_ceil(15).max(1);
        let inverse = (1 << 15) / d + 1;
        let draws = draws8(key, group);
        let mut nibbles = [0; GROUP];
        for ((z, sum), r) in nibbles.iter_mut().zip(sums).zip(draws) {
            let x = u16::from(sum - lo) + ((r * d) >> 8);
            *z = ((u32::from(2 * x) * u32::from(inverse)) >> 16) as u8;
        }
        let told = &mut lanes[group * told_len(8)..][..told_len(8)];
        told[..2].copy_from_slice(&[lo, d as u8]);
        pack(&nibbles, &mut told[2..]);
    }
}

#[inline(always)]
pub(crate) fn restore8(key: Signs, told: &[u8], lanes: &mut [u8]) {
    let groups = told.chunks_exact(told_len(8)).zip(lanes.as_chunks_mut::<GROUP>().0);
    for (group, (told, lanes)) in groups.enumerate() {
        let (lo, d) = (i16::from(told[0]), u16::from(told[1]).clamp(1, MOST8));
        let (nibbles, draws) = (unpack(&told[2..]), draws8(key, group));
        for ((lane, z), r) in lanes.iter_mut().zip(nibbles).zip(draws) {
            let v = (r * (2 * d)) >> 8;
            let sum = lo + (u16::from(z) * d) as i16 + ((d as i16 - v as i16) >> 1);
            *lane = sum.clamp(0, 0xFF) as u8;
        }
    }
}

#[inline(always)]
pub(crate) fn tell16(key: Signs, lanes: &mut [u8]) {
    for group in 0..lanes.len() / (2 * GROUP) {
        let Some(bytes) = lanes[group * 2 * GROUP..].first_chunk::<{ 2 * GROUP }>() else { return };
        let mut sums = [0u32; GROUP];
        for (sum, lane) in sums.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *sum = u16::from_be_bytes(*lane).into();
        }
        let lo = sums.iter().copied().fold(u32::MAX, u32::min);
        let hi = sums.iter().copied().fold(0, u32::max);
        let d = (hi - lo).div_ceil(15).max(1);
        let inverse = (1 << 29) / d + 1;
        let draws = draws16(key, group);
        let mut nibbles = [0; GROUP];
        for ((z, sum), r) in nibbles.iter_mut().zip(sums).zip(draws) {
            let x = sum - lo + ((r * d) >> 16);
            *z = ((u64::from(x) * u64::from(inverse)) >> 29) as u8;
        }
        let told = &mut lanes[group * told_len(16)..][..told_len(16)];
        told[..2].copy_from_slice(&(lo as u16).to_be_bytes());
        told[2..4].copy_from_slice(&(d as u16).to_be_bytes());
        pack(&nibbles, &mut told[4..]);
    }
}

#[inline(always)]
pub(crate) fn restore16(key: Signs, told: &[u8], lanes: &mut [u8]) {
    let groups = told.chunks_exact(told_len(16)).zip(lanes.as_chunks_mut::<{ 2 * GROUP }>().0);
    for (group, (told, lanes)) in groups.enumerate() {
        let lo = i32::from(u16::from_be_bytes([told[0], told[1]]));
        let d = u32::from(u16::from_be_bytes([told[2], told[3]])).clamp(1, MOST16);
        let (nibbles, draws) = (unpack(&told[4..]), draws16(key, group));
        for ((lane, z), r) in lanes.as_chunks_mut::<2>().0.iter_mut().zip(nibbles).zip(draws) {
            let v = (r * (2 * d)) >> 16;
            let sum = lo + (u32::from(z) * d) as i32 + ((d as i32 - v as i32) >> 1);
            *lane = (sum.clamp(0, 0xFFFF) as u16).to_be_bytes();
        }
    }
}
