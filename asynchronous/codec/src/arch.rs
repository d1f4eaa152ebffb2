//! Vector kernels and the one place that chooses between them.
//!
//! `kernels!` below lists every kernel. Each exists in `crate::scalar`, which defines its result, and in one
//! module per instruction set, which reproduces it bit for bit; the safe function of the same name here calls the
//! one for the given instruction set. Vector kernels process whole vectors and leave the last few elements to
//! the scalar definition.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

use thc_codec::isa::{InstructionSet, Isa};
use thc_codec::rounding::Rounding;

use crate::domain::Lattice;

macro_rules! kernels {
    ($($kernel:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        pub(crate) fn $kernel(isa: Isa, $($name: $type),*) $(-> $result)? {
            match isa.level() {
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 | InstructionSet::Avx512Vbmi => {
                    // SAFETY: `Isa` values come from detection alone, so the processor has the features
                    // that the kernels of this level are compiled for; VBMI comes with those of AVX-512.
                    unsafe { avx512::$kernel($($name),*) }
                }
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => {
                    // SAFETY: as above.
                    unsafe { avx2::$kernel($($name),*) }
                }
                #[cfg(target_arch = "aarch64")]
                InstructionSet::Neon => {
                    // SAFETY: as above.
                    unsafe { neon::$kernel($($name),*) }
                }
                _ => crate::scalar::$kernel($($name),*),
            }
        })*
    };
}

kernels! {
    codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]);
    values(lattice: &Lattice, codes: &[u16], out: &mut [f32]);
    spread(lattice: &Lattice, x: &[f32]) -> f64;
    draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>);
}
