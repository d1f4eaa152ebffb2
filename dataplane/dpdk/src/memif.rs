//! Peculiarities of virtual devices over shared memory.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The driver's name.
pub(crate) const DRIVER: &str = "net_memif";

/// Removes the socket file that a server left behind when it was killed, which would keep the next one from opening. A
/// socket at which somebody listens stays.
pub(crate) fn remove_stale_socket(device: &str) {
    let argument = |name: &str| {
        device
            .split(',')
            .filter_map(|part| part.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let named = argument("socket-abstract") == Some("no");
    let serves = matches!(argument("role"), Some("server" | "master"));
    if let (true, true, true, Some(path)) = (device.starts_with(DRIVER), named, serves, argument("socket")) {
        remove_if_nobody_listens(Path::new(path));
    }
}

fn remove_if_nobody_listens(path: &Path) {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    // A listener of memif's kind refuses this one's with another error.
    let refused =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_socket && refused() && std::fs::remove_file(path).is_ok() {
        tracing::info!("removed {}, the socket of a process that is gone", path.display());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_without_a_listener_go() {
        let folder = std::env::temp_dir().join(format!("thc-memif-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("m.sock");
        let device = |rest: &str| format!("net_memif0,{rest},socket={}", path.display());
        let server = device("role=server,socket-abstract=no");
        let listener = UnixListener::bind(&path).unwrap();
        remove_stale_socket(&server);
        assert!(path.exists(), "somebody listens");
        drop(listener);
        remove_stale_socket(&device("role=client,socket-abstract=no"));
        remove_stale_socket(&device("role=server"));
        assert!(path.exists(), "not a server's file");
        remove_stale_socket(&server);
        assert!(!path.exists());
        std::fs::write(&path, "no socket").unwrap();
        remove_stale_socket(&server);
        assert!(path.exists(), "no socket");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
