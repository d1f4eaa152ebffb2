//! The frames on a stream. Only this module, the vectors of [`crate::payload`] and the files of [`crate::store`] know the
//! byte order, which is little endian.
//!
//! A frame is its length (u32, of all that follows), a kind (u8) and a body. A connection has one stream for HELLO, OPEN,
//! STATS, LEAVE and COMMAND, and one for each shard that begins with ATTACH. Every request has one answer, in order.

use serde::{Deserialize, Serialize};

use crate::shard::Stamp;

/// What HELLO says first.
pub(crate) const VERSION: u8 = 3;
/// Application protocol of the TLS handshake.
pub(crate) const ALPN: &[u8] = b"thc-model/3";
/// Longest request that is not a vector.
pub(crate) const SMALL: usize = 4096;
/// Longest request of a stream for the session, whose OPEN has the tensors of a model.
pub(crate) const LONGEST_OPEN: usize = 1 << 20;
/// Numbers from here on are those of administrators, who pull and push nothing.
pub(crate) const ADMIN: u16 = 0xFF00;
/// Longest names of jobs and models.
pub(crate) const MAX_NAME: usize = 64;

/// Kinds of frames; answers are from 64.
pub(crate) mod kind {
    pub const HELLO: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const STATS: u8 = 3;
    pub const ATTACH: u8 = 4;
    pub const INIT: u8 = 5;
    pub const PULL: u8 = 6;
    pub const PUSH: u8 = 7;
    pub const SNAPSHOT: u8 = 8;
    pub const BEGIN: u8 = 9;
    pub const LEAVE: u8 = 10;
    pub const COMMAND: u8 = 11;
    pub const EXACT: u8 = 12;
    pub const REFUSED: u8 = 64;
    pub const WELCOME: u8 = 65;
    pub const OPENED: u8 = 66;
    pub const COUNTED: u8 = 67;
    pub const ATTACHED: u8 = 68;
    pub const DONE: u8 = 69;
    pub const PULLED: u8 = 70;
    pub const PUSHED: u8 = 71;
    pub const SNAPPED: u8 = 72;
    pub const NUMBERS: u8 = 73;
}

/// What an administrator asks for; COUNTED answers it with JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Command {
    Models,
    Delete { model: String },
}

/// What a PULLED frame holds.
pub(crate) mod pulled {
    pub const EMPTY: u8 = 0;
    pub const WAITING: u8 = 1;
    pub const VECTOR: u8 = 2;
    pub const UNCHANGED: u8 = 3;
    pub const SNAPSHOT: u8 = 4;
}

/// What a PUSHED frame says; a refusal is its reason's code.
pub(crate) mod pushed {
    pub const TAKEN: u8 = 0;
    pub const REPEATED: u8 = 255;
}

/// A frame in the making.
#[derive(Debug)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    pub fn new(kind: u8) -> Self {
        Self { bytes: vec![0, 0, 0, 0, kind] }
    }

    pub fn u8(mut self, value: u8) -> Self {
        self.bytes.push(value);
        self
    }

    pub fn u16(mut self, value: u16) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    pub fn stamp(self, stamp: Stamp) -> Self {
        self.u64(stamp.epoch).u64(stamp.step).u64(stamp.version)
    }

    /// Appends at most 255 bytes of text.
    pub fn name(mut self, text: &str) -> Self {
        let text = &text.as_bytes()[..text.len().min(255)];
        self.bytes.push(text.len() as u8);
        self.bytes.extend(text);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    /// The buffer, for writing a vector at the end.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// With its length in front.
    pub fn finish(mut self) -> Vec<u8> {
        let length = (self.bytes.len() - 4) as u32;
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        self.bytes
    }
}

/// The body of a frame that is being read. `None`: it is too short.
pub(crate) struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    pub fn raw(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn f32(&mut self) -> Option<f32> {
        self.u32().map(f32::from_bits)
    }

    pub fn stamp(&mut self) -> Option<Stamp> {
        Some(Stamp { epoch: self.u64()?, step: self.u64()?, version: self.u64()? })
    }

    pub fn name(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        std::str::from_utf8(self.raw(usize::from(length))?).ok()
    }

    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// The reason for which no frame arrived.
#[derive(Debug)]
pub(crate) enum NoFrame {
    /// The stream or its connection ended.
    Ended(String),
    /// The peer announced a frame longer than any that is due.
    TooLong(usize),
}

impl std::fmt::Display for NoFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(reason) => f.write_str(reason),
            Self::TooLong(length) => write!(f, "a frame of {length} bytes is longer than any that is due"),
        }
    }
}

/// The length of the next frame, at least 1 and at most `longest`.
pub(crate) async fn read_length(stream: &mut quinn::RecvStream, longest: usize) -> Result<usize, NoFrame> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.map_err(|error| NoFrame::Ended(error.to_string()))?;
    let length = u32::from_le_bytes(length) as usize;
    if (1..=longest).contains(&length) { Ok(length) } else { Err(NoFrame::TooLong(length)) }
}

/// Kind and body of a frame of `length` bytes, into `buffer`.
pub(crate) async fn read_body(
    stream: &mut quinn::RecvStream,
    length: usize,
    buffer: &mut Vec<u8>,
) -> Result<u8, NoFrame> {
    buffer.clear();
    // Memory is taken as bytes come, not as they are announced.
    while buffer.len() < length {
        let chunk = stream.read_chunk(length - buffer.len(), true).await;
        match chunk.map_err(|error| NoFrame::Ended(error.to_string()))? {
            Some(chunk) => buffer.extend_from_slice(&chunk.bytes),
            None => return Err(NoFrame::Ended("the stream ended within a frame".to_owned())),
        }
    }
    Ok(buffer[0])
}

/// Both.
pub(crate) async fn read_frame(
    stream: &mut quinn::RecvStream,
    longest: usize,
    buffer: &mut Vec<u8>,
) -> Result<u8, NoFrame> {
    let length = read_length(stream, longest).await?;
    read_body(stream, length, buffer).await
}

/// Whether a name may be one of a job or model: it is also one of a folder.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let stamp = Stamp { epoch: 1, step: 2, version: 3 };
        let bytes =
            Frame::new(kind::PUSH).u16(7).name("x").f32(1.5).stamp(stamp).u64(9).raw(&[1, 2]).finish();
        assert_eq!(bytes[..5], [(bytes.len() - 4) as u8, 0, 0, 0, kind::PUSH]);
        let mut body = Body(&bytes[5..]);
        assert_eq!(body.u16(), Some(7));
        assert_eq!(body.name(), Some("x"));
        assert_eq!(body.f32(), Some(1.5));
        assert_eq!(body.stamp(), Some(stamp));
        assert_eq!(body.u64(), Some(9));
        assert_eq!(body.end(), None);
        assert_eq!(body.raw(2).unwrap(), [1, 2]);
        assert_eq!(body.end(), Some(()));
        assert_eq!(body.u8(), None);
    }

    #[test]
    fn names_are_those_of_folders() {
        for good in ["a", "train-1", "Model_2.b"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
