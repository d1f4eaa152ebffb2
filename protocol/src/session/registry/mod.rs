//! The parameter server's side of static jobs: who is here, and when a session begins (P22–P25).

mod joins;

use super::action::Action;
use super::guesses::Guesses;
use super::job::JobState;
use super::present::{Asked, Present};
use super::roster::Roster;
use super::seating::Seating;
use super::static_job::{Sizes, StaticJob};
use super::upper::Upper;
use crate::wire::{Header, Join, Kind, Leave, Position};
use crate::{Cookie, JobId, Round, WorkerId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A member of a session, as kept for [`Registry::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMember {
    /// Its number.
    pub worker: WorkerId,
    /// Its incarnation's.
    pub nonce: u64,
    /// Where it is.
    pub addr: SocketAddr,
    /// Whether it has left.
    pub left: bool,
}

/// All static jobs of a parameter server.
#[derive(Debug, Default)]
pub struct Registry {
    jobs: BTreeMap<JobId, JobState>,
    guesses: Guesses,
}

impl Registry {
    /// A registry of these jobs; a later job replaces an earlier one of the same number.
    #[must_use]
    pub fn new(jobs: impl IntoIterator<Item = StaticJob>) -> Registry {
        let mut registry = Registry::default();
        for job in jobs {
            registry.insert(job);
        }
        registry
    }

    /// The registry of a share that is not the first (P24).
    #[must_use]
    pub fn follower(jobs: impl IntoIterator<Item = StaticJob>) -> Registry {
        let mut registry = Registry::default();
        jobs.into_iter().for_each(|job| registry.insert_share(job));
        registry
    }

    /// Adds a job; one of the same number must have been removed before.
    pub fn insert(&mut self, job: StaticJob) {
        self.put(job, false);
    }

    /// The same for a share that is not the first: workers bring the session along from the first share
    /// (P24).
    pub fn insert_share(&mut self, job: StaticJob) {
        self.put(job, true);
    }

    fn put(&mut self, job: StaticJob, follows: bool) {
        let seating = match (follows, &job.sizes, job.root) {
            (true, ..) => Seating::Follower(Vec::new()),
            (false, Some(_), _) => Seating::Changing(Roster::new()),
            (false, None, Some(root)) => Seating::Rack(Upper::new(root)),
            (false, None, None) => Seating::Fixed,
        };
        let most = usize::from(job.config.workers);
        let present = vec![None; if seating.roster().is_some() { 0 } else { most }];
        let replaced = vec![None; most];
        let state =
            JobState { seating, session: None, present, replaced, ended: None, left: None, job, next: None };
        self.jobs.insert(state.job.config.job, state);
    }

    /// Changes a job whose members come and go (P42); its number and cookie stay. Its times take effect at
    /// once, everything else when the next session begins. If a session runs and all its members have a place
    /// in the changed job, it ends at its next boundary for that (P43). A share that is not the first changes
    /// with the first claim of a session of the changed job.
    pub fn change(&mut self, job: StaticJob) {
        let Some(state) = self.jobs.get_mut(&job.config.job) else { return };
        if let (Some(now), Some(next)) = (&mut state.job.sizes, &job.sizes) {
            let (gone_after, gather) = (next.gone_after, next.gather);
            *now = Arc::new(Sizes { gone_after, gather, ..(**now).clone() });
        }
        state.next = Some(job);
        if state.session.is_none() && state.seating.roster().is_none() {
            state.take_next();
        }
    }

    /// Whether a change waits for the next session.
    #[must_use]
    pub fn changes(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|state| state.next.is_some())
    }

    /// The change is in force: a session of the changed job runs at the first share, which says so.
    pub fn settle(&mut self, job: JobId) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.take_next();
        }
    }

    /// Sets what workers are told from now on that they may have outstanding (P41). Workers of a running
    /// session keep what they were told.
    pub fn set_credit(&mut self, job: JobId, credit: u32) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.job.set_credit(credit);
            state.next.iter_mut().for_each(|next| next.set_credit(credit));
        }
    }

    /// Nobody could be heard until now, so the silence of members says nothing about them (P42).
    pub fn listen_anew(&mut self, now: Duration) {
        self.jobs
            .values_mut()
            .filter_map(|state| state.seating.roster_mut())
            .for_each(|r| r.listen_anew(now));
    }

    /// Removes a job. Its members are told that their session is over; when they join anew, they learn that
    /// there is no such job.
    pub fn remove(&mut self, job: JobId) -> Vec<Action> {
        let Some(state) = self.jobs.remove(&job) else { return Vec::new() };
        let mut actions = Vec::new();
        if let Some(session) = state.session {
            actions.push(Action::Remove(job));
            for (worker, member) in state.members().filter(|(_, member)| !member.left) {
                actions.push(state.refuse_reforming(worker, member.addr, session, WorkerId::NONE));
            }
        }
        actions
    }

    /// The session that a job has: its cookie and members.
    #[must_use]
    pub fn session(&self, job: JobId) -> Option<(Cookie, Vec<SessionMember>)> {
        let state = self.jobs.get(&job)?;
        let members = state.members().map(|(worker, p)| SessionMember {
            worker,
            nonce: p.nonce,
            addr: p.addr,
            left: p.left,
        });
        Some((state.session?, members.collect()))
    }

    /// The number of sessions that a job whose members come and go has had (P42), modulo 2^16; 0 for other
    /// jobs.
    #[must_use]
    pub fn epoch(&self, job: JobId) -> u16 {
        self.jobs.get(&job).and_then(|state| state.seating.roster()).map_or(0, Roster::epoch)
    }

    /// Resumes a session that ran before this registry was made, the `epoch`-th if members come and go. If
    /// there is no such job, or it has no place for some worker, nothing is resumed and workers join anew.
    /// Returns whether it was resumed.
    pub fn restore(
        &mut self,
        now: Duration,
        job: JobId,
        (session, epoch): (Cookie, u16),
        members: &[SessionMember],
    ) -> bool {
        let Some(state) = self.jobs.get_mut(&job) else { return false };
        let known = |member: &SessionMember| Present {
            nonce: member.nonce,
            session: Cookie(0),
            definitions: 0,
            addr: member.addr,
            attempt: Round(0),
            since: now,
            heard: now,
            left: member.left,
            asked: Asked::default(),
        };
        let sizes = state.job.sizes.as_ref();
        let fits = sizes.is_none_or(|sizes| sizes.size(members.len() as u8).is_some());
        if let Some(roster) = state.seating.roster_mut() {
            roster.note_epoch(epoch);
            let within = |member: &SessionMember| member.worker.0 < state.job.config.workers && !member.left;
            if session == Cookie(0) || !fits || !members.iter().all(within) {
                return false;
            }
            roster.restore(members.iter().map(|member| (member.worker, known(member))));
            state.session = Some(session);
            return true;
        }
        let mut present = vec![None; state.present.len()];
        for member in members {
            let Some(place) = present.get_mut(usize::from(member.worker.0)) else { return false };
            *place = Some(known(member));
        }
        let whole = if sizes.is_some() { fits } else { present.iter().all(Option::is_some) };
        if session == Cookie(0) || !whole {
            return false;
        }
        state.present = present;
        state.session = Some(session);
        true
    }

    /// Packets that are due to the roots of the jobs of which this aggregator is a rack (P38), and to members
    /// that come and go (P42). Call it several times a second, and after [`Self::handle`] with the same
    /// `alive` and `random`.
    pub fn poll(
        &mut self,
        now: Duration,
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
        mut random: impl FnMut() -> u32,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (&job, state) in &mut self.jobs {
            actions.extend(state.poll_root(now));
            actions.extend(state.poll_roster(now, |worker| alive(job, worker), &mut random));
        }
        actions
    }

    /// Whether a worker with this address is in a job, waits for one, or is about to bring a session along.
    #[must_use]
    pub fn knows(&self, from: SocketAddr) -> bool {
        self.jobs
            .values()
            .any(|state| state.knows(from) || state.seating.claims().iter().flatten().any(|p| p.addr == from))
    }

    /// Workers present in a job and whether its session runs.
    #[must_use]
    pub fn status(&self, job: JobId) -> Option<(u64, bool)> {
        self.jobs.get(&job).map(|state| (state.joined_workers(), state.session.is_some()))
    }

    /// Takes a control packet. `alive(job, worker)` says how long ago a member's last packet came, if
    /// one did; `random` gives random numbers for session cookies.
    pub fn handle(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: &[u8],
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
        random: impl FnMut() -> u32,
    ) -> Vec<Action> {
        let Ok((header, payload)) = Header::parse(bytes) else { return Vec::new() };
        match header.kind {
            Kind::Position => {
                let state = self.jobs.get_mut(&header.job).filter(|state| state.seating.roster().is_some());
                match (state, Position::parse(payload)) {
                    (Some(state), Some(position)) => {
                        let mut random = random;
                        state.position(now, from, &header, &position, &mut random)
                    }
                    _ => Vec::new(),
                }
            }
            kind if kind.is_control() && !matches!(kind, Kind::Join | Kind::Leave) => {
                let state = self.jobs.get_mut(&header.job);
                state.map_or_else(Vec::new, |state| state.handle_root(now, from, bytes))
            }
            Kind::Join => match Join::parse(payload) {
                Some(join) => self.join(now, from, &header, join, alive, random),
                None => Vec::new(),
            },
            Kind::Leave => match Leave::parse(payload) {
                Some(leave) => self.leave(now, from, &header, leave),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}
