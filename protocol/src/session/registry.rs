//! The parameter server's side of static jobs: who is here, and when a session begins (P22–P25).

use super::guesses::Guesses;
use super::present::{Asked, Claim, Present};
use super::roster::{Roster, Sizes};
use super::upper::{Root, Upper};
use crate::aggregator::{Endpoint, JobConfig, Level};
use crate::wire::{
    Ask, Change, HEADER_LEN, Header, Join, Kind, Leave, Members, Pending, Position, RefuseReason, Refused,
    Welcome,
};
use crate::{Cookie, JobId, Round, SlotId, TableId, WorkerId};
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

#[derive(Debug)]
pub(super) struct JobState {
    pub(super) job: StaticJob,
    /// Whether workers bring their session along from the first share.
    follows: bool,
    /// Cookie of the session that runs.
    pub(super) session: Option<Cookie>,
    pub(super) present: Vec<Option<Present>>,
    /// At a share that is not the first: who claims a session that does not run here.
    pub(super) claims: Vec<Option<Present>>,
    /// By worker, the nonce of the incarnation replaced last, and when it was.
    replaced: Vec<Option<(u64, Duration)>>,
    /// The session that a worker's restart has ended, and the members to be told of it.
    pub(super) ended: Option<Ended>,
    /// Towards the root, at a rack.
    pub(super) upper: Option<Upper>,
    /// Of a job whose members come and go: then nobody is in `present`.
    pub(super) roster: Option<Roster>,
}

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) session: Cookie,
    pub(super) because_of: WorkerId,
    pub(super) members: Vec<(WorkerId, SocketAddrV4)>,
}

impl JobState {
    /// Lets a worker in, in place of an earlier incarnation.
    fn admit(&mut self, place: usize, arrival: Present) {
        if let Some(gone) = self.present[place].filter(|member| member.nonce != arrival.nonce) {
            self.replaced[place] = Some((gone.nonce, arrival.heard));
        }
        self.present[place] = Some(arrival);
    }

    /// P24: ends the session because of this worker.
    pub(super) fn end(&mut self, session: Cookie, because_of: WorkerId) {
        let members = (0u8..).map(WorkerId).zip(&mut self.present);
        let members = members.filter_map(|(worker, member)| Some((worker, member.take()?)));
        let members = members.filter(|(worker, gone)| *worker != because_of && !gone.left);
        let members = members.map(|(worker, gone)| (worker, gone.addr)).collect();
        self.ended = Some(Ended { session, because_of, members });
        self.session = None;
    }

    /// REFUSED(re-forming) to all that have not joined anew yet, each time the cause of it asks.
    pub(super) fn notices(&self, asks: WorkerId) -> impl Iterator<Item = Action> {
        let ended = self.ended.iter().filter(move |ended| ended.because_of == asks);
        ended.flat_map(|ended| {
            let absent = ended
                .members
                .iter()
                .filter(|(worker, _)| self.present.get(usize::from(worker.0)).is_some_and(Option::is_none));
            absent.map(|&(worker, addr)| self.reforming(worker, addr, ended.session, ended.because_of))
        })
    }

    /// REFUSED(re-forming) to a worker that believes in `session`.
    pub(super) fn reforming(
        &self,
        worker: WorkerId,
        addr: SocketAddrV4,
        session: Cookie,
        because_of: WorkerId,
    ) -> Action {
        let header = Header { num_workers: 0, ..self.header(Kind::Refused, worker, session) };
        let body = Refused { reason: RefuseReason::Reforming, worker: because_of }.to_bytes();
        packet(addr, &header, &body)
    }

    /// P24: members that claim a session which cannot go on must join anew; the others stay.
    pub(super) fn turn_away_claims(&mut self) -> Vec<Action> {
        let mut workers = (0u8..).map(WorkerId).zip(&self.present);
        let new = workers.find(|(_, p)| p.is_some_and(|p| p.session == Cookie(0)));
        let because_of = new.map_or(WorkerId::NONE, |(worker, _)| worker);
        let mut actions = Vec::new();
        self.ended = None;
        for place in 0..self.present.len() {
            if let Some(claimer) = self.present[place].filter(|p| p.session != Cookie(0)) {
                self.present[place] = None;
                let worker = WorkerId(place as u8);
                actions.push(self.reforming(worker, claimer.addr, claimer.session, because_of));
                // A claim that is still under way takes no place again.
                let ended =
                    self.ended.get_or_insert(Ended { session: claimer.session, because_of, members: vec![] });
                if ended.session == claimer.session {
                    ended.members.push((worker, claimer.addr));
                }
            }
        }
        actions
    }

    pub(super) fn header(&self, kind: Kind, worker: WorkerId, cookie: Cookie) -> Header {
        Header {
            kind,
            flags: 0,
            num_workers: self.job.config.workers,
            job: self.job.config.job,
            worker,
            table: TableId(0),
            cookie,
            round: Round(0),
            slot: SlotId(0),
            count: 0,
        }
    }

    pub(super) fn joined(&self) -> u64 {
        let bits = |present: &[Option<Present>]| {
            (0u8..).zip(present).filter(|(_, p)| p.is_some()).fold(0, |bits, (w, _)| bits | WorkerId(w).bit())
        };
        bits(&self.present) | bits(&self.claims) | self.roster.as_ref().map_or(0, Roster::seats)
    }

