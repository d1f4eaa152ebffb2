//! JOIN and LEAVE of workers (P22 to P25).

use super::{ASKING, CLAIMING, FORGET, Registry, STALE};
use crate::aggregator::{Endpoint, JobConfig, Level};
use crate::session::action::Action;
use crate::session::job::{JobState, fresh, packet};
use crate::session::present::{Claim, Present};
use crate::wire::{Header, Join, Kind, Leave, Pending, RefuseReason, Refused};
use crate::{Cookie, JobId, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

impl Registry {
    pub(super) fn join(
        &mut self,
        now: Duration,
        from: SocketAddr,
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
        if !known && self.guesses.is_exhausted(now, from.ip()) {
            return Vec::new();
        }
        let Some(state) = state else {
            self.guesses.note(now, from.ip());
            return refuse(RefuseReason::UnknownJob);
        };
        if header.cookie != state.job.config.cookie {
            self.guesses.note(now, from.ip());
            return refuse(RefuseReason::WrongCookie);
        }
        let worker = header.worker;
        let place = usize::from(worker.0);
        let claims = join.session != Cookie(0);
        if claims && join.fingerprint != state.welcome_of(header.num_workers).fingerprint() {
            let next = state.next.as_ref().filter(|_| state.follows).and_then(|next| next.sizes.as_deref());
            let next = next.and_then(|sizes| sizes.size(header.num_workers));
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
        let mut arrival = Present::from_join(now, from, header, &join);
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
                return vec![state.refuse_reforming(worker, from, join.session, WorkerId::NONE)];
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
                    return vec![state.refuse_reforming(worker, from, ended.session, ended.because_of)];
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
            let body = Pending { joined: state.joined_workers() }.to_bytes();
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
                let body = Pending { joined: state.joined_workers() }.to_bytes();
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

    pub(super) fn leave(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        leave: Leave,
    ) -> Vec<Action> {
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
