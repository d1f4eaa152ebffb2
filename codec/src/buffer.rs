//! Memory for coordinates that begins on a cache line.
//!
//! Vectors of 64 bytes that straddle cache lines cost two accesses each, which slows the transform
//! down by about a fifth; the allocator only promises the 4 bytes of an `f32`.

use std::ops::{Deref, DerefMut};

/// A cache line of coordinates.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A fixed number of coordinates, aligned to 64 bytes. Dereferences to a slice.
#[derive(Clone)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { lines: bytemuck::zeroed_vec(len.div_ceil(16)), len }
    }
}

impl From<&[f32]> for Buffer {
    fn from(x: &[f32]) -> Self {
        let mut buffer = Self::zeroed(x.len());
        buffer.copy_from_slice(x);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_as_long_as_asked() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let mut buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|v| *v == 0.0));
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(64));
            buffer.fill(2.0);
            assert_eq!(buffer, Buffer::from(&vec![2.0; len][..]));
        }
    }
}
