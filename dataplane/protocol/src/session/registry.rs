//! The parameter server's side of static jobs: who is here, and when a session begins (P22–P25).

use super::action::Action;
use super::claims::Claims;
use super::guesses::Guesses;
use super::job::{JobState, packet, refusal};
use super::peer::{Asked, Peer};
use super::seating::Seating;
use super::static_job::StaticJob;
use super::uplink::Uplink;
use crate::aggregator::Level;
use crate::wire::{Header, Join, Kind, Leave, RefuseReason};
use crate::{Cookie, JobId, Round, WorkerId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A member of a session, as kept for [`Registry::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMember {
    /// Its number.
    pub worker: WorkerId,
    /// Its incarnation's.
    pub nonce: u64,
    /// Its address.
    pub addr: SocketAddr,
    /// True if it has left.
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
    pub fn new(jobs: impl IntoIterator<Item = StaticJob>) -> Registry {
        let mut registry = Registry::default();
        for job in jobs {
            registry.insert(job);
        }
        registry
    }

    /// The registry of a share that is not the first (P24 incarnations).
    pub fn follower(jobs: impl IntoIterator<Item = StaticJob>) -> Registry {
        let mut registry = Registry::default();
        jobs.into_iter().for_each(|job| registry.insert_share(job));
        registry
    }

    /// Adds a job; one of the same number must have been removed before.
    pub fn insert(&mut self, job: StaticJob) {
        self.put(job, false);
    }

    /// Adds a job of a share that is not the first: workers bring the session along from the first share
    /// (P24 incarnations).
    pub fn insert_share(&mut self, job: StaticJob) {
        self.put(job, true);
    }

    fn put(&mut self, job: StaticJob, follows: bool) {
        let seating = match (follows, job.root) {
            (true, _) => Seating::Follower(Claims::default()),
            (false, Some(root)) => Seating::Rack(Uplink::new(root)),
            (false, None) => Seating::Fixed,
        };
        let seats = usize::from(job.config.workers);
        let (peers, replaced) = (vec![None; seats], vec![None; seats]);
        let state = JobState { seating, session: None, peers, replaced, ended: None, left: None, job };
        self.jobs.insert(state.job.config.job, state);
    }

    /// Sets the credit in WELCOMEs from now on (P41 congestion). Workers of a running
    /// session keep the credit that they have.
    pub fn set_credit(&mut self, job: JobId, credit: u32) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.job.welcome.credit = credit;
        }
    }

    /// Removes a job. Its members get REFUSED(re-forming); when they join anew, they learn that
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

    /// Resumes a session that ran before this registry was made. If there is no such job, or some of its seats
    /// would be empty, nothing is resumed and workers join anew. Returns whether it was resumed.
    pub fn restore(&mut self, now: Duration, job: JobId, session: Cookie, members: &[SessionMember]) -> bool {
        let Some(state) = self.jobs.get_mut(&job) else { return false };
        let known = |member: &SessionMember| Peer {
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
        let mut peers = vec![None; state.peers.len()];
        for member in members {
            let Some(place) = peers.get_mut(usize::from(member.worker.0)) else { return false };
            *place = Some(known(member));
        }
        if session == Cookie(0) || !peers.iter().all(Option::is_some) {
            return false;
        }
        state.peers = peers;
        state.session = Some(session);
        true
    }

    /// No program listens at these addresses, as their hosts say. Other members of their sessions are notified (P25 LEAVE).
    /// Call it again as long as hosts say so, and then once without addresses.
    #[must_use]
    pub fn unreachable(&self, addresses: &[SocketAddr]) -> Vec<Action> {
        let mut actions = Vec::new();
        for state in self.jobs.values() {
            let Some(session) = state.session else { continue };
            let at = |member: &Peer| !member.left && addresses.contains(&member.addr);
            let absent = state.members().filter(|(_, member)| at(member));
            let absent = absent.map(|(worker, _)| worker.bit()).sum();
            if absent != 0 || addresses.is_empty() {
                actions.extend(state.absence_notices(session, absent));
            }
        }
        actions
    }

    /// Returns the actions that are due: packets to the roots of the jobs of which this aggregator is a rack (P38), and
    /// sessions that wait for the end of another one at a share that is not the first (P24 incarnations). Call it several
    /// times a second, and after [`Self::handle`] with the same `alive`.
    pub fn poll(
        &mut self,
        now: Duration,
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (&job, state) in &mut self.jobs {
            actions.extend(state.poll_root(now));
            actions.extend(
                state.begin_claimed(now, |worker| alive(job, worker).map(|ago| now.saturating_sub(ago))),
            );
        }
        actions
    }

    /// Returns whether a worker with this address is in a job, waits for one, or is about to bring a session along.
    pub fn knows(&self, from: SocketAddr) -> bool {
        self.jobs.values().any(|state| state.knows(from))
    }

    /// The number of workers of a job.
    pub fn workers(&self, job: JobId) -> Option<u8> {
        Some(self.jobs.get(&job)?.job.config.workers)
    }

    /// The workers that have joined a job and not left it, one bit each, and whether its session runs.
    pub fn status(&self, job: JobId) -> Option<(u64, bool)> {
        let state = self.jobs.get(&job)?;
        let left = state.members().filter(|(_, member)| member.left);
        let left = left.map(|(worker, _)| worker.bit()).sum::<u64>();
        Some((state.joined_workers() & !left, state.session.is_some()))
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

    fn join(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        join: Join,
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
        mut random: impl FnMut() -> u32,
    ) -> Vec<Action> {
        let refuse = |reason| vec![refusal(from, header, reason, header.worker)];
        let state = self.jobs.get_mut(&header.job);
        let known = state.as_ref().is_some_and(|state| state.knows(from));
        if !known && self.guesses.is_exhausted(now, from.ip()) {
            return Vec::new();
        }
        let Some(state) = state else {
            self.guesses.record(now, from.ip());
            return refuse(RefuseReason::UnknownJob);
        };
        if header.cookie != state.job.config.cookie {
            self.guesses.record(now, from.ip());
            return refuse(RefuseReason::WrongCookie);
        }
        if let Some(answer) = state.answer_other_claim(from, header, &join) {
            return vec![answer];
        }
        if usize::from(header.worker.0) >= usize::from(state.job.config.workers) {
            return vec![state.answer_outsider(from, header, &join)];
        }
        let heard = |worker| alive(header.job, worker).map(|ago| now.saturating_sub(ago));
        match &state.seating {
            Seating::Follower(_) => state.follow(now, from, (header, &join), heard),
            Seating::Fixed if join.ends && matches!(state.job.config.level, Level::Root(_)) => {
                state.ended_below(header.worker, from, &join)
            }
            Seating::Fixed | Seating::Rack(_) => {
                state.join_fixed(now, from, (header, &join), || heard(header.worker), &mut random)
            }
        }
    }

    fn leave(&mut self, now: Duration, from: SocketAddr, header: &Header, leave: Leave) -> Vec<Action> {
        let bye =
            |state: &JobState, worker, to| packet(to, &state.header(Kind::Bye, worker, header.cookie), &[]);
        let Some(state) = self.jobs.get_mut(&header.job) else { return Vec::new() };
        let known = |p: &&mut Peer| p.nonce == leave.nonce;
        let place = usize::from(header.worker.0);
        let ask = |state: &JobState| state.ask_leaver(header, from, leave.nonce);
        let Some(member) = state.peers.get_mut(place).and_then(Option::as_mut).filter(known) else {
            // Nothing holds a worker of a session that is over. A session that this server does not know it may have lost.
            let over = state.session.is_some() || state.is_over(header.cookie);
            return vec![if over { bye(state, header.worker, from) } else { ask(state) }];
        };
        // P25 LEAVE: another sender that has seen the nonce knows neither, or cannot send from there.
        if member.addr != from || state.session.is_some_and(|session| session != header.cookie) {
            return Vec::new();
        }
        member.left = true;
        if state.session.is_none() {
            if member.session == header.cookie && header.cookie != Cookie(0) {
                // It claims a session that was lost, for others who may need it there.
                return vec![ask(state)];
            }
            state.peers[place] = None;
            return vec![bye(state, header.worker, from)];
        }
        if state.peers.iter().flatten().any(|p| !p.left) {
            // The server has the sums: as long as it has, others do not need this worker.
            let answer = state.pending_members(header.worker, from, header.cookie, 0);
            return [answer].into_iter().chain(state.absence_notices(header.cookie, 0)).collect();
        }
        if state.leave_root(now) {
            return Vec::new();
        }
        state.close()
    }
}
