//! Lookup tables: which points of the grid the 2^b indices stand for.

mod choice;
mod normal;
mod solver;

pub use choice::{ChosenTable, choose, choose_complete, choose_fraction};

use crate::error::CodecError;
use solver::Solver;

/// Largest granularity: a table value takes one byte.
pub const MAX_GRANULARITY: u16 = 255;

/// 2^b − 1, the granularity below which 2^b values cannot differ.
fn min_granularity(bits: u8) -> Result<u16, CodecError> {
    if (1..=8).contains(&bits) {
        Ok((1 << bits) - 1)
    } else {
        Err(CodecError::Bits { bits, supported: "1 to 8" })
    }
}

/// A table T: ⟨2^b⟩ → ⟨g+1⟩, strictly increasing, `T[0] = 0`, `T[2^b − 1] = g` (paper, section 4.3).
///
/// Index z stands for the value `m + T[z]·(M − m)/g`.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupTable {
    bits: u8,
    granularity: u16,
    fraction: f64,
    t_p: f64,
    values: Vec<u8>,
    quantization_error: f64,
}

impl LookupTable {
    /// The table that minimises [`quantization_error`](Self::quantization_error), provably
    /// (shortest path over all tables). Among tables whose errors differ by less than one part in
    /// 10^12, such as mirror images for even granularities, the lexicographically smallest.
    ///
    /// `bits` is 1 to 8, `granularity` 2^bits − 1 to 255; `fraction` is p in (0, 1), the share of
    /// rotated coordinates that is truncated.
    pub fn solve(bits: u8, granularity: u16, fraction: f64) -> Result<Self, CodecError> {
        let min = min_granularity(bits)?;
        if !(min..=MAX_GRANULARITY).contains(&granularity) {
            return Err(CodecError::Granularity {
                bits,
                granularity: u32::from(granularity),
                min: u32::from(min),
            });
        }
        let t_p = checked_threshold(fraction)?;
        let mut solver = Solver::new();
        solver.grid(usize::from(granularity), t_p);
        let edges = usize::from(min);
        solver.least(edges);
        Ok(Self::assemble(solver.path(edges), fraction, t_p, &solver))
    }

    /// The identity table, for uniform THC (paper Algorithm 1), with granularity 2^bits − 1.
    ///
    /// Uniform THC takes its range from the data and truncates nothing, so the fraction is 0 and
    /// `t_p` infinite, and the quantization error, which depends on the range, is NaN. To use
    /// uniform values after the transform, take `from_values(&[0, 1, ..], fraction)`.
    pub fn uniform(bits: u8) -> Result<Self, CodecError> {
        let granularity = min_granularity(bits)?;
        Ok(Self {
            bits,
            granularity,
            fraction: 0.0,
            t_p: f64::INFINITY,
            values: (0..=granularity).map(|v| v as u8).collect(),
            quantization_error: f64::NAN,
        })
    }

    /// The table of all points of a grid, 0 to `granularity`, which is at least 1, for a fraction p in (0,
    /// 1). An index is its value, and takes ⌈log2(g + 1)⌉ bits, whose patterns may not all be used: a table
    /// for sending values themselves, not packets of indices.
    ///
    /// # Errors
    /// [`CodecError::Granularity`] or [`CodecError::Fraction`].
    pub fn complete(granularity: u8, fraction: f64) -> Result<Self, CodecError> {
        if granularity == 0 {
            return Err(CodecError::Granularity { bits: 1, granularity: 0, min: 1 });
        }
        let t_p = checked_threshold(fraction)?;
        let mut solver = Solver::new();
        solver.grid(usize::from(granularity), t_p);
        Ok(Self::assemble((0..=granularity).collect(), fraction, t_p, &solver))
    }

    /// A given table for a given fraction p in (0, 1). `values` must be 2 to 256 values, a power
    /// of two of them, strictly increasing from 0; the last is the granularity.
    pub fn from_values(values: &[u8], fraction: f64) -> Result<Self, CodecError> {
        let len = values.len();
        if !(2..=256).contains(&len) || !len.is_power_of_two() || values[0] != 0 {
            return Err(CodecError::TableValues { len, position: 0 });
        }
        if let Some(at) = values.windows(2).position(|w| w[0] >= w[1]) {
            return Err(CodecError::TableValues { len, position: at + 1 });
        }
        let t_p = checked_threshold(fraction)?;
        let mut solver = Solver::new();
        solver.grid(usize::from(values[len - 1]), t_p);
        Ok(Self::assemble(values.to_vec(), fraction, t_p, &solver))
    }

