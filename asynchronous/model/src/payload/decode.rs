//! Reading vectors, whatever a peer has sent.

use std::ops::Range;

use thc_codec::packing::packed_len;
use thc_model_codec::lattice::Lattice;
use thc_model_codec::positions;

use super::{Broken, FLOATS, FROZEN, LATTICE, LATTICE_SPARSE, PART, PIECES, SIGNS_SPARSE, take_floats};

fn shape(what: &str) -> Broken {
    Broken::Shape(what.to_owned())
}

/// Reads a push: coordinates from the beginning of `out`, and the spans that they are of. Everything is finite.
///
/// # Errors
/// [`Broken`], and `out` has no particular value.
pub fn decode_push(bytes: &[u8], out: &mut [f32]) -> Result<Vec<Range<usize>>, Broken> {
    let mut reader = Reader { bytes };
    if bytes.first() != Some(&PART) {
        decode_forms(bytes, out, false)?;
        let whole = 0..out.len();
        return Ok(vec![whole]);
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

/// Reads a vector of `out`'s length. Everything it holds is finite. Frozen pieces leave what `out` holds.
///
/// # Errors
/// [`Broken`], and `out` has no particular value.
pub fn decode(bytes: &[u8], out: &mut [f32]) -> Result<(), Broken> {
    decode_forms(bytes, out, true)
}

/// [`decode`]; a pull may have frozen pieces, a push may not.
fn decode_forms(bytes: &[u8], out: &mut [f32], pull: bool) -> Result<(), Broken> {
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
            if !pull && reader.bytes.first() == Some(&FROZEN) {
                return Err(shape("a push has no frozen pieces"));
            }
            reader.vector(own)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(shape("its pieces are not those of the vector"));
        }
    } else if bytes.first() == Some(&FROZEN) {
        return Err(shape("all of it is frozen"));
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
                let lattice = self.lattice()?;
                Ok(lattice.dequantize(self.take(packed_len(lattice.bits(), out.len()))?, out)?)
            }
            LATTICE_SPARSE => {
                let lattice = self.lattice()?;
                let positions = self.positions(out.len())?;
                let mut values = vec![0.0; positions.len()];
                lattice.dequantize(self.take(packed_len(lattice.bits(), positions.len()))?, &mut values)?;
                out.fill(0.0);
                for (position, value) in positions.iter().zip(values) {
                    out[*position as usize] = value;
                }
                Ok(())
            }
            SIGNS_SPARSE => {
                let magnitude = self.float()?;
                let positions = self.positions(out.len())?;
                let signs = self.take(positions.len().div_ceil(8))?;
                out.fill(0.0);
                for (i, position) in positions.iter().enumerate() {
                    let negative = signs[i / 8] >> (7 - i % 8) & 1 == 1;
                    out[*position as usize] = if negative { -magnitude } else { magnitude };
                }
                Ok(())
            }
            FROZEN => Ok(()),
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
        let (positions, used) = positions::decode(self.bytes, count, dimension)?;
        self.take(used)?;
        Ok(positions)
    }
}
