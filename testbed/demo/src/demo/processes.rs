//! The demo's child processes, which the demo starts, reads and always ends.
//!
//! A child is in a process group of its own, so that Ctrl-C reaches only the demo, which then ends
//! its children in order. If the demo itself is killed, the kernel ends the children, because every
//! child requests that before it does anything else ([`tie_to_parent`]).

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{Error, Result};

/// How long a child may take to end on request before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// How long all children may be silent before the demo ends with an error.
const STALL: Duration = Duration::from_secs(90);

/// The number of lines of a child's standard error that are kept.
const KEPT_LINES: usize = 20;

/// Asks the kernel to end this process when its parent ends. Ends it at once if `parent` has ended
/// already.
pub fn tie_to_parent(parent: u32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|errno| Error::Process(errno.into()))?;
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if i64::from(now) != i64::from(parent) {
        return Err(Error::orphaned());
    }
    Ok(())
}

/// An event of a child.
pub enum Message {
    /// The child wrote a line to its standard output.
    Line(String),
    /// The child closed its standard output, so it has ended or is about to end.
    Closed,
}

struct Running {
    name: String,
    child: Child,
    complaints: Arc<Mutex<VecDeque<String>>>,
    ended: Option<ExitStatus>,
}

/// All children of one demo. Dropping the value ends them.
pub struct Children {
    running: Vec<Running>,
    messages: Receiver<(usize, Message)>,
    sender: Sender<(usize, Message)>,
    interrupted: Arc<AtomicBool>,
    stall: Duration,
}

