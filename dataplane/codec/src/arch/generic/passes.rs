//! Passes of the Hadamard transform over a block: some stages at a time, in registers.

use crate::arch::prefetch;
use crate::arch::vector::Vector;
use crate::signs::Signs;

/// The memory that the first stage of a forward transform reads.
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
pub(super) unsafe fn minus<V: Vector>() -> V {
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
pub(super) unsafe fn pass<V: Vector, const R: usize>(x: *mut f32, len: usize, descending: bool, minus: V) {
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
fn fill<const R: usize>(words: &mut [u64], signs: Signs, stride: usize, c: usize) {
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
pub(super) unsafe fn first_pass<V: Vector, const R: usize>(
    source: Source,
    x: *mut f32,
    len: usize,
    scale: f32,
    signs: Signs,
    minus: V,
) {
    let stride = len / R;
    // SAFETY: the caller has V's features.
    let (scale, opposite) = unsafe { (V::splat(scale), V::splat(-scale)) };
    // `signed` may read into the word after the last.
    let mut words = [0; WORDS + 1];
    let mut c = 0;
    while c < stride {
        fill::<R>(&mut words[..WORDS], signs, stride, c);
        let (from, to) = (c, c + columns::<R>(stride));
        while c < to {
            let words = words.as_ptr();
            // SAFETY: c + LANES <= stride and R * stride == len, so all reads and writes lie in the blocks; the
            // caller has V's features.
            unsafe {
                let mut a = [scale; R];
                for j in 0..R {
                    let at = j * stride + c;
                    prefetch::to_write(x.wrapping_add(at));
                    let v = match source {
                        Source::One(p) => V::load(p.add(at)),
                        Source::Sum(p, q) => V::load(p.add(at)).add(V::load(q.add(at))),
                    };
                    // A product's sign is that of its factors, so this flips it. (NaN keeps its sign; norms refuse it.)
                    a[j] = v.mul(V::signed(scale, opposite, words.add(j * (WORDS / R)), c - from));
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

/// Vectors in a leaf: as many as fill half of the registers, or 8, where `B` needs registers. A leaf has at least 64
/// coordinates, so that no word of signs straddles the streams of the outermost pass.
pub(super) const fn leaf_vectors<V: Vector, B: Between<V>>() -> usize {
    match (B::TAKES, V::LANES < 8) {
        (true, true) => 64 / V::LANES,
        (true, false) => 8,
        (false, _) => V::REGISTERS / 2,
    }
}

/// How the last pass writes: to where it reads, elsewhere, or elsewhere past the caches.
pub(super) const IN_PLACE: u8 = 0;
pub(super) const APART: u8 = 1;
pub(super) const FAR: u8 = 2;

/// The last log2(R) stages of an inverse transform of `len` floats, then the signs, written to
/// `out`, in the way `TO`. (Words of signs as they are needed: nothing waits for them here.)
#[inline(always)]
pub(super) unsafe fn last_pass<V: Vector, const R: usize, const TO: u8>(
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
                    if TO == APART {
                        prefetch::to_write(out.wrapping_add(j * stride + c + part));
                    }
                }
                stages(&mut a, false, minus);
                for j in 0..R {
                    let (v, to) = (a[j].flip(&words[j], part), out.add(j * stride + c + part));
                    if TO == FAR { v.stream(to) } else { v.store(to) }
                }
            }
            part += V::LANES;
        }
        c += 64;
    }
}

/// What is done to coordinates between their forward transform and their inverse. (A closure would not be compiled for
/// V's features unless it is inlined, and only a method can be `inline(always)`.)
pub(super) trait Between<V: Vector> {
    /// `true` if coordinates are not needed after `work` unless the inverse follows.
    const TAKES: bool = false;

    /// Makes the coordinates from number `at` on, if there is no forward transform.
    #[inline(always)]
    fn make(&mut self, _x: &mut [f32], _at: usize) {}

    /// Works on the coordinates of a leaf, the first with number `at`. Leaves come in ascending order.
    ///
    /// # Safety
    ///
    /// The caller has V's features.
    #[inline(always)]
    unsafe fn work<const R: usize>(&mut self, _x: &mut [V; R], _at: usize, _inverse: bool) {}
}

impl<V: Vector> Between<V> for () {}

/// The parts of a transform that a leaf goes through.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub forward: bool,
    pub inverse: bool,
}

/// A leaf of `R` vectors, which begins at coordinate `at`: all remaining stages of the forward transform, `between`, the scale and
/// the first stages of the inverse.
#[inline(always)]
unsafe fn leaf_of<V: Vector, const R: usize, B: Between<V>>(
    x: *mut f32,
    at: usize,
    Parts { forward, inverse }: Parts,
    scale: f32,
    minus: V,
    between: &mut B,
) {
    // SAFETY: the leaf has R vectors of floats; the caller has V's features.
    unsafe {
        let mut a = [minus; R];
        for j in 0..R {
            a[j] = V::load(x.add(j * V::LANES));
        }
        if forward {
            stages(&mut a, true, minus);
            for j in 0..R {
                a[j] = a[j].transform_lanes(true);
            }
        }
        between.work(&mut a, at, inverse);
        if inverse {
            let scale = V::splat(scale);
            for j in 0..R {
                a[j] = a[j].mul(scale).transform_lanes(false);
            }
            stages(&mut a, false, minus);
        }
        if inverse || !B::TAKES {
            for j in 0..R {
                a[j].store(x.add(j * V::LANES));
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn leaf<V: Vector, B: Between<V>>(
    x: *mut f32,
    at: usize,
    parts: Parts,
    scale: f32,
    minus: V,
    between: &mut B,
) {
    // SAFETY: passed on.
    unsafe {
        match leaf_vectors::<V, B>() {
            8 => leaf_of::<V, 8, B>(x, at, parts, scale, minus, between),
            _ => leaf_of::<V, 16, B>(x, at, parts, scale, minus, between),
        }
    }
}
