//! The Hadamard transform on vectors of any width.
//!
//! Strides are taken three stages (radix 8) at a time, eight streams of a block side by side in
//! registers, until a block is a leaf, which fits the registers whole and is finished there. Blocks are visited depth
//! first, so that all stages of a block follow each other while it is in cache: a transform of 2^20 coordinates moves 4 MiB
//! through the second-level cache twice. Every element sees its stages in the order that `crate::rht` defines.

use super::prefetch;
use crate::signs::Signs;

/// A vector of floats.
///
/// # Safety
///
/// The methods are intrinsics that must be inlined into a function with the target features of the
/// implementing instruction set, on a processor that has it: only functions marked with those
/// features may call them, or `inline(always)` functions that only such functions call.
pub(super) trait Vector: Copy {
    /// Number of floats: a power of two up to 16.
    const LANES: usize;
    /// Reads LANES floats, unaligned.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes LANES floats, unaligned.
    unsafe fn store(self, to: *mut f32);
    /// All lanes equal.
    unsafe fn splat(v: f32) -> Self;
    /// Lane by lane.
    unsafe fn add(self, other: Self) -> Self;
    /// Lane by lane.
    unsafe fn sub(self, other: Self) -> Self;
    /// Lane by lane.
    unsafe fn mul(self, other: Self) -> Self;
    /// `self` times `factor` plus `other`, rounded once.
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self;
    /// Flips the sign of lane i where bit `at` + i of `word` is set. `at` is a multiple of LANES below 64.
    unsafe fn flip(self, word: &u64, at: usize) -> Self;
    /// Butterflies between lanes at distance 1, 2, .. LANES/2, descending or ascending.
    unsafe fn transform_lanes(self, descending: bool) -> Self;
}

/// Where the first stage of a forward transform reads.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// One vector.
    One(*const f32),
    /// The sum of two.
    Sum(*const f32, *const f32),
}

/// Butterflies between vectors at distance `H`. With `FUSED` the difference is a fused multiply-add with `minus`, which
/// is −1 in all lanes: that rounds once, so it is exactly the subtraction.
#[inline(always)]
unsafe fn stage<V: Vector, const R: usize, const H: usize, const FUSED: bool>(a: &mut [V; R], minus: V) {
    let mut i = 0;
    while i < R {
        if i & H == 0 {
            let (p, q) = (a[i], a[i + H]);
            // SAFETY: the caller has V's features.
            unsafe {
                a[i] = p.add(q);
                a[i + H] = if FUSED { q.mul_add(minus, p) } else { p.sub(q) };
            }
        }
        i += 1;
    }
}

/// −1 in all lanes. The compiler must not know it, or it would make subtractions of `stage`'s multiply-adds.
#[inline(always)]
unsafe fn minus<V: Vector>() -> V {
    // SAFETY: the caller has V's features.
    unsafe { V::splat(std::hint::black_box(-1.0)) }
}

/// All log2(R) stages between `R` vectors, R up to 16. Every second takes its differences by multiply-adds, so that
/// both units of a processor have work that has some for additions and others for multiplications (Zen).
#[inline(always)]
unsafe fn stages<V: Vector, const R: usize>(a: &mut [V; R], descending: bool, minus: V) {
    // SAFETY: the caller has V's features.
    unsafe {
        if descending {
            if R > 8 {
                stage::<V, R, 8, false>(a, minus);
            }
            if R > 4 {
                stage::<V, R, 4, true>(a, minus);
            }
            if R > 2 {
                stage::<V, R, 2, false>(a, minus);
            }
            if R > 1 {
                stage::<V, R, 1, true>(a, minus);
            }
        } else {
            if R > 1 {
                stage::<V, R, 1, false>(a, minus);
            }
            if R > 2 {
                stage::<V, R, 2, true>(a, minus);
            }
            if R > 4 {
                stage::<V, R, 4, false>(a, minus);
            }
            if R > 8 {
                stage::<V, R, 8, true>(a, minus);
            }
        }
    }
}

/// log2(R) stages over a block of `len` floats at `x`: between its `R` equal parts.
#[inline(always)]
unsafe fn pass<V: Vector, const R: usize>(x: *mut f32, len: usize, descending: bool, minus: V) {
    let stride = len / R;
    let mut c = 0;
    while c < stride {
        // SAFETY: c + LANES <= stride and R * stride == len, so all reads and writes lie in the
        // block; the caller has V's features.
        unsafe {
            let mut a = [minus; R];
            for j in 0..R {
                a[j] = V::load(x.add(j * stride + c));
            }
            stages(&mut a, descending, minus);
            for j in 0..R {
                a[j].store(x.add(j * stride + c));
            }
        }
        c += V::LANES;
    }
}

