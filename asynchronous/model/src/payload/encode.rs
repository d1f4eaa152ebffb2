//! Writing vectors.

use std::ops::Range;

use thc_codec::packing::packed_len;
use thc_codec::rounding::Rounding;
use thc_codec::{CodecError, norm};
use thc_model_codec::lattice::Lattice;
use thc_model_codec::positions;
use thc_model_codec::sparsify::sparsify;

use super::{
    Encoding, FLOATS, FROZEN, LATTICE, LATTICE_SPARSE, PART, PIECES, Roundings, SIGNS_SPARSE, VectorForm,
    VectorPiece, VectorSize, max_len, put_floats,
};

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

/// Appends the codes of `x` that are not those of zero, if that is shorter than all of them.
fn encode_shortest(
    x: &[f32],
    lattice: &Lattice,
    rounding: Rounding,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    let (bits, zero, before) = (lattice.bits(), lattice.zero(), out.len());
    let mut codes = vec![0; x.len()];
    lattice.round(x, rounding, 0, &mut codes)?;
    let nonzero = codes.iter().filter(|code| **code != zero).count();
    let dense = packed_len(bits, x.len());
    let sparse = packed_len(bits, nonzero);
    out.push(LATTICE_SPARSE);
    out.push(bits);
    out.extend(lattice.delta().to_le_bytes());
    let head = out.len();
    // Each position takes one bit at least: where that is too much already, none is written.
    let mut shorter = 4 + nonzero.div_ceil(8) + sparse < dense;
    if shorter {
        let positions: Vec<u32> =
            (0..).zip(&codes).filter(|(_, code)| **code != zero).map(|(i, _)| i).collect();
        out.extend((nonzero as u32).to_le_bytes());
        positions::encode(&positions, x.len(), out)?;
        shorter = out.len() - head + sparse < dense;
    }
    if shorter {
        codes.retain(|code| *code != zero);
    } else {
        out.truncate(head);
        out[before] = LATTICE;
    }
    let from = out.len();
    out.resize(from + packed_len(bits, codes.len()), 0);
    lattice.pack(&codes, &mut out[from..])?;
    let paper = 32 + u64::from(bits) * x.len() as u64;
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
        Encoding::Shortest { bits } => encode_shortest(x, &Lattice::fit(x, bits)?, rounding, out),
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
            let paper = 32 + count * u64::from(positions::plain_bits(x.len()) + u32::from(bits));
            Ok(VectorSize { bits: 8 * (out.len() - before) as u64, paper })
        }
    }
}

/// Appends `x` in pieces, or as floats if the pieces are so small that this is shorter.
///
/// # Errors
/// As [`encode`].
pub fn encode_pieces(
    x: &[f32],
    pieces: &[VectorPiece],
    roundings: Roundings,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    let before = out.len();
    out.push(PIECES);
    out.extend((pieces.len() as u32).to_le_bytes());
    let (mut from, mut paper) = (0, 0);
    for piece in pieces {
        let own = &x[from..from + piece.length];
        out.extend((piece.length as u32).to_le_bytes());
        match piece.encoding {
            None => out.push(FROZEN),
            Some(encoding) => paper += encode(own, encoding, roundings.piece(from as u64), out)?.paper,
        }
        from += piece.length;
    }
    if out.len() - before > max_len(x.len()) {
        out.truncate(before);
        return Ok(encode_full(x, out));
    }
    Ok(VectorSize { bits: 8 * (out.len() - before) as u64, paper })
}

/// Appends the coordinates of `x` in `spans`, which are in order and apart from each other.
///
/// # Errors
/// As [`encode`].
pub fn encode_part(
    x: &[f32],
    spans: &[Range<usize>],
    form: VectorForm<'_>,
    roundings: Roundings,
    out: &mut Vec<u8>,
) -> Result<VectorSize, CodecError> {
    let before = out.len();
    out.push(PART);
    out.extend((spans.len() as u32).to_le_bytes());
    for span in spans {
        out.extend((span.start as u32).to_le_bytes());
        out.extend((span.len() as u32).to_le_bytes());
    }
    let chosen: Vec<f32> = spans.iter().flat_map(|span| &x[span.clone()]).copied().collect();
    let size = match form {
        _ if chosen.is_empty() => encode_full(&chosen, out),
        VectorForm::Whole(encoding) => encode(&chosen, encoding, roundings.piece(0), out)?,
        VectorForm::Pieces(pieces) => encode_pieces(&chosen, pieces, roundings, out)?,
    };
    Ok(VectorSize { bits: 8 * (out.len() - before) as u64, ..size })
}
