//! JOINs of jobs whose members are fixed: which of them are let in, and when a session begins or is resumed (P22, P24).

use super::action::Action;
use super::job::{JobState, fresh, packet, refusal};
use super::peer::Peer;
use crate::aggregator::Endpoint;
use crate::wire::{Header, Join, Kind, RefuseReason, Refused};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

/// For how long JOINs of a worker's replaced incarnation are taken for delayed packets. Not for ever: nonces
/// have no order, and the earlier incarnation may have come later.
const STALE: Duration = Duration::from_secs(3);
/// For how long members that claim a session wait for one whose place has been taken without a claim.
const CLAIMING: Duration = Duration::from_secs(1);

impl JobState {
    /// The answer to a claim of a session of a differently configured job; `None` if the configurations
    /// agree.
    pub(super) fn answer_other_claim(
        &self,
        from: SocketAddr,
        header: &Header,
        join: &Join,
    ) -> Option<Action> {
        let claims = join.session != Cookie(0);
        if !claims || join.fingerprint == self.job.welcome.fingerprint() {
            return None;
        }
        Some(self.description(from, header, join))
    }

    /// The answer to a JOIN whose number the job does not have: the job's configuration, if that is what it
    /// asks.
    pub(super) fn answer_outsider(&self, from: SocketAddr, header: &Header, join: &Join) -> Action {
        let worker = header.worker;
        if worker != WorkerId::NONE {
            let num_workers = self.job.config.workers;
            let answer = Header { kind: Kind::Refused, flags: 0, count: 0, num_workers, ..*header };
            let body = Refused { reason: RefuseReason::WorkerOutOfRange, worker }.to_bytes();
            return packet(from, &answer, &body);
        }
        match self.disagrees(worker, join.definitions) {
            Some(other) => refusal(from, header, RefuseReason::Definitions, other),
            None => self.description(from, header, join),
        }
    }

    /// A JOIN of one of the members. `packets` says when its last packet to the aggregator came.
    pub(super) fn join_fixed(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        packets: impl FnOnce() -> Option<Duration>,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let worker = header.worker;
        let place = usize::from(worker.0);
        let stale = |(nonce, at)| nonce == join.nonce && now.saturating_sub(at) < STALE;
        if self.replaced[place].is_some_and(stale) {
            return Vec::new();
        }
        let arrival = self.arrival(now, from, header, join);
        let ways = match self.session {
            Some(session) => self.join_running(session, now, (header, join), arrival, packets),
            None => self.join_waiting(now, (header, join), arrival),
        };
        let mut actions = match ways {
            ControlFlow::Continue(actions) => actions,
            ControlFlow::Break(answer) => return answer,
        };
        if let Some(other) = self.disagrees(worker, join.definitions) {
            actions.push(refusal(from, header, RefuseReason::Definitions, other));
            return actions;
        }
        self.admit(place, arrival);
        actions.extend(self.begin_if_complete(now, from, header, random));
        actions
    }

    /// Returns the sender of this JOIN, with what is known of it.
    fn arrival(&self, now: Duration, from: SocketAddr, header: &Header, join: &Join) -> Peer {
        let mut arrival = Peer::from_join(now, from, header, join);
        let member = self.peers[usize::from(header.worker.0)];
        if let Some(member) = member.filter(|member| member.nonce == join.nonce) {
            // A JOIN that was long under way takes nothing back.
            arrival.left = member.left;
            arrival.since = member.since;
            arrival.asked = member.asked;
            if join.session == Cookie(0) {
                arrival.session = member.session;
            }
        }
        arrival
    }

    /// A JOIN of a member of the session that runs. If it comes from another address, the member is asked first
    /// whether it still runs at the one that is known. `packets` says when its last packet to the aggregator came.
    pub(super) fn join_again(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        packets: impl FnOnce() -> Option<Duration>,
    ) -> Vec<Action> {
        let (worker, place) = (header.worker, usize::from(header.worker.0));
        let Some(session) = self.session else { return Vec::new() };
        if let Some(answer) = self.defend_seat(now, from, (header, join), packets()) {
            return answer;
        }
        let arrival = self.arrival(now, from, header, join);
        let mut actions = Vec::new();
        if self.peers[place].is_some_and(|member| member.addr != from) {
            actions.push(Action::Move(header.job, worker, Endpoint::udp(from)));
        }
        self.peers[place] = Some(arrival);
        if let Some(uplink) = self.seating.uplink_mut().filter(|_| join.session != Cookie(0)) {
            uplink.resume(now);
        }
        actions.push(self.welcome(worker, session, &arrival));
        actions
    }

