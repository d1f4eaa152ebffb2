//! Vectors as they travel: floats, a lattice, two sparse forms, and any of these of some coordinates only. Little endian.
//!
//! ```text
//! 0 floats              d × f32
//! 1 lattice             b u8, δ f32, d codes of b bits
//! 2 lattice, sparse     b u8, δ f32, n u32, positions, n codes of b bits; others are zero
//! 3 signs, sparse       magnitude f32, n u32, positions, n bits, 1 for negative; others are zero
//! 4 part, of a push     n u32, n × (begin u32, length u32), then 0 to 3 or 5 of the coordinates in these spans alone; others
//!                       are not in the step
//! 5 pieces              n u32, n × (length u32, 0 to 3 or 6 of so many coordinates), one after the other
//! 6 kept, in a pull     nothing: the receiver has these coordinates already, and they never change
//! ```
//!
//! The first byte says which; positions are those of [`thc_codec::positions`], codes those of
//! [`thc_codec::lattice`]. What Lemma 2 keeps has one magnitude, so form 3 has all of it: Q_(δ,b) of it with
//! δ = ‖β‖∞/(2^(b−1) − 1) would be that magnitude again, whatever b is.

use std::ops::Range;

use thc_codec::lattice::Lattice;
use thc_codec::packing::packed_len;
use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use thc_codec::sparsify::sparsify;
use thc_codec::{CodecError, norm, positions};

const FLOATS: u8 = 0;
const LATTICE: u8 = 1;
const LATTICE_SPARSE: u8 = 2;
const SIGNS_SPARSE: u8 = 3;
const PART: u8 = 4;
const PIECES: u8 = 5;
const KEPT: u8 = 6;

/// How a gradient is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Encoding {
    /// Floats, all of them.
    Full,
    /// b bits for every coordinate: AsyLPG.
    Dense {
        /// b, 2 to 16.
        bits: u8,
    },
    /// b bits for every coordinate, zeros left out where that is shorter. The server gets the same numbers.
    Shortest {
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

impl Encoding {
    /// The same with other bits; floats become a lattice.
    #[must_use]
    pub fn with_bits(self, bits: u8) -> Self {
        match self {
            Self::Full | Self::Dense { .. } => Self::Dense { bits },
            Self::Shortest { .. } => Self::Shortest { bits },
            Self::Sparse { budget, .. } => Self::Sparse { bits, budget },
        }
    }
}

/// A part of a vector that has a form, and so a scale, of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// How many coordinates.
    pub length: usize,
    /// In which form; `None`: the receiver has them already.
    pub encoding: Option<Encoding>,
}

/// The roundings of a vector's pieces, each independent of the others.
#[derive(Clone, Copy, Debug)]
pub struct Roundings {
    /// Whose they are.
    pub seed: u64,
    /// Of which pull or push.
    pub round: u64,
    /// Of which shard.
    pub shard: u32,
}

impl Roundings {
    /// That of the piece that begins with coordinate `first`.
    #[must_use]
    pub fn at(self, first: u64) -> Rounding {
        let seed = if first == 0 { self.seed } else { self.seed ^ mix(first) };
        Rounding::new(seed, self.round, self.shard)
    }
}

/// The form of a vector.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// One for all of it.
    Whole(Encoding),
    /// One for each piece.
    Pieces(&'a [Piece]),
}

/// What a vector took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bits as written here.
    pub bits: u64,
    /// Bits as the paper counts them: 32 d; 32 + b d; 32 + n (⌈log₂ d⌉ + b).
    pub paper: u64,
}

/// Why a payload is refused.
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

