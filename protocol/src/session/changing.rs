//! A job whose members come and go: how members join, leave and are found to be gone (P42).

use super::action::{Action, Happening};
use super::job::{Ended, JobState, fresh, packet, refusal};
use super::present::{Claim, Present};
use super::roster::{Member, Phase};
use super::static_job::StaticJob;
use crate::aggregator::{Endpoint, JobConfig};
use crate::wire::{Header, Join, Kind, Leave, Members, Pending, RefuseReason, Welcome};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

/// How often members are told what to do until they do it.
const TELL: Duration = Duration::from_millis(100);
/// How long members have to answer a server that has heard nobody for a while.
const ANSWER: Duration = Duration::from_secs(1);

impl JobState {
    /// Whether the job is to change, and the changed job's sessions may have so many workers in these seats.
    fn next_fits(&self, seats: impl ExactSizeIterator<Item = u8>) -> Option<&StaticJob> {
        let next = self.next.as_ref()?;
        next.sizes.as_ref()?.size(seats.len() as u8)?;
        let mut seats = seats;
        seats.all(|seat| seat < next.config.workers).then_some(next)
    }

    /// The same of those who are members.
    pub(super) fn next_of_members(&self) -> Option<&StaticJob> {
        self.next_fits(self.seating.roster()?.members.keys().copied())
    }

    /// WELCOME to a member that has not heard of the session.
    pub(super) fn welcome_again(&self, seat: WorkerId, from: SocketAddr, nonce: u64) -> Option<Action> {
        let member = self.member_by_nonce(seat, from, nonce)?;
        self.session.map(|_| self.welcome_member(seat.0, &member))
    }

    pub(super) fn welcome_member(&self, seat: u8, member: &Member) -> Action {
        let session = self.session.unwrap_or(Cookie(0));
        let (config, welcome) = self.shape();
        let epoch = self.seating.roster().map_or(0, |roster| roster.epoch);
        let members = Members { number: member.number, epoch, ..welcome.members.unwrap_or_default() };
        let body =
            Welcome { session, nonce: member.present.nonce, members: Some(members), ..*welcome }.to_bytes();
        let header =
            Header { num_workers: config.workers, ..self.header(Kind::Welcome, WorkerId(seat), session) };
        packet(member.present.addr, &header, &body)
    }

    /// P42: a JOIN with the job's cookie and, if it claims a session, with the fingerprint of a session of
    /// this job.
    pub(super) fn join_roster(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        alive: impl Fn(WorkerId) -> Option<Duration>,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let worker = header.worker;
        let Some(sizes) = self.job.sizes.clone() else { return Vec::new() };
        if header.num_workers != 0 && sizes.size(header.num_workers).is_none() {
            return vec![refusal(from, header, RefuseReason::Size, worker)];
        }
        if let Some(answer) = self.answer_other_session(from, worker, join) {
            return vec![answer];
        }
        let mut actions = match self.join_seat(now, from, (header, join), &alive) {
            ControlFlow::Continue(actions) => actions,
            ControlFlow::Break(answer) => return answer,
        };
        if let Some(refused) = self.join_waiting_list(now, from, (header, join)) {
            actions.push(refused);
            return actions;
        }
        actions.extend(self.admit_waiting(now, &alive, random));
        if self.seating.roster().is_some_and(|roster| roster.waiting.contains_key(&worker.0)) {
            let body = Pending { joined: self.joined_workers() }.to_bytes();
            actions.push(packet(from, &self.header(Kind::Pending, worker, header.cookie), &body));
        }
        actions
    }

    /// The answer to a claim of a session that has ended, or of another than the one that runs.
    fn answer_other_session(&self, from: SocketAddr, worker: WorkerId, join: &Join) -> Option<Action> {
        if join.session == Cookie(0) {
            return None;
        }
        let over = || Some(self.refuse_reforming(worker, from, join.session, WorkerId::NONE));
        if self.ended.as_ref().is_some_and(|ended| ended.session == join.session) {
            return over();
        }
        self.session.filter(|session| *session != join.session)?;
        match self.member_by_nonce(worker, from, join.nonce) {
            // Its WELCOME to the session that runs was lost.
            Some(member) => Some(self.welcome_member(worker.0, &member)),
            None => over(),
        }
    }

