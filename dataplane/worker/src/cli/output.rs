//! The file for the mean: checked before anything is reduced, and replaced as a whole, so that an earlier
//! good one is never cut short.

use super::tensors::{self, FileFormat, Tensor};
use anyhow::{Context, anyhow, ensure};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The mode of the file, before the umask.
const MODE: u32 = 0o644;

/// A place for the mean.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    format: FileFormat,
    /// The file to be replaced, links resolved. `None` for what can only be written into: a pipe, a device.
    file: Option<PathBuf>,
}

impl Output {
    /// Looks whether so many tensors can be written there.
    pub fn check(path: &Path, tensors: usize) -> anyhow::Result<Output> {
        Output::find(path, tensors).with_context(|| format!("cannot write {}", path.display()))
    }

    fn find(path: &Path, tensors: usize) -> anyhow::Result<Output> {
        let format = FileFormat::from_path(path);
        format.takes(tensors)?;
        let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        ensure!(!path.is_dir() && !ends_in_slash, "it is a folder: name a file in it");
        let output = |file| Output { path: path.to_owned(), format, file };
        if path.exists() && !path.is_file() {
            return Ok(output(None));
        }
        let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = folder(&file);
        ensure!(folder.exists(), "there is no folder {}", folder.display());
        ensure!(folder.is_dir(), "{} is not a folder", folder.display());
        // One that may not be written may not be replaced either.
        if file.exists() {
            OpenOptions::new().write(true).open(&file)?;
        }
        temporary(folder)?;
        Ok(output(Some(file)))
    }

    /// Writes tensors: the file has all of them, or is as it was.
    pub fn write(&self, tensors: &[Tensor]) -> anyhow::Result<()> {
        let written = match &self.file {
            None => File::create(&self.path)
                .map_err(Into::into)
                .and_then(|file| fill(self.format, &mut BufWriter::new(file), tensors)),
            Some(file) => self.replace(file, tensors),
        };
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn replace(&self, file: &Path, tensors: &[Tensor]) -> anyhow::Result<()> {
        let mut temporary = temporary(folder(file))?;
        fill(self.format, &mut BufWriter::new(temporary.as_file_mut()), tensors)?;
        // Before the name changes, or a host that fails could leave an empty file.
        temporary.as_file().sync_all()?;
        temporary.persist(file).map_err(|error| error.error)?;
        Ok(())
    }
}

fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn temporary(folder: &Path) -> anyhow::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".thc-worker-").permissions(Permissions::from_mode(MODE));
    builder
        .tempfile_in(folder)
        .map_err(|error| anyhow!("cannot create a file in {}: {error}", folder.display()))
}

fn fill(format: FileFormat, out: &mut impl Write, tensors: &[Tensor]) -> anyhow::Result<()> {
    tensors::write(format, out, tensors)?;
    Ok(out.flush()?)
}
