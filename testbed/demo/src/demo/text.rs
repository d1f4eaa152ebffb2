//! The training text, which may be any bytes. A vocabulary numbers the bytes that occur.

use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};

/// The share of a text that is not used for training and measures what was learned.
const HELD_OUT: usize = 10;

/// The shortest text that has a meaningful training part and held-out part.
pub const SHORTEST: usize = 2048;

/// A batch of a character model: `contexts` has `batch × context` characters row by row, and
/// `targets` the character that follows each row.
pub struct Batch {
    /// Characters as vocabulary numbers, `targets.len() × context`.
    pub contexts: Vec<u32>,
    /// The next character of each row.
    pub targets: Vec<u32>,
}

/// A text as vocabulary numbers, split into a training part and a held-out tail.
pub struct Text {
    characters: Vec<u32>,
    training: usize,
    /// The number of different characters.
    pub vocabulary: usize,
}

impl Text {
    /// Reads `path` as bytes, without decoding them.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| {
            Error::Failure(format!(
                "cannot read the text {}: {error} (choose another file with --text)",
                path.display()
            ))
        })?;
        Self::from_bytes(&bytes, path.to_owned())
    }

    fn from_bytes(bytes: &[u8], path: PathBuf) -> Result<Self> {
        if bytes.len() < SHORTEST {
            return Err(Error::Failure(format!(
                "the text {} has {} bytes, at least {SHORTEST} are needed (choose a longer file with --text)",
                path.display(),
                bytes.len()
            )));
        }
        let mut number = [u32::MAX; 256];
        for &byte in bytes {
            number[usize::from(byte)] = 0;
        }
        let mut vocabulary = 0;
        for entry in number.iter_mut().filter(|entry| **entry == 0) {
            *entry = vocabulary;
            vocabulary += 1;
        }
        if vocabulary < 2 {
            return Err(Error::Failure(format!(
                "the text {} repeats a single byte, there is nothing to learn (choose another file with --text)",
                path.display()
            )));
        }
        Ok(Self {
            characters: bytes.iter().map(|&b| number[usize::from(b)]).collect(),
            training: bytes.len() - bytes.len() / HELD_OUT,
            vocabulary: vocabulary as usize,
        })
    }

    /// The length in characters of both parts together.
    pub fn len(&self) -> usize {
        self.characters.len()
    }

    /// Whether the text has no characters, which is false for every text that [`Text::read`] returns.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    fn gather(&self, ends: impl Iterator<Item = usize>, context: usize) -> Batch {
        let mut contexts = Vec::new();
        let mut targets = Vec::new();
        for end in ends {
            contexts.extend_from_slice(&self.characters[end - context..end]);
            targets.push(self.characters[end]);
        }
        Batch { contexts, targets }
    }

    /// The batch of `worker` in `step`, from random positions of the training part. It depends only on
    /// the arguments, so that every run of the same seed has the same batches.
    pub fn batch(&self, seed: u64, step: u32, worker: u8, batch: usize, context: usize) -> Batch {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(u64::from(step) << 8 | u64::from(worker));
        let training = self.training;
        self.gather((0..batch).map(|_| random.random_range(context..training)), context)
    }

    /// A batch of at most `most` evenly spread positions of the held-out part.
    pub fn held_out(&self, most: usize, context: usize) -> Batch {
        let first = self.training.max(context);
        let stride = (self.len() - first).div_ceil(most).max(1);
        self.gather((first..self.len()).step_by(stride), context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text() -> Text {
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * i % 251) as u8).collect();
        Text::from_bytes(&bytes, PathBuf::from("memory")).unwrap()
    }

    #[test]
    fn targets_follow_their_contexts() {
        let text = text();
        let batch = text.batch(1, 2, 3, 50, 5);
        assert_eq!(batch.contexts.len(), 250);
        for (context, &target) in batch.contexts.chunks(5).zip(&batch.targets) {
            let mut row = context.to_vec();
            row.push(target);
            assert!(text.characters[..text.training].windows(6).any(|w| w == row));
        }
    }

    #[test]
    fn batches_depend_on_seed_step_and_worker_only() {
        let text = text();
        let of = |seed, step, worker| text.batch(seed, step, worker, 16, 4).contexts;
        assert_eq!(of(1, 2, 3), of(1, 2, 3));
        for other in [of(2, 2, 3), of(1, 3, 3), of(1, 2, 2)] {
            assert_ne!(of(1, 2, 3), other);
        }
    }

    #[test]
    fn the_held_out_part_is_never_trained_on() {
        let text = text();
        let held = text.held_out(1000, 4);
        assert_eq!(held.targets.len(), 400);
        assert_eq!(held.targets, text.characters[3600..]);
    }

    #[test]
    fn short_and_monotone_texts_are_refused() {
        let refuse = |bytes: &[u8]| Text::from_bytes(bytes, PathBuf::from("t")).err().unwrap().to_string();
        assert!(refuse(b"abc").starts_with("the text t has 3 bytes, at least "));
        assert!(refuse(&[7; 5000]).starts_with("the text t repeats a single byte"));
    }
}
