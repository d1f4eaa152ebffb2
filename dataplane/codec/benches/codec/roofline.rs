//! The bounds that no kernel can beat on this machine: copying as many bytes as it moves, and doing as many vector
//! operations as it does, half of them additions and half multiply-adds.

use std::hint::black_box;

use thc_codec::buffer::Buffer;
use thc_codec::isa::{InstructionSet, Isa};

use crate::figure::Yardsticks;
use crate::gradient;

/// A copy of `len` coordinates, warm if it fits a cache.
pub fn copy_of(len: usize) -> impl FnMut() {
    let (x, mut y) = (Buffer::from(&gradient(7)[..len]), Buffer::zeroed(len));
    move || {
        y.copy_from_slice(black_box(&x));
        black_box(&mut y);
    }
}

/// Operations in a round of [`operate`]: enough that none waits for another's result, few enough for 16 registers.
const OPERATIONS: usize = 12;

/// Coordinates in a vector of the current instruction set; 1 without vectors.
fn lanes() -> f64 {
    match Isa::current().level() {
        InstructionSet::Scalar => 1.0,
        InstructionSet::Neon => 4.0,
        InstructionSet::Avx2 => 8.0,
        InstructionSet::Avx512 | InstructionSet::Avx512Vbmi => 16.0,
    }
}

/// A function that does `rounds` times [`OPERATIONS`] additions and multiply-adds, half each.
macro_rules! operations {
    ($visibility:vis $name:ident, $features:literal, $splat:expr, $add:expr, $mul_add:expr, $sum:expr) => {
        #[target_feature(enable = $features)]
        $visibility fn $name(rounds: u32) -> f32 {
            let (zero, one) = ($splat(black_box(0.0)), $splat(black_box(1.0)));
            let mut all = [zero; OPERATIONS];
            for _ in 0..rounds {
                for [a, b] in all.as_chunks_mut().0 {
                    *a = $add(*a, zero);
                    *b = $mul_add(*b, one, zero);
                }
            }
            let mut sum = zero;
            for v in all {
                sum = $add(sum, v);
            }
            $sum(sum)
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use super::{OPERATIONS, black_box};
    use std::arch::x86_64::*;

    operations!(pub avx2, "avx2,fma", _mm256_set1_ps, _mm256_add_ps, _mm256_fmadd_ps, _mm256_cvtss_f32);
    operations!(pub avx512, "avx512f", _mm512_set1_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_cvtss_f32);
}

#[cfg(target_arch = "aarch64")]
mod vectors {
    use super::{OPERATIONS, black_box};
    use std::arch::aarch64::*;

    operations!(pub neon, "neon", vdupq_n_f32, vaddq_f32, |a, b, c| vfmaq_f32(c, a, b), vaddvq_f32);
}

/// Products take the place of multiply-adds, which are function calls on processors without a unit for them.
fn scalar(rounds: u32) -> f32 {
    let (zero, one) = (black_box(0.0_f32), black_box(1.0));
    let mut all = [zero; OPERATIONS];
    for _ in 0..rounds {
        for [a, b] in all.as_chunks_mut().0 {
            *a += zero;
            *b *= one;
        }
    }
    all.iter().sum()
}

/// `rounds` times [`OPERATIONS`] operations of the current instruction set's vectors. The result must be used, or the
/// compiler removes the work.
#[allow(unsafe_code)]
fn operate(rounds: u32) -> f32 {
    match Isa::current().level() {
        // SAFETY: the level comes from detection, so the processor has the features.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { vectors::avx2(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 | InstructionSet::Avx512Vbmi => unsafe { vectors::avx512(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => unsafe { vectors::neon(rounds) },
        _ => scalar(rounds),
    }
}

/// The work of a kernel on some coordinates.
pub struct Work {
    /// Coordinates.
    pub len: usize,
    /// Bytes read and written per coordinate.
    pub bytes: f64,
    /// Vector operations per vector: what the definition asks for, without loads, stores, and what moves or flips lanes.
    pub operations: f64,
}

impl Work {
    /// A copy that moves as many bytes (a copy of n bytes reads n and writes n), and as many operations.
    pub fn bounds(&self) -> Yardsticks<'static> {
        let floats = (self.len as f64 * self.bytes / 8.0) as usize;
        let mut left = floats;
        let mut copies = Vec::new();
        while left > 0 {
            let some = left.min(crate::LEN);
            copies.push(copy_of(some));
            left -= some;
        }
        let rounds = (self.len as f64 / lanes() * self.operations / OPERATIONS as f64) as u32;
        vec![
            Box::new(move || copies.iter_mut().for_each(|copy| copy())),
            Box::new(move || {
                black_box(operate(black_box(rounds)));
            }),
        ]
    }
}

/// Operations of a transform of `d` coordinates: an addition or subtraction for each stage, and the scale.
pub fn transform(d: usize) -> f64 {
    f64::from(d.ilog2()) + 1.0
}

/// Operations of quantizing and packing: position and clamping 3, cell 1, slope, start, index and value looked up 4, threshold 1,
/// comparison, step up and residual 3, a word of 13 for four draws and what makes them floats 5, packing 1.5.
pub const QUANTIZE: f64 = 18.5;

/// Operations of dequantizing: widening, conversion, product and sum.
pub const DEQUANTIZE: f64 = 4.0;

/// Operations of the norm of a sum: the sum, and widening and squares by halves.
pub const NORM: f64 = 5.0;
