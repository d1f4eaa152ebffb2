//! A worker process that says each all-reduce it has finished (`thc-worker --each`).

use crate::{Finished, Host, command};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// An all-reduce that a worker has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When that was read.
    pub at: Instant,
    /// Its number since the worker, or its session, began.
    pub number: usize,
    /// A checksum of the mean's bits.
    pub checksum: String,
}

/// A worker that is followed; it is ended with its value.
#[derive(Debug)]
pub struct Followed {
    child: Child,
    steps: Receiver<Step>,
    /// What it printed besides, once it has ended.
    out: Receiver<String>,
    errors: Receiver<String>,
}

impl Followed {
    /// Starts a worker with these flags, on a host or on this machine itself.
    #[must_use]
    pub fn start(host: Option<&Host>, flags: &[String]) -> Followed {
        let mut command = command(host, "thc-worker");
        command.args(flags).args(["--each", "--json"]).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, steps) = mpsc::channel();
        let (rest, out_rest) = mpsc::channel();
        std::thread::spawn(move || {
            let mut report = String::new();
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let at = Instant::now();
                let fields: Value = serde_json::from_str(&line).unwrap_or_default();
                // The report at the end has no such key.
                let Some(number) = fields["all_reduce"].as_u64() else {
                    report += &line;
                    continue;
                };
                let checksum = fields["checksum"].as_str().unwrap_or_default().to_owned();
                let _ = sender.send(Step { at, number: number as usize, checksum });
            }
            let _ = rest.send(report);
        });
        let (sender, errors) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        Followed { child, steps, out: out_rest, errors }
    }

    /// What it has finished since this was last asked.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.try_iter().collect()
    }

    /// Its end, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// What it wrote to stderr; waits for its end.
    #[must_use]
    pub fn errors(&self) -> String {
        self.errors.recv().unwrap_or_default()
    }

    /// Waits for its end.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let code = self.child.wait().unwrap().code();
        Finished { code, out: self.out.recv().unwrap_or_default(), err: self.errors() }
    }

    /// Waits until it has finished an all-reduce, or has ended.
    pub fn until_first_step(&self) {
        let _ = self.steps.recv();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.kill();
    }
}
