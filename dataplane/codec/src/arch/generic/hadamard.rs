//! The Hadamard transform on vectors of any width.
//!
//! Strides are taken three stages (radix 8) at a time, eight streams of a block side by side in
//! registers, until a block is a leaf, which fits the registers whole and is finished there. Blocks are visited depth
//! first, so that all stages of a block follow each other while it is in cache: a transform of 2^20 coordinates moves 4 MiB
//! through the second-level cache twice. Every element sees its stages in the order that `crate::rht` defines.

use super::passes::{
    APART, Between, FAR, IN_PLACE, Parts, Source, first_pass, last_pass, leaf, leaf_vectors, minus, pass,
};
use crate::arch::prefetch;
use crate::arch::vector::Vector;
use crate::signs::Signs;

/// log2 of the radix of the outermost pass, then of the innermost, the one above the leaves; `above` is the number of
/// stages above the leaves. Passes between these are of radix 8. The innermost pass is of radix 16 where 16 vectors fit in
/// half of the registers and it saves a pass, or where the outermost pass could only be of radix 8: the block that it reads and the
/// one that it writes would compete with 16 streams for the ways of the first-level cache. (The radix 16 is not farther out for the
/// same reason.) From 12 stages on a block is larger than that cache, and two passes of radix 8 are faster.
#[inline(always)]
fn radices<V: Vector>(above: u32) -> (u32, u32) {
    match (above, above % 3) {
        (4, _) if V::REGISTERS == 32 => (4, 4),
        (..4, _) => (above, above),
        (..12, 0) if V::REGISTERS == 32 => (2, 4),
        (_, 0) => (3, 3),
        (_, 1) if V::REGISTERS == 32 => (3, 4),
        (_, rest) => (rest, 3),
    }
}

/// Coordinates in a leaf, and in the smallest transform that these kernels do.
pub(super) const fn leaf_len<V: Vector, B: Between<V>>() -> usize {
    leaf_vectors::<V, B>() * V::LANES
}

/// The outermost pass of a forward transform, of 2^outer streams.
#[inline(always)]
unsafe fn begin<V: Vector>(
    outer: u32,
    source: Source,
    x: *mut f32,
    len: usize,
    scale: f32,
    signs: Signs,
    minus: V,
) {
    // SAFETY: passed on.
    unsafe {
        match outer {
            0 => first_pass::<V, 1>(source, x, len, scale, signs, minus),
            1 => first_pass::<V, 2>(source, x, len, scale, signs, minus),
            2 => first_pass::<V, 4>(source, x, len, scale, signs, minus),
            3 => first_pass::<V, 8>(source, x, len, scale, signs, minus),
            _ => first_pass::<V, 16>(source, x, len, scale, signs, minus),
        }
    }
}

/// Where the result of an inverse transform goes.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub to: *mut f32,
    /// `true` if it goes past the caches, in which it displaces nothing, and need not be read before it is written.
    pub far: bool,
}

/// The outermost pass of an inverse transform.
#[inline(always)]
unsafe fn end<V: Vector, const TO: u8>(
    outer: u32,
    x: *const f32,
    out: *mut f32,
    len: usize,
    signs: Signs,
    minus: V,
) {
    // SAFETY: passed on.
    unsafe {
        match outer {
            0 => last_pass::<V, 1, TO>(x, out, len, signs, minus),
            1 => last_pass::<V, 2, TO>(x, out, len, signs, minus),
            2 => last_pass::<V, 4, TO>(x, out, len, signs, minus),
            3 => last_pass::<V, 8, TO>(x, out, len, signs, minus),
            _ => last_pass::<V, 16, TO>(x, out, len, signs, minus),
        }
    }
}

/// The innermost pass, of 2^inner streams, over a group of leaves.
#[inline(always)]
unsafe fn innermost<V: Vector>(inner: u32, x: *mut f32, len: usize, descending: bool, minus: V) {
    // SAFETY: passed on.
    unsafe {
        match inner {
            3 => pass::<V, 8>(x, len, descending, minus),
            _ => pass::<V, 16>(x, len, descending, minus),
        }
    }
}

