//! Memory for coordinates that begins on a cache line.
//!
//! Vectors of 64 bytes that straddle cache lines cost two accesses each, which slows the transform
//! down by about a fifth; the allocator only promises the 4 bytes of an `f32`. Large buffers begin on a huge
//! page, and ask the system for huge pages.

use std::ops::{Deref, DerefMut};

/// A cache line of coordinates.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Lines in a huge page of 2 MiB.
const HUGE: usize = (2 << 20) / size_of::<Line>();

/// A fixed number of coordinates, aligned to 64 bytes. Dereferences to a slice.
pub struct Buffer {
    lines: Vec<Line>,
    /// First line used: memory before a large buffer's first huge page is never touched, and so not
    /// allocated.
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let used = len.div_ceil(16);
        if used < HUGE {
            return Self { lines: bytemuck::zeroed_vec(used), start: 0, len };
        }
        let mut lines: Vec<Line> = bytemuck::zeroed_vec(used + HUGE);
        let start = lines.as_ptr().align_offset(HUGE * size_of::<Line>()).min(HUGE);
        crate::arch::ask_for_huge(&mut lines[start..start + used]);
        Self { lines, start, len }
    }

    fn used_range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.len.div_ceil(16)
    }
}

impl From<&[f32]> for Buffer {
    fn from(x: &[f32]) -> Self {
        let mut buffer = Self::zeroed(x.len());
        buffer.copy_from_slice(x);
        buffer
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines[self.used_range()])[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let used = self.used_range();
        &mut bytemuck::cast_slice_mut(&mut self.lines[used])[..self.len]
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
            assert_eq!(buffer.clone(), buffer);
            assert_eq!(buffer, Buffer::from(&vec![2.0; len][..]));
        }
    }

    #[test]
    fn large_ones_begin_on_a_huge_page() {
        for len in [HUGE * 16, HUGE * 16 + 1, 3 << 20] {
            let mut buffer = Buffer::zeroed(len);
            assert!(buffer.as_ptr().addr().is_multiple_of(2 << 20));
            assert!(buffer.len() == len && buffer.iter().all(|v| *v == 0.0));
            buffer[len - 1] = 3.0;
            assert_eq!(buffer.clone()[len - 1], 3.0);
        }
    }
}
