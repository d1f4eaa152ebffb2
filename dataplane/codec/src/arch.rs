//! Vector kernels and the one place that chooses between them.
//!
//! `dispatch!` below lists every kernel and makes a safe function of each, which runs it on vectors of the given
//! instruction set. `crate::scalar` has the definition of each kernel, and vectors give the same bits. A `generic` kernel
//! is written once for all instruction sets over the trait `Vector`, and leaves the last few elements to the definition.
//! A `scalar` kernel is the definition, which the compiler turns into vectors by itself.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod generic;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod groups;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pages;
mod prefetch;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

pub(crate) use pages::ask_for_huge;
pub use prefetch::prefetch;

#[cfg(target_arch = "x86_64")]
type Avx512 = avx512::Avx512<false>;
#[cfg(target_arch = "x86_64")]
type Avx512Vbmi = avx512::Avx512<true>;

/// Calls the code of a kernel. The arguments are `generic` or `scalar`, the module, the kernel's name, the function and
/// the constants that make up the kernel (nothing if the function has its name), the type of vectors, and the function's
/// arguments.
macro_rules! call {
    (generic $module:ident $kernel:ident [] $vector:ty, $args:tt) => {
        // SAFETY: the function around this has the vector's features.
        unsafe { crate::arch::generic::$module::$kernel::<$vector> $args }
    };
    (generic $module:ident $kernel:ident [$function:ident $($const:literal)*] $vector:ty, $args:tt) => {
        // SAFETY: as above.
        unsafe { crate::arch::generic::$module::$function::<$vector, $($const),*> $args }
    };
    (scalar $module:ident $kernel:ident [] $vector:ty, $args:tt) => {
        crate::scalar::$module::$kernel $args
    };
    (scalar $module:ident $kernel:ident [$function:ident $($const:literal)*] $vector:ty, $args:tt) => {
        crate::scalar::$module::$function::<$($const),*> $args
    };
}

/// Makes the functions that choose an instruction set. Each has one inner function per instruction set with its target
/// features; the kernel's code is inlined there, and so compiled for these features.
macro_rules! dispatch {
    ($($module:ident {
        $($form:ident $kernel:ident $(= $function:ident<$($const:literal),*>)?
            ($($name:ident: $type:ty),*) $(-> $result:ty)?;)*
    })*) => {$(
        pub(crate) mod $module {
            use crate::isa::{InstructionSet, Isa};
            #[allow(unused_imports)]
            use crate::{
                arguments::{Compressing, Estimating, Feedback},
                grid::{Bounds, Grid},
                rounding::Rounding,
                signs::Signs,
            };

            $(#[inline]
            pub(crate) fn $kernel(isa: Isa, $($name: $type),*) $(-> $result)? {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2,avx512vbmi")]
                fn avx512vbmi($($name: $type),*) $(-> $result)? {
                    call!($form $module $kernel [$($function $($const)*)?] crate::arch::Avx512Vbmi, ($($name),*))
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
                fn avx512($($name: $type),*) $(-> $result)? {
                    call!($form $module $kernel [$($function $($const)*)?] crate::arch::Avx512, ($($name),*))
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($name: $type),*) $(-> $result)? {
                    call!($form $module $kernel [$($function $($const)*)?] crate::arch::avx2::Avx2, ($($name),*))
                }
                #[cfg(target_arch = "aarch64")]
                #[target_feature(enable = "neon")]
                fn neon($($name: $type),*) $(-> $result)? {
                    call!($form $module $kernel [$($function $($const)*)?] crate::arch::neon::Neon, ($($name),*))
                }
                match isa.level() {
                    // SAFETY: `Isa` values come from detection alone, so the processor has the features that the
                    // function of its level is compiled for.
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512Vbmi => unsafe { avx512vbmi($($name),*) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx512 => unsafe { avx512($($name),*) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    InstructionSet::Avx2 => unsafe { avx2($($name),*) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    InstructionSet::Neon => unsafe { neon($($name),*) },
                    _ => call!(scalar $module $kernel [$($function $($const)*)?] (), ($($name),*)),
                }
            })*
        }
    )*};
}

dispatch! {
    rht {
        generic forward(x: &mut [f32], scale: f32, signs: Signs);
        generic forward_into(x: &[f32], out: &mut [f32], scale: f32, signs: Signs);
        generic forward_sum(x: &[f32], e: &[f32], out: &mut [f32], scale: f32, signs: Signs);
        generic inverse(x: &mut [f32], scale: f32, signs: Signs);
        generic inverse_into(x: &mut [f32], out: &mut [f32], scale: f32, signs: Signs);
    }
    quantize {
        generic indices = indices<false>(grid: &Grid, span: &Bounds, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        generic packed4 = indices<true>(grid: &Grid, span: &Bounds, x: &mut [f32], rounding: Rounding, first: u64, out: &mut [u8]);
        scalar dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
        scalar dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]);
    }
    block {
        generic compress(how: &Compressing<'_>, x: &[f32], fed: Feedback<'_>, next: [&[f32]; 2], work: &mut [f32], out: &mut [u8]);
        generic decompress(how: &Estimating<'_>, next: &[f32], work: &mut [f32], out: &mut [f32]);
    }
    norm {
        generic squares(x: &[f32]) -> f64;
        generic squares_sum(x: &[f32], e: &[f32]) -> f64;
        scalar max_abs_bits(x: &[f32]) -> u32;
    }
    pack {
        scalar narrow1 = narrow<1, 2>(nibbles: &[u8], out: &mut [u8]);
        scalar narrow2 = narrow<2, 4>(nibbles: &[u8], out: &mut [u8]);
        scalar narrow3 = narrow<3, 6>(nibbles: &[u8], out: &mut [u8]);
        generic widen1 = widen<1, 2>(packed: &[u8], out: &mut [u8]);
        generic widen2 = widen<2, 4>(packed: &[u8], out: &mut [u8]);
        generic widen3 = widen<3, 6>(packed: &[u8], out: &mut [u8]);
        scalar spread4(packed: &[u8], out: &mut [u8]);
    }
    aggregate {
        generic lookup_set4 = lookup4<false>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        generic lookup_add4 = lookup4<true>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        generic lookup_set4_wide = lookup4_wide<false>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        generic lookup_add4_wide = lookup4_wide<true>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        generic lookup_set4_half = lookup4_half<false>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        generic lookup_add4_half = lookup4_half<true>(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
        scalar set8_wide = values_wide<false>(lanes: &mut [u8], values: &[u8]);
        scalar add8_wide = values_wide<true>(lanes: &mut [u8], values: &[u8]);
        scalar raw_add(lanes: &mut [u8], payload: &[u8]);
    }
}