fn shape(what: &str) -> Broken {
    Broken::Shape(what.to_owned())
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

/// Appends `x` as floats.
pub fn encode_full(x: &[f32], out: &mut Vec<u8>) -> Size {
    out.push(FLOATS);
    put_floats(x, out);
    let bits = 32 * x.len() as u64;
    Size { bits: bits + 8, paper: bits }
}

/// Appends `x` on a lattice.
///
/// # Errors
/// None for lattices that exist.
pub fn encode_on(x: &[f32], on: &Lattice, rounding: Rounding, out: &mut Vec<u8>) -> Result<Size, CodecError> {
    let before = out.len();
    out.push(LATTICE);
    out.push(on.bits());
    out.extend(on.delta().to_le_bytes());
    let from = out.len();
    out.resize(from + packed_len(on.bits(), x.len()), 0);
    on.quantize(x, rounding, 0, &mut out[from..])?;
    let paper = 32 + u64::from(on.bits()) * x.len() as u64;
    Ok(Size { bits: 8 * (out.len() - before) as u64, paper })
}

/// Appends the codes of `x` that are not those of zero, if that is shorter than all of them.
fn encode_shortest(
    x: &[f32],
    on: &Lattice,
    rounding: Rounding,
    out: &mut Vec<u8>,
) -> Result<Size, CodecError> {
    let mut codes = vec![0; x.len()];
    on.round(x, rounding, 0, &mut codes)?;
    let kept: Vec<u32> = (0..).zip(&codes).filter(|(_, code)| **code != on.zero()).map(|(i, _)| i).collect();
    let before = out.len();
    out.push(LATTICE_SPARSE);
    out.push(on.bits());
    out.extend(on.delta().to_le_bytes());
    out.extend((kept.len() as u32).to_le_bytes());
    positions::encode(&kept, x.len(), out)?;
    let values: Vec<f32> = kept.iter().map(|i| on.value(codes[*i as usize])).collect();
    let from = out.len();
    if from - before + packed_len(on.bits(), kept.len()) >= 6 + packed_len(on.bits(), x.len()) {
        out.truncate(before);
        return encode_on(x, on, rounding, out);
    }
    out.resize(from + packed_len(on.bits(), kept.len()), 0);
    // Values of the lattice stay what they are.
    on.quantize(&values, rounding, 0, &mut out[from..])?;
    let paper = 32 + u64::from(on.bits()) * x.len() as u64;
    Ok(Size { bits: 8 * (out.len() - before) as u64, paper })
}

/// Appends `x` as `how` says.
///
/// # Errors
/// Bits and budgets out of range; coordinates that are not finite.
pub fn encode(x: &[f32], how: Encoding, rounding: Rounding, out: &mut Vec<u8>) -> Result<Size, CodecError> {
    match how {
        Encoding::Full => {
            let max = norm::max_abs(x);
            if !max.is_finite() {
                let what = "the largest magnitude of a gradient";
                let value = f64::from(max);
                return Err(CodecError::Parameter { what, value, allowed: "finite numbers" });
            }
            Ok(encode_full(x, out))
        }
        Encoding::Dense { bits } => encode_on(x, &Lattice::spanning(x, bits)?, rounding, out),
        Encoding::Shortest { bits } => encode_shortest(x, &Lattice::spanning(x, bits)?, rounding, out),
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
            Ok(Size { bits: 8 * (out.len() - before) as u64, paper })
        }
    }
}

/// Appends `x` in pieces, or as floats if the pieces are so small that this is shorter.
///
/// # Errors
/// As [`encode`].
pub fn encode_pieces(
    x: &[f32],
    pieces: &[Piece],
    roundings: Roundings,
    out: &mut Vec<u8>,
) -> Result<Size, CodecError> {
    let before = out.len();
    out.push(PIECES);
    out.extend((pieces.len() as u32).to_le_bytes());
    let (mut from, mut paper) = (0, 0);
    for piece in pieces {
        let own = &x[from..from + piece.length];
        out.extend((piece.length as u32).to_le_bytes());
        match piece.encoding {
            None => out.push(KEPT),
            Some(how) => paper += encode(own, how, roundings.at(from as u64), out)?.paper,
        }
        from += piece.length;
    }
    if out.len() - before > max_len(x.len()) {
        out.truncate(before);
        return Ok(encode_full(x, out));
    }
    Ok(Size { bits: 8 * (out.len() - before) as u64, paper })
}