    /// While a session runs: the answer to the JOIN, or the actions that end the session because of it.
    fn join_running(
        &mut self,
        session: Cookie,
        now: Duration,
        (header, join): (&Header, &Join),
        arrival: Peer,
        packets: impl FnOnce() -> Option<Duration>,
    ) -> ControlFlow<Vec<Action>, Vec<Action>> {
        let (worker, from) = (header.worker, arrival.addr);
        let place = usize::from(worker.0);
        let claims = join.session != Cookie(0);
        // A claim to a session that is over, long under way: it must not end the one that runs.
        if claims && join.session != session {
            return ControlFlow::Break(vec![self.refuse_reforming(
                worker,
                from,
                join.session,
                WorkerId::NONE,
            )]);
        }
        if self.peers[place].is_some_and(|member| member.nonce == join.nonce) {
            return ControlFlow::Break(self.join_again(now, from, (header, join), packets));
        }
        if let Some(answer) = self.defend_seat(now, from, (header, join), packets()) {
            return ControlFlow::Break(answer);
        }
        // P24 incarnations: a new one of this worker ends the session for all.
        self.admit(place, arrival);
        self.end(session, worker);
        if let Some(uplink) = self.seating.uplink_mut() {
            uplink.end(now);
        }
        ControlFlow::Continue(vec![Action::Remove(header.job)])
    }

    /// While no session runs: the answer to the JOIN of a worker that cannot be let in.
    fn join_waiting(
        &mut self,
        now: Duration,
        (header, join): (&Header, &Join),
        arrival: Peer,
    ) -> ControlFlow<Vec<Action>, Vec<Action>> {
        let (worker, from) = (header.worker, arrival.addr);
        let claims = join.session != Cookie(0);
        if let Some(ended) = self.ended.as_ref().filter(|ended| claims && ended.session == join.session) {
            return ControlFlow::Break(vec![self.refuse_reforming(
                worker,
                from,
                ended.session,
                ended.because_of,
            )]);
        }
        for member in &mut self.peers {
            *member = member.filter(|member| !member.is_forgotten(now));
        }
        let before = &self.peers[usize::from(worker.0)];
        if before.is_some_and(|before| before.keeps_seat(now, &arrival)) {
            return ControlFlow::Break(vec![refusal(from, header, RefuseReason::WorkerInUse, worker)]);
        }
        ControlFlow::Continue(Vec::new())
    }

    /// Begins a session if all members are here, or continues the one that all of them claim.
    fn begin_if_complete(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let worker = header.worker;
        let pending = |state: &JobState| state.pending(from, worker, header.cookie, state.joined_workers());
        if self.peers.iter().any(Option::is_none) {
            let mut actions = vec![pending(self)];
            actions.extend(self.notices(worker));
            return actions;
        }
        let members: Vec<Peer> = self.peers.iter().flatten().copied().collect();
        let claim = members.iter().map(|m| m.session).find(|&session| session != Cookie(0));
        // With a quorum below n the sums of a slot may differ after a restart, so only a new session is safe.
        let welcome = &self.job.welcome;
        let full = welcome
            .rack
            .map_or(welcome.quorum == self.job.config.workers, |rack| rack.quorum == rack.workers);
        let same = full && claim.is_some_and(|claimed| members.iter().all(|m| m.session == claimed));
        if !same && claim.is_some() {
            // A worker that has not claimed the session may be a stray in the place of a member that is about to claim it.
            let claimers = || members.iter().filter(|m| m.session != Cookie(0));
            let waited = claimers().map(|m| now.saturating_sub(m.since)).max();
            let one = claimers().all(|m| Some(m.session) == claim);
            if full && one && waited.is_some_and(|waited| waited < CLAIMING) {
                return vec![pending(self)];
            }
            // A worker that still claims a session would only fail in a new one, and end it by joining anew.
            return self.turn_away_claims();
        }
        if self.seating.uplink().is_some() {
            return self.join_root(now, worker, from, claim.unwrap_or(Cookie(0)));
        }
        let session = claim.unwrap_or_else(|| fresh(self.job.config.cookie, random));
        self.start(session)
    }
}
