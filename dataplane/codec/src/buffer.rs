//! Memory for coordinates that begins on a cache line.
//!
//! Vectors of 64 bytes that straddle cache lines cost two accesses each, which slows the transform
//! down by about a fifth; the allocator only promises the 4 bytes of an `f32`. Large buffers begin on a huge
//! page, and ask the system for huge pages.

use std::ops::{Deref, DerefMut};

/// Coordinates in a cache line.
const LINE: usize = 64 / size_of::<f32>();

/// Coordinates in a huge page of 2 MiB.
const HUGE: usize = (2 << 20) / size_of::<f32>();

/// A fixed number of coordinates, aligned to 64 bytes. Dereferences to a slice.
pub struct Buffer {
    /// Of floats: memory for types that are aligned to more than the allocator promises is filled with zeros, and so has its
    /// pages before the system is asked for huge ones.
    memory: Vec<f32>,
    /// First coordinate used: what is before a large buffer's first huge page is never touched, and so not allocated.
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let align = if len < HUGE { LINE } else { HUGE };
        let spare = if len == 0 { 0 } else { align };
        let mut memory: Vec<f32> = bytemuck::zeroed_vec(len + spare);
        let start = memory.as_ptr().align_offset(align * size_of::<f32>()).min(spare);
        if align == HUGE {
            crate::arch::ask_for_huge(&mut memory[start..start + len]);
        }
        Self { memory, start, len }
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
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..][..self.len]
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
#[allow(clippy::unwrap_used)]
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

    /// Otherwise their pages are small ones.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_ones_are_not_touched_before_they_are_used() {
        let pages = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = pages();
        let buffer = Buffer::zeroed(1 << 26);
        // Other tests may use memory meanwhile.
        let more = pages().saturating_sub(before) * 4096;
        assert!(more < (1 << 26), "{more} bytes of {}", size_of_val(&*buffer));
    }

    #[test]
    fn large_ones_begin_on_a_huge_page() {
        for len in [HUGE, HUGE + 1, 3 << 20] {
            let mut buffer = Buffer::zeroed(len);
            assert!(buffer.as_ptr().addr().is_multiple_of(2 << 20));
            assert!(buffer.len() == len && buffer.iter().all(|v| *v == 0.0));
            buffer[len - 1] = 3.0;
            assert_eq!(buffer.clone()[len - 1], 3.0);
        }
    }
}
