//! Writing vectors.

use crate::codec::lattice::Lattice;
use crate::codec::positions;
use crate::codec::sparsify::sparsify;
use thc_codec::packing::packed_len;
use thc_codec::rounding::Rounding;
use thc_codec::{CodecError, norm};

use super::{Encoding, FLOATS, LATTICE, PIECES, Roundings, SIGNS_SPARSE, VectorSize, max_len, put_floats};
use crate::tensors::{EXACT, TensorBlock};

/// Appends `x` as floats.
pub fn encode_full(x: &[f32], out: &mut Vec<u8>) -> VectorSize {
    out.push(FLOATS);
    put_floats(x, out);
    let bits = 32 * x.len() as u64;
    VectorSize { bits: bits + 8, paper: bits }
}

/// Appends `x` on a lattice.
///
/// # Errors
/// None for lattices that exist.
pub fn encode_on(
    x: &[f32],
    lattice: &Lattice,
    rounding: Rounding,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    let before = out.len();
    out.push(LATTICE);
    out.push(lattice.bits());
    out.extend(lattice.delta().to_le_bytes());
    let from = out.len();
    out.resize(from + packed_len(lattice.bits(), x.len()), 0);
    lattice.quantize(x, rounding, 0, &mut out[from..])?;
    let paper = 32 + u64::from(lattice.bits()) * x.len() as u64;
    Ok(VectorSize { bits: 8 * (out.len() - before) as u64, paper })
}

/// Appends `x` in the form of `encoding`.
///
/// # Errors
/// Bits and budgets out of range; coordinates that are not finite.
pub fn encode(
    x: &[f32],
    encoding: Encoding,
    rounding: Rounding,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    match encoding {
        Encoding::Full => {
            let max = norm::max_abs(x);
            if !max.is_finite() {
                let what = "the largest magnitude of a gradient";
                let value = f64::from(max);
                return Err(CodecError::Parameter { what, value, allowed: "finite numbers" });
            }
            Ok(encode_full(x, out))
        }
        Encoding::Dense { bits } => encode_on(x, &Lattice::fit(x, bits)?, rounding, out),
        Encoding::Sparse { bits, budget } => {
            Lattice::new(1.0, bits)?;
            let sparse = sparsify(x, budget, rounding)?;
            let before = out.len();
            out.push(SIGNS_SPARSE);
            out.extend(sparse.magnitude.to_le_bytes());
            out.extend((sparse.positions.len() as u32).to_le_bytes());
            positions::encode(&sparse.positions, x.len(), out)?;
            out.extend(sparse.negative.chunks(8).map(|signs| {
                signs.iter().enumerate().fold(0_u8, |byte, (i, sign)| byte | u8::from(*sign) << (7 - i))
            }));
            let count = sparse.positions.len() as u64;
            let paper = 32 + count * u64::from(positions::position_bits(x.len()) + u32::from(bits));
            Ok(VectorSize { bits: 8 * (out.len() - before) as u64, paper })
        }
    }
}

/// Appends `x` in pieces, one for each block, or as floats if the pieces are so small that this is shorter. A block of
/// floats stays one; `encoding` is that of the others.
///
/// # Errors
/// As [`encode`].
pub fn encode_blocks(
    x: &[f32],
    blocks: &[TensorBlock],
    encoding: impl Fn(&TensorBlock) -> Encoding,
    roundings: Roundings,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    let before = out.len();
    out.push(PIECES);
    out.extend((blocks.len() as u32).to_le_bytes());
    let mut paper = 0;
    for block in blocks {
        let own = &x[block.range.clone()];
        out.extend((own.len() as u32).to_le_bytes());
        let encoding = if block.bits == EXACT { Encoding::Full } else { encoding(block) };
        paper += encode(own, encoding, roundings.piece(block.range.start as u64), out)?.paper;
    }
    if out.len() - before > max_len(x.len()) {
        out.truncate(before);
        return Ok(encode_full(x, out));
    }
    Ok(VectorSize { bits: 8 * (out.len() - before) as u64, paper })
}