    pub(super) fn welcome(&self, worker: WorkerId, session: Cookie, present: &Present) -> Action {
        // A share that follows knows only the members of a session whose size is not fixed.
        let here = |seats: &[Option<Present>]| seats.iter().flatten().count() as u8;
        let (workers, number) = match self.job.sizes {
            None => (self.job.config.workers, worker.0),
            Some(_) => (here(&self.present), here(&self.present[..usize::from(worker.0)])),
        };
        let welcome = self.welcome_of(workers);
        let members = welcome.members.map(|members| Members { number: WorkerId(number), ..members });
        // A rack tells marks only if its root does, too (P46).
        let marks = welcome.marks && self.upper.as_ref().is_none_or(Upper::tells_marks);
        let body = Welcome { session, nonce: present.nonce, members, marks, ..*welcome }.to_bytes();
        let header = Header { num_workers: workers, ..self.header(Kind::Welcome, worker, session) };
        packet(present.addr, &header, &body)
    }

    /// How the job is configured, to whoever asks, or claims a session of a job configured otherwise (P22, P24).
    fn description(&self, to: SocketAddrV4, asked: &Header, join: &Join) -> Action {
        let now_is = self.welcome_of(asked.num_workers);
        let body = Welcome { session: Cookie(0), nonce: join.nonce, ..*now_is }.to_bytes();
        let (round, slot) = (asked.round, asked.slot);
        let header = Header { round, slot, ..self.header(Kind::Description, asked.worker, asked.cookie) };
        packet(to, &header, &body)
    }

    /// ASK to a member whose number somebody else wants (P24).
    pub(super) fn ask(&self, worker: WorkerId, session: Cookie, member: &Present) -> Action {
        let body = Ask { nonce: member.nonce }.to_bytes();
        packet(member.addr, &self.header(Kind::Ask, worker, session), &body)
    }

    /// The members of the session, by their numbers in the job.
    fn members(&self) -> impl Iterator<Item = (WorkerId, &Present)> {
        let fixed = (0u8..).map(WorkerId).zip(&self.present);
        let fixed = fixed.filter_map(|(worker, present)| Some((worker, present.as_ref()?)));
        fixed.chain(self.roster.iter().flat_map(Roster::members))
    }

    /// Whether somebody who is here sends from there.
    fn knows(&self, from: SocketAddrV4) -> bool {
        self.present.iter().flatten().any(|p| p.addr == from)
            || self.roster.as_ref().is_some_and(|roster| roster.knows(from))
    }

    /// The first worker here, not `worker` itself, whose build computes other numbers (P26).
    fn disagrees(&self, worker: WorkerId, definitions: u64) -> Option<WorkerId> {
        let mut others = (0u8..).map(WorkerId).zip(&self.present);
        let (other, _) = others.find(|(other, present)| {
            let theirs = present.map_or(0, |present| present.definitions);
            *other != worker && definitions != 0 && theirs != 0 && theirs != definitions
        })?;
        Some(other)
    }
}

pub(super) fn packet(to: SocketAddrV4, header: &Header, body: &[u8]) -> Action {
    let mut bytes = vec![0; HEADER_LEN + body.len()];
    header.emit_packet(&mut bytes, body);
    Action::Send(to, bytes)
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
        let state =
            JobState { follows, session: None, present, claims, replaced, ended: None, job, upper, roster };
        self.jobs.insert(state.job.config.job, state);
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

    /// Takes up a session that ran before this registry was made. Without a place for every worker, or
    /// without such a job, nothing is taken up and workers join anew. Whether it was.
    pub fn restore(&mut self, job: JobId, session: Cookie, members: &[SessionMember]) -> bool {
        let Some(state) = self.jobs.get_mut(&job) else { return false };
        let known = |member: &SessionMember| Present {
            nonce: member.nonce,
            session: Cookie(0),
            definitions: 0,
            addr: member.addr,
            since: Duration::ZERO,
            heard: Duration::ZERO,
            left: member.left,
            asked: Asked::default(),
        };
        if let Some(roster) = &mut state.roster {
            let sizes = state.job.sizes.as_ref();
            let fits = sizes.is_some_and(|sizes| sizes.of(members.len() as u8).is_some());
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
        if session == Cookie(0) || present.iter().any(Option::is_none) {
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

    /// Whether this aggregator is a rack of a job whose root is at `from`, so that control packets of the root are for it.
    #[must_use]
    pub fn has_root(&self, from: SocketAddrV4) -> bool {
        self.jobs.values().any(|state| state.job.root.is_some_and(|root| root.at == from))
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
            return vec![state.description(from, header, &join)];
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
        let mut arrival = Present::arrived(now, from, &join);
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
        let Some(member) = state.present.get_mut(place).and_then(Option::as_mut).filter(known) else {
            // Of a session that is over: nothing holds this worker.
            return vec![bye(state, header.worker, from)];
        };
        // P25: whoever else has seen the nonce knows neither, or cannot send from there.
        if member.addr != from || state.session.is_some_and(|session| session != header.cookie) {
            return Vec::new();
        }
        member.left = true;
        if state.session.is_none() {
            state.present[place] = None;
            return vec![bye(state, header.worker, from)];
        }
        if state.present.iter().flatten().any(|p| !p.left) {
            return Vec::new();
        }
        if state.leave_root(now) {
            return Vec::new();
        }
        let mut actions = vec![Action::Remove(header.job)];
        for (worker, member) in (0u8..).map(WorkerId).zip(state.present.iter().flatten()) {
            actions.push(bye(state, worker, member.addr));
        }
        state.session = None;
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
