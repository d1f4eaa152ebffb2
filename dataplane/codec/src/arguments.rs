//! What kernels take besides slices, and the numbers that they share with their callers.

use crate::grid::{Bounds, Grid};
use crate::rounding::Rounding;
use crate::signs::Signs;

/// Operations in a round of [`peak::run`](crate::peak::run): enough that none waits for another's result, few enough for 16 registers.
pub const OPERATIONS: usize = 12;

/// Where error feedback is, before and after.
pub(crate) enum Fed<'a> {
    Without,
    InPlace(&'a mut [f32]),
    Beside(&'a [f32], &'a mut [f32]),
}

/// What kernels compress a block with.
pub(crate) struct Compressing<'a> {
    pub grid: &'a Grid,
    pub span: Bounds,
    pub rounding: Rounding,
    pub scale: f32,
    pub signs: Signs,
}

/// Sums and what kernels make the mean of them with.
pub(crate) struct Estimating<'a> {
    pub sums: &'a [u8],
    /// The number of coordinates whose sums lie together, and the distance in bytes from the first of these
    /// to the first of the next ones.
    pub packet: (usize, usize),
    /// Whether sums have 16 bits.
    pub wide: bool,
    pub step: f32,
    pub lo: f32,
    pub scale: f32,
    pub signs: Signs,
}

impl Estimating<'_> {
    /// The sums of coordinates from `at` on, as many of `count` as lie together: returns their number and
    /// their bytes.
    #[inline(always)]
    pub fn together(&self, at: usize, count: usize) -> (usize, &[u8]) {
        let ((coordinates, stride), bytes) = (self.packet, 1 + usize::from(self.wide));
        let within = at % coordinates;
        let (from, count) = (at / coordinates * stride + within * bytes, count.min(coordinates - within));
        (count, &self.sums[from..from + count * bytes])
    }
}
