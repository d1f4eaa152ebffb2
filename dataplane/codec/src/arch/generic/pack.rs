//! Packing. (The compiler makes good vectors of the opposite direction by itself.)

use crate::arch::vector::Vector;

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn widen<V: Vector, const WIDTH: u32, const BYTES: usize>(
    packed: &[u8],
    out: &mut [u8],
) {
    for (out, packed) in out.as_chunks_mut::<8>().0.iter_mut().zip(packed.as_chunks::<BYTES>().0) {
        let mut closed = [0; 8];
        closed[8 - BYTES..].copy_from_slice(packed);
        // SAFETY: the caller has V's features.
        *out = unsafe { V::open::<WIDTH>(u64::from_be_bytes(closed)) }.to_be_bytes();
    }
}
