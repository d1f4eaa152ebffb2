//! The encodings of vectors on the network: floats, a lattice, signs of some coordinates, and pieces of these forms. All numbers
//! are little endian.
//!
//! ```text
//! 0 floats              d × f32
//! 1 lattice             b u8, δ f32, d codes of b bits
//! 2 signs, sparse       magnitude f32, n u32, positions, n bits, 1 for negative; others are zero
//! 3 pieces              n u32, n × (length u32, 0 to 2 of so many coordinates), one after the other
//! ```
//!
//! The first byte says which; positions are those of [`crate::codec::positions`], codes those of
//! [`crate::codec::lattice`]. What Lemma 2 keeps has one magnitude, so form 2 has all of it: Q_(δ,b) of it with
//! δ = ‖β‖∞/(2^(b−1) − 1) would be that magnitude again, whatever b is.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use thc_codec::{CodecError, norm};

pub use decode::decode;
pub use encode::{encode, encode_blocks, encode_full, encode_on};

const FLOATS: u8 = 0;
const LATTICE: u8 = 1;
const SIGNS_SPARSE: u8 = 2;
const PIECES: u8 = 3;

/// The encoding of a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Encoding {
    /// Floats, all of them.
    Full,
    /// b bits for every coordinate: AsyLPG.
    Dense {
        /// b, 2 to 16.
        bits: u8,
    },
    /// Sparsified first: Sparse-AsyLPG.
    Sparse {
        /// b, 2 to 16: what the paper counts for a value.
        bits: u8,
        /// φ; `None`: ‖α‖₁/‖α‖∞.
        budget: Option<f32>,
    },
}

/// The roundings of a vector's pieces, each independent of the others.
#[derive(Clone, Copy, Debug)]
pub struct Roundings {
    /// The seed of the worker or the model that they belong to.
    pub seed: u64,
    /// The number of the pull or push.
    pub round: u64,
    /// The number of the shard.
    pub shard: u32,
}

impl Roundings {
    /// The rounding of the piece that begins with coordinate `first`.
    #[must_use]
    pub fn piece(self, first: u64) -> Rounding {
        let seed = if first == 0 { self.seed } else { self.seed ^ mix(first) };
        Rounding::new(seed, self.round, self.shard)
    }
}

/// The size of an encoded vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorSize {
    /// Bits as written here.
    pub bits: u64,
    /// Bits as the paper counts them: 32 d; 32 + b d; 32 + n (⌈log₂ d⌉ + b).
    pub paper: u64,
}

impl std::ops::AddAssign for VectorSize {
    fn add_assign(&mut self, other: Self) {
        self.bits += other.bits;
        self.paper += other.paper;
    }
}

/// The size of `bytes`, which encode so many coordinates.
pub(crate) fn size(bytes: &[u8], coordinates: usize) -> VectorSize {
    let (bits, coordinates) = (8 * bytes.len() as u64, coordinates as u64);
    let paper = match bytes {
        [LATTICE, width, ..] => 32 + u64::from(*width) * coordinates,
        [PIECES, ..] => bits,
        _ => 32 * coordinates,
    };
    VectorSize { bits, paper }
}

/// The reason for refusing a payload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Broken {
    /// It has not the length, or not the form, that it should have.
    #[error("{0}")]
    Shape(String),
    /// It has a number that is infinite or NaN.
    #[error("it has a number that is not finite")]
    NotFinite,
}

impl From<CodecError> for Broken {
    fn from(error: CodecError) -> Self {
        Self::Shape(error.to_string())
    }
}

/// Largest encoding of `coordinates`, whether of all of them or of every second one.
#[must_use]
pub fn max_len(coordinates: usize) -> usize {
    32 + 6 * coordinates
}

/// Appends floats.
pub(crate) fn put_floats(x: &[f32], out: &mut Vec<u8>) {
    out.reserve(4 * x.len());
    out.extend(x.iter().flat_map(|v| v.to_le_bytes()));
}

/// Reads floats of the right number, all finite.
pub(crate) fn take_floats(bytes: &[u8], out: &mut [f32]) -> Result<(), Broken> {
    if bytes.len() != 4 * out.len() {
        let reason = format!("it has {} bytes of floats, {} are right", bytes.len(), 4 * out.len());
        return Err(Broken::Shape(reason));
    }
    for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *out = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    if norm::max_abs(out).is_finite() { Ok(()) } else { Err(Broken::NotFinite) }
}
