//! Aggregation: table lookup by byte permutation.

use std::arch::x86_64::*;

pub(crate) use crate::arch::avx512::aggregate::{
    add8_wide, lookup_add4_half, lookup_add4_wide, lookup_set4_half, lookup_set4_wide, raw_add, set8_wide,
};
use crate::arch::avx512::aggregate::{broadcast, load, store};
use crate::scalar::aggregate as scalar;

/// Table values of 32 packed bytes: 64 lanes of 8 bits. `table` has the 16 values four times.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
#[inline]
fn values(table: __m512i, packed: &[u8]) -> __m512i {
    assert!(packed.len() == 32);
    // SAFETY: packed has 32 bytes.
    let w = unsafe { _mm256_loadu_si256(packed.as_ptr().cast()) };
    // Four packed bytes for each eight lanes. Each lane takes the eight bits from where its nibble begins: the high one
    // of each byte, which is the first lane, then the low one.
    let w = _mm512_cvtepu32_epi64(w);
    let begins = _mm512_set1_epi64(0x181C_1014_080C_0004);
    let nibbles = _mm512_multishift_epi64_epi8(begins, w);
    // What follows the nibble chooses which of the four tables is asked, and they are the same.
    _mm512_permutexvar_epi8(nibbles, table)
}

/// Four vectors at a time, then one by one: the loop would cost as much as the arithmetic.
macro_rules! by_fours {
    ($lanes:ident, $packed:ident, |$out:ident, $in:ident| $body:expr, $rest:path, $table:ident) => {
        let (outs, out_rest) = $lanes.as_chunks_mut::<256>();
        let (ins, in_rest) = $packed.as_chunks::<128>();
        for (outs, ins) in outs.iter_mut().zip(ins) {
            for ($out, $in) in outs.chunks_exact_mut(64).zip(ins.chunks_exact(32)) {
                $body;
            }
        }
        let (mut outs, ins) = (out_rest.chunks_exact_mut(64), in_rest.chunks_exact(32));
        let tail = ins.remainder();
        for ($out, $in) in outs.by_ref().zip(ins) {
            $body;
        }
        $rest(outs.into_remainder(), $table, tail);
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    by_fours!(lanes, packed, |out, packed| store(out, values(t, packed)), scalar::lookup_set4, table);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    by_fours!(
        lanes,
        packed,
        |out, packed| store(out, _mm512_add_epi8(load(out), values(t, packed))),
        scalar::lookup_add4,
        table
    );
}
