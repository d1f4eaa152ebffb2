//! Vector kernels and the one place that chooses between them.
//!
//! `kernels!` below lists every kernel. Each exists in `crate::scalar`, which defines its result,
//! and in one module per instruction set, which reproduces it bit for bit; the safe function of
//! the same name here calls the one for the given instruction set. Vector kernels process whole
//! vectors and leave the last few elements to the scalar definition.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512vbmi;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod groups;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hadamard;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pages;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ports;
#[cfg(test)]
mod tests;

pub(crate) use pages::ask_for_huge;

macro_rules! kernels {
    ($($module:ident {
        $($kernel:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {$(
        pub(crate) mod $module {
            use crate::isa::{Isa, Level};
            #[allow(unused_imports)]
            use crate::{
                lattice::Lattice,
                quantizer::{Grid, Span},
                rounding::Rounding,
                signs::Signs,
            };

            $(#[inline]
            pub(crate) fn $kernel(isa: Isa, $($name: $type),*) $(-> $result)? {
                match isa.level() {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512Vbmi => {
                        // SAFETY: as below.
                        unsafe { super::avx512vbmi::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => {
                        // SAFETY: `Isa` values come from detection alone, so the processor has
                        // the features that the kernels of this level are compiled for.
                        unsafe { super::avx512::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => {
                        // SAFETY: as above.
                        unsafe { super::avx2::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon => {
                        // SAFETY: as above.
                        unsafe { super::neon::$module::$kernel($($name),*) }
                    }
                    _ => crate::scalar::$module::$kernel($($name),*),
                }
            })*
        }
    )*};
}

kernels! {
    rht {
        forward(x: &mut [f32], scale: f32, signs: Signs);
        forward_into(x: &[f32], out: &mut [f32], scale: f32, signs: Signs);
        forward_sum(x: &[f32], e: &[f32], out: &mut [f32], scale: f32, signs: Signs);
        inverse(x: &mut [f32], scale: f32, signs: Signs);
        inverse_into(x: &mut [f32], out: &mut [f32], scale: f32, signs: Signs);
    }
    quantize {
        indices(grid: &Grid, span: &Span, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        packed4(grid: &Grid, span: &Span, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
        dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
    }
    lattice {
        codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]);
        values(lattice: &Lattice, codes: &[u16], out: &mut [f32]);
        spread(lattice: &Lattice, x: &[f32]) -> f64;
        draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>);
    }
    norm {
        squares(x: &[f32]) -> f64;
        squares_sum(x: &[f32], e: &[f32]) -> f64;
        squares_sum_into(x: &[f32], e: &[f32], out: &mut [f32]) -> f64;
        squares_add(sum: &mut [f32], x: &[f32]) -> f64;
        max_abs_bits(x: &[f32]) -> u32;
    }
    peak {
        run(rounds: u32) -> f32;
    }
    aggregate {
        lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        raw_add(lanes: &mut [u8], payload: &[u8]);
        max_u32(lanes: &mut [u8], payload: &[u8]);
    }
}
