//! A lookup table and a range as kernels need them: the constants that [`quantizer`](crate::quantizer)
//! defines.

use crate::error::CodecError;
use crate::table::LookupTable;

/// Largest magnitude of either end of the range: keeps hi − lo and its reciprocal normal floats.
const MAX_END: f32 = 2.0e37;

/// The bits of 1.0: a draw sets those of the mantissa.
pub(crate) const ONE: u32 = 1.0_f32.to_bits();

/// The bits of a draw.
#[cfg(target_arch = "x86_64")]
pub(crate) const DRAW: u32 = 0x7F_FFFF;

/// Granularities below this have tables by cell.
pub(crate) const FEW: u8 = 32;

/// A lookup table arranged for quantizing, independent of the range.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// Granularity g.
    pub granularity: u8,
    /// Grid cell to the largest index whose value is not above it.
    pub lower: [u8; 256],
    /// `T[z]` as a float, zero past the end.
    pub point: [f32; 256],
    /// 1 / (T[z+1] − T[z]), zero for the last index and past the end.
    pub slope: [f32; 256],
    /// 1 − T[z] · slope, zero for the last index and past the end.
    pub start: [f32; 256],
    /// `slope` and `start` of the index of a grid cell, for granularities below `FEW`.
    pub slope_of_cell: [f32; FEW as usize],
    pub start_of_cell: [f32; FEW as usize],
    /// `lower` for tables of at most 16 values, eight cells in a word, the first in its low bits.
    pub lower_nibbles: [u32; 32],
    /// Number of values.
    pub values: usize,
}

impl Grid {
    /// Arranges a table.
    pub(crate) fn new(table: &LookupTable) -> Self {
        let values = table.values();
        let mut grid = Grid {
            granularity: table.granularity() as u8,
            lower: [0; 256],
            point: [0.0; 256],
            slope: [0.0; 256],
            start: [0.0; 256],
            slope_of_cell: [0.0; FEW as usize],
            start_of_cell: [0.0; FEW as usize],
            lower_nibbles: [0; 32],
            values: values.len(),
        };
        for (z, &value) in values.iter().enumerate() {
            grid.lower[usize::from(value)..].fill(z as u8);
            grid.point[z] = f32::from(value);
            if let Some(next) = values.get(z + 1) {
                grid.slope[z] = (1.0 / f64::from(next - value)) as f32;
                grid.start[z] = (1.0 - f64::from(value) * f64::from(grid.slope[z])) as f32;
            }
        }
        for (cell, z) in grid.lower.iter().enumerate() {
            grid.lower_nibbles[cell / 8] |= u32::from(z & 15) << (cell % 8 * 4);
            if cell < usize::from(FEW) {
                grid.slope_of_cell[cell] = grid.slope[usize::from(*z)];
                grid.start_of_cell[cell] = grid.start[usize::from(*z)];
            }
        }
        grid
    }

    /// `true` if an index takes at most 4 bits.
    pub(crate) fn narrow(&self) -> bool {
        self.values <= 16
    }

    /// `true` if every cell has an index of its own. Then a kernel looks nothing up.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn complete(&self) -> bool {
        self.values == usize::from(self.granularity) + 1
    }
}

/// A quantization range and what is derived from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub lo: f32,
    /// g, where positions end.
    pub end: f32,
    pub scale: f32,
    pub bias: f32,
    pub step: f32,
}

impl Bounds {
    pub(crate) fn new(lo: f32, hi: f32, granularity: u8) -> Result<Self, CodecError> {
        if !(lo <= hi && lo >= -MAX_END && hi <= MAX_END) {
            return Err(CodecError::Range { lo, hi });
        }
        let width = f64::from(hi) - f64::from(lo);
        let g = f64::from(granularity);
        // A range too narrow for a finite scale (a gradient of denormals) still quantizes to
        // values in range; the residual stays exact.
        let scale = (g / width).min(f64::from(f32::MAX)) as f32;
        Ok(Self {
            lo,
            end: f32::from(granularity),
            scale,
            bias: (-f64::from(lo) * f64::from(scale)) as f32,
            step: (width / g) as f32,
        })
    }

    pub(crate) fn symmetric(range: f32, granularity: u8) -> Result<Self, CodecError> {
        if range > 0.0 {
            Self::new(-range, range, granularity)
        } else {
            Err(CodecError::Range { lo: -range, hi: range })
        }
    }
}
