//! Tells systemd that a service is ready, is alive, or stops (sd_notify(3), sd_watchdog_enabled(3)).

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where systemd listens, if it has started this process.
#[derive(Debug)]
pub struct Notify {
    to: Option<OsString>,
    /// How often it wants to hear that this process is alive.
    pub alive: Option<Duration>,
}

impl Notify {
    /// The notifier that the environment names.
    #[must_use]
    pub fn from_environment() -> Notify {
        let microseconds = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok().filter(|n| *n > 0);
        // The variables are inherited: what is meant for a parent is not for this process.
        let own = std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        let limit = microseconds("WATCHDOG_USEC").filter(|_| own);
        Notify {
            to: std::env::var_os("NOTIFY_SOCKET"),
            alive: limit.map(|limit| Duration::from_micros(limit / 2)),
        }
    }

    /// Sends a message, if anybody listens. A lost message matters only for systemd's own time-outs.
    pub fn say(&self, what: &str) {
        let Some(to) = &self.to else { return };
        let name = to.as_bytes();
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(to),
        };
        let said = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to_addr(what.as_bytes(), &address)
        });
        if let Err(error) = said {
            tracing::debug!("systemd does not hear {what:?}: {error}");
        }
    }
}
