//! Reading vectors, whatever a peer has sent.

use crate::codec::lattice::Lattice;
use crate::codec::positions;
use thc_codec::packing::packed_len;

use super::{Broken, FLOATS, LATTICE, PIECES, SIGNS_SPARSE, take_floats};

fn shape(what: &str) -> Broken {
    Broken::Shape(what.to_owned())
}

/// Reads a vector of `out`'s length. Everything it holds is finite.
///
/// # Errors
/// [`Broken`], and `out` has no particular value.
pub fn decode(bytes: &[u8], out: &mut [f32]) -> Result<(), Broken> {
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
            reader.vector(own)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(shape("its pieces are not those of the vector"));
        }
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

    /// One of the forms 0 to 2, as many coordinates as `out` has.
    fn vector(&mut self, out: &mut [f32]) -> Result<(), Broken> {
        match self.take(1)?[0] {
            FLOATS => take_floats(self.take(4 * out.len())?, out),
            LATTICE => {
                let lattice = self.lattice()?;
                Ok(lattice.dequantize(self.take(packed_len(lattice.bits(), out.len()))?, out)?)
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
