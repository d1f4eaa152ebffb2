//! The parameter server's side of static jobs: who is here, and when a session begins (P22–P25).

use super::guesses::Guesses;
use super::job::{JobState, packet};
use super::present::{Asked, Claim, Present};
use super::roster::{Roster, Sizes};
use super::upper::{Root, Upper};
use crate::aggregator::{Endpoint, JobConfig, Level};
use crate::wire::{Change, Header, Join, Kind, Leave, Pending, Position, RefuseReason, Refused, Welcome};
use crate::{Cookie, JobId, Round, WorkerId};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

/// A worker that repeats no JOIN for so long before the session begins is forgotten.
const FORGET: Duration = Duration::from_secs(3);
/// For how long JOINs of a worker's replaced incarnation are taken for packets that were long under way.
/// Not for ever: nonces have no order, and it may be the earlier one that came later.
const STALE: Duration = Duration::from_secs(3);
/// Before the session begins, nobody else can take the number of a worker that has asked so recently.
const ASKING: Duration = Duration::from_secs(1);
/// For how long members that claim a session wait for one whose place has been taken without a claim.
const CLAIMING: Duration = Duration::from_secs(1);

/// A job configured in the PS itself.
#[derive(Clone, Debug)]
pub struct StaticJob {
    /// Shape of the job; `cookie` is the configured one, with which workers join.
    pub config: JobConfig,
    /// What WELCOME says; session and nonce are filled in.
    pub welcome: Welcome,
    /// The root, if this aggregator is a rack of the job (P38).
    pub root: Option<Root>,
    /// What sessions of other sizes are like, if members come and go (P42); `config` and `welcome` are those of the largest.
    pub sizes: Option<Arc<Sizes>>,
}

impl StaticJob {
    fn set_credit(&mut self, credit: u32) {
        self.welcome.credit = credit;
        if let Some(sizes) = &mut self.sizes {
            Arc::make_mut(sizes).shapes.iter_mut().for_each(|(_, welcome)| welcome.credit = credit);
        }
    }
}

/// What has happened to a worker of a job whose members come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It was silent for too long, or another process has its seat.
    Gone,
    /// It has left.
    Left,
    /// It is let into the session.
    Came,
}

/// What the PS must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Install the job with this session's cookie and these members, replacing what it had.
    Install(JobConfig, Vec<(WorkerId, Endpoint)>),
    /// Let a member send from another address.
    Move(JobId, WorkerId, Endpoint),
    /// Remove the job: nobody is in it.
    Remove(JobId),
    /// Send a packet.
    Send(SocketAddrV4, Vec<u8>),
    /// Tell the operator of a rack that its root has another job: how that differs.
    RootDiffers(JobId, Change),
    /// Tell the operator of a rack that its root does not let it in.
    RootRefuses(JobId, RefuseReason),
    /// Tell the operator who has come or gone (P42).
    Tell(JobId, WorkerId, Happening),
}