    /// A JOIN for a member's seat, or a claim of the session that runs: the answer, or the actions that let
    /// the JOIN wait.
    fn join_seat(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        alive: impl Fn(WorkerId) -> Option<Duration>,
    ) -> ControlFlow<Vec<Action>, Vec<Action>> {
        let (worker, claims) = (header.worker, join.session != Cookie(0));
        let member = self.seating.roster().and_then(|roster| roster.members.get(&worker.0)).copied();
        let Some(member) = member else {
            if claims && self.session.is_some() {
                let over = self.refuse_reforming(worker, from, join.session, WorkerId::NONE);
                return ControlFlow::Break(vec![over]);
            }
            return ControlFlow::Continue(Vec::new());
        };
        let same = member.present.nonce == join.nonce;
        let packets = alive(member.number).map(|ago| now.saturating_sub(ago));
        if let Some(mut answer) = self.defend_seat(now, from, (header, join), packets) {
            if !same && !claims && header.num_workers != 0 {
                // A whole world that is started anew needs all members to be gone, not only those whose seats it has.
                answer.extend(self.ask_members(now, &alive).1);
            }
            return ControlFlow::Break(answer);
        }
        if !same {
            // A new process in the place of one that is gone.
            return ControlFlow::Continue(self.drop_member(now, worker.0, Happening::Gone, None));
        }
        let mut actions = Vec::new();
        if member.present.addr != from {
            actions.push(Action::Move(header.job, member.number, Endpoint::udp(from)));
        }
        let roster = self.seating.roster_mut();
        if let Some(member) = roster.and_then(|roster| roster.members.get_mut(&worker.0)) {
            (member.present.heard, member.present.addr) = (now, from);
            let member = *member;
            actions.push(self.welcome_member(worker.0, &member));
        }
        ControlFlow::Break(actions)
    }

    pub(super) fn member_by_nonce(&self, seat: WorkerId, from: SocketAddr, nonce: u64) -> Option<Member> {
        let member = self.seating.roster()?.members.get(&seat.0)?;
        (member.present.nonce == nonce && member.present.addr == from).then_some(*member)
    }

    /// Sends ASK to the members that have not been asked often enough; returns whether no member runs any
    /// more.
    pub(super) fn ask_members(
        &mut self,
        now: Duration,
        alive: impl Fn(WorkerId) -> Option<Duration>,
    ) -> (bool, Vec<Action>) {
        let (mut gone, mut asks) = (true, Vec::new());
        for (&seat, member) in self.seating.roster_mut().into_iter().flat_map(|roster| &mut roster.members) {
            let packets = alive(member.number).map(|ago| now.saturating_sub(ago));
            let claim = member.present.claim(now, packets);
            gone &= claim == Claim::Granted;
            if claim == Claim::Ask {
                asks.push((WorkerId(seat), member.present));
            }
        }
        let session = self.session.unwrap_or(Cookie(0));
        (gone, asks.iter().map(|(seat, present)| self.ask(*seat, session, present)).collect())
    }

    /// A session of these workers begins or goes on. Earlier members that are not among them have been told.
    pub(super) fn begin(
        &mut self,
        now: Duration,
        mut all: Vec<(u8, Present)>,
        goes_on: Option<Cookie>,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        all.sort_unstable_by_key(|(seat, _)| *seat);
        if goes_on.is_none() && self.next_fits(all.iter().map(|(seat, _)| *seat)).is_some() {
            self.take_next();
        }
        let Some(sizes) = self.job.sizes.clone() else { return Vec::new() };
        all.truncate(sizes.max_workers().into());
        let Some((config, _)) = sizes.size(all.len() as u8) else { return Vec::new() };
        let session = goes_on.unwrap_or_else(|| fresh(self.job.config.cookie, random));
        let ran = self.session.replace(session).is_some();
        self.ended = None;
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        roster.epoch = if goes_on.is_some() { roster.epoch } else { roster.epoch.wrapping_add(1) };
        roster.phase = Phase::Steady;
        if goes_on.is_none() {
            roster.question = 0;
        }
        for (seat, _) in &all {
            roster.waiting.remove(seat);
        }
        roster.restore(
            all.iter().map(|&(seat, present)| (WorkerId(seat), Present { session: Cookie(0), ..present })),
        );
        // Who waited may have been heard last when another session ran: each has its time to answer in this one.
        roster.listen_anew(now);
        let endpoints = roster.members.values().map(|m| (m.number, Endpoint::udp(m.present.addr))).collect();
        let mut actions = Vec::new();
        if ran {
            actions.push(Action::Remove(config.job));
        }
        actions.push(Action::Install(JobConfig { cookie: session, ..config.clone() }, endpoints));
        let members: Vec<(u8, Member)> =
            roster.members.iter().map(|(&seat, member)| (seat, *member)).collect();
        actions.extend(members.iter().map(|(seat, member)| self.welcome_member(*seat, member)));
        actions
    }

