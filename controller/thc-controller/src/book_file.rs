//! The file in which jobs are kept. Only one controller at a time may write it, the one that holds the lock
//! beside it. The kernel releases the lock when a process ends, however it ends, so a second controller of
//! the same file takes over at once and never writes at the same time as the first. A controller that finds
//! that it has lost the lock steps down.

use crate::error::ControllerError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The format in which the file is written. Earlier formats can be read.
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

/// The file. Without a path there is none: jobs may be changed, and are forgotten when the controller ends.
///
/// Methods that read or write the disk may take long, above all on a shared folder: do not call them on
/// threads that serve others.
#[derive(Debug)]
pub struct BookFile {
    path: Option<PathBuf>,
    disk: Mutex<Disk>,
    standing: Mutex<Standing>,
    tickets: AtomicU64,
}

impl Default for BookFile {
    fn default() -> BookFile {
        BookFile::new(None)
    }
}

/// What is known of the disk. Locked for as long as the disk takes.
#[derive(Debug, Default)]
struct Disk {
    /// The version of the file that was last read or written here.
    version: u64,
    /// What was written here last.
    content: Option<String>,
    /// The ticket of that.
    written: u64,
    /// Held by the one who may write.
    lock: Option<File>,
}

/// Whether this controller may write. Locked for a moment only.
#[derive(Debug)]
enum Standing {
    Writes,
    /// Another one does, as it says itself.
    StandsBy(String),
}

/// What a book was at a moment, to be written.
#[derive(Debug)]
pub struct Content {
    ticket: u64,
    text: String,
}

