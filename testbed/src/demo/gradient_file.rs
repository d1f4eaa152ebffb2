//! Gradients on disk: one-dimensional `.npy` files of little-endian f32.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// The file of `worker`'s own gradient in `step`.
pub fn own(folder: &Path, step: u32, worker: u8) -> PathBuf {
    folder.join(format!("step-{step:06}-worker-{worker}.npy"))
}

/// The file of the averaged gradient that was applied in `step`.
pub fn applied(folder: &Path, step: u32) -> PathBuf {
    folder.join(format!("step-{step:06}-applied.npy"))
}

/// The file of the mean of the same gradients compressed without error feedback.
pub fn alone(folder: &Path, step: u32) -> PathBuf {
    folder.join(format!("step-{step:06}-without-feedback.npy"))
}

/// Writes `values` as NumPy would.
pub fn write(path: &Path, values: &[f32]) -> Result<()> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    // The data starts at a multiple of 64 bytes, the header ends with a line feed.
    let unpadded = MAGIC.len() + 2 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut bytes = Vec::with_capacity(unpadded + 64 + 4 * values.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    let failed = |source| Error::File { path: path.to_owned(), source };
    let mut file = std::fs::File::create(path).map_err(failed)?;
    file.write_all(&bytes).map_err(failed)
}

/// Reads what [`write`] wrote.
pub fn read(path: &Path) -> Result<Vec<f32>> {
    let bytes = std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let data = bytes
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.split_first_chunk::<2>())
        .and_then(|(length, rest)| rest.get(usize::from(u16::from_le_bytes(*length))..))
        .filter(|data| data.len() % 4 == 0)
        .ok_or_else(|| Error::NotAGradient { path: path.to_owned() })?;
    Ok(data.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0, 1, 1000, 12345] {
            let path = own(folder.path(), 3, 1);
            let values: Vec<f32> = (0..length).map(|i| i as f32 * 0.1 - 7.0).collect();
            write(&path, &values).unwrap();
            assert_eq!(read(&path).unwrap(), values);
            let size = std::fs::metadata(&path).unwrap().len() as usize;
            assert_eq!((size - 4 * values.len()) % 64, 0);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for bytes in [&b"plain text, no array"[..], b"\x93NUMPY\x01\x00\xff\xff{}"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(read(&path), Err(Error::NotAGradient { .. })));
        }
    }
}
