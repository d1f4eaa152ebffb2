//! Aggregation: the values of a whole vector of packed indices at a time.

use crate::arch::vector::Vector;
use crate::scalar::aggregate as scalar;

/// Bytes of a vector.
const fn bytes<V: Vector>() -> usize {
    V::LANES * 4
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn lookup4<V: Vector, const ADD: bool>(
    lanes: &mut [u8],
    table: &[u8; 16],
    packed: &[u8],
) {
    // SAFETY: the caller has V's features.
    let t = unsafe { V::broadcast(table) };
    let mut outs = lanes.chunks_exact_mut(2 * bytes::<V>());
    let ins = packed.chunks_exact(bytes::<V>());
    let rest = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        // SAFETY: `packed` is one vector long, `out` two; the caller has V's features.
        unsafe {
            for (i, v) in V::values(t, packed.as_ptr()).into_iter().enumerate() {
                let out = out.as_mut_ptr().add(i * bytes::<V>());
                V::store_bits(if ADD { V::add8(V::load_bits(out), v) } else { v }, out);
            }
        }
    }
    scalar::lookup4::<ADD>(outs.into_remainder(), table, rest);
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn lookup4_wide<V: Vector, const ADD: bool>(
    lanes: &mut [u8],
    table: &[u8; 16],
    packed: &[u8],
) {
    // SAFETY: the caller has V's features.
    let t = unsafe { V::broadcast(table) };
    let mut outs = lanes.chunks_exact_mut(4 * bytes::<V>());
    let ins = packed.chunks_exact(bytes::<V>());
    let rest = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        // SAFETY: `packed` is one vector long, `out` four; the caller has V's features.
        unsafe {
            for (i, v) in V::values_wide(t, packed.as_ptr()).into_iter().enumerate() {
                let out = out.as_mut_ptr().add(i * bytes::<V>());
                V::store_bits(if ADD { V::add16(V::load_bits(out), v) } else { V::to_wire16(v) }, out);
            }
        }
    }
    scalar::lookup4_wide::<ADD>(outs.into_remainder(), table, rest);
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn lookup4_half<V: Vector, const ADD: bool>(
    lanes: &mut [u8],
    table: &[u8; 16],
    packed: &[u8],
) {
    // SAFETY: the caller has V's features.
    let t = unsafe { [V::broadcast(&table.map(|v| v << 4)), V::broadcast(table)] };
    let mut outs = lanes.chunks_exact_mut(bytes::<V>());
    let ins = packed.chunks_exact(bytes::<V>());
    let rest = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let out = out.as_mut_ptr();
        // SAFETY: `packed` and `out` are one vector long; the caller has V's features.
        unsafe {
            let v = V::values_half(t, packed.as_ptr());
            V::store_bits(if ADD { V::add8(V::load_bits(out), v) } else { v }, out);
        }
    }
    scalar::lookup4_half::<ADD>(outs.into_remainder(), table, rest);
}
