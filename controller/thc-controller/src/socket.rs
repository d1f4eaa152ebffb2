//! The controller's socket on its own machine: everybody who may write to the file may do everything.

use crate::error::ControllerError;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Its owner and its group.
const MODE: u32 = 0o660;
/// As a service of the machine.
const OF_MACHINE: &str = "/run/thc-controller/controller.sock";
/// Its name in the folder that a service manager has made for it.
const NAME: &str = "controller.sock";
/// Its name in a user's folder of such things.
const OF_USER: &str = "thc-controller.sock";

fn user_socket() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|folder| !folder.is_empty())
        .map(|f| PathBuf::from(f).join(OF_USER))
}

/// The default path: in the folder that systemd has made for the service, or in that of the user's session.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    // Several folders are separated by colons (systemd.exec(5)).
    let of_service = std::env::var("RUNTIME_DIRECTORY").ok();
    let of_service =
        of_service.as_deref().and_then(|folders| folders.split(':').find(|folder| !folder.is_empty()));
    of_service.map(|folder| Path::new(folder).join(NAME)).or_else(user_socket)
}

/// Where commands look for one, the nearest first.
#[must_use]
pub fn known_paths() -> Vec<PathBuf> {
    user_socket().into_iter().chain([PathBuf::from(OF_MACHINE)]).collect()
}

/// A socket that is this controller's until it ends.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Socket {
    /// Listens there. Replaces the socket of a killed controller, but not one on which somebody answers.
    ///
    /// # Errors
    /// [`ControllerError::Socket`].
    pub fn bind(path: &Path) -> Result<(Socket, UnixListener), ControllerError> {
        let failed = |message: String| ControllerError::Socket { path: path.to_owned(), message };
        match UnixStream::connect(path) {
            Ok(_) => return Err(failed("another controller listens there".to_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
        if std::fs::symlink_metadata(path).is_ok_and(|found| {
            use std::os::unix::fs::FileTypeExt;
            !found.file_type().is_socket()
        }) {
            return Err(failed("something else is there, which is not a socket".to_owned()));
        }
        // Under its own name nobody finds it before it has its permissions, and what is there is replaced at once.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = path.with_file_name(name);
        let _ = std::fs::remove_file(&new);
        let bound = UnixListener::bind(&new).and_then(|listener| {
            std::fs::set_permissions(&new, Permissions::from_mode(MODE))?;
            std::fs::rename(&new, path)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok((Socket { path: path.to_owned() }, listener)),
            Err(error) => {
                let _ = std::fs::remove_file(&new);
                Err(failed(error.to_string()))
            }
        }
    }
}
