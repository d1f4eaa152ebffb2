//! JOIN and LEAVE of workers (P22 to P25).

use super::Registry;
use crate::aggregator::Level;
use crate::session::action::Action;
use crate::session::job::{JobState, packet, refusal};
use crate::session::peer::Peer;
use crate::session::seating::Seating;
use crate::wire::{Header, Join, Kind, Leave, RefuseReason};
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
        let refuse = |reason| vec![refusal(from, header, reason, header.worker)];
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
        let known = |p: &&mut Peer| p.nonce == leave.nonce;
        let place = usize::from(header.worker.0);
        let ask = |state: &JobState| state.ask_leaver(header, from, leave.nonce);
        let Some(member) = state.peers.get_mut(place).and_then(Option::as_mut).filter(known) else {
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
            state.peers[place] = None;
            return vec![bye(state, header.worker, from)];
        }
        if state.peers.iter().flatten().any(|p| !p.left) {
            // The sums are here: nobody needs this worker as long as they are.
            let answer = state.pending_members(header.worker, from, header.cookie, 0);
            return [answer].into_iter().chain(state.absence_notices(header.cookie, 0)).collect();
        }
        if state.leave_root(now) {
            return Vec::new();
        }
        state.close()
    }
}
