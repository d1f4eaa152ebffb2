//! Who put what into which all-reduce, and what must come out of it.

use crate::mean::{Input, Numbers, Output};
use crate::plan::CallPlan;
use std::collections::BTreeMap;
use thc_protocol::Cookie;
use thc_protocol::wire::{Mode, Welcome};

/// One all-reduce of a session.
struct Entry {
    mode: Mode,
    inputs: Vec<Option<Input>>,
    output: Option<Output>,
    /// One bit per worker that has it.
    ended: u64,
}

struct Session {
    numbers: Numbers,
    workers: u8,
    calls: BTreeMap<u64, Entry>,
}

/// All sessions that somebody is in.
#[derive(Default)]
pub struct Ledger {
    sessions: BTreeMap<u32, Session>,
    /// All-reduces that have ended well on all workers.
    pub complete: u64,
    /// The same, one by one worker.
    pub results: u64,
    /// Those that failed on all workers, as they had to.
    pub failed: u64,
}

impl Ledger {
    /// A worker has been welcomed.
    pub fn note_welcome(&mut self, welcome: &Welcome) {
        self.sessions.entry(welcome.session.0).or_insert_with(|| Session {
            numbers: Numbers::new(welcome),
            workers: welcome.workers,
            calls: BTreeMap::new(),
        });
    }

    /// A worker has begun a call.
    pub fn note_submit(&mut self, session: Cookie, call: u64, worker: u8, plan: &CallPlan, input: Input) {
        let session = self.sessions.get_mut(&session.0).expect("its worker was welcomed");
        let workers = usize::from(session.workers);
        let entry = session.calls.entry(call).or_insert_with(|| Entry {
            mode: plan.mode,
            inputs: vec![None; workers],
            output: None,
            ended: 0,
        });
        let before = entry.inputs[usize::from(worker)].replace(input);
        assert!(before.is_none(), "worker {worker} is in call {call} twice");
    }

    /// What comes out of a call, if all have put something in.
    pub fn output(&mut self, session: Cookie, call: u64) -> Option<&Output> {
        let Session { numbers, calls, .. } = self.sessions.get_mut(&session.0)?;
        let entry = calls.get_mut(&call)?;
        if entry.output.is_none() {
            let inputs: Vec<Input> = entry.inputs.iter().cloned().collect::<Option<_>>()?;
            entry.output = Some(numbers.output(call, entry.mode, &inputs));
        }
        entry.output.as_ref()
    }

    /// A call has ended on a worker, as it should.
    pub fn note_end(&mut self, session: Cookie, call: u64, worker: u8, well: bool) {
        let Some(session) = self.sessions.get_mut(&session.0) else { return };
        let Some(entry) = session.calls.get_mut(&call) else { return };
        entry.ended |= 1 << worker;
        self.results += u64::from(well);
        if entry.ended.count_ones() == u32::from(session.workers) {
            session.calls.remove(&call);
            self.complete += u64::from(well);
            self.failed += u64::from(!well);
        }
    }

    /// Forgets sessions that nobody is in.
    pub fn keep(&mut self, inhabited: impl Fn(Cookie) -> bool) {
        self.sessions.retain(|&cookie, _| inhabited(Cookie(cookie)));
    }

    /// Sessions known.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}
