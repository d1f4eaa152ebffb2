//! A server process that prints `ready …` once it can be asked.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// A running one, which is ended with its value.
#[derive(Debug)]
pub struct Ready {
    child: Child,
    command: Command,
    errors: PathBuf,
    _dir: tempfile::TempDir,
}

impl Ready {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get ready.
    #[must_use]
    pub fn start(mut command: Command) -> Ready {
        let dir = tempfile::tempdir().unwrap();
        let errors = dir.path().join("stderr");
        let child = spawn(&mut command, &errors);
        Ready { child, command, errors, _dir: dir }
    }

    /// SIGKILL, and a new process with the same arguments.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.child = spawn(&mut self.command, &self.errors);
    }

    /// SIGKILL, and a process of another command.
    pub fn kill_and_change(&mut self, command: Command) {
        self.command = command;
        self.kill_and_restart();
    }

    /// SIGKILL without a successor.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it, and those that it succeeded, wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(command: &mut Command, errors: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(errors).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    // It goes on reading, or the process could not go on writing.
    std::thread::spawn(move || {
        let mut line = String::new();
        while out.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line.starts_with("ready") {
                let _ = sender.send(());
            }
            line.clear();
        }
    });
    if receiver.recv_timeout(crate::HANG).is_err() {
        let _ = child.kill();
        let _ = child.wait();
        let log = std::fs::read_to_string(errors).unwrap_or_default();
        panic!("{} did not get ready: {log}", command.get_program().display());
    }
    child
}
