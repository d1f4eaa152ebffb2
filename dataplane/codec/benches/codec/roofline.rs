//! What no kernel can beat on this machine: copying as many bytes as it moves, and doing as many vector operations as it
//! does, half of them additions and half multiply-adds.

use std::hint::black_box;

use thc_codec::buffer::Buffer;
use thc_codec::isa::Isa;
use thc_codec::peak;

use crate::figure::Yardsticks;
use crate::gradient;

/// A copy of `len` coordinates, warm if it fits a cache.
pub fn copy_of(len: usize) -> impl FnMut() {
    let (x, mut y) = (Buffer::from(&gradient(7)[..len]), Buffer::zeroed(len));
    move || {
        y.copy_from_slice(black_box(&x));
        black_box(&mut y);
    }
}

/// What a kernel does to some coordinates.
pub struct Work {
    /// Coordinates.
    pub len: usize,
    /// Bytes read and written per coordinate.
    pub bytes: f64,
    /// Vector operations per vector: what the definition asks for, without loads, stores, and what moves or flips lanes.
    pub operations: f64,
}

impl Work {
    /// A copy that moves as many bytes (a copy of n bytes reads n and writes n), and as many operations.
    pub fn bounds(&self) -> Yardsticks<'static> {
        let floats = (self.len as f64 * self.bytes / 8.0) as usize;
        let mut left = floats;
        let mut copies = Vec::new();
        while left > 0 {
            let some = left.min(crate::LEN);
            copies.push(copy_of(some));
            left -= some;
        }
        let vectors = self.len as f64 / Isa::current().lanes() as f64;
        let rounds = (vectors * self.operations / peak::OPERATIONS as f64) as u32;
        vec![
            Box::new(move || copies.iter_mut().for_each(|copy| copy())),
            Box::new(move || {
                black_box(peak::run(black_box(rounds)));
            }),
        ]
    }
}

/// Operations of a transform of `d` coordinates: an addition or subtraction for each stage, and the scale.
pub fn transform(d: usize) -> f64 {
    f64::from(d.ilog2()) + 1.0
}

/// Of quantizing and packing: position and clamping 3, cell 1, slope, start, index and value looked up 4, threshold 1,
/// comparison, step up and residual 3, a word of 13 for four draws and what makes them floats 5, packing 1.5.
pub const QUANTIZE: f64 = 18.5;

/// Of dequantizing: widening, conversion, product and sum.
pub const DEQUANTIZE: f64 = 4.0;

/// Of the norm of a sum: the sum, and widening and squares by halves.
pub const NORM: f64 = 5.0;