/// Words of signs computed at a time, by vectors, and kept in memory: some processors load a mask from there with less
/// work than they move it from a register.
const WORDS: usize = 64;

/// Columns of `R` streams whose signs fit in WORDS words.
#[inline(always)]
fn columns<const R: usize>(stride: usize) -> usize {
    stride.min(64 * WORDS / R)
}

/// Fills words of signs for columns from `c` of `R` streams `stride` coordinates apart, as many as fit: those of stream
/// j begin at word j · WORDS / R. `stride` is a power of two of at least 64.
#[inline(always)]
fn fill<const R: usize>(words: &mut [u64; WORDS], signs: Signs, stride: usize, c: usize) {
    let columns = columns::<R>(stride);
    for (j, words) in words.chunks_exact_mut(WORDS / R).enumerate() {
        let first = (j * stride + c) / 64;
        // Whole vectors of words; what is past the columns is not used.
        if columns < 64 * 8 {
            fill_signs::<4>(words, signs, first, 4);
        } else {
            fill_signs::<8>(words, signs, first, columns / 64);
        }
    }
}

/// `count` words of signs, by `N`.
#[inline(always)]
fn fill_signs<const N: usize>(words: &mut [u64], signs: Signs, first: usize, count: usize) {
    for (i, words) in words[..count].as_chunks_mut::<N>().0.iter_mut().enumerate() {
        let mut k = 0;
        while k < N {
            words[k] = signs.word((first + i * N + k) as u64);
            k += 1;
        }
    }
}

/// Scales, flips signs and does the first log2(R) stages of a forward transform of `len` floats.
#[inline(always)]
unsafe fn first_pass<V: Vector, const R: usize>(
    source: Source,
    x: *mut f32,
    len: usize,
    scale: f32,
    signs: Signs,
    minus: V,
) {
    let stride = len / R;
    // SAFETY: the caller has V's features.
    let scale = unsafe { V::splat(scale) };
    let mut words = [0; WORDS];
    let mut c = 0;
    while c < stride {
        fill::<R>(&mut words, signs, stride, c);
        let (from, to) = (c, c + columns::<R>(stride));
        while c < to {
            let words = &words[(c - from) / 64..];
            // SAFETY: c + LANES <= stride and R * stride == len, so all reads and writes lie in the blocks; the
            // caller has V's features.
            unsafe {
                let mut a = [scale; R];
                for j in 0..R {
                    let at = j * stride + c;
                    let v = match source {
                        Source::One(p) => V::load(p.add(at)),
                        Source::Sum(p, q) => V::load(p.add(at)).add(V::load(q.add(at))),
                    };
                    a[j] = v.mul(scale).flip(&words[j * (WORDS / R)], c % 64);
                }
                stages(&mut a, true, minus);
                for j in 0..R {
                    a[j].store(x.add(j * stride + c));
                }
            }
            c += V::LANES;
        }
    }
}

/// The last log2(R) stages of an inverse transform of `len` floats, then the signs, written to
/// `out`, which may be `x`. (Words of signs as they are needed: nothing waits for them here.)
#[inline(always)]
unsafe fn last_pass<V: Vector, const R: usize>(
    x: *const f32,
    out: *mut f32,
    len: usize,
    signs: Signs,
    minus: V,
) {
    let stride = len / R;
    let mut c = 0;
    while c < stride {
        let mut words = [0; R];
        for j in 0..R {
            words[j] = signs.word(((j * stride + c) / 64) as u64);
        }
        let mut part = 0;
        while part < 64 {
            // SAFETY: stride is a multiple of 64 (the smallest leaf), so c + part + LANES <=
            // stride and all reads and writes lie in the blocks; the caller has V's features.
            unsafe {
                let mut a = [minus; R];
                for j in 0..R {
                    a[j] = V::load(x.add(j * stride + c + part));
                }
                stages(&mut a, false, minus);
                for j in 0..R {
                    a[j].flip(&words[j], part).store(out.add(j * stride + c + part));
                }
            }
            part += V::LANES;
        }
        c += 64;
    }
}

/// All remaining stages of a leaf of `R` vectors, after scaling by `scale` if ascending.
#[inline(always)]
unsafe fn leaf<V: Vector, const R: usize>(x: *mut f32, descending: bool, scale: f32, minus: V) {
    // SAFETY: the leaf has R vectors of floats; the caller has V's features.
    unsafe {
        let mut a = [minus; R];
        if descending {
            for j in 0..R {
                a[j] = V::load(x.add(j * V::LANES));
            }
            stages(&mut a, true, minus);
            for j in 0..R {
                a[j].transform_lanes(true).store(x.add(j * V::LANES));
            }
        } else {
            let scale = V::splat(scale);
            for j in 0..R {
                a[j] = V::load(x.add(j * V::LANES)).mul(scale).transform_lanes(false);
            }
            stages(&mut a, false, minus);
            for j in 0..R {
                a[j].store(x.add(j * V::LANES));
            }
        }
    }
}

