//! Sums told in 4 bits: the definitions, compiled for these instructions.

use crate::scalar::requantize as scalar;
use crate::signs::Signs;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn tell8(key: Signs, lanes: &mut [u8]) {
    scalar::tell8(key, lanes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn restore8(key: Signs, told: &[u8], lanes: &mut [u8]) {
    scalar::restore8(key, told, lanes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn tell16(key: Signs, lanes: &mut [u8]) {
    scalar::tell16(key, lanes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn restore16(key: Signs, told: &[u8], lanes: &mut [u8]) {
    scalar::restore16(key, told, lanes);
}