fn checksum(content: &str) -> String {
    Sha256::digest(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nobody panics while holding one of these, and if somebody did, the data would be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}

impl BookFile {
    /// The file at this path, not read yet.
    #[must_use]
    pub fn new(path: Option<&Path>) -> BookFile {
        let standing = match path {
            None => Standing::Writes,
            Some(_) => Standing::StandsBy("another controller".to_owned()),
        };
        BookFile {
            path: path.map(Path::to_owned),
            disk: Mutex::default(),
            standing: Mutex::new(standing),
            tickets: AtomicU64::new(0),
        }
    }

    /// Whether what is here may be changed.
    #[must_use]
    pub fn is_writer(&self) -> bool {
        matches!(*lock(&self.standing), Standing::Writes)
    }

    /// Whether there is one at all.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Checks whether it may be written, without using the disk.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`].
    pub fn may_write(&self) -> Result<(), ControllerError> {
        match (&self.path, &*lock(&self.standing)) {
            (Some(path), Standing::StandsBy(writer)) => {
                Err(ControllerError::StandsBy { path: path.clone(), writer: writer.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Becomes the writer unless another controller is; returns whether it is now. What was read before may
    /// then be old.
    ///
    /// # Errors
    /// [`ControllerError::State`]: the lock's file cannot be made.
    pub fn take(&self) -> Result<bool, ControllerError> {
        let Some(path) = self.lock_path() else { return Ok(true) };
        let mut disk = lock(&self.disk);
        if disk.lock.is_some() {
            return Ok(true);
        }
        let failed = |error: std::io::Error| self.damage(format!("{}: {error}", path.display()));
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                *lock(&self.standing) = Standing::StandsBy(self.writer());
                return Ok(false);
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // For the others, who cannot ask the kernel, and to see whether the lock's file is still this one's.
        file.set_len(0).and_then(|()| file.write_all(own_name().as_bytes())).map_err(failed)?;
        *disk = Disk { lock: Some(file), ..Disk::default() };
        *lock(&self.standing) = Standing::Writes;
        Ok(true)
    }

    /// Whether this controller still has the lock that it took. A shared folder may have given the lock to
    /// another, or its file may have been removed; then this controller steps down.
    #[must_use]
    pub fn keeps(&self) -> bool {
        let Some(path) = self.lock_path() else { return true };
        let mut disk = lock(&self.disk);
        let Some(held) = &disk.lock else { return false };
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let there = held.metadata().ok().zip(fs::metadata(&path).ok()).is_some_and(|(a, b)| same(&a, &b));
        let keeps = there && self.writer() == own_name();
        if !keeps {
            self.step_down(&mut disk);
        }
        keeps
    }

    fn step_down(&self, disk: &mut Disk) {
        disk.lock = None;
        *lock(&self.standing) = Standing::StandsBy(self.writer());
    }

    /// Who may write, as that controller says.
    fn writer(&self) -> String {
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

    fn damage(&self, message: String) -> ControllerError {
        ControllerError::State { path: self.path.clone().unwrap_or_default(), message }
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// [`ControllerError::Read`]; [`ControllerError::State`]: it is not a controller's file, or was changed.
    pub fn read<T: DeserializeOwned + Default>(&self) -> Result<T, ControllerError> {
        let mut disk = lock(&self.disk);
        let Some(kept) = self.read_kept()? else { return Ok(T::default()) };
        let book = serde_json::from_str(&kept.content).map_err(|error| self.damage(error.to_string()))?;
        // One of an older format is written anew, whatever is in it.
        (disk.version, disk.content) = (kept.version, Some(kept.content).filter(|_| kept.format == FORMAT));
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
        if !(FIRST_FORMAT..=FORMAT).contains(&kept.format) {
            return Err(self.damage(format!(
                "its format is {}, this thc-controller knows those up to {FORMAT}: run the one that wrote it, or name another file and create the jobs anew",
                kept.format
            )));
        }
        if kept.checksum != checksum(&kept.content) {
            let text = "its checksum is wrong: it was damaged, or changed by hand";
            return Err(self.damage(text.to_owned()));
        }
        Ok(Some(kept))
    }

    /// One that is there.
    ///
    /// # Errors
    /// [`ControllerError::Read`]: it is not.
    pub fn open_existing(path: &Path) -> Result<BookFile, ControllerError> {
        fs::metadata(path).map_err(|cause| ControllerError::Read { path: path.to_owned(), cause })?;
        Ok(BookFile::new(Some(path)))
    }

    /// Writes a book here, in place of whatever is there, in this format if one is given. It does not check
    /// whether this controller may.
    ///
    /// # Errors
    /// [`ControllerError::State`]: it cannot be written, or there is no such format.
    pub fn write_as<T: Serialize>(&self, book: &T, format: Option<u32>) -> Result<(), ControllerError> {
        let Some(path) = &self.path else { return Ok(()) };
        let format = format.unwrap_or(FORMAT);
        if !(FIRST_FORMAT..=FORMAT).contains(&format) {
            return Err(self.damage(format!("there is no format {format}: give {FIRST_FORMAT} to {FORMAT}")));
        }
        let Content { text: content, .. } = self.content(book)?;
        // Whoever has read an older one finds that this is another.
        let version = self.read_kept().ok().flatten().map_or(0, |kept| kept.version) + 1;
        let kept = Kept { format, version, checksum: checksum(&content), content };
        let text = serde_json::to_vec(&kept).map_err(|error| self.damage(error.to_string()))?;
        replace(path, &text).map_err(|error| self.damage(error.to_string()))
    }

    /// Writes a book in place of whatever is there.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`]: another controller may write, not this one. [`ControllerError::State`]: it cannot be written.
    pub fn overwrite<T: Serialize>(&self, book: &T) -> Result<(), ControllerError> {
        self.may_write()?;
        self.write_as(book, None)
    }

    /// The present content of a book, to be written later, without using the disk. Of several contents the
    /// last one counts, in whatever order they are written.
    ///
    /// # Errors
    /// [`ControllerError::State`]: it is not JSON.
    pub fn content<T: Serialize>(&self, book: &T) -> Result<Content, ControllerError> {
        let text = serde_json::to_string(book).map_err(|error| self.damage(error.to_string()))?;
        Ok(Content { ticket: self.tickets.fetch_add(1, Ordering::Relaxed) + 1, text })
    }

    /// Writes the file: completely or not at all, durably, and readable by nobody else, since it has cookies.
    /// Content that is there already is not written again.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`]: another controller may write, not this one. [`ControllerError::State`]: it cannot be
    /// written, or another has written it although this controller had the lock; then this one steps down.
    pub fn write(&self, content: Content) -> Result<(), ControllerError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let mut disk = lock(&self.disk);
        self.may_write()?;
        let Content { ticket, text: content } = content;
        if ticket < disk.written || disk.content.as_ref() == Some(&content) {
            return Ok(());
        }
        if let Some(there) = self.read_kept()?.map(|kept| kept.version)
            && there != disk.version
        {
            let was = disk.version;
            self.step_down(&mut disk);
            return Err(self.damage(format!(
                "somebody else has written it: it is of version {there}, not {was}; let one program at a time write it"
            )));
        }
        let version = disk.version + 1;
        let kept = Kept { format: FORMAT, version, checksum: checksum(&content), content };
        let text = serde_json::to_vec(&kept).map_err(|error| self.damage(error.to_string()))?;
        replace(&path, &text).map_err(|error| self.damage(error.to_string()))?;
        (disk.version, disk.written, disk.content) = (version, ticket, Some(kept.content));
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

    fn write(file: &BookFile, book: &[u32]) -> Result<(), ControllerError> {
        file.write(file.content(&book)?)
    }

    #[test]
    fn one_writes_and_the_next_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = open(&path);
        assert!(first.take().unwrap());
        assert_eq!(first.read::<Vec<u32>>().unwrap(), [0; 0]);
        write(&first, &[1]).unwrap();
        let second = open(&path);
        assert!(!second.take().unwrap());
        assert_eq!(second.read::<Vec<u32>>().unwrap(), [1]);
        let error = write(&second, &[2]).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        write(&first, &[1, 3]).unwrap();
        drop(first);
        assert!(second.take().unwrap());
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
        write(&store, &[17]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"format\":2"));
    }

    /// Whoever has lost the lock notices, steps down, and has it again when it is free.
    #[test]
    fn who_has_lost_the_lock_steps_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (first, second) = (open(&path), open(&path));
        assert!(first.take().unwrap() && first.keeps());
        write(&first, &[1]).unwrap();
        // As a shared folder does whose server gives the lock to another: here, its file is another one.
        fs::remove_file(folder.path().join("state.lock")).unwrap();
        assert!(second.take().unwrap());
        assert_eq!(second.read::<Vec<u32>>().unwrap(), [1]);
        assert!(!first.keeps() && !first.is_writer());
        assert!(matches!(write(&first, &[2]), Err(ControllerError::StandsBy { .. })));
        drop(second);
        assert!(first.take().unwrap() && first.keeps());
    }

    #[test]
    fn who_finds_that_somebody_else_has_written_steps_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = open(&path);
        assert!(first.take().unwrap());
        write(&first, &[1]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"version\":1", "\"version\":7")).unwrap();
        let error = write(&first, &[2]).unwrap_err().to_string();
        assert!(error.contains("version 7, not 1"), "{error}");
        assert!(!first.is_writer() && first.take().unwrap());
        assert_eq!(first.read::<Vec<u32>>().unwrap(), [1]);
        write(&first, &[3]).unwrap();
    }

    #[test]
    fn what_is_newer_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("state"));
        assert!(file.take().unwrap());
        let (older, newer) = (file.content(&[1]).unwrap(), file.content(&[2]).unwrap());
        file.write(newer).unwrap();
        file.write(older).unwrap();
        assert_eq!(file.read::<Vec<u32>>().unwrap(), [2]);
    }

    #[test]
    fn without_a_path_all_may_be_changed() {
        let store = BookFile::new(None);
        assert!(store.is_writer() && store.take().unwrap());
        write(&store, &[1]).unwrap();
        assert_eq!(store.read::<Vec<u32>>().unwrap(), [0; 0]);
    }
}
