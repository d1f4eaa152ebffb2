//! Gradients on disk: one-dimensional `.npy` files of little-endian f32.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The file of `worker`'s own gradient in `step`.
pub fn worker_path(folder: &Path, step: u32, worker: u8) -> PathBuf {
    folder.join(format!("step-{step:06}-worker-{worker}.npy"))
}

/// The file of the averaged gradient that was applied in `step`.
pub fn applied_path(folder: &Path, step: u32) -> PathBuf {
    folder.join(format!("step-{step:06}-applied.npy"))
}

/// The file of the mean of the same gradients compressed without error feedback.
pub(crate) fn uncorrected_path(folder: &Path, step: u32) -> PathBuf {
    folder.join(format!("step-{step:06}-without-feedback.npy"))
}

/// Writes `values` as NumPy would.
pub fn write(path: &Path, values: &[f32]) -> Result<()> {
    npyz::to_file_1d(path, values.iter().copied())
        .map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Reads what [`write`] wrote.
pub fn read(path: &Path) -> Result<Vec<f32>> {
    let file = File::open(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let not_a_gradient =
        |_| Error::Failure(format!("{} is not a one-dimensional .npy file of f32", path.display()));
    let array = npyz::NpyFile::new(BufReader::new(file)).map_err(not_a_gradient)?;
    array.into_vec().map_err(not_a_gradient)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0, 1, 1000, 12345] {
            let path = worker_path(folder.path(), 3, 1);
            let values: Vec<f32> = (0..length).map(|i| i as f32 * 0.1 - 7.0).collect();
            write(&path, &values).unwrap();
            assert_eq!(read(&path).unwrap(), values);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for bytes in [&b"plain text, no array"[..], b"\x93NUMPY\x01\x00\xff\xff{}", b""] {
            std::fs::write(&path, bytes).unwrap();
            assert!(
                read(&path).unwrap_err().to_string().ends_with("is not a one-dimensional .npy file of f32")
            );
        }
    }
}
