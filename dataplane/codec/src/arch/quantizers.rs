//! Quantization and its inverse on vectors of any width.
//!
//! An instruction set has
//!
//! | name | what it is |
//! |-|-|
//! | `SMALL_BELOW` | the granularity from which on a narrow table is not [`SMALL`](super::groups::SMALL) |
//! | `HAS_ALL` | whether it has kernels for tables that are not small; other tables take the definition |
//! | `constants`, `counter` | what stays in registers over a slice, and the place in the rounding stream of the group from a coordinate on |
//! | `indices_of`, `packed4_of` | the kernels for whole groups and one kind of tables |
//! | `STEP`, `splat` | sums at a time, and a number in all lanes |
//! | `sums8`, `sums16` | STEP sums from their bytes |
//! | `estimate` | sum · step + lo of STEP sums, written out |

/// Defines the kernels of the quantizer for one instruction set.
macro_rules! kernels {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        pub(crate) fn indices(
            grid: &Grid,
            span: &Bounds,
            x: &mut [f32],
            rounding: Rounding,
            first: u64,
            out: &mut [u8],
        ) {
            let small = grid.granularity < SMALL_BELOW;
            let has_kernel = if HAS_ALL { grid.narrow() || grid.complete() } else { grid.narrow() && small };
            if !has_kernel {
                return scalar::indices(grid, span, x, rounding, first, out);
            }
            let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 1, first, GROUP);
            scalar::indices(grid, span, x0, rounding, first, out0);
            let (c, at) = (constants(grid, span, rounding), counter(at, rounding));
            if HAS_ALL && grid.complete() {
                indices_of::<COMPLETE>(&c, x1, at, out1);
            } else if small {
                indices_of::<SMALL>(&c, x1, at, out1);
            } else {
                indices_of::<LARGE>(&c, x1, at, out1);
            }
            scalar::indices(grid, span, x2, rounding, rest, out2);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn packed4(
            grid: &Grid,
            span: &Bounds,
            x: &mut [f32],
            rounding: Rounding,
            first: u64,
            out: &mut [u8],
        ) {
            let small = grid.granularity < SMALL_BELOW;
            if !(grid.narrow() && (HAS_ALL || small)) {
                return scalar::packed4(grid, span, x, rounding, first, out);
            }
            let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 2, first, GROUP);
            scalar::packed4(grid, span, x0, rounding, first, out0);
            let (c, at) = (constants(grid, span, rounding), counter(at, rounding));
            if small {
                packed4_of::<SMALL>(&c, x1, at, out1);
            } else {
                packed4_of::<LARGE>(&c, x1, at, out1);
            }
            scalar::packed4(grid, span, x2, rounding, rest, out2);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn dequantize8(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
            let (step_v, lo_v) = (splat(step), splat(lo));
            let (mut outs, ins) = (out.chunks_exact_mut(STEP), sums.chunks_exact(STEP));
            let tail = ins.remainder();
            for (out, sums) in outs.by_ref().zip(ins) {
                estimate(sums8(sums), step_v, lo_v, out);
            }
            scalar::dequantize8(tail, step, lo, outs.into_remainder());
        }

        #[target_feature(enable = $features)]
        pub(crate) fn dequantize16(sums: &[u8], step: f32, lo: f32, out: &mut [f32]) {
            let (step_v, lo_v) = (splat(step), splat(lo));
            let (mut outs, ins) = (out.chunks_exact_mut(STEP), sums.chunks_exact(2 * STEP));
            let tail = ins.remainder();
            for (out, sums) in outs.by_ref().zip(ins) {
                estimate(sums16(sums), step_v, lo_v, out);
            }
            scalar::dequantize16(tail, step, lo, outs.into_remainder());
        }
    };
}
pub(super) use kernels;
