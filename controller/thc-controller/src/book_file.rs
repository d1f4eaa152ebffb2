//! The file that jobs are kept in, and who may write it: one controller at a time, the one that holds the lock beside it.
//! The kernel takes the lock from a process that ends, however it ends, so a second controller of the same file
//! goes on at once and never writes beside the first.

use crate::error::ControllerError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Of the file as it is written here. Those before 2 know of no members that come and go, and are read as they are.
const FORMAT: u32 = 2;
/// The first one that was.
const FIRST_FORMAT: u32 = 1;

/// What is in the file: JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    format: u32,
    /// Goes up by one with every change, whoever makes it.
    version: u64,
    /// SHA-256 of `content`, in hexadecimal digits.
    checksum: String,
    content: String,
}

/// The file. Without a path there is none: everything is forgotten in the end, and may be changed.
#[derive(Debug, Default)]
pub struct BookFile {
    path: Option<PathBuf>,
    /// As it was read or written here last.
    version: u64,
    /// Held by the one who may write.
    lock: Option<File>,
}

fn checksum(content: &str) -> String {
    Sha256::digest(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl BookFile {
    /// At this path, not read yet.
    #[must_use]
    pub fn new(path: Option<&Path>) -> BookFile {
        BookFile { path: path.map(Path::to_owned), ..BookFile::default() }
    }

    /// Whether what is here may be changed.
    #[must_use]
    pub fn is_writer(&self) -> bool {
        self.path.is_none() || self.lock.is_some()
    }

    /// Whether there is one at all.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Why it may not be written, if so.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`].
    pub fn may_write(&self) -> Result<(), ControllerError> {
        match &self.path {
            Some(path) if !self.is_writer() => {
                Err(ControllerError::StandsBy { path: path.clone(), writer: self.writer() })
            }
            _ => Ok(()),
        }
    }

    /// Becomes the one who may write, unless somebody else is: true if it is now. What was read before may be old then.
    ///
    /// # Errors
    /// [`ControllerError::State`]: the lock's file cannot be made.
    pub fn take(&mut self) -> Result<bool, ControllerError> {
        if self.is_writer() {
            return Ok(true);
        }
        let Some(path) = self.lock_path() else { return Ok(true) };
        let failed = |error: std::io::Error| self.broken(format!("{}: {error}", path.display()));
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // For the others, who cannot ask the kernel; nothing depends on it.
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = format!("process {} on {}", std::process::id(), host.trim());
        file.set_len(0).and_then(|()| file.write_all(name.as_bytes())).map_err(failed)?;
        self.lock = Some(file);
        Ok(true)
    }

    /// Who may write, as that controller says.
    #[must_use]
    pub fn writer(&self) -> String {
        let mut name = String::new();
        let file = self.lock_path().and_then(|path| File::open(path).ok());
        // It is for people to read: bounded, whatever the file has become.
        let read = file.map(|file| file.take(300).read_to_string(&mut name));
        match read {
            Some(Ok(1..)) => name,
            _ => "another controller".to_owned(),
        }
    }

    fn lock_path(&self) -> Option<PathBuf> {
        let mut path = self.path.clone()?.into_os_string();
        path.push(".lock");
        Some(path.into())
    }

    fn broken(&self, message: String) -> ControllerError {
        ControllerError::State { path: self.path.clone().unwrap_or_default(), message }
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// [`ControllerError::Read`]; [`ControllerError::State`]: it is not ours, or was changed.
    pub fn read<T: DeserializeOwned + Default>(&mut self) -> Result<T, ControllerError> {
        let Some(kept) = self.kept()? else { return Ok(T::default()) };
        let book = serde_json::from_str(&kept.content).map_err(|error| self.broken(error.to_string()))?;
        self.version = kept.version;
        Ok(book)
    }

    fn kept(&self) -> Result<Option<Kept>, ControllerError> {
        let Some(path) = &self.path else { return Ok(None) };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(ControllerError::Read { path: path.clone(), cause }),
        };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|error| self.broken(format!("{error}; no file of this version of thc-controller")))?;
        if !(FIRST_FORMAT..=FORMAT).contains(&kept.format) {
            return Err(self.broken(format!(
                "its format is {}, this thc-controller knows those up to {FORMAT}: run the one that wrote it, or name another file and create the jobs anew",
                kept.format
            )));
        }
        if kept.checksum != checksum(&kept.content) {
            let text = "its checksum is wrong: it was damaged, or changed by hand";
            return Err(self.broken(text.to_owned()));
        }
        Ok(Some(kept))
    }

    /// Writes the file: whole or not at all, lasting when this returns, readable by nobody else, since cookies are in it.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`]: another controller may write, not this one. [`ControllerError::State`]: it cannot be
    /// written, or somebody else has written it although the lock is here.
    pub fn write<T: Serialize>(&mut self, book: &T) -> Result<(), ControllerError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        self.may_write()?;
        if let Some(there) = self.kept()?.map(|kept| kept.version)
            && there != self.version
        {
            return Err(self.broken(format!(
                "somebody else has written it: it is of version {there}, not {}; let one program at a time write it",
                self.version
            )));
        }
        let content = serde_json::to_string(book).map_err(|error| self.broken(error.to_string()))?;
        let version = self.version + 1;
        let kept = Kept { format: FORMAT, version, checksum: checksum(&content), content };
        let text = serde_json::to_vec(&kept).map_err(|error| self.broken(error.to_string()))?;
        replace(&path, &text).map_err(|error| self.broken(error.to_string()))?;
        self.version = version;
        Ok(())
    }
}

fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The name, too, outlasts a loss of power.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn open(path: &Path) -> BookFile {
        BookFile::new(Some(path))
    }

    #[test]
    fn one_writes_and_the_next_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut first = open(&path);
        assert!(first.take().unwrap());
        assert_eq!(first.read::<Vec<u32>>().unwrap(), [0; 0]);
        first.write(&vec![1]).unwrap();
        let mut second = open(&path);
        assert!(!second.take().unwrap());
        assert_eq!(second.read::<Vec<u32>>().unwrap(), [1]);
        let error = second.write(&vec![2]).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        first.write(&vec![1, 3]).unwrap();
        drop(first);
        assert!(second.take().unwrap());
        // What it read before is old.
        let error = second.write(&vec![2]).unwrap_err().to_string();
        assert!(error.contains("version 2, not 1"), "{error}");
        assert_eq!(second.read::<Vec<u32>>().unwrap(), [1, 3]);
        second.write(&vec![1, 3, 4]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut store = open(&path);
        store.take().unwrap();
        store.write(&vec![17]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (damaged, said) in [
            (text.replace("17", "18"), "checksum"),
            (
                text.replace("\"format\":2", "\"format\":3"),
                "format is 3, this thc-controller knows those up to 2: run",
            ),
            ("{".to_owned(), "EOF"),
            ("{\"jobs\": {}}".to_owned(), "no file of this version"),
        ] {
            assert_ne!(damaged, text);
            fs::write(&path, damaged).unwrap();
            let error = open(&path).read::<Vec<u32>>().unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("state"), "{error}");
        }
        // One of the format before is read, and written in this one.
        fs::write(&path, text.replace("\"format\":2", "\"format\":1")).unwrap();
        assert_eq!(store.read::<Vec<u32>>().unwrap(), [17]);
        store.write(&vec![17]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"format\":2"));
    }

    #[test]
    fn without_a_path_all_may_be_changed() {
        let mut store = BookFile::new(None);
        assert!(store.is_writer() && store.take().unwrap());
        store.write(&vec![1]).unwrap();
        assert_eq!(store.read::<Vec<u32>>().unwrap(), [0; 0]);
    }
}