/// Appends the coordinates of `x` in `spans`, which are in order and apart from each other.
///
/// # Errors
/// As [`encode`].
pub fn encode_part(
    x: &[f32],
    spans: &[Range<usize>],
    how: Form<'_>,
    roundings: Roundings,
    out: &mut Vec<u8>,
) -> Result<Size, CodecError> {
    let before = out.len();
    out.push(PART);
    out.extend((spans.len() as u32).to_le_bytes());
    for span in spans {
        out.extend((span.start as u32).to_le_bytes());
        out.extend((span.len() as u32).to_le_bytes());
    }
    let chosen: Vec<f32> = spans.iter().flat_map(|span| &x[span.clone()]).copied().collect();
    let size = match how {
        _ if chosen.is_empty() => encode_full(&chosen, out),
        Form::Whole(how) => encode(&chosen, how, roundings.at(0), out)?,
        Form::Pieces(pieces) => encode_pieces(&chosen, pieces, roundings, out)?,
    };
    Ok(Size { bits: 8 * (out.len() - before) as u64, ..size })
}

/// Reads a push: coordinates from the beginning of `out`, and the spans that they are of. Everything is finite.
///
/// # Errors
/// [`Broken`], and `out` has no particular value.
pub fn decode_push(bytes: &[u8], out: &mut [f32]) -> Result<Vec<Range<usize>>, Broken> {
    let mut reader = Reader { bytes };
    if bytes.first() != Some(&PART) {
        decode_forms(bytes, out, false)?;
        let all = 0..out.len();
        return Ok(vec![all]);
    }
    reader.take(1)?;
    let count = reader.number()?;
    if count > out.len() {
        return Err(shape("it has more spans than coordinates"));
    }
    let (mut spans, mut end, mut length) = (Vec::with_capacity(count), 0, 0);
    for _ in 0..count {
        let (from, len) = (reader.number()?, reader.number()?);
        let to = from.checked_add(len).filter(|to| *to <= out.len());
        let Some(to) = to.filter(|_| from >= end && len > 0) else {
            return Err(shape("its spans are not in order, or not within the model"));
        };
        spans.push(from..to);
        (end, length) = (to, length + len);
    }
    decode_forms(reader.bytes, &mut out[..length], false)?;
    Ok(spans)
}

/// Reads a vector of `out`'s length. Everything it holds is finite. Pieces that are kept leave what `out` holds.
///
/// # Errors
/// [`Broken`], and `out` has no particular value.
pub fn decode(bytes: &[u8], out: &mut [f32]) -> Result<(), Broken> {
    decode_forms(bytes, out, true)
}

