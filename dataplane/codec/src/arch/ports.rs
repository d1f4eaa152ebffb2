//! How many additions and multiply-adds of vectors an instruction set does, for benchmarks.

use super::hadamard::Vector;

/// `rounds` times `R` operations that do not depend on each other, every second a multiply-add. The result
/// only keeps the compiler from removing the work.
///
/// # Safety
///
/// The caller must have V's features.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize>(rounds: u32) -> f32 {
    // SAFETY: the caller has V's features; the array has room for a vector.
    unsafe {
        let (zero, one) = (V::splat(std::hint::black_box(0.0)), V::splat(std::hint::black_box(1.0)));
        let mut a = [zero; R];
        for _ in 0..rounds {
            for i in 0..R {
                a[i] = if i % 2 == 0 { a[i].add(zero) } else { a[i].mul_add(one, zero) };
            }
        }
        let mut sum = zero;
        for v in a {
            sum = sum.add(v);
        }
        let mut out = [0.0; 16];
        sum.store(out.as_mut_ptr());
        out.iter().sum()
    }
}
