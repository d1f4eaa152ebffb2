//! Who is in which session, who put what into which of its all-reduces, and what must come out of it.

use super::jobs::Job;
use super::process::Process;
use crate::mean::{Input, Numbers, Output};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thc_protocol::session::Sizes;
use thc_protocol::wire::Mode;
use thc_protocol::{Cookie, JobId};

/// For how long a WELCOME to a session that is over may be under way.
const LATE: Duration = Duration::from_secs(5);

struct Session {
    numbers: Numbers,
    first_call: u64,
    /// Nonces of its members, by number.
    members: Vec<u64>,
    /// What its all-reduces give, by their number in it.
    outputs: BTreeMap<u64, Output>,
    /// When the job's next one began.
    over: Option<Duration>,
}

/// What a process has put in.
#[derive(Default)]
struct Contributions {
    /// By session, how many calls the process had finished before it.
    before: BTreeMap<u32, u64>,
    /// By number of the call among all that it ever made; with the program's place, which is the same on all members, if it makes one
    /// there.
    inputs: BTreeMap<u64, (Option<u64>, Mode, Input)>,
}

/// All jobs' sessions.
#[derive(Default)]
pub struct Book {
    sizes: BTreeMap<u16, Arc<Sizes>>,
    /// The number of the first call of each job's sessions.
    first_calls: BTreeMap<u16, u64>,
    sessions: BTreeMap<u32, Session>,
    /// Of each job the session that has begun last.
    last: BTreeMap<u16, u32>,
    contributions: BTreeMap<u64, Contributions>,
    /// Sessions that have begun.
    pub begun: u64,
    /// All-reduces that have ended well, results of these on single workers, and all-reduces that failed as they had to.
    pub complete: u64,
    pub results: u64,
    pub failed: u64,
}

impl Book {
    pub fn add(&mut self, job: &Job) {
        self.sizes.insert(job.number.0, job.configured.sizes.clone().unwrap());
        self.first_calls.insert(job.number.0, job.counts.call);
    }

    /// The first server has begun a session, or resumed one.
    pub fn begins(&mut self, now: Duration, cookie: Cookie, job: JobId, members: Vec<u64>) {
        let (_, welcome) = self.sizes[&job.0].size(members.len() as u8).unwrap();
        self.begun += 1;
        let before = self.last.insert(job.0, cookie.0).and_then(|before| self.sessions.get_mut(&before));
        if let Some(before) = before {
            before.over = Some(now);
        }
        let new = || Session {
            numbers: Numbers::new(welcome),
            first_call: self.first_calls[&job.0],
            members: members.clone(),
            outputs: BTreeMap::new(),
            over: None,
        };
        let session = self.sessions.entry(cookie.0).or_insert_with(new);
        assert_eq!(session.members, members, "a session goes on with other members");
        session.over = None;
    }

    /// A process is in a session from now on, after so many calls of its own.
    pub fn enters(&mut self, nonce: u64, cookie: Cookie, finished: u64) {
        let session = self.sessions.get(&cookie.0).expect("a session that the server has begun");
        assert!(session.members.contains(&nonce), "it was let into a session of others");
        self.contributions.entry(nonce).or_default().before.insert(cookie.0, finished);
    }

    pub fn note_submit(&mut self, nonce: u64, call: u64, place: Option<u64>, mode: Mode, input: Input) {
        self.contributions.entry(nonce).or_default().inputs.insert(call, (place, mode, input));
    }

    /// A process has finished a call of its own in a session: what it must have got, and its number there.
    pub fn output(&mut self, nonce: u64, cookie: Cookie, call: u64) -> (&Output, usize, bool) {
        let Book { sessions, contributions, .. } = self;
        let session = sessions.get_mut(&cookie.0).expect("it entered it");
        let index = call - contributions[&nonce].before[&cookie.0];
        let new = !session.outputs.contains_key(&index);
        if new {
            let put = |member: &u64| {
                let theirs = contributions.get(member)?;
                theirs.inputs.get(&(theirs.before.get(&cookie.0)? + index)).cloned()
            };
            let all: Option<Vec<(Option<u64>, Mode, Input)>> = session.members.iter().map(put).collect();
            let all = all.unwrap_or_else(|| panic!("call {index} of {cookie:?} ended without all"));
            let (place, mode, _) = all[0];
            assert!(all.iter().all(|(_, other, _)| *other == mode), "different calls went together");
            // Whatever the calls are like: each member's own count says which it was, and the program's place whether that is so.
            let places: Vec<Option<u64>> = all.iter().map(|(place, ..)| *place).collect();
            assert!(places.iter().all(|other| *other == place), "call {index} of {cookie:?} at {places:?}");
            let inputs: Vec<Input> = all.into_iter().map(|(.., input)| input).collect();
            session.outputs.insert(index, session.numbers.output(session.first_call + index, mode, &inputs));
        }
        let number = session.members.iter().position(|member| *member == nonce).expect("a member");
        (&session.outputs[&index], number, new)
    }

    /// Forgets what nobody can ask for any more.
    pub fn keep<'a>(&mut self, now: Duration, living: impl Iterator<Item = &'a Process>) {
        let living: Vec<(u64, Option<Cookie>, u64)> =
            living.map(|process| (process.nonce, process.session(), process.finished)).collect();
        let inhabited = |cookie: u32| living.iter().any(|(_, session, _)| *session == Some(Cookie(cookie)));
        let lives = |nonce: &u64| living.iter().any(|(living, ..)| living == nonce);
        // Who is in none may yet be welcomed to one that has begun, or to one that is over, by a WELCOME that comes late.
        let known = |session: &Session| session.over.is_none_or(|at| now < at + LATE);
        self.sessions.retain(|&cookie, session| inhabited(cookie) || known(session));
        let needed: Vec<u64> = self.sessions.values().flat_map(|session| session.members.clone()).collect();
        self.contributions.retain(|nonce, _| needed.contains(nonce) || lives(nonce));
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        for (&cookie, session) in &mut self.sessions {
            let of = |nonce: &u64| self.contributions.get(nonce)?.before.get(&cookie).copied();
            let here = living.iter().filter(|(_, in_session, _)| *in_session == Some(Cookie(cookie)));
            let least =
                here.filter_map(|(nonce, _, finished)| Some(finished - of(nonce)?)).min().unwrap_or(0);
            session.outputs.retain(|&index, _| index >= least);
            for member in &session.members {
                let needs = of(member).map_or(0, |before| before + least);
                first.entry(*member).and_modify(|first| *first = needs.min(*first)).or_insert(needs);
            }
        }
        for (nonce, theirs) in &mut self.contributions {
            theirs.before.retain(|cookie, _| self.sessions.contains_key(cookie));
            let first = first.get(nonce).copied().unwrap_or(0);
            theirs.inputs.retain(|&call, _| call >= first);
        }
    }
}