    /// The session is over for all its members except those whose seats others have taken.
    pub(super) fn end_roster(&mut self, because_of: WorkerId, taken: Vec<u8>) -> Vec<Action> {
        let Some(session) = self.session.take() else { return Vec::new() };
        self.ended = Some(Ended { session, because_of, members: Vec::new() });
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        roster.phase = Phase::Steady;
        let members = std::mem::take(&mut roster.members);
        let mut actions = vec![Action::Remove(self.job.config.job)];
        for (seat, member) in members.iter().filter(|(seat, _)| !taken.contains(seat)) {
            actions.push(self.refuse_reforming(WorkerId(*seat), member.present.addr, session, because_of));
        }
        actions
    }

    /// P25, for a job whose members come and go: BYE at once, and the others close the session.
    pub(super) fn leave_roster(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        leave: Leave,
    ) -> Vec<Action> {
        let bye = packet(from, &self.header(Kind::Bye, header.worker, header.cookie), &[]);
        let seat = header.worker.0;
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        if roster.waiting.get(&seat).is_some_and(|w| w.present.nonce == leave.nonce && w.present.addr == from)
        {
            roster.waiting.remove(&seat);
            return vec![bye];
        }
        let Some(member) = roster.members.get(&seat).filter(|member| member.present.nonce == leave.nonce)
        else {
            return vec![bye];
        };
        if member.present.addr != from {
            return Vec::new();
        }
        // Of an earlier session, whose end it has not heard of, it says nothing about this one.
        let calls = (self.session == Some(header.cookie)).then_some(header.round.0);
        let mut actions = self.drop_member(now, seat, Happening::Left, calls);
        actions.push(bye);
        actions
    }

    /// What is due by time: silent members, waiting workers, and repetitions of lost packets.
    pub(super) fn poll_roster(
        &mut self,
        now: Duration,
        alive: impl Fn(WorkerId) -> Option<Duration>,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let Some(sizes) = self.job.sizes.clone() else { return Vec::new() };
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        roster.since.get_or_insert(now);
        let mut actions = Vec::new();
        if let Some(session) = self.session {
            let due = now.saturating_sub(roster.told) >= TELL;
            let heard = |member: &Member| {
                let packets = alive(member.number).map_or(Duration::ZERO, |ago| now.saturating_sub(ago));
                member.present.heard.max(packets)
            };
            // Who hears nobody may be cut off itself: for a while that counts for none of them, and when it hears somebody again, it asks
            // the others.
            let waiting = roster.waiting.values().map(|waiting| waiting.present.heard);
            let latest = roster.members.values().map(heard).chain(waiting).max().unwrap_or(now);
            let silence = now.saturating_sub(latest);
            let deaf = silence >= sizes.gone_after * 2 / 3;
            if std::mem::replace(&mut roster.deaf, deaf) && !deaf {
                let least = now.saturating_sub(sizes.gone_after.saturating_sub(ANSWER));
                roster
                    .members
                    .values_mut()
                    .for_each(|member| member.present.heard = heard(member).max(least));
            }
            let (mut gone, mut silent) = (Vec::new(), Vec::new());
            for (&seat, member) in &roster.members {
                let quiet = now.saturating_sub(heard(member));
                if quiet >= sizes.gone_after && (!deaf || silence >= sizes.gone_after * 3) {
                    gone.push(seat);
                } else if due && quiet >= sizes.gone_after / 3 {
                    silent.push((seat, member.present));
                }
            }
            if due {
                roster.told = now;
                actions
                    .extend(silent.iter().map(|(seat, present)| self.ask(WorkerId(*seat), session, present)));
                actions.extend(self.tell_all());
            }
            for seat in gone {
                actions.extend(self.drop_member(now, seat, Happening::Gone, None));
            }
        }
        if let Some(roster) = self.seating.roster_mut() {
            roster.waiting.retain(|_, waiting| !waiting.present.is_forgotten(now));
        }
        actions.extend(self.admit_waiting(now, &alive, random));
        actions
    }
}