    /// As [`Self::from_values`], with a given t_p: libraries differ in the last bit of Φ⁻¹, and workers must
    /// not. It must be positive, and within one part in 10^9 of the value computed here.
    pub fn with_threshold(values: &[u8], fraction: f64, t_p: f64) -> Result<Self, CodecError> {
        let mut table = Self::from_values(values, fraction)?;
        let close = (t_p / table.t_p - 1.0).abs() < 1e-9;
        if !close {
            return Err(CodecError::Threshold { given: t_p, fraction, expected: table.t_p });
        }
        table.t_p = t_p;
        Ok(table)
    }

    fn assemble(values: Vec<u8>, fraction: f64, t_p: f64, solver: &Solver) -> Self {
        Self {
            bits: values.len().next_power_of_two().ilog2() as u8,
            granularity: values.last().map_or(0, |v| u16::from(*v)),
            fraction,
            t_p,
            quantization_error: solver.total(&values),
            values,
        }
    }

    /// Bit budget b.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Granularity g, the largest value.
    #[must_use]
    pub fn granularity(&self) -> u16 {
        self.granularity
    }

    /// The fraction p of rotated coordinates that is truncated; 0 for uniform THC.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        self.fraction
    }

    /// The threshold Φ⁻¹(1 − p/2), in standard deviations of a rotated coordinate: the range is
    /// M = t_p / √d · ℓ for the largest norm ℓ.
    #[must_use]
    pub fn t_p(&self) -> f64 {
        self.t_p
    }

    /// The 2^b values, strictly increasing from 0 to g.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The values in the form for a switch or a SIMD shuffle: 16, with unused entries 0, or all values of a
    /// table of more than 4 bits.
    #[must_use]
    pub fn values16(&self) -> [u8; 16] {
        let mut out = [0; 16];
        if let Some(out) = out.get_mut(..self.values.len()) {
            out.copy_from_slice(&self.values);
        }
        out
    }

    /// Mean squared error of rounding a unit normal variable to the table's values, counting only
    /// where it lies in [−t_p, t_p]: the integral of the paper's objective, not renormalised.
    #[must_use]
    pub fn quantization_error(&self) -> f64 {
        self.quantization_error
    }

    /// Mean squared error of truncating a unit normal variable to [−t_p, t_p]:
    /// 2·∫ (a − t_p)²·φ(a) da from t_p to ∞.
    #[must_use]
    pub fn truncation_error(&self) -> f64 {
        if self.t_p.is_finite() { normal::truncation(self.t_p) } else { 0.0 }
    }
}

