//! The messages on a stream. The bytes of messages are those of [postcard](https://docs.rs/postcard), the bytes of vectors
//! those of [`crate::payload`].
//!
//! A frame is its length (u32, little endian, of all that follows), a message, and a vector if the message has one. A
//! connection has one stream that begins with [`Request::Hello`], and one for each shard that begins with
//! [`Request::Attach`]. Every request has one answer, in order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counters::Reason;
use crate::shard::{PullAnswer, PushHead, Stamp};
use crate::spec::Spec;

/// Application protocol of the TLS handshake, with the version of the messages.
pub(crate) const ALPN: &[u8] = b"thc-model/5";
/// Longest request that is not a vector.
pub(crate) const SMALL: usize = 4096;
/// Longest request of a stream for the session, whose [`Request::Open`] has the tensors of a model.
pub(crate) const LONGEST_OPEN: usize = 1 << 20;
/// Numbers from here on are those of administrators, who pull and push nothing.
pub(crate) const ADMIN: u16 = 0xFF00;
/// Longest names of jobs and models.
const MAX_NAME: usize = 64;

/// A request of a worker or an administrator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// The first request of a connection.
    Hello {
        worker: u16,
        job: &'a str,
        proof: [u8; 32],
    },
    /// Opens a model, or makes it.
    Open {
        model: &'a str,
        spec: Spec,
    },
    Stats,
    /// Deletes a model, for an administrator.
    Delete {
        model: &'a str,
    },
    /// The first request of a shard's stream.
    Attach {
        model: &'a str,
        shard: u32,
    },
    /// Gives a value to a shard that has none; floats follow.
    Initialise,
    /// Gives the full-batch gradient of an epoch; floats follow.
    Begin {
        epoch: u64,
    },
    /// `held`: the incarnation and the stamp of the last pull; `snapshot`: the epoch of the snapshot that the worker has.
    Pull {
        patient: bool,
        held: Option<(u64, Stamp)>,
        snapshot: Option<u64>,
    },
    /// `incarnation`: that of the pull that it answers; a vector follows.
    Push {
        incarnation: u64,
        head: PushHead,
    },
    /// The numbers of a shard as they are, or those of its snapshot.
    Numbers {
        snapshot: bool,
    },
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Refused {
        reason: Reason,
        text: String,
    },
    /// `incarnation`: the number of this life of the server.
    Welcome {
        incarnation: u64,
        proof: [u8; 32],
    },
    Opened {
        shards: u32,
    },
    /// JSON follows.
    Stats,
    Done,
    /// `sequence`: the number of the worker's last push.
    Attached {
        stamp: Stamp,
        sequence: u64,
    },
    Given {
        taken: bool,
    },
    /// A vector follows [`PullAnswer::Running`].
    Pulled(PullAnswer),
    /// `None`: the push had been taken before.
    Pushed {
        delay: Option<u64>,
    },
    /// Floats follow.
    Numbers {
        stamp: Stamp,
    },
}

/// A frame in the making.
#[derive(Debug)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// A frame of a [`Request`] or an [`Answer`].
    pub fn new(message: &impl Serialize) -> Self {
        let mut bytes = vec![0; 4];
        // Writing into memory does not fail; a frame without a message would be refused.
        bytes.extend(postcard::to_allocvec(message).unwrap_or_default());
        Self(bytes)
    }

    /// The buffer, for writing a vector at the end.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// The bytes, with their length in front.
    pub fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

/// The message of a frame without its length, and the bytes behind it.
pub(crate) fn split<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Option<(T, &'a [u8])> {
    postcard::take_from_bytes(frame).ok()
}

/// The reason for which no frame arrived.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoFrame {
    #[error("{0}")]
    Ended(String),
    #[error("a frame of {0} bytes is longer than any that is due")]
    TooLong(usize),
    #[error("a frame does not end")]
    TooLate,
}

/// Reads a frame of 1 to `longest` bytes into `buffer`, without its length. Once it has begun it must end within `patience`.
pub(crate) async fn read_frame(
    stream: &mut quinn::RecvStream,
    longest: usize,
    patience: Duration,
    buffer: &mut Vec<u8>,
) -> Result<(), NoFrame> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.map_err(|error| NoFrame::Ended(error.to_string()))?;
    let length = u32::from_le_bytes(length) as usize;
    if !(1..=longest).contains(&length) {
        return Err(NoFrame::TooLong(length));
    }
    buffer.clear();
    let body = async {
        // Memory is taken as bytes come, not as they are announced.
        while buffer.len() < length {
            let chunk = stream.read_chunk(length - buffer.len(), true).await;
            match chunk.map_err(|error| NoFrame::Ended(error.to_string()))? {
                Some(chunk) => buffer.extend_from_slice(&chunk.bytes),
                None => return Err(NoFrame::Ended("the stream ended within a frame".to_owned())),
            }
        }
        Ok(())
    };
    tokio::time::timeout(patience, body).await.unwrap_or(Err(NoFrame::TooLate))
}

/// Returns whether a name may be one of a job or model: it is also one of a folder.
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
        let stamp = Stamp { epoch: 1, step: 2, version: 300 };
        let head = PushHead { sequence: 7, stamp, scale: 1.5 };
        let request = Request::Push { incarnation: u64::MAX, head };
        let mut frame = Frame::new(&request);
        frame.tail().extend([1, 2]);
        let bytes = frame.finish();
        assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_le_bytes());
        assert_eq!(split::<Request<'_>>(&bytes[4..]).unwrap(), (request, &[1, 2][..]));
        for cut in 4..bytes.len() - 2 {
            assert!(split::<Request<'_>>(&bytes[4..cut]).is_none());
        }
        let spec = Spec { tensors: vec![(10, 8).into()], ..Spec::sgd(10, 0.1) };
        let request = Request::Open { model: "m", spec };
        let bytes = Frame::new(&request).finish();
        assert_eq!(split::<Request<'_>>(&bytes[4..]).unwrap(), (request, &[][..]));
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
