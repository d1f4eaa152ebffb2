//! Which instruction set the kernels use.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets with kernels; those of one architecture in ascending order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionSet {
    /// Plain Rust.
    Scalar,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with all of `Avx2` and BMI2.
    Avx512,
    /// AVX-512 VBMI, with all of `Avx512`.
    Avx512Vbmi,
    /// NEON of 64-bit ARM, little endian.
    Neon,
}

const SETS: [InstructionSet; 5] = [
    InstructionSet::Scalar,
    InstructionSet::Avx2,
    InstructionSet::Avx512,
    InstructionSet::Avx512Vbmi,
    InstructionSet::Neon,
];

impl InstructionSet {
    /// `true` if this processor has all features that the kernels of this level use.
    fn is_present(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vbmi => Self::Avx512.is_present() && is_x86_feature_detected!("avx512vbmi"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Avx512Vbmi => false,
            // Part of every 64-bit ARM target that has floating point.
            Self::Neon => {
                cfg!(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))
            }
        }
    }
}

/// An instruction set that this processor has: values of this type come only from detection.
///
/// All instruction sets give the same bits, so this only matters for speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(InstructionSet);

/// Index into `SETS` plus one, 0 before the first use.
static SELECTED: AtomicU8 = AtomicU8::new(0);

impl Isa {
    /// The instruction sets of this processor that have kernels, plain Rust first.
    pub fn available() -> impl Iterator<Item = Self> {
        SETS.into_iter().filter(|l| l.is_present()).map(Self)
    }

    /// The instruction set that all functions of this crate use: the best, unless [`select`](Self::select)
    /// chose another.
    #[inline]
    #[must_use]
    pub fn current() -> Self {
        match SELECTED.load(Ordering::Relaxed) {
            0 => Self::detect(),
            i => Self(SETS[usize::from(i) - 1]),
        }
    }

    #[cold]
    fn detect() -> Self {
        let best = Self::available().last().unwrap_or(Self(InstructionSet::Scalar));
        best.select();
        best
    }

    /// Makes all functions of this crate use this instruction set from now on, in all threads. For
    /// benchmarks, and to exclude an instruction set when looking for a bug.
    pub fn select(self) {
        SELECTED.store(self.0 as u8 + 1, Ordering::Relaxed);
    }

    /// `scalar`, `avx2`, `avx512`, `avx512vbmi` or `neon`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Scalar => "scalar",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Avx512Vbmi => "avx512vbmi",
            InstructionSet::Neon => "neon",
        }
    }

    /// The instruction set as an enum, to choose kernels by. The processor has all features that the variant names, so
    /// functions with these target features may be called.
    #[inline]
    #[must_use]
    pub fn level(self) -> InstructionSet {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_current_and_scalar_is_always_there() {
        let all: Vec<_> = Isa::available().collect();
        assert_eq!(all[0].name(), "scalar");
        assert!(all.is_sorted());
        assert_eq!(Isa::current(), *all.last().unwrap());
    }
}
