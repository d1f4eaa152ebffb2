//! The processes of a measurement: they are told what to do line by line, and answer in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{Error, Result};

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long one may take to end once it is told nothing more.
const GRACE: Duration = Duration::from_secs(12);
/// How often the user's wish to end is looked for.
const TICK: Duration = Duration::from_millis(50);

struct Member {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    complaint: Arc<Mutex<String>>,
    listener: Option<thread::JoinHandle<()>>,
}

/// Processes that are told the same and answer all. Dropping them ends them.
pub struct Crew {
    members: Vec<Member>,
    interrupted: Arc<AtomicBool>,
}

impl Crew {
    /// Nobody yet.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self { members: Vec::new(), interrupted }
    }

    /// Starts a process and tells it `order`; what it says to that comes with [`Self::answers`].
    pub fn start(&mut self, name: String, command: &mut Command, order: &Value) -> Result<()> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start { name: name.clone(), source })?;
        let (sender, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let complaint = Arc::new(Mutex::new(String::new()));
        let listener = child.stderr.take().map(|stderr| {
            let last = Arc::clone(&complaint);
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
                    if !line.trim().is_empty() {
                        *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
                    }
                }
            })
        });
        let orders = child.stdin.take();
        self.members.push(Member { name, child, orders, answers, complaint, listener });
        let last = self.members.len() - 1;
        self.members[last].tell(&order.to_string())
    }

    /// Tells all the same, and returns their answers in the order in which they were started.
    pub fn ask(&mut self, order: &str) -> Result<Vec<Value>> {
        self.members.iter_mut().try_for_each(|member| member.tell(order))?;
        self.answers()
    }

    /// One answer of each.
    pub fn answers(&mut self) -> Result<Vec<Value>> {
        let until = Instant::now() + PATIENCE;
        self.members.iter_mut().map(|member| member.answer(until, &self.interrupted)).collect()
    }
}

impl Member {
    fn tell(&mut self, order: &str) -> Result<()> {
        let orders = self.orders.as_mut();
        let told = orders.is_some_and(|pipe| writeln!(pipe, "{order}").and_then(|()| pipe.flush()).is_ok());
        if told { Ok(()) } else { Err(self.failure()) }
    }

    fn answer(&mut self, until: Instant, interrupted: &AtomicBool) -> Result<Value> {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            match self.answers.recv_timeout(TICK) {
                Ok(line) => return serde_json::from_str(&line).map_err(Error::Event),
                Err(RecvTimeoutError::Disconnected) => return Err(self.failure()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Stalled { seconds: PATIENCE.as_secs() });
                }
            }
        }
    }

    /// What a process that has ended said last.
    fn failure(&mut self) -> Error {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        // Its last words may come after its end.
        let _ = self.listener.take().map(thread::JoinHandle::join);
        let said = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = if said.is_empty() { status } else { said };
        Error::Failure(format!("{}: {reason}", self.name))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Who is told nothing more leaves.
        self.members.iter_mut().for_each(|member| drop(member.orders.take()));
        let until = Instant::now() + GRACE;
        for member in &mut self.members {
            while matches!(member.child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
