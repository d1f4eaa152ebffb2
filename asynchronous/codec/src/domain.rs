//! What kernels take besides slices, and the number that they share with their callers.

/// 2^24, the number of different uniforms that the top bits of a coordinate's random word give.
pub(crate) const UNIFORMS: f32 = 16_777_216.0;

/// dom(δ, b) and what is derived from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lattice {
    pub(crate) delta: f32,
    pub(crate) per: f32,
    /// 2^(b−1).
    pub(crate) half: i32,
    /// −half as a float.
    pub(crate) lo: f32,
    /// half − 1 as a float.
    pub(crate) hi: f32,
    pub(crate) bits: u8,
}
