//! What can go wrong.

use p4runtime_proto::p4info::P4InfoError;
use std::path::PathBuf;

/// The error that a key cannot have this value, with what it may be.
pub(crate) fn value(key: &str, value: impl ToString, mend: &str) -> ControllerError {
    ControllerError::Value { key: key.to_owned(), value: value.to_string(), mend: mend.to_owned() }
}

/// An error of the controller.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The configuration is no TOML of ours.
    #[error("configuration, line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that cannot be.
    #[error("{key} = {value}: {mend}")]
    Value {
        /// The key.
        key: String,
        /// What it says.
        value: String,
        /// What to do.
        mend: String,
    },
    /// A job that cannot be.
    #[error(transparent)]
    Job(#[from] thc_config::job::ConfigError),
    /// The P4Info is unusable.
    #[error(transparent)]
    P4Info(#[from] P4InfoError),
    /// A target has no room for a lookup table of this number.
    #[error(
        "target {target}: it has room for {room} lookup tables and table {table} is one more; delete tables, and install that one anew"
    )]
    Room {
        /// Its name.
        target: String,
        /// The table's id.
        table: u8,
        /// How many there may be.
        room: u8,
    },
    /// A target does not answer.
    #[error("target {target}: cannot connect to {address}: {message}; {mend}")]
    Connect {
        /// Its name.
        target: String,
        /// Its address.
        address: String,
        /// Why.
        message: String,
        /// What to do.
        mend: &'static str,
    },
    /// Another controller has the state file.
    #[error("{owner} has the state file {}: one controller at a time; stop that one, or ask it", path.display())]
    StateInUse {
        /// The file.
        path: PathBuf,
        /// The controller that has it.
        owner: String,
    },
    /// The state file cannot be written, or its lock.
    #[error(
        "the state file {} cannot be written: {message}; sessions go on, and the change is tried again: see to the disk", path.display()
    )]
    StateFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        message: String,
    },
    /// The disk does not answer.
    #[error(
        "the state file {} cannot be written: the disk has not answered for {}; sessions go on: see to the disk", path.display(),
        humantime::format_duration(*patience)
    )]
    StateSlow {
        /// The file.
        path: PathBuf,
        /// The time that was waited.
        patience: std::time::Duration,
    },
    /// The state file has jobs on a target that the configuration does not have.
    #[error(
        "the state file {} has job {job} on target {target}, which the configuration lacks: give the target its name again, or delete the job before the target goes", path.display()
    )]
    StateOfOthers {
        /// The file.
        path: PathBuf,
        /// One of the jobs.
        job: String,
        /// Its target.
        target: String,
    },
    /// A target holds sessions that the state file does not know.
    #[error(
        "target {target}: it holds sessions of jobs that the state file does not have (numbers {}), and they are left as they are: start with the state file that has them, or with --drop-unknown to end them",
        jobs.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    )]
    UnknownSessions {
        /// Its name.
        target: String,
        /// The numbers of these jobs.
        jobs: Vec<u16>,
    },
    /// A target is another controller's.
    #[error("target {target}: {why}")]
    NotPrimary {
        /// Its name.
        target: String,
        /// The other controller.
        why: String,
    },
    /// The connection ended.
    #[error("target {target}: it closed the connection{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Closed {
        /// Its name.
        target: String,
        /// Its reason, if it gave one.
        message: String,
    },
    /// A target does not answer in time.
    #[error(
        "target {target}: {request}: no answer within {}; restart what hangs there, or give it a longer patience",
        humantime::format_duration(*patience)
    )]
    Silent {
        /// Its name.
        target: String,
        /// What was asked.
        request: &'static str,
        /// How long it was waited for.
        patience: std::time::Duration,
    },
    /// A target has another program than the one to load, and sessions that would be lost with it.
    #[error(
        "target {target}: it has another program than its device_config, with other tables: {}",
        if jobs.is_empty() {
            "run the controller with --replace-program to load that, which empties the target".to_owned()
        } else {
            format!("loading that ends the sessions of {}; it is loaded when they are over, or when these jobs are deleted", jobs.join(", "))
        }
    )]
    OtherProgram {
        /// Its name.
        target: String,
        /// Jobs with a session there.
        jobs: Vec<String>,
    },
    /// A target has another program than the controller's P4Info describes.
    #[error(
        "target {target}: its program has other tables than the P4Info that the controller has for it: give that program's p4info, or load the program that belongs to this version"
    )]
    OtherTables {
        /// Its name.
        target: String,
    },
    /// A request failed.
    #[error("target {target}: {request} failed: {message}")]
    Request {
        /// Its name.
        target: String,
        /// What was asked.
        request: &'static str,
        /// What it says, update by update where it does.
        message: String,
    },
    /// The state file is damaged.
    #[error("{}: {message}; restore it from a copy, or move it away to begin without jobs", path.display())]
    StateDamaged {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A port that others have, or that is none of this machine's.
    #[error("cannot listen on {address}: {message}; give another address or end what listens there")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why.
        message: String,
    },
    /// A certificate or key is unusable.
    #[error("certificates of {what}: {message}")]
    Tls {
        /// What the file is for.
        what: String,
        /// Why.
        message: String,
    },
    /// A target is not there at the moment.
    #[error("target {target} is not connected: {message}; it is tried again each second")]
    Away {
        /// Its name.
        target: String,
        /// What went wrong last.
        message: String,
    },
}

impl ControllerError {
    /// What is wrong with a text that should be TOML of ours.
    pub(crate) fn syntax(text: &str, error: &toml::de::Error) -> ControllerError {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
        ControllerError::Syntax { line, message: error.message().replace('\n', " ") }
    }
}

/// The text of an error down to its innermost cause, since the outer ones say little more than that something
/// failed.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // Some repeat what caused them, and tonic's outermost says nothing.
        if message.is_empty() || message == "transport error" {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Whether an error contains an I/O error of such a kind, at any depth.
#[must_use]
pub fn has_io(
    error: &(dyn std::error::Error + 'static),
    wanted: impl Fn(std::io::ErrorKind) -> bool,
) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| wanted(error.kind())) {
            return true;
        }
        cause = error.source();
    }
    false
}
