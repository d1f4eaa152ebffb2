//! Packing: the definitions, compiled for these instructions.

use crate::scalar::pack as scalar;

#[target_feature(enable = "neon")]
pub(crate) fn narrow1(nibbles: &[u8], out: &mut [u8]) {
    scalar::narrow1(nibbles, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn narrow2(nibbles: &[u8], out: &mut [u8]) {
    scalar::narrow2(nibbles, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn narrow3(nibbles: &[u8], out: &mut [u8]) {
    scalar::narrow3(nibbles, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn widen1(packed: &[u8], out: &mut [u8]) {
    scalar::widen1(packed, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn widen2(packed: &[u8], out: &mut [u8]) {
    scalar::widen2(packed, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn widen3(packed: &[u8], out: &mut [u8]) {
    scalar::widen3(packed, out);
}

#[target_feature(enable = "neon")]
pub(crate) fn spread4(packed: &[u8], out: &mut [u8]) {
    scalar::spread4(packed, out);
}