/// A member of a session, as it is kept to [`Registry::restore`] the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMember {
    /// Its number.
    pub worker: WorkerId,
    /// Its incarnation's.
    pub nonce: u64,
    /// Where it is.
    pub addr: SocketAddrV4,
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
    /// A registry of these jobs; a later one of the same number replaces an earlier.
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

    /// The same of a share that is not the first: workers bring the session along from there (P24).
    pub fn insert_share(&mut self, job: StaticJob) {
        self.put(job, true);
    }

    fn put(&mut self, job: StaticJob, follows: bool) {
        let fixed = job.sizes.is_none() || follows;
        let present = vec![None; if fixed { usize::from(job.config.workers) } else { 0 }];
        let replaced = vec![None; usize::from(job.config.workers)];
        let claims = Vec::new();
        let upper = job.root.map(Upper::new);
        let roster = job.sizes.as_ref().filter(|_| !follows).map(|_| Roster::new());
        let state = JobState {
            follows,
            session: None,
            present,
            claims,
            replaced,
            ended: None,
            left: None,
            job,
            upper,
            roster,
            next: None,
        };
        self.jobs.insert(state.job.config.job, state);
    }

    /// Makes another job of one whose members come and go (P42), of the same number and cookie: its times count at once, all else when
    /// the next session begins. Where one runs and all its members have a place in the changed job, it ends at its next boundary
    /// for that (P43); a share that is not the first changes with the first claim of a session so changed.
    pub fn change(&mut self, job: StaticJob) {
        let Some(state) = self.jobs.get_mut(&job.config.job) else { return };
        if let (Some(now), Some(next)) = (&mut state.job.sizes, &job.sizes) {
            let (gone_after, gather) = (next.gone_after, next.gather);
            *now = Arc::new(Sizes { gone_after, gather, ..(**now).clone() });
        }
        state.next = Some(job);
        if state.session.is_none() && state.roster.is_none() {
            state.take_next();
        }
    }

    /// Whether a change waits for the next session.
    #[must_use]
    pub fn changes(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|state| state.next.is_some())
    }

    /// The change is in force: its session runs at the first share, which knows.
    pub fn settle(&mut self, job: JobId) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.take_next();
        }
    }

    /// What workers are told from now on that they may have outstanding (P41); who goes on keeps what it was told.
    pub fn set_credit(&mut self, job: JobId, credit: u32) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.job.set_credit(credit);
            state.next.iter_mut().for_each(|next| next.set_credit(credit));
        }
    }

    /// Nobody could be heard until now, so that members were silent says nothing of them (P42).
    pub fn listen_anew(&mut self, now: Duration) {
        self.jobs.values_mut().filter_map(|state| state.roster.as_mut()).for_each(|r| r.listen_anew(now));
    }

    /// Takes a job away. Its members are told that their session is over; when they join anew they
    /// hear that there is no such job.
    pub fn remove(&mut self, job: JobId) -> Vec<Action> {
        let Some(state) = self.jobs.remove(&job) else { return Vec::new() };
        let mut actions = Vec::new();
        if let Some(session) = state.session {
            actions.push(Action::Remove(job));
            for (worker, member) in state.members().filter(|(_, member)| !member.left) {
                actions.push(state.reforming(worker, member.addr, session, WorkerId::NONE));
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

    /// Sessions that a job whose members come and go has had (P42), modulo 2^16; 0 of others.
    #[must_use]
    pub fn epoch(&self, job: JobId) -> u16 {
        self.jobs.get(&job).and_then(|state| state.roster.as_ref()).map_or(0, Roster::epoch)
    }

    /// Takes up a session that ran before this registry was made, the `epoch`-th of a job whose members come and go. Without a place
    /// for every worker, or without such a job, nothing is taken up and workers join anew. Whether it was.
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
        let fits = sizes.is_none_or(|sizes| sizes.of(members.len() as u8).is_some());
        if let Some(roster) = &mut state.roster {
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

    /// What is due to the roots of the jobs that this aggregator is a rack of (P38), and to members that come and go (P42). To be
    /// asked some times a second, and after [`Self::handle`], with the same `alive` and `random`.
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

    /// Whether somebody sends from there who is in a job, waits for one, or is about to bring a session along.
    #[must_use]
    pub fn knows(&self, from: SocketAddrV4) -> bool {
        self.jobs
            .values()
            .any(|state| state.knows(from) || state.claims.iter().flatten().any(|p| p.addr == from))
    }

    /// Workers present in a job and whether its session runs.
    #[must_use]
    pub fn status(&self, job: JobId) -> Option<(u64, bool)> {
        self.jobs.get(&job).map(|state| (state.joined(), state.session.is_some()))
    }

    /// Takes a control packet. `alive(job, worker)` says how long ago a member's last packet came, if
    /// one did; `random` gives random numbers for session cookies.
    pub fn handle(
        &mut self,
        now: Duration,
        from: SocketAddrV4,
        bytes: &[u8],
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
        random: impl FnMut() -> u32,
    ) -> Vec<Action> {
        let Ok((header, payload)) = Header::parse(bytes) else { return Vec::new() };
        match header.kind {
            Kind::Position => {
                let state = self.jobs.get_mut(&header.job).filter(|state| state.roster.is_some());
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

    fn join(
        &mut self,
        now: Duration,
        from: SocketAddrV4,
        header: &Header,
        join: Join,
        alive: impl Fn(JobId, WorkerId) -> Option<Duration>,
        mut random: impl FnMut() -> u32,
    ) -> Vec<Action> {
        let refuse_for = |reason, worker| {
            let answer = Header { kind: Kind::Refused, flags: 0, count: 0, num_workers: 0, ..*header };
            vec![packet(from, &answer, &Refused { reason, worker }.to_bytes())]
        };
        let refuse = |reason| refuse_for(reason, header.worker);
        let state = self.jobs.get_mut(&header.job);
        let known = state.as_ref().is_some_and(|state| state.knows(from));
        if !known && self.guesses.exhausted(now, *from.ip()) {
            return Vec::new();
        }
        let Some(state) = state else {
            self.guesses.note(now, *from.ip());
            return refuse(RefuseReason::UnknownJob);
        };
        if header.cookie != state.job.config.cookie {
            self.guesses.note(now, *from.ip());
            return refuse(RefuseReason::WrongCookie);
        }
        let worker = header.worker;
        let place = usize::from(worker.0);
        let claims = join.session != Cookie(0);
        if claims && join.fingerprint != state.welcome_of(header.num_workers).fingerprint() {
            let next = state.next.as_ref().filter(|_| state.follows).and_then(|next| next.sizes.as_deref());
            let next = next.and_then(|sizes| sizes.of(header.num_workers));
            if next.is_some_and(|(_, welcome)| welcome.fingerprint() == join.fingerprint) {
                state.take_next();
            } else if state.follows && state.job.sizes.is_some() && state.session == Some(join.session) {
                // It was let in before the job changed, and hears of that from the first share.
                return Vec::new();
            } else if let Some(welcome) = state.welcome_again(worker, from, join.nonce) {
                return vec![welcome];
            } else {
                return vec![state.description(from, header, &join)];
            }
        }
        if place >= usize::from(state.job.config.workers) {
            if worker != WorkerId::NONE {
                let n = state.job.config.workers;
                let answer = Header { kind: Kind::Refused, flags: 0, count: 0, num_workers: n, ..*header };
                let body = Refused { reason: RefuseReason::WorkerOutOfRange, worker }.to_bytes();
                return vec![packet(from, &answer, &body)];
            }
            return match state.disagrees(worker, join.definitions) {
                Some(other) => refuse_for(RefuseReason::Definitions, other),
                None => vec![state.description(from, header, &join)],
            };
        }
        if state.follows {
            return state.follow(now, from, header, &join);
        }
        if state.roster.is_some() {
            let job = header.job;
            return state.join_roster(now, from, (header, &join), |worker| alive(job, worker), &mut random);
        }
        if join.ends && matches!(state.job.config.level, Level::Root(_)) {
            return state.ended_below(worker, from, &join);
        }
        if state.replaced[place]
            .is_some_and(|(nonce, at)| nonce == join.nonce && now.saturating_sub(at) < STALE)
        {
            return Vec::new();
        }
        let mut actions = Vec::new();
        let mut arrival = Present::arrived(now, from, header, &join);
        if let Some(member) = state.present[place].filter(|member| member.nonce == join.nonce) {
            // A JOIN that was long under way takes nothing back.
            arrival.left = member.left;
            arrival.since = member.since;
            arrival.asked = member.asked;
            if !claims {
                arrival.session = member.session;
            }
        }
        match state.session {
            // A claim to a session that is over, long under way: it must not end the one that runs.
            Some(session) if claims && join.session != session => {
                return vec![state.reforming(worker, from, join.session, WorkerId::NONE)];
            }
            Some(session) => {
                let packets = alive(header.job, worker).map(|ago| now.saturating_sub(ago));
                let same = state.present[place].is_some_and(|member| member.nonce == join.nonce);
                // Nobody else can send from the address of a member that runs.
                let claim = match &mut state.present[place] {
                    Some(member) if member.addr != from => member.claim(now, packets),
                    _ => Claim::Granted,
                };
                if claim != Claim::Granted {
                    // P24: the member is asked before its number, or what is sent to it, goes elsewhere.
                    if let Some(member) = state.present[place].filter(|_| claim == Claim::Ask) {
                        actions.push(state.ask(worker, session, &member));
                    }
                    if !same {
                        actions.extend(refuse(RefuseReason::WorkerInUse));
                    }
                    return actions;
                }
                if same {
                    if state.present[place].is_some_and(|member| member.addr != from) {
                        actions.push(Action::Move(header.job, worker, Endpoint::udp(from)));
                    }
                    state.present[place] = Some(arrival);
                    if let Some(upper) = state.upper.as_mut().filter(|_| claims) {
                        upper.resume(now);
                    }
                    actions.push(state.welcome(worker, session, &arrival));
                    return actions;
                }
                // P24: a new incarnation of this worker ends the session for all.
                state.admit(place, arrival);
                state.end(session, worker);
                if let Some(upper) = &mut state.upper {
                    upper.end(now);
                }
                actions.push(Action::Remove(header.job));
            }
            None => {
                if let Some(ended) =
                    state.ended.as_ref().filter(|ended| claims && ended.session == join.session)
                {
                    return vec![state.reforming(worker, from, ended.session, ended.because_of)];
                }
                for member in &mut state.present {
                    if member.is_some_and(|p| now.saturating_sub(p.heard) > FORGET) {
                        *member = None;
                    }
                }
                if let Some(member) = state.present[place]
                    && member.nonce != join.nonce
                    && member.addr != from
                    && now.saturating_sub(member.heard) < ASKING
                    // Who was in the session that is to go on is no stranger.
                    && (!claims || member.session != Cookie(0))
                {
                    return refuse(RefuseReason::WorkerInUse);
                }
            }
        }
        if let Some(other) = state.disagrees(worker, join.definitions) {
            actions.extend(refuse_for(RefuseReason::Definitions, other));
            return actions;
        }
        state.admit(place, arrival);
        if state.present.iter().any(Option::is_none) {
            let body = Pending { joined: state.joined() }.to_bytes();
            actions.push(packet(from, &state.header(Kind::Pending, worker, header.cookie), &body));
            actions.extend(state.notices(worker));
            return actions;
        }
        let members: Vec<Present> = state.present.iter().flatten().copied().collect();
        let claim = members.iter().map(|m| m.session).find(|&session| session != Cookie(0));
        // With a quorum below n the sums of a slot may differ after a restart, so only a new session is safe.
        let welcome = &state.job.welcome;
        let full = welcome
            .rack
            .map_or(welcome.quorum == state.job.config.workers, |rack| rack.quorum == rack.workers);
        let same = full && claim.is_some_and(|claimed| members.iter().all(|m| m.session == claimed));
        if !same && members.iter().any(|m| m.session != Cookie(0)) {
            // Who has not claimed the session may be a stray in the place of a member that is about to claim it.
            let waited =
                members.iter().filter(|m| m.session != Cookie(0)).map(|m| now.saturating_sub(m.since));
            let one = members.iter().filter(|m| m.session != Cookie(0)).all(|m| Some(m.session) == claim);
            if full && one && waited.max().is_some_and(|waited| waited < CLAIMING) {
                let body = Pending { joined: state.joined() }.to_bytes();
                actions.push(packet(from, &state.header(Kind::Pending, worker, header.cookie), &body));
                return actions;
            }
            // Who still claims a session would only fail in a new one, and end it by joining anew.
            actions.extend(state.turn_away_claims());
            return actions;
        }
        if state.upper.is_some() {
            actions.extend(state.join_root(now, worker, from, claim.unwrap_or(Cookie(0))));
            return actions;
        }
        let session =
            if let Some(claimed) = claim { claimed } else { fresh(state.job.config.cookie, &mut random) };
        state.session = Some(session);
        state.ended = None;
        let config = JobConfig { cookie: session, ..state.job.config.clone() };
        let endpoints = (0u8..).map(WorkerId).zip(members.iter().map(|m| Endpoint::udp(m.addr))).collect();
        actions.push(Action::Install(config, endpoints));
        for (worker, member) in (0u8..).map(WorkerId).zip(&members) {
            actions.push(state.welcome(worker, session, member));
        }
        actions
    }

    fn leave(&mut self, now: Duration, from: SocketAddrV4, header: &Header, leave: Leave) -> Vec<Action> {
        let bye =
            |state: &JobState, worker, to| packet(to, &state.header(Kind::Bye, worker, header.cookie), &[]);
        let Some(state) = self.jobs.get_mut(&header.job) else { return Vec::new() };
        if state.roster.is_some() {
            return state.leave_roster(now, from, header, leave);
        }
        let known = |p: &&mut Present| p.nonce == leave.nonce;
        let place = usize::from(header.worker.0);
        let ask = |state: &JobState| state.ask_leaver(header, from, leave.nonce);
        let Some(member) = state.present.get_mut(place).and_then(Option::as_mut).filter(known) else {
            // Of a session that is over: nothing holds this worker. One that this server does not know it may have lost.
            let over = state.session.is_some() || state.is_over(header.cookie);
            return vec![if over { bye(state, header.worker, from) } else { ask(state) }];
        };
        // P25: whoever else has seen the nonce knows neither, or cannot send from there.
        if member.addr != from || state.session.is_some_and(|session| session != header.cookie) {
            return Vec::new();
        }
        member.left = true;
        if state.session.is_none() {
            if member.session == header.cookie && header.cookie != Cookie(0) {
                // It claims a session that was lost, for others who may need it there.
                return vec![ask(state)];
            }
            state.present[place] = None;
            return vec![bye(state, header.worker, from)];
        }
        if state.present.iter().flatten().any(|p| !p.left) {
            // The sums are here: nobody needs this worker as long as they are.
            let here = (0u8..).map(WorkerId).zip(&state.present).filter(|(_, p)| p.is_some_and(|p| !p.left));
            let body = Pending { joined: here.map(|(worker, _)| worker.bit()).sum() }.to_bytes();
            return vec![packet(from, &state.header(Kind::Pending, header.worker, header.cookie), &body)];
        }
        if state.leave_root(now) {
            return Vec::new();
        }
        let mut actions = vec![Action::Remove(header.job)];
        for (worker, member) in (0u8..).map(WorkerId).zip(state.present.iter().flatten()) {
            actions.push(bye(state, worker, member.addr));
        }
        state.left = state.session.take();
        state.present.fill(None);
        actions
    }
}

/// A session cookie: not 0, not the configured one.
pub(super) fn fresh(configured: Cookie, random: &mut impl FnMut() -> u32) -> Cookie {
    loop {
        let cookie = Cookie(random());
        if cookie != Cookie(0) && cookie != configured {
            return cookie;
        }
    }
}