impl Children {
    /// Creates an empty set of children. Waiting for messages ends when `interrupted` becomes true.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        let (sender, messages) = channel();
        Self { running: Vec::new(), messages, sender, interrupted, stall: STALL }
    }

    /// Lets the children be silent for as long as they like.
    #[must_use]
    pub fn without_stall(mut self) -> Self {
        self.stall = Duration::MAX;
        self
    }

    /// Starts a child and returns its number. Messages use `name` for the child.
    pub fn start(&mut self, name: String, command: &mut Command) -> Result<usize> {
        self.spawn(name, command.stdin(Stdio::null()))
    }

    /// Starts a child that reads orders from its standard input.
    pub fn start_with_orders(&mut self, name: String, command: &mut Command) -> Result<usize> {
        self.spawn(name, command.stdin(Stdio::piped()))
    }

    /// Writes a line to a child that reads orders.
    pub fn order(&mut self, number: usize, line: &str) -> Result<()> {
        let pipe = self.running[number].child.stdin.as_mut();
        match pipe.map(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush())) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended(number)),
        }
    }

    fn spawn(&mut self, name: String, command: &mut Command) -> Result<usize> {
        let number = self.running.len();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Start { name: name.clone(), source })?;
        let complaints = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdout) = child.stdout.take() {
            let sender = self.sender.clone();
            thread::spawn(move || {
                for line in lines(stdout) {
                    if sender.send((number, Message::Line(line))).is_err() {
                        return;
                    }
                }
                // The receiver may have been dropped at the end of the demo.
                let _ = sender.send((number, Message::Closed));
            });
        }
        if let Some(stderr) = child.stderr.take() {
            let complaints = Arc::clone(&complaints);
            thread::spawn(move || {
                for line in lines(stderr) {
                    let mut kept = complaints.lock().unwrap_or_else(PoisonError::into_inner);
                    if kept.len() == KEPT_LINES {
                        kept.pop_front();
                    }
                    kept.push_back(line);
                }
            });
        }
        self.running.push(Running { name, child, complaints, ended: None });
        Ok(number)
    }

    /// Returns the next message of any child. Fails if the demo is interrupted, if a child ends with an
    /// error, or if all children have been silent for too long.
    pub fn message(&mut self) -> Result<(usize, Message)> {
        let asked = Instant::now();
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            match self.messages.recv_timeout(Duration::from_millis(50)) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            for number in 0..self.running.len() {
                self.check(number)?;
            }
            if asked.elapsed() > self.stall {
                return Err(Error::Failure(format!(
                    "no process has made progress for {} s",
                    STALL.as_secs()
                )));
            }
        }
    }

    /// Fails if child `number` has ended with an error, or if the demo is interrupted.
    pub fn check(&mut self, number: usize) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let running = &mut self.running[number];
        if running.ended.is_some() {
            return Ok(());
        }
        if let Some(status) = running.child.try_wait().map_err(Error::Process)? {
            running.ended = Some(status);
            if !status.success() {
                return Err(running.failure(status));
            }
        }
        Ok(())
    }

    /// Waits for the end of a child that has closed its output. Fails if the child ends with an error.
    pub fn finish(&mut self, number: usize) -> Result<()> {
        let asked = Instant::now();
        while self.running[number].ended.is_none() {
            self.check(number)?;
            if asked.elapsed() > GRACE {
                let name = &self.running[number].name;
                return Err(Error::Failure(format!(
                    "{name} has finished its work but its process does not end"
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Asks a child to end, and waits for its end. Returns the lines that the child wrote meanwhile. Messages of
    /// other children in that time are lost. Fails if the child had to be killed or ended with an error. A program
    /// that the signal itself ends has not failed.
    pub fn stop(&mut self, number: usize) -> Result<Vec<String>> {
        self.running[number].ask();
        self.running[number].end(Instant::now() + GRACE);
        let mut last = Vec::new();
        while let Ok((from, message)) = self.messages.recv_timeout(GRACE) {
            match message {
                Message::Line(line) if from == number => last.push(line),
                Message::Closed if from == number => break,
                _ => {}
            }
        }
        match self.running[number].ended {
            Some(status) if !status.success() && status.signal() != Some(Signal::TERM.as_raw()) => {
                Err(self.running[number].failure(status))
            }
            _ => Ok(last),
        }
    }

    /// The error of a child that has closed its output too early.
    pub fn ended(&mut self, number: usize) -> Error {
        let silent = Error::Failure(format!("{} ended before its work was done", self.running[number].name));
        self.finish(number).err().unwrap_or(silent)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for running in &mut self.running {
            running.ask();
        }
        let deadline = Instant::now() + GRACE;
        for running in &mut self.running {
            running.end(deadline);
        }
    }
}

impl Running {
    /// Sends SIGTERM unless the child has ended and was waited for.
    fn ask(&mut self) {
        if self.ended.is_none() && matches!(self.child.try_wait(), Ok(None)) {
            // The signal fails if the child has just ended by itself.
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Waits until `deadline`, then kills the child. In both cases its exit status is collected.
    fn end(&mut self, deadline: Instant) {
        while self.ended.is_none() {
            match self.child.try_wait() {
                Ok(Some(status)) => self.ended = Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                Ok(None) | Err(_) => {
                    // Killing fails only if the process has ended.
                    let _ = self.child.kill();
                    self.ended = self.child.wait().ok();
                    return;
                }
            }
        }
    }

    fn failure(&self, status: ExitStatus) -> Error {
        // The child's last lines may still be in the pipe.
        thread::sleep(Duration::from_millis(50));
        let kept = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept.iter().rev().find(|line| !line.trim().is_empty());
        let complaint = last.map_or("it wrote no message", |line| line.trim_start_matches("thc: "));
        Error::Failure(format!("{} ended with {status}: {complaint}", self.name))
    }
}

fn lines(stream: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(stream)
        .split(b'\n')
        .map_while(std::result::Result::ok)
        .map(|line| String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn lines_arrive_and_a_good_end_is_no_error() {
        let mut children = Children::new(Arc::default());
        let number = children.start("talker".into(), &mut shell("echo a; echo b")).unwrap();
        let mut heard = Vec::new();
        while let (from, Message::Line(line)) = children.message().unwrap() {
            assert_eq!(from, number);
            heard.push(line);
        }
        assert_eq!(heard, ["a", "b"]);
        children.finish(number).unwrap();
    }

    #[test]
    fn a_failure_names_the_child_and_its_last_words() {
        let mut children = Children::new(Arc::default());
        let script = "echo 'no such thing' >&2; exit 3";
        let number = children.start("worker 7".into(), &mut shell(script)).unwrap();
        let error = loop {
            match children.message() {
                Ok((_, Message::Closed)) => match children.finish(number) {
                    Err(error) => break error,
                    Ok(()) => panic!("a failure went unseen"),
                },
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        assert!(text.contains("worker 7") && text.contains("no such thing"), "{text}");
    }

    #[test]
    fn dropping_ends_even_those_that_will_not() {
        let mut children = Children::new(Arc::default());
        let stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done";
        children.start("stubborn".into(), &mut shell(stubborn)).unwrap();
        assert!(matches!(children.message().unwrap(), (0, Message::Line(_))));
        children.start("quick".into(), &mut shell("exec sleep 100")).unwrap();
        let pids: Vec<u32> = children.running.iter().map(|r| r.child.id()).collect();
        assert!(pids.iter().all(|&pid| exists(pid)));
        let started = Instant::now();
        drop(children);
        assert!(started.elapsed() < GRACE + Duration::from_secs(60));
        assert!(!pids.iter().any(|&pid| exists(pid)));
    }

    #[test]
    fn an_interrupt_is_noticed_at_once() {
        let flag = Arc::new(AtomicBool::new(false));
        let mut children = Children::new(Arc::clone(&flag));
        children.start("sleeper".into(), &mut shell("exec sleep 100")).unwrap();
        flag.store(true, Ordering::Relaxed);
        assert!(matches!(children.message(), Err(Error::Interrupted)));
    }

    #[test]
    fn stop_returns_what_is_said_at_the_end() {
        let mut children = Children::new(Arc::default());
        let script = "trap 'echo total 5; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let number = children.start("server".into(), &mut shell(script)).unwrap();
        assert!(matches!(children.message().unwrap(), (0, Message::Line(_))));
        assert_eq!(children.stop(number).unwrap(), ["total 5"]);
    }
}
