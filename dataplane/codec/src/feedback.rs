//! Error feedback: what quantization lost in earlier rounds and is still to be sent
//! (paper, section 5.1 and Algorithm 3).

use crate::buffer::Buffer;
use crate::error::CodecError;

/// First bytes of saved error feedback.
const MAGIC: [u8; 4] = *b"THCF";
/// Version of the saved format.
const VERSION: u32 = 1;
/// Magic, version, number of coordinates.
const HEADER: usize = 4 + 4 + 8;

/// The error feedback of one tensor, one `f32` per coordinate, zero at first,
/// aligned to 64 bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorFeedback {
    residual: Buffer,
}

impl ErrorFeedback {
    /// Zero feedback for a tensor of `len` coordinates.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { residual: Buffer::zeroed(len) }
    }

    /// The feedback, in the tensor's order.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.residual
    }

    /// The feedback, to be updated.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.residual
    }

    /// The saved form for a checkpoint: `THCF`, version (u32), number of coordinates (u64), coordinates
    /// (f32), all little endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + 4 * self.residual.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.residual.len() as u64).to_le_bytes());
        for v in self.residual.iter() {
            bytes.extend_from_slice(&v.to_le_bytes());
        }
        bytes
    }

    /// Restores what [`to_bytes`](Self::to_bytes) saved for a tensor of `len` coordinates.
    pub fn from_bytes(len: usize, bytes: &[u8]) -> Result<Self, CodecError> {
        let fail = |reason| Err(CodecError::FeedbackFormat { reason });
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return fail(format!("{} bytes are fewer than its header of {HEADER}", bytes.len()));
        };
        let (magic, rest) = header.split_at(4);
        let (version, saved) = rest.split_at(4);
        if magic != MAGIC {
            return fail("it does not begin with THCF".to_owned());
        }
        let version = version.iter().rev().fold(0_u32, |v, b| v << 8 | u32::from(*b));
        if version != VERSION {
            return fail(format!("it has version {version}, this program reads version {VERSION}"));
        }
        let saved = saved.iter().rev().fold(0_u64, |v, b| v << 8 | u64::from(*b));
        if saved != len as u64 {
            return fail(format!("it is for a tensor of {saved} coordinates, this one has {len}"));
        }
        if body.len() as u64 != saved.saturating_mul(4) {
            return fail(format!("{} bytes of coordinates do not make {saved} coordinates", body.len()));
        }
        let mut residual = Buffer::zeroed(len);
        for (v, b) in residual.iter_mut().zip(body.chunks_exact(4)) {
            *v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
        if let Some(at) = residual.iter().position(|v| !v.is_finite()) {
            return fail(format!("coordinate {at} is {}", residual[at]));
        }
        Ok(Self { residual })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(len: usize, bytes: &[u8]) -> String {
        ErrorFeedback::from_bytes(len, bytes).unwrap_err().to_string()
    }

    #[test]
    fn starts_at_zero() {
        assert_eq!(ErrorFeedback::new(3).as_slice(), [0.0; 3]);
    }

    #[test]
    fn damage_is_named() {
        let good = ErrorFeedback::new(2).to_bytes();
        assert!(reason(2, &good[..7]).contains("fewer than its header"));
        assert!(reason(2, &good[..20]).contains("do not make 2"));
        assert!(reason(3, &good).contains("2 coordinates, this one has 3"));
        let mut bad = good.clone();
        bad[0] = b'X';
        assert!(reason(2, &bad).contains("THCF"));
        let mut bad = good.clone();
        bad[4] = 9;
        assert!(reason(2, &bad).contains("version 9"));
        let mut bad = good.clone();
        bad[20..24].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(reason(2, &bad).contains("coordinate 1 is NaN"));
        let mut bad = good;
        bad[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(reason(usize::MAX, &bad).contains("do not make"));
    }

    proptest! {
        #[test]
        fn saves_and_restores(x in prop::collection::vec(-1e30f32..1e30, 0..50)) {
            let mut e = ErrorFeedback::new(x.len());
            e.as_mut_slice().copy_from_slice(&x);
            prop_assert_eq!(&ErrorFeedback::from_bytes(x.len(), &e.to_bytes()).unwrap(), &e);
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..64), len in 0usize..20) {
            let _ = ErrorFeedback::from_bytes(len, &bytes);
        }
    }
}