fn checked_threshold(fraction: f64) -> Result<f64, CodecError> {
    // Below the smallest normal double the inverse has no digits left.
    if (f64::MIN_POSITIVE..1.0).contains(&fraction) {
        Ok(normal::threshold(fraction))
    } else {
        Err(CodecError::Fraction { fraction })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All tables of `len` values from 0 to g, in lexicographic order.
    fn all_tables(g: u8, len: usize, prefix: &mut Vec<u8>, visit: &mut impl FnMut(&[u8])) {
        let last = prefix[prefix.len() - 1];
        if prefix.len() == len - 1 {
            prefix.push(g);
            visit(prefix);
            prefix.pop();
            return;
        }
        let missing = (len - 1 - prefix.len()) as u8;
        for v in last + 1..=g - missing {
            prefix.push(v);
            all_tables(g, len, prefix, visit);
            prefix.pop();
        }
    }

    /// The best table by trying all, with the documented rule for ties.
    fn brute_force(bits: u8, g: u8, fraction: f64) -> Vec<u8> {
        let mut solver = Solver::new();
        solver.grid(usize::from(g), normal::threshold(fraction));
        let mut costs = Vec::new();
        all_tables(g, 1 << bits, &mut vec![0], &mut |t| {
            let cost: f64 = t.windows(2).map(|w| solver.cost(usize::from(w[0]), usize::from(w[1]))).sum();
            costs.push((cost, t.to_vec()));
        });
        let least = costs.iter().map(|c| c.0).fold(f64::INFINITY, f64::min);
        costs.into_iter().find(|c| c.0 <= least * (1.0 + solver::TIE)).unwrap().1
    }

    #[test]
    fn known_optimum() {
        let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
        assert_eq!(table.values(), [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]);
        assert!((table.quantization_error() - 0.013063).abs() < 5e-7);
        assert!((table.t_p() - 2.15387).abs() < 5e-6);
        assert_eq!(table.values16()[..], *table.values());
        let short = LookupTable::solve(2, 9, 0.1).unwrap();
        assert_eq!(short.values16()[..4], *short.values());
        assert_eq!(short.values16()[4..], [0; 12]);
        assert_eq!((table.bits(), table.granularity()), (4, 30));
    }

    #[test]
    fn optimal_on_all_small_grids() {
        for (bits, largest) in [(1, 10), (2, 24), (3, 18), (4, 21)] {
            for g in (1_u8 << bits) - 1..=largest {
                for fraction in [0.4, 1.0 / 32.0, 1.0 / 1024.0] {
                    let table = LookupTable::solve(bits, u16::from(g), fraction).unwrap();
                    assert_eq!(table.values(), brute_force(bits, g, fraction), "b={bits} g={g} p={fraction}");
                }
            }
        }
    }

    #[test]
    fn symmetric_tables_are_not_always_best() {
        // The paper's enumeration takes tables for odd g to be symmetric. For g = 33 the best
        // table is not, and no symmetric one is as good.
        let table = LookupTable::solve(4, 33, 1.0 / 64.0).unwrap();
        let mut best = f64::INFINITY;
        // Lower halves: eight values from 0 to at most 16.
        all_tables(17, 9, &mut vec![0], &mut |t| {
            let mut values = t[..8].to_vec();
            values.extend(t[..8].iter().rev().map(|v| 33 - v));
            let symmetric = LookupTable::from_values(&values, 1.0 / 64.0).unwrap();
            best = best.min(symmetric.quantization_error());
        });
        assert!(best > table.quantization_error() * (1.0 + 1e-6));
    }

    #[test]
    fn every_size_up_to_the_limits_is_solved() {
        for bits in 1..=8 {
            let table = LookupTable::solve(bits, 255, 1e-3).unwrap();
            assert_eq!(table.values().len(), 1 << bits);
            let again = LookupTable::from_values(table.values(), 1e-3).unwrap();
            assert_eq!(again, table);
        }
        // Extreme fractions.
        assert!(LookupTable::solve(4, 30, 1e-300).unwrap().t_p() > 37.0);
        assert!(LookupTable::solve(4, 30, 0.999_999).unwrap().t_p() < 2e-6);
    }

    #[test]
    fn bad_parameters_are_errors() {
        assert!(matches!(LookupTable::solve(0, 30, 0.1), Err(CodecError::Bits { .. })));
        assert!(matches!(LookupTable::solve(4, 14, 0.1), Err(CodecError::Granularity { min: 15, .. })));
        assert!(matches!(LookupTable::solve(4, 256, 0.1), Err(CodecError::Granularity { .. })));
        for p in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(LookupTable::solve(4, 30, p), Err(CodecError::Fraction { .. })));
        }
        for (values, position) in
            [(&[][..], 0), (&[0], 0), (&[0, 1, 2], 0), (&[1, 2], 0), (&[0, 3, 3, 4], 2), (&[0, 3, 5, 4], 3)]
        {
            assert_eq!(
                LookupTable::from_values(values, 0.1).unwrap_err(),
                CodecError::TableValues { len: values.len(), position }
            );
        }
        assert!(LookupTable::uniform(9).is_err());
        let uniform = LookupTable::uniform(4).unwrap();
        assert_eq!(uniform.values(), (0..16).collect::<Vec<u8>>());
        assert_eq!(uniform.truncation_error(), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn optimal_for_any_fraction(bits in 1u8..4, extra in 0u8..10, log in -12.0f64..-0.01) {
            let g = (1 << bits) - 1 + extra;
            let table = LookupTable::solve(bits, u16::from(g), log.exp()).unwrap();
            prop_assert_eq!(table.values(), brute_force(bits, g, log.exp()));
        }

        #[test]
        fn no_single_move_improves_a_large_table(g in 16u16..=255, log in -12.0f64..-0.1, z in 1usize..15) {
            let table = LookupTable::solve(4, g, log.exp()).unwrap();
            for moved in [table.values()[z] - 1, table.values()[z] + 1] {
                let mut values = table.values().to_vec();
                values[z] = moved;
                if let Ok(other) = LookupTable::from_values(&values, log.exp()) {
                    prop_assert!(
                        other.quantization_error() >= table.quantization_error() * (1.0 - 2e-12)
                    );
                }
            }
        }
    }
}
