//! Arguments of kernels besides slices.

use crate::grid::{Bounds, Grid};
use crate::rounding::Rounding;
use crate::signs::Signs;

/// Error feedback before and after: what is read, and where the new feedback is written.
pub(crate) type Feedback<'a> = Option<(&'a [f32], &'a mut [f32])>;

/// The parameters with which kernels compress a block.
pub(crate) struct Compressing<'a> {
    pub grid: &'a Grid,
    pub span: Bounds,
    pub rounding: Rounding,
    pub scale: f32,
    pub signs: Signs,
    /// `true` if the new feedback is written past the caches.
    pub far: bool,
}

/// Sums, and the parameters with which kernels turn them into the mean.
pub(crate) struct Estimating<'a> {
    pub sums: &'a [u8],
    /// The number of coordinates whose sums lie together, and the distance in bytes from the first of these
    /// to the first of the next ones.
    pub packet: (usize, usize),
    /// `true` if sums have 16 bits, `false` if 8.
    pub wide: bool,
    pub step: f32,
    pub lo: f32,
    pub scale: f32,
    pub signs: Signs,
    /// `true` if the mean is written past the caches.
    pub far: bool,
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
