//! The file in which jobs are kept. Only one controller at a time may write it, the one that holds the lock
//! beside it. The kernel releases the lock when a process ends, however it ends, so a controller that is
//! started anew has the file at once. A second controller is refused.

use crate::error::ControllerError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The format of the file.
const FORMAT: u32 = 1;

/// The content of the file: JSON.
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

/// The file. Without a path there is none: jobs may be changed, and are forgotten when the controller ends.
///
/// Methods that read or write the disk may take long, above all on a shared folder: do not call them on
/// threads that serve others.
#[derive(Debug, Default)]
pub struct BookFile {
    path: Option<PathBuf>,
    disk: Mutex<Disk>,
    tickets: AtomicU64,
}

/// The state of the disk, as far as it is known. Locked for as long as the disk takes.
#[derive(Debug, Default)]
struct Disk {
    /// The version of the file that was last read or written here.
    version: u64,
    /// The content that was written here last.
    content: Option<String>,
    /// The ticket of that content.
    written: u64,
    /// The locked file beside the state file, once this controller has it.
    lock: Option<File>,
}

/// The content of a book at a moment, to be written.
#[derive(Debug)]
pub struct Content {
    ticket: u64,
    text: String,
}

fn checksum(content: &str) -> String {
    Sha256::digest(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// No thread panics while it holds one of these, and if one did, the data would be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

impl BookFile {
    /// The file at this path, not read yet.
    #[must_use]
    pub fn new(path: Option<&Path>) -> BookFile {
        BookFile { path: path.map(Path::to_owned), ..BookFile::default() }
    }

    /// The path of the file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Takes the lock, and keeps it until this is dropped.
    ///
    /// # Errors
    /// [`ControllerError::StateInUse`]: another controller has it. [`ControllerError::StateFile`]: the lock's
    /// file cannot be made.
    pub fn take(&self) -> Result<(), ControllerError> {
        let Some(path) = self.path.as_deref().map(|path| beside(path, ".lock")) else { return Ok(()) };
        let mut disk = lock(&self.disk);
        if disk.lock.is_some() {
            return Ok(());
        }
        let failed = |cause: std::io::Error| ControllerError::StateFile {
            path: path.clone(),
            message: cause.to_string(),
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // The text is for people to read: bounded, whatever the file has become.
                let mut owner = String::new();
                let read = file.take(300).read_to_string(&mut owner);
                let owner = if matches!(read, Ok(1..)) { owner } else { "another controller".to_owned() };
                return Err(ControllerError::StateInUse {
                    path: self.path.clone().unwrap_or_default(),
                    owner,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| file.write_all(own_name().as_bytes())).map_err(failed)?;
        *disk = Disk { lock: Some(file), ..Disk::default() };
        Ok(())
    }

    fn damage(&self, message: String) -> ControllerError {
        ControllerError::StateDamaged { path: self.path.clone().unwrap_or_default(), message }
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// [`ControllerError::Read`]; [`ControllerError::StateDamaged`]: it is not a controller's file, or was
    /// changed.
    pub fn read<T: DeserializeOwned + Default>(&self) -> Result<T, ControllerError> {
        let mut disk = lock(&self.disk);
        let Some(kept) = self.read_kept()? else { return Ok(T::default()) };
        let book = serde_json::from_str(&kept.content).map_err(|error| self.damage(error.to_string()))?;
        (disk.version, disk.content) = (kept.version, Some(kept.content));
        Ok(book)
    }

    fn read_kept(&self) -> Result<Option<Kept>, ControllerError> {
        let Some(path) = &self.path else { return Ok(None) };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(ControllerError::Read { path: path.clone(), cause }),
        };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|error| self.damage(format!("{error}; no file of this version of thc-controller")))?;
        if kept.format != FORMAT {
            let format = kept.format;
            return Err(self.damage(format!("its format is {format}, this thc-controller knows {FORMAT}")));
        }
        if kept.checksum != checksum(&kept.content) {
            let text = "its checksum is wrong: it was damaged, or changed by hand";
            return Err(self.damage(text.to_owned()));
        }
        Ok(Some(kept))
    }

    /// The present content of a book, to be written later, without using the disk. Of several contents the
    /// last one counts, in whatever order they are written.
    ///
    /// # Errors
    /// [`ControllerError::StateFile`]: it is not JSON.
    pub fn content<T: Serialize>(&self, book: &T) -> Result<Content, ControllerError> {
        let text = serde_json::to_string(book).map_err(|error| self.failure(&error))?;
        Ok(Content { ticket: self.tickets.fetch_add(1, Ordering::Relaxed) + 1, text })
    }

    fn failure(&self, cause: &dyn std::fmt::Display) -> ControllerError {
        ControllerError::StateFile { path: self.path.clone().unwrap_or_default(), message: cause.to_string() }
    }

    /// Writes the file: completely or not at all, durably, and readable by its owner alone, since it has
    /// cookies. Content that is there already is not written again.
    ///
    /// # Errors
    /// [`ControllerError::StateFile`]: it cannot be written, or another program has written it although this
    /// controller has the lock.
    pub fn write(&self, content: Content) -> Result<(), ControllerError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let mut disk = lock(&self.disk);
        let Content { ticket, text: content } = content;
        if ticket < disk.written || disk.content.as_ref() == Some(&content) {
            return Ok(());
        }
        let there = self.read_kept()?.map_or(0, |kept| kept.version);
        if there != disk.version {
            let was = disk.version;
            return Err(self.failure(&format!(
                "another program has written or removed it: it is of version {there}, not {was}; let one program at a time write it, and start this controller anew"
            )));
        }
        let version = disk.version + 1;
        let kept = Kept { format: FORMAT, version, checksum: checksum(&content), content };
        let text = serde_json::to_vec(&kept).map_err(|error| self.failure(&error))?;
        replace(&path, &text).map_err(|error| self.failure(&error))?;
        (disk.version, disk.written, disk.content) = (version, ticket, Some(kept.content));
        Ok(())
    }
}

/// The name of the new file does not change, so neither does an error that names it.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = beside(path, ".new");
    if let Err(error) = fs::remove_file(&new)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name, too, outlasts a loss of power.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path) -> BookFile {
        BookFile::new(Some(path))
    }

    fn write(file: &BookFile, book: &[u32]) -> Result<(), ControllerError> {
        file.write(file.content(&book)?)
    }

    #[test]
    fn a_second_one_is_refused_and_the_next_goes_on_where_the_first_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/state");
        let first = open(&path);
        first.take().unwrap();
        assert_eq!(first.read::<Vec<u32>>().unwrap(), [0; 0]);
        write(&first, &[1]).unwrap();
        let second = open(&path);
        let error = second.take().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        write(&first, &[1, 3]).unwrap();
        drop(first);
        second.take().unwrap();
        assert_eq!(second.read::<Vec<u32>>().unwrap(), [1, 3]);
        write(&second, &[1, 3, 4]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let store = open(&path);
        store.take().unwrap();
        write(&store, &[17]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (damaged, said) in [
            (text.replace("17", "18"), "checksum"),
            (text.replace("\"format\":1", "\"format\":3"), "format is 3, this thc-controller knows 1"),
            ("{".to_owned(), "EOF"),
            ("{\"jobs\": {}}".to_owned(), "no file of this version"),
        ] {
            assert_ne!(damaged, text);
            fs::write(&path, damaged).unwrap();
            let error = open(&path).read::<Vec<u32>>().unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("state"), "{error}");
        }
    }

    /// A file that cannot be written is no damage: nothing advises to move it away.
    #[test]
    fn a_file_that_cannot_be_written_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = open(&path);
        file.take().unwrap();
        write(&file, &[1]).unwrap();
        // In the way of the new file, as a full disk is.
        fs::create_dir(folder.path().join("state.new")).unwrap();
        let errors = [2, 3].map(|value| write(&file, &[value]).unwrap_err().to_string());
        assert_eq!(errors[0], errors[1], "the log gets it once");
        assert!(errors[0].contains("cannot be written") && !errors[0].contains("move it away"), "{errors:?}");
        fs::remove_dir(folder.path().join("state.new")).unwrap();
        write(&file, &[4]).unwrap();
    }

    #[test]
    fn what_another_program_has_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = open(&path);
        first.take().unwrap();
        write(&first, &[1]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"version\":1", "\"version\":7")).unwrap();
        let error = write(&first, &[2]).unwrap_err().to_string();
        assert!(error.contains("version 7, not 1"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = write(&first, &[2]).unwrap_err().to_string();
        assert!(error.contains("version 0, not 1"), "{error}");
    }

    #[test]
    fn what_is_newer_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("state"));
        file.take().unwrap();
        let (older, newer) = (file.content(&[1]).unwrap(), file.content(&[2]).unwrap());
        file.write(newer).unwrap();
        file.write(older).unwrap();
        assert_eq!(file.read::<Vec<u32>>().unwrap(), [2]);
    }

    #[test]
    fn without_a_path_all_may_be_changed() {
        let store = BookFile::new(None);
        store.take().unwrap();
        write(&store, &[1]).unwrap();
        assert_eq!(store.read::<Vec<u32>>().unwrap(), [0; 0]);
    }
}
