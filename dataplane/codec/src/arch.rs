//! Vector kernels and the one place that chooses between them.
//!
//! `kernels!` below lists every kernel. Each exists in `crate::scalar`, which defines its result,
//! and in one module per instruction set, which reproduces it bit for bit; the safe function of
//! the same name here calls the one for the given instruction set. Vector kernels process whole
//! vectors and leave the last few elements to the scalar definition.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod aggregates;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512vbmi;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blocks;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod groups;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hadamard;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod norms;
mod pages;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ports;
mod prefetch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod quantizers;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod transforms;

pub(crate) use pages::ask_for_huge;
pub use prefetch::prefetch;

macro_rules! kernels {
    ($($module:ident {
        $($kernel:ident($($name:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {$(
        pub(crate) mod $module {
            use crate::isa::{Isa, InstructionSet};
            #[allow(unused_imports)]
            use crate::{
                arguments::{Compressing, Estimating, Fed},
                grid::{Bounds, Grid},
                rounding::Rounding,
                signs::Signs,
            };

            $(#[inline]
            pub(crate) fn $kernel(isa: Isa, $($name: $type),*) $(-> $result)? {
                match isa.level() {
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512Vbmi => {
                        // SAFETY: as below.
                        unsafe { super::avx512vbmi::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512 => {
                        // SAFETY: `Isa` values come from detection alone, so the processor has
                        // the features that the kernels of this level are compiled for.
                        unsafe { super::avx512::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx2 => {
                        // SAFETY: as above.
                        unsafe { super::avx2::$module::$kernel($($name),*) }
                    }
                    #[cfg(target_arch = "aarch64")]
                    InstructionSet::Neon => {
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
        indices(grid: &Grid, span: &Bounds, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        packed4(grid: &Grid, span: &Bounds, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
        dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
    }
    block {
        compress(how: &Compressing<'_>, x: &[f32], fed: Fed<'_>, next: [&[f32]; 2], work: &mut [f32], out: &mut [u8]);
        decompress(how: &Estimating<'_>, next: &[f32], out: &mut [f32]);
    }
    norm {
        squares(x: &[f32]) -> f64;
        squares_sum(x: &[f32], e: &[f32]) -> f64;
        max_abs_bits(x: &[f32]) -> u32;
    }
    pack {
        narrow1(nibbles: &[u8], out: &mut [u8]);
        narrow2(nibbles: &[u8], out: &mut [u8]);
        narrow3(nibbles: &[u8], out: &mut [u8]);
        widen1(packed: &[u8], out: &mut [u8]);
        widen2(packed: &[u8], out: &mut [u8]);
        widen3(packed: &[u8], out: &mut [u8]);
        spread4(packed: &[u8], out: &mut [u8]);
    }
    peak {
        run(rounds: u32) -> f32;
    }
    aggregate {
        lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        set8_wide(lanes: &mut [u8], values: &[u8]);
        add8_wide(lanes: &mut [u8], values: &[u8]);
        raw_add(lanes: &mut [u8], payload: &[u8]);
    }
}
