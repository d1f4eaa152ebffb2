//! The file in which jobs are kept. Only one controller at a time may write it, the one that holds the lock
//! beside it. The kernel releases the lock when a process ends, however it ends, so a controller that is
//! started anew has the file at once. A second controller is refused.

use crate::error::ControllerError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The format of the file.
const FORMAT: u32 = 1;

/// The part by which files of this format are recognised.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// The content of the file: JSON.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    format: u32,
    store: T,
}

/// The file. Without a path there is none: jobs may be changed, and are forgotten when the controller ends.
///
/// Methods that read or write the disk may take long, above all on a shared folder: do not call them on
/// threads that serve others.
#[derive(Debug, Default)]
pub struct StateFile {
    path: Option<PathBuf>,
    disk: Mutex<Disk>,
}

/// The state of the disk, as far as it is known. Locked for as long as the disk takes.
#[derive(Debug, Default)]
struct Disk {
    /// The content that was written here last.
    content: Option<String>,
    /// The locked file beside the state file, once this controller has it.
    lock: Option<File>,
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

impl StateFile {
    /// The file at this path, not read yet.
    pub fn new(path: Option<&Path>) -> StateFile {
        StateFile { path: path.map(Path::to_owned), ..StateFile::default() }
    }

    /// The path of the file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Takes the lock, and keeps it until this is dropped.
    pub fn take(&self) -> Result<(), ControllerError> {
        let Some(path) = self.path.as_deref().map(|path| beside(path, ".lock")) else { return Ok(()) };
        let mut disk = lock(&self.disk);
        if disk.lock.is_some() {
            return Ok(());
        }
        let failed = |cause: std::io::Error| ControllerError::State {
            message: format!(
                "{} cannot be written: {cause}; name another state file (--state)",
                path.display()
            ),
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
                let path = self.path.as_deref().unwrap_or(Path::new("")).display();
                let message = format!(
                    "{owner} has the state file {path}: one controller at a time; stop that one, or ask it"
                );
                return Err(ControllerError::State { message });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| file.write_all(own_name().as_bytes())).map_err(failed)?;
        *disk = Disk { lock: Some(file), ..Disk::default() };
        Ok(())
    }

    fn damage(&self, message: String) -> ControllerError {
        let path = self.path.as_deref().unwrap_or(Path::new("")).display();
        let message =
            format!("{path}: {message}; restore it from a copy, or move it away to begin without jobs");
        ControllerError::State { message }
    }

    /// Reads the file, if there is one.
    pub fn read<T: DeserializeOwned + Default>(&self) -> Result<T, ControllerError> {
        let Some(path) = &self.path else { return Ok(T::default()) };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
            Err(cause) => return Err(ControllerError::Read { path: path.clone(), cause }),
        };
        let Head { format } = serde_json::from_slice(&text).map_err(|error| {
            self.damage(format!("{error}; not a state file of this version of thc-controller"))
        })?;
        if format != FORMAT {
            return Err(self.damage(format!("its format is {format}, this thc-controller knows {FORMAT}")));
        }
        let kept: Kept<T> = serde_json::from_slice(&text).map_err(|error| self.damage(error.to_string()))?;
        Ok(kept.store)
    }

    /// The content of the file for this store, to be written later, without using the disk.
    pub fn content<T: Serialize>(&self, store: &T) -> Result<String, ControllerError> {
        serde_json::to_string(&Kept { format: FORMAT, store }).map_err(|error| self.failure(&error))
    }

    fn failure(&self, cause: &dyn std::fmt::Display) -> ControllerError {
        ControllerError::StateFile { path: self.path.clone().unwrap_or_default(), message: cause.to_string() }
    }

    /// Writes the file: completely or not at all, durably, and readable by its owner alone, since it has
    /// cookies. Content that is there already is not written again.
    pub fn write(&self, content: String) -> Result<(), ControllerError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut disk = lock(&self.disk);
        if disk.content.as_ref() != Some(&content) {
            replace(path, content.as_bytes()).map_err(|error| self.failure(&error))?;
            disk.content = Some(content);
        }
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

    fn open(path: &Path) -> StateFile {
        StateFile::new(Some(path))
    }

    fn write(file: &StateFile, numbers: &[u32]) -> Result<(), ControllerError> {
        file.write(file.content(&numbers)?)
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
        let file = open(&path);
        file.take().unwrap();
        write(&file, &[17]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (damaged, said) in [
            (text.replace("17", "\"x\""), "invalid type"),
            (text.replace("\"format\":1", "\"format\":3"), "format is 3, this thc-controller knows 1"),
            ("{".to_owned(), "EOF"),
            ("{\"jobs\": {}}".to_owned(), "not a state file of this version"),
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
    fn without_a_path_all_may_be_changed() {
        let file = StateFile::new(None);
        file.take().unwrap();
        write(&file, &[1]).unwrap();
        assert_eq!(file.read::<Vec<u32>>().unwrap(), [0; 0]);
    }
}