/// [`decode`], in a push without pieces that are kept.
fn decode_forms(bytes: &[u8], out: &mut [f32], kept: bool) -> Result<(), Broken> {
    let mut reader = Reader { bytes };
    if bytes.first() == Some(&PIECES) {
        reader.take(1)?;
        let (count, mut rest) = (reader.number()?, out);
        for _ in 0..count {
            let length = reader.number()?;
            let (own, after) = std::mem::take(&mut rest)
                .split_at_mut_checked(length)
                .filter(|_| length > 0)
                .ok_or_else(|| shape("its pieces are not those of the vector"))?;
            if !kept && reader.bytes.first() == Some(&KEPT) {
                return Err(shape("a push keeps nothing"));
            }
            reader.vector(own)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(shape("its pieces are not those of the vector"));
        }
    } else if bytes.first() == Some(&KEPT) {
        return Err(shape("all of it is kept"));
    } else {
        reader.vector(out)?;
    }
    if reader.bytes.is_empty() { Ok(()) } else { Err(shape("it is too long")) }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or_else(|| shape("it is too short"))?;
        self.bytes = rest;
        Ok(head)
    }

    fn number(&mut self) -> Result<usize, Broken> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    fn float(&mut self) -> Result<f32, Broken> {
        let bytes = self.take(4)?;
        let value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if value.is_finite() { Ok(value) } else { Err(Broken::NotFinite) }
    }

    /// One of the forms 0 to 3 and 6, as many coordinates as `out` has.
    fn vector(&mut self, out: &mut [f32]) -> Result<(), Broken> {
        match self.take(1)?[0] {
            FLOATS => take_floats(self.take(4 * out.len())?, out),
            LATTICE => {
                let on = self.lattice()?;
                Ok(on.dequantize(self.take(packed_len(on.bits(), out.len()))?, out)?)
            }
            LATTICE_SPARSE => {
                let on = self.lattice()?;
                let kept = self.positions(out.len())?;
                let mut values = vec![0.0; kept.len()];
                on.dequantize(self.take(packed_len(on.bits(), kept.len()))?, &mut values)?;
                out.fill(0.0);
                for (position, value) in kept.iter().zip(values) {
                    out[*position as usize] = value;
                }
                Ok(())
            }
            SIGNS_SPARSE => {
                let magnitude = self.float()?;
                let kept = self.positions(out.len())?;
                let signs = self.take(kept.len().div_ceil(8))?;
                out.fill(0.0);
                for (i, position) in kept.iter().enumerate() {
                    let negative = signs[i / 8] >> (7 - i % 8) & 1 == 1;
                    out[*position as usize] = if negative { -magnitude } else { magnitude };
                }
                Ok(())
            }
            KEPT => Ok(()),
            other => Err(Broken::Shape(format!("its form is {other}, which is unknown"))),
        }
    }

    fn lattice(&mut self) -> Result<Lattice, Broken> {
        let bits = self.take(1)?[0];
        let lattice = Lattice::new(self.float()?, bits)?;
        // The value of code 0 is the largest in magnitude.
        if lattice.value(0).is_finite() { Ok(lattice) } else { Err(Broken::NotFinite) }
    }

    fn positions(&mut self, dimension: usize) -> Result<Vec<u32>, Broken> {
        let count = self.number()?;
        let (kept, used) = positions::decode(self.bytes, count, dimension)?;
        self.take(used)?;
        Ok(kept)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOW: [Encoding; 7] = [
        Encoding::Full,
        Encoding::Dense { bits: 2 },
        Encoding::Dense { bits: 11 },
        Encoding::Shortest { bits: 4 },
        Encoding::Shortest { bits: 8 },
        Encoding::Sparse { bits: 8, budget: None },
        Encoding::Sparse { bits: 8, budget: Some(3.0) },
    ];

    const ROUNDINGS: Roundings = Roundings { seed: 1, round: 2, shard: 3 };

    fn rounding() -> Rounding {
        ROUNDINGS.at(0)
    }

    #[test]
    fn sizes_by_hand() {
        let mut x = vec![0.0; 1000];
        x[7] = -2.0;
        x[500] = 2.0;
        let size = |how| encode(&x, how, rounding(), &mut Vec::new()).unwrap();
        assert_eq!(size(Encoding::Full), Size { bits: 8 + 32_000, paper: 32_000 });
        assert_eq!(size(Encoding::Dense { bits: 8 }), Size { bits: 48 + 8000, paper: 8032 });
        // Head 10 bytes; positions 1 + 3 bytes (10 bits each); 2 bytes.
        assert_eq!(size(Encoding::Shortest { bits: 8 }), Size { bits: 8 * 16, paper: 8032 });
        // Head 9; positions 1 + 3; signs 1.
        assert_eq!(
            size(Encoding::Sparse { bits: 8, budget: None }),
            Size { bits: 8 * 14, paper: 32 + 2 * 18 }
        );
    }

    #[test]
    fn leaving_zeros_out_changes_nothing() {
        let x: Vec<f32> = (0..300).map(|i| if i % 7 == 0 { (i as f32).sin() } else { 0.0 }).collect();
        let decoded = |how| {
            let (mut bytes, mut out) = (Vec::new(), vec![9.0; 300]);
            encode(&x, how, rounding(), &mut bytes).unwrap();
            decode(&bytes, &mut out).unwrap();
            out
        };
        for bits in 2..=16 {
            assert_eq!(
                decoded(Encoding::Dense { bits }),
                decoded(Encoding::Shortest { bits }),
                "{bits} bits"
            );
        }
    }

    #[test]
    fn what_is_broken_is_refused() {
        let mut out = [0.0; 4];
        let with = |head: &[u8], floats: &[f32]| {
            let mut bytes = head.to_vec();
            put_floats(floats, &mut bytes);
            bytes
        };
        let shapes = [
            vec![],
            vec![9],
            with(&[0], &[1.0; 3]),
            with(&[0], &[1.0; 5]),
            with(&[1, 8], &[1.0]),
            with(&[1, 17], &[1.0, 0.0]),
            with(&[1, 8], &[-1.0, 0.0]),
            [with(&[2, 8], &[1.0]), vec![1, 0, 0]].concat(),
            [with(&[2, 8], &[1.0]), vec![5, 0, 0, 0, 255, 0, 0]].concat(),
            [with(&[3], &[1.0]), vec![1, 0, 0, 0, 255, 0]].concat(),
            [with(&[3], &[1.0]), vec![255, 255, 255, 255, 255, 0]].concat(),
        ];
        for bytes in shapes {
            assert!(matches!(decode(&bytes, &mut out), Err(Broken::Shape(_))), "{bytes:?}");
        }
        let infinite = [
            with(&[0], &[1.0, f32::NAN, 1.0, 1.0]),
            with(&[0], &[1.0, 1.0, 1.0, f32::INFINITY]),
            with(&[1, 8], &[f32::NAN, 0.0]),
            [with(&[1, 16], &[2e37]), vec![0; 8]].concat(),
            [with(&[3], &[f32::INFINITY]), vec![1, 0, 0, 0, 255, 0, 0]].concat(),
        ];
        for bytes in infinite {
            assert_eq!(decode(&bytes, &mut out), Err(Broken::NotFinite), "{bytes:?}");
        }
        for how in HOW {
            assert!(encode(&[1.0, f32::NAN], how, rounding(), &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn a_part_is_some_coordinates_alone() {
        let x: Vec<f32> = (0..100).map(|i| (i as f32).sin()).collect();
        for spans in [vec![], vec![0..1], vec![3..40, 40..41, 99..100], vec![0..100]] {
            for how in HOW {
                let (mut bytes, mut alone) = (Vec::new(), Vec::new());
                let size = encode_part(&x, &spans, Form::Whole(how), ROUNDINGS, &mut bytes).unwrap();
                assert_eq!(size.bits, 8 * bytes.len() as u64);
                let chosen: Vec<f32> = spans.iter().flat_map(|span| &x[span.clone()]).copied().collect();
                let mut out = vec![9.0; 100];
                assert_eq!(decode_push(&bytes, &mut out).unwrap(), spans);
                let how = if chosen.is_empty() { Encoding::Full } else { how };
                let plain = encode(&chosen, how, rounding(), &mut alone).unwrap();
                assert_eq!(size.paper, plain.paper);
                let mut wanted = vec![9.0; chosen.len()];
                decode(&alone, &mut wanted).unwrap();
                assert_eq!(out[..chosen.len()], wanted);
            }
        }
        let mut whole = Vec::new();
        encode_full(&x, &mut whole);
        assert_eq!(decode_push(&whole, &mut [0.0; 100]).unwrap(), [0..100]);
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        for (head, floats) in [
            (words(&[1, 0, 101]), 101),
            (words(&[1, u32::MAX, u32::MAX]), 1),
            (words(&[1, 5, 0]), 0),
            (words(&[2, 5, 2, 6, 1]), 3),
            (words(&[2, 6, 1, 5, 1]), 2),
            (words(&[101]), 0),
            (words(&[1, 0, 2]), 3),
            (words(&[1, 0]), 0),
            (words(&[u32::MAX]), 0),
        ] {
            let mut bytes = [vec![PART], head, vec![FLOATS]].concat();
            put_floats(&vec![1.0; floats], &mut bytes);
            assert!(matches!(decode_push(&bytes, &mut [0.0; 100]), Err(Broken::Shape(_))), "{bytes:?}");
        }
        // A part of a part is none.
        let nested =
            [vec![PART], words(&[1, 0, 1]), vec![PART], words(&[1, 0, 1]), vec![FLOATS, 0, 0, 0, 0]].concat();
        assert!(decode_push(&nested, &mut [0.0; 100]).is_err());
    }

    #[test]
    fn each_piece_has_a_scale_of_its_own() {
        // Small numbers beside large ones: one scale would be 1000 / 127.
        let x: Vec<f32> = (0..100).map(|i| (i as f32).sin() * if i < 50 { 0.01 } else { 1000.0 }).collect();
        let dense = Some(Encoding::Dense { bits: 8 });
        let pieces = [(50, dense), (30, dense), (10, Some(Encoding::Full)), (10, None)];
        let pieces = pieces.map(|(length, encoding)| Piece { length, encoding });
        let mut bytes = Vec::new();
        let size = encode_pieces(&x, &pieces, ROUNDINGS, &mut bytes).unwrap();
        assert_eq!(size, Size { bits: 8 * (5 + 4 * 4 + 2 * 6 + 80 + 41 + 1), paper: 64 + 640 + 320 });
        assert_eq!(size.bits, 8 * bytes.len() as u64);
        let mut out = vec![9.0; 100];
        decode(&bytes, &mut out).unwrap();
        assert!(x[..50].iter().zip(&out).all(|(x, out)| (x - out).abs() < 1e-4));
        assert!(x[50..80].iter().zip(&out[50..]).all(|(x, out)| (x - out).abs() < 8.0));
        assert_eq!((&out[80..90], &out[90..]), (&x[80..90], &[9.0; 10][..]));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], &mut out).is_err(), "{cut}");
        }
        assert!(decode(&[bytes.clone(), vec![0]].concat(), &mut out).is_err());
        assert!(decode(&bytes, &mut [0.0; 99]).is_err() && decode(&bytes, &mut [0.0; 101]).is_err());
        assert!(decode(&[KEPT], &mut []).is_err());
        // What a push leaves out is not in it: nothing of it is kept.
        assert!(decode_push(&bytes, &mut out).is_err());
        // Pieces of one coordinate would be longer than floats.
        let ones = vec![Piece { length: 1, encoding: dense }; 100];
        bytes.clear();
        encode_pieces(&x, &ones, ROUNDINGS, &mut bytes).unwrap();
        assert_eq!(bytes.len(), 401);
    }

    proptest! {
        #[test]
        fn round_trip(x in prop::collection::vec(prop_oneof![Just(0.0), -1e6_f32..1e6], 1..300), seed: u64) {
            let max = norm::max_abs(&x);
            for how in HOW {
                let mut bytes = Vec::new();
                let size = encode(&x, how, Rounding::new(seed, 0, 0), &mut bytes).unwrap();
                prop_assert_eq!(size.bits, 8 * bytes.len() as u64);
                prop_assert!(bytes.len() <= max_len(x.len()));
                let mut out = vec![9.0; x.len()];
                decode(&bytes, &mut out).unwrap();
                match how {
                    Encoding::Full => prop_assert_eq!(&x, &out),
                    Encoding::Sparse { .. } => {
                        prop_assert!(x.iter().zip(&out).all(|(x, out)| *out == 0.0 || x * out > 0.0));
                    }
                    Encoding::Dense { bits } | Encoding::Shortest { bits } => {
                        let step = max / ((1 << (bits - 1)) - 1) as f32 * 1.01;
                        prop_assert!(x.iter().zip(&out).all(|(x, out)| (x - out).abs() <= step));
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), form in 0_u8..7) {
            let mut out = [0.0; 10];
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = form;
            }
            if decode(&bytes, &mut out).is_ok() {
                prop_assert!(out.iter().all(|v| v.is_finite()));
            }
            let mut out = [0.0; 10];
            if let Ok(spans) = decode_push(&bytes, &mut out) {
                prop_assert!(out.iter().all(|v| v.is_finite()));
                prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
                prop_assert!(spans.iter().all(|span| !span.is_empty() && span.end <= 10));
            }
        }
    }
}
