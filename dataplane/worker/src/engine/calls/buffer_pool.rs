//! Memory that calls leave to later ones.

use crate::engine::loan::{Bytes, Sums};
use thc_codec::buffer::Buffer;

/// Memory for packed indices and results, kept for later groups.
#[derive(Debug, Default)]
pub(in crate::engine) struct BufferPool {
    packed: Vec<Vec<u8>>,
    sums: Vec<(Vec<u8>, Vec<u16>)>,
    work: Vec<Buffer>,
}

impl BufferPool {
    /// A buffer of `bytes` bytes, whose contents are unspecified.
    pub fn packed_buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut packed = self.packed.pop().unwrap_or_default();
        packed.resize(bytes, 0);
        packed
    }

    /// Memory for the results of `packets` packets, of `len` bytes each.
    pub fn sums(&mut self, packets: usize, len: usize) -> Sums {
        let (mut bytes, mut counts) = self.sums.pop().unwrap_or_default();
        bytes.resize(packets * len, 0);
        counts.clear();
        counts.resize(packets, 0);
        Sums { bytes: Bytes::Own(bytes), counts }
    }

    /// Work memory of at least `coordinates` coordinates.
    pub fn work(&mut self, coordinates: usize) -> Buffer {
        let fits = self.work.iter().position(|buffer| buffer.len() >= coordinates);
        fits.map_or_else(|| Buffer::zeroed(coordinates), |at| self.work.swap_remove(at))
    }

    pub fn take_packed(&mut self, packed: Bytes) {
        if let Bytes::Own(packed) = packed {
            self.packed.push(packed);
        }
    }

    pub fn take_sums(&mut self, Sums { bytes, counts }: Sums) {
        if let Bytes::Own(bytes) = bytes {
            self.sums.push((bytes, counts));
        }
    }

    pub fn take_work(&mut self, work: Buffer) {
        if !work.is_empty() {
            self.work.push(work);
        }
    }
}