/// Forward transform of `len` floats from `source` to `x`, which may be the source; what `between` does to them; inverse
/// transform, the result to `target`, which may be `x`. Without a source or a target that part is left out.
///
/// `between` gets the coordinates of one leaf after the other in registers, directly after their forward transform and before
/// their inverse. Without a forward transform `between` makes the coordinates of a group of leaves, in the first-level cache.
/// At each leaf as many floats of each slice in `next` are prefetched.
///
/// # Safety
///
/// `len` must be a power of two of at least [`leaf_len`], all pointers valid for `len` floats, and
/// the caller must have V's features.
#[inline(always)]
pub(super) unsafe fn transform<V: Vector, B: Between<V>>(
    source: Option<Source>,
    x: *mut f32,
    target: Option<Target>,
    len: usize,
    (scale, signs): (f32, Signs),
    next: [&[f32]; 2],
    mut between: B,
) {
    let leaf_len = leaf_len::<V, B>();
    let (outer, inner) = radices::<V>((len / leaf_len).ilog2());
    let block = len >> outer;
    // Small transforms have no passes between the outermost and the leaves.
    let passes = block > leaf_len;
    let group = if passes { leaf_len << inner } else { len };
    let parts = Parts { forward: source.is_some(), inverse: target.is_some() };
    // SAFETY: blocks, groups and leaves are aligned parts of the `len` floats; the rest is passed on.
    unsafe {
        let minus = minus::<V>();
        if let Some(source) = source {
            begin(outer, source, x, len, scale, signs, minus);
        }
        // A vector past the caches must be aligned.
        let apart = target.map(|Target { to, far }| (to, far && to.addr().is_multiple_of(size_of::<V>())));
        let apart = apart.filter(|&(to, _)| !std::ptr::eq(to, x));
        // What the last pass writes to the caches is in none, and is to be.
        let to_fetch = apart.filter(|&(_, far)| !far).map(|(to, _)| to);
        let mut at = 0;
        while at < len {
            let then = at + group;
            if source.is_some() {
                let mut part = block;
                while part > group {
                    if at & (part - 1) == 0 {
                        pass::<V, 8>(x.add(at), part, true, minus);
                    }
                    part >>= 3;
                }
                if passes {
                    innermost(inner, x.add(at), group, true, minus);
                }
            } else {
                between.make(std::slice::from_raw_parts_mut(x.add(at), group), at);
            }
            let mut leaf_at = at;
            while leaf_at < then {
                leaf(x.add(leaf_at), leaf_at, parts, scale, minus, &mut between);
                prefetch_piece(next, leaf_at, leaf_len);
                if let Some(out) = to_fetch {
                    prefetch::to_second(out.add(leaf_at), leaf_len);
                }
                leaf_at += leaf_len;
            }
            if target.is_some() {
                if passes {
                    innermost(inner, x.add(at), group, false, minus);
                }
                let mut part = group << 3;
                while part <= block && then & (part - 1) == 0 {
                    pass::<V, 8>(x.add(then - part), part, false, minus);
                    part <<= 3;
                }
            }
            at = then;
        }
        match (target, apart) {
            (None, _) => {}
            (_, Some((out, true))) => {
                end::<V, FAR>(outer, x, out, len, signs, minus);
                prefetch::fence();
            }
            (_, Some((out, false))) => end::<V, APART>(outer, x, out, len, signs, minus),
            (Some(_), None) => end::<V, IN_PLACE>(outer, x, x, len, signs, minus),
        }
    }
}

/// Prefetches `len` floats of each slice from `at` on, if it has them.
#[inline(always)]
fn prefetch_piece(next: [&[f32]; 2], at: usize, len: usize) {
    for memory in next {
        if let Some(part) = memory.get(at..at + len) {
            prefetch::to_second(part.as_ptr(), len);
        }
    }
}