/// log2 of the radix of the outermost pass, then of the innermost, the one above the leaves; `above` is the number of
/// stages above the leaves. Passes between these are of radix 8. Where radix 8 leaves one stage over, the innermost pass
/// takes it if vectors are `WIDE`, that is, if 16 fit in half of the registers. (Farther out, the 16 streams of a
/// radix 16 would compete for the ways of a cache.)
#[inline(always)]
fn radices<const WIDE: bool>(above: u32) -> (u32, u32) {
    match (above, above % 3) {
        (4, _) if WIDE => (4, 4),
        (..4, _) => (above, above),
        (_, 0) => (3, 3),
        (_, 1) if WIDE => (3, 4),
        (_, rest) => (rest, 3),
    }
}

/// Coordinates in a leaf of `R` vectors, and the smallest transform that these kernels do. At
/// least 64, so that no word of signs straddles the streams of the outermost pass.
pub(super) const fn leaf_len<V: Vector, const R: usize>() -> usize {
    let len = R * V::LANES;
    assert!(len >= 64 && len.is_power_of_two());
    len
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

/// The outermost pass of an inverse transform.
#[inline(always)]
unsafe fn end<V: Vector>(outer: u32, x: *const f32, out: *mut f32, len: usize, signs: Signs, minus: V) {
    // SAFETY: passed on.
    unsafe {
        match outer {
            0 => last_pass::<V, 1>(x, out, len, signs, minus),
            1 => last_pass::<V, 2>(x, out, len, signs, minus),
            2 => last_pass::<V, 4>(x, out, len, signs, minus),
            3 => last_pass::<V, 8>(x, out, len, signs, minus),
            _ => last_pass::<V, 16>(x, out, len, signs, minus),
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
/// `between` gets groups of coordinates, one after the other, by the number of the first and how many there are. It follows
/// directly on their forward transform, and their inverse on it: nothing leaves the first cache meanwhile. At each
/// leaf as many floats of each slice in `next` are brought closer.
///
/// # Safety
///
/// `len` must be a power of two of at least [`leaf_len`], all pointers valid for `len` floats, and
/// the caller must have V's features.
#[inline(always)]
pub(super) unsafe fn transform<V: Vector, const R: usize, const WIDE: bool>(
    source: Option<Source>,
    x: *mut f32,
    target: Option<*mut f32>,
    len: usize,
    (scale, signs): (f32, Signs),
    next: [&[f32]; 2],
    mut between: impl FnMut(usize, usize),
) {
    let leaf_len = leaf_len::<V, R>();
    let (outer, inner) = radices::<WIDE>((len / leaf_len).ilog2());
    let block = len >> outer;
    // Small transforms have no passes between the outermost and the leaves.
    let passes = block > leaf_len;
    let group = if passes { leaf_len << inner } else { len };
    // SAFETY: blocks, groups and leaves are aligned parts of the `len` floats; the rest is passed on.
    unsafe {
        let minus = minus::<V>();
        if let Some(source) = source {
            begin(outer, source, x, len, scale, signs, minus);
        }
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
                let mut at = at;
                while at < then {
                    leaf::<V, R>(x.add(at), true, scale, minus);
                    prefetch_piece(next, at, leaf_len);
                    at += leaf_len;
                }
            }
            between(at, group);
            if let Some(out) = target {
                let mut leaf_at = at;
                while leaf_at < then {
                    leaf::<V, R>(x.add(leaf_at), false, scale, minus);
                    if source.is_none() {
                        prefetch_piece(next, leaf_at, leaf_len);
                    }
                    if !std::ptr::eq(out, x) {
                        // The last pass writes there.
                        prefetch::to_second(out.add(leaf_at), leaf_len);
                    }
                    leaf_at += leaf_len;
                }
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
        if let Some(out) = target {
            end(outer, x, out, len, signs, minus);
        }
    }
}

/// Brings `len` floats from `at` on of each slice closer, as far as there are so many.
#[inline(always)]
fn prefetch_piece(next: [&[f32]; 2], at: usize, len: usize) {
    for memory in next {
        if let Some(part) = memory.get(at..at + len) {
            prefetch::to_second(part.as_ptr(), len);
        }
    }
}
