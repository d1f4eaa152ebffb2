//! What is done for those who wait for a session of a job whose members come and go (P42).

use super::action::Action;
use super::job::{Ended, JobState, refusal};
use super::present::{FORGET, Present};
use super::roster::{Phase, Roster, Waiting};
use crate::wire::{Header, Join, RefuseReason};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

impl JobState {
    /// Whoever is no member waits, unless another keeps the seat or has other definitions: the refusal then.
    pub(super) fn join_waiting_list(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
    ) -> Option<Action> {
        let worker = header.worker;
        let roster = self.seating.roster_mut()?;
        roster.waiting.retain(|_, waiting| !waiting.present.is_forgotten(now));
        let mut arrival = Present::from_join(now, from, header, join);
        if let Some(Waiting { present, .. }) = roster.waiting.get(&worker.0) {
            if present.keeps_seat(now, &arrival) {
                return Some(refusal(from, header, RefuseReason::WorkerInUse, worker));
            }
            if present.nonce == join.nonce {
                arrival.since = present.since;
            }
        }
        if let Some(other) = self.disagrees(worker, join.definitions) {
            return Some(refusal(from, header, RefuseReason::Definitions, other));
        }
        let (workers, epoch) = (header.num_workers, header.slot.0);
        let waiting = Waiting { present: arrival, workers, epoch };
        self.seating.roster_mut()?.waiting.insert(worker.0, waiting);
        None
    }

    /// Whatever can be done now for those who wait.
    pub(super) fn admit_waiting(
        &mut self,
        now: Duration,
        alive: impl Fn(WorkerId) -> Option<Duration>,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let claimed = |roster: &Roster| roster.waiting.values().any(|w| w.present.session != Cookie(0));
        if self.session.is_none() && !self.seating.roster().is_some_and(claimed) {
            self.take_next();
        }
        let mut actions = match self.begin_whole_world(now, alive, random) {
            ControlFlow::Continue(asks) => asks,
            ControlFlow::Break(begun) => return begun,
        };
        if self.session.is_some() {
            actions.extend(self.ask_for_boundary(now));
            return actions;
        }
        match self.resume_claimed(now, random) {
            Some(resumed) => resumed,
            None => self.begin_gathered(now, random),
        }
    }

    /// All workers of a session have been started anew, so whoever was in an earlier one is not in theirs:
    /// they begin, if no member runs any more. Otherwise the members are asked.
    fn begin_whole_world(
        &mut self,
        now: Duration,
        alive: impl Fn(WorkerId) -> Option<Duration>,
        random: &mut impl FnMut() -> u32,
    ) -> ControlFlow<Vec<Action>, Vec<Action>> {
        let Some(roster) = self.seating.roster() else { return ControlFlow::Continue(Vec::new()) };
        let new = |w: &&Waiting| w.workers != 0 && w.present.session == Cookie(0);
        let wanted = roster.waiting.values().filter(new).map(|w| w.workers);
        let whole =
            wanted.clone().find(|&n| wanted.clone().filter(|&other| other == n).count() == usize::from(n));
        let Some(n) = whole else { return ControlFlow::Continue(Vec::new()) };
        let all = roster.waiting.iter().filter(|(_, w)| w.workers == n && w.present.session == Cookie(0));
        let all: Vec<(u8, Present)> = all.map(|(&seat, w)| (seat, w.present)).collect();
        // Members who still run are not ended by it, whosever seats they have (P24).
        let (gone, asks) = self.ask_members(now, alive);
        if !gone {
            return ControlFlow::Continue(asks);
        }
        let mut actions = self.end_roster(WorkerId::NONE, all.iter().map(|(seat, _)| *seat).collect());
        actions.extend(self.begin(now, all, None, random));
        ControlFlow::Break(actions)
    }

    /// While a session runs: it is to end at a boundary for whoever waits, or for a change of the job; or
    /// nobody waits any more.
    fn ask_for_boundary(&mut self, now: Duration) -> Vec<Action> {
        let changes = self.next_of_members().is_some();
        let most = self.job.sizes.as_ref().map_or(0, |sizes| sizes.max_workers());
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        let comes = roster.waiting.iter().find(|(_, w)| w.workers == 0).map(|(&seat, _)| WorkerId(seat));
        let room = roster.workers() < most;
        match (comes.filter(|_| room).or(changes.then_some(WorkerId::NONE)), roster.phase) {
            (Some(because_of), Phase::Steady) => {
                roster.because_of = because_of;
                roster.turn_to(now, Phase::Asking);
                self.tell_all()
            }
            (None, Phase::Asking | Phase::Stopping(_)) if comes.is_none() => {
                roster.turn_to(now, Phase::Steady);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The server has forgotten a session: it goes on once all its members claim it, and ends if one of them
    /// does not in time. `None` if nobody claims a session.
    fn resume_claimed(&mut self, now: Duration, random: &mut impl FnMut() -> u32) -> Option<Vec<Action>> {
        let gone_after = self.job.sizes.as_ref()?.gone_after;
        let roster = self.seating.roster_mut()?;
        let claimed = roster.waiting.values().find(|w| w.present.session != Cookie(0)).copied()?;
        let Waiting { present: Present { session, .. }, workers, epoch } = claimed;
        let same = |w: &Waiting| (w.present.session, w.workers, w.epoch) == (session, workers, epoch);
        let all: Vec<(u8, Present)> =
            roster.waiting.iter().filter(|(_, w)| same(w)).map(|(&seat, w)| (seat, w.present)).collect();
        if all.len() == usize::from(workers) {
            roster.epoch = epoch;
            return Some(self.begin(now, all, Some(session), random));
        }
        let since = all.iter().map(|(_, present)| present.since).min().unwrap_or(now);
        if now.saturating_sub(since) < gone_after {
            return Some(Vec::new());
        }
        // Somebody is gone, and with the server's slots what they have put into sums.
        roster.waiting.retain(|seat, _| all.iter().all(|(gone, _)| gone != seat));
        self.ended = Some(Ended { session, because_of: WorkerId::NONE, members: Vec::new() });
        let over = |(seat, present): &(u8, Present)| {
            self.refuse_reforming(WorkerId(*seat), present.addr, session, WorkerId::NONE)
        };
        Some(all.iter().map(over).collect())
    }

    /// No session runs and nobody claims one: those who wait for any number of workers begin, if they are as
    /// many as there may be, or enough and nobody new has come for a while.
    fn begin_gathered(&mut self, now: Duration, random: &mut impl FnMut() -> u32) -> Vec<Action> {
        let (Some(sizes), Some(roster)) = (self.job.sizes.clone(), self.seating.roster()) else {
            return Vec::new();
        };
        let waits = |(&seat, w): (&u8, &Waiting)| (w.workers == 0).then_some((seat, w.present));
        let free: Vec<(u8, Present)> = roster.waiting.iter().filter_map(waits).collect();
        let latest = free.iter().map(|(_, present)| present.since).max().unwrap_or(now);
        let complete = free.len() == usize::from(sizes.max_workers());
        // A server that has just started may have forgotten a session, whose members say so within that time.
        let settled = roster.since.is_some_and(|since| now.saturating_sub(since) >= FORGET);
        let gathered = now.saturating_sub(latest) >= sizes.gather;
        let enough = free.len() >= usize::from(sizes.min_workers()) && gathered && settled;
        if complete || enough { self.begin(now, free, None, random) } else { Vec::new() }
    }
}
