//! Where one session of a job whose members come and go ends and the next begins (P43).

use super::action::{Action, Happening};
use super::job::{JobState, packet};
use super::present::Present;
use super::roster::{Member, Phase, Roster, Waiting};
use crate::wire::{Boundary, Header, Kind, Position, Stand, What};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

/// The later of two numbers of calls, which wrap.
fn wrapping_max(a: u32, b: u32) -> u32 {
    if b.wrapping_sub(a) as i32 > 0 { b } else { a }
}

impl Roster {
    /// Sets what members are asked or told from now on. Answers to earlier questions no longer count.
    pub fn turn_to(&mut self, now: Duration, phase: Phase) {
        (self.phase, self.told) = (phase, now);
        self.question = self.question.wrapping_add(1);
        self.members.values_mut().for_each(|member| member.position = None);
    }

    /// What all members have answered, once all have.
    fn answers(&self) -> Option<Vec<Position>> {
        self.members.values().map(|member| member.position).collect()
    }

    /// What a member that is not where it should be is to do.
    fn pending_notice(&self, member: &Member) -> Option<(What, u32)> {
        match (self.phase, member.position) {
            (Phase::Asking, None) => Some((What::Ask, 0)),
            (Phase::Holding(_), None) => Some((What::Hold, 0)),
            (Phase::Steady, _) | (Phase::Asking | Phase::Holding(_), Some(_)) => None,
            // Who had stopped before others said how far they are may have to go on to where these are.
            (Phase::Stopping(calls), Some(position)) if position.has_stopped_at(calls) => None,
            (Phase::Stopping(calls), _) => Some((What::Stop, calls)),
            (Phase::Finishing(calls), Some(position)) if position.finished == calls => None,
            (Phase::Finishing(calls), _) => Some((What::Finish, calls)),
        }
    }
}

impl JobState {
    fn boundary(&self, seat: u8, member: &Member, what: What, calls: u32) -> Action {
        let session = self.session.unwrap_or(Cookie(0));
        let (because_of, question, num_workers) =
            self.seating.roster().map_or((WorkerId::NONE, 0, 0), |r| (r.because_of, r.question, r.size));
        let header = Header { num_workers, ..self.header(Kind::Boundary, WorkerId(seat), session) };
        let body = Boundary { what, because_of, question, calls }.to_bytes();
        packet(member.present.addr, &header, &body)
    }

    /// What each member that is not where it should be is to do.
    pub(super) fn tell_all(&self) -> Vec<Action> {
        let Some(roster) = self.seating.roster() else { return Vec::new() };
        let told = roster.members.iter().filter_map(|(&seat, member)| {
            let (what, calls) = roster.pending_notice(member)?;
            Some(self.boundary(seat, member, what, calls))
        });
        told.collect()
    }

    /// A member is gone, or has left after so many calls of the session: the others close the session.
    pub(super) fn drop_member(
        &mut self,
        now: Duration,
        seat: u8,
        happened: Happening,
        calls: Option<u32>,
    ) -> Vec<Action> {
        let job = self.job.config.job;
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        if roster.members.remove(&seat).is_none() {
            return Vec::new();
        }
        let mut actions = vec![Action::Tell(job, WorkerId(seat), happened)];
        if roster.members.is_empty() {
            self.session = None;
            roster.phase = Phase::Steady;
            actions.push(Action::Remove(job));
            return actions;
        }
        roster.because_of = WorkerId(seat);
        match &mut roster.phase {
            // It held as well, so it cannot have finished more.
            Phase::Finishing(_) => {}
            Phase::Holding(left) => *left = left.iter().copied().chain(calls).reduce(wrapping_max),
            Phase::Steady | Phase::Asking | Phase::Stopping(_) => roster.turn_to(now, Phase::Holding(calls)),
        }
        actions.extend(self.tell_all());
        actions
    }

    /// A member says how far it is.
    pub(super) fn position(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        position: &Position,
        random: &mut impl FnMut() -> u32,
    ) -> Vec<Action> {
        let seat = header.worker;
        let Some(session) = self.session else { return Vec::new() };
        if self.member_by_nonce(seat, from, position.nonce).is_none() {
            return vec![self.refuse_reforming(seat, from, header.cookie, WorkerId::NONE)];
        }
        let Some(roster) = self.seating.roster_mut() else { return Vec::new() };
        let Some(member) = roster.members.get_mut(&seat.0) else { return Vec::new() };
        if header.cookie != session {
            // Who never takes this WELCOME, because it knows of a session that this server has forgotten, is as good as gone.
            let member = *member;
            return vec![self.welcome_member(seat.0, &member)];
        }
        member.present.heard = now;
        // A server that was started anew does not know what it had asked: it goes on with the number after that.
        let behind = roster.question.wrapping_sub(position.question) as i16;
        match roster.phase {
            Phase::Steady => {
                let member = *member;
                if behind <= 0 {
                    roster.question = position.question.wrapping_add(1);
                }
                return vec![self.boundary(seat.0, &member, What::GoOn, 0)];
            }
            phase if behind < 0 => {
                roster.question = position.question;
                roster.turn_to(now, phase);
                return self.tell_all();
            }
            _ if behind != 0 => return Vec::new(),
            Phase::Holding(_) | Phase::Finishing(_) if position.stand != Stand::Holding => return Vec::new(),
            _ => member.position = Some(*position),
        }
        let Some(all) = roster.answers() else { return Vec::new() };
        let begun = all.iter().map(|p| p.begun).reduce(wrapping_max).unwrap_or(0);
        match roster.phase {
            Phase::Steady => Vec::new(),
            Phase::Asking => {
                roster.turn_to(now, Phase::Stopping(begun));
                self.tell_all()
            }
            Phase::Stopping(calls) => {
                let stopped = all.iter().all(|p| p.has_stopped_at(calls));
                // Who was asked behind the boundary at which another has stopped begins its call whatever it is told.
                let left_behind = all.iter().any(|p| p.stand == Stand::Stopped && p.begun != begun);
                if stopped && !left_behind {
                    return self.let_in(now, random);
                }
                if !stopped && (!left_behind || wrapping_max(calls, begun) == calls) {
                    return Vec::new();
                }
                // Not at the same boundary: the others follow the one that is farthest.
                roster.turn_to(now, Phase::Stopping(begun));
                self.tell_all()
            }
            Phase::Holding(left) => {
                let finished = all.iter().map(|p| p.finished).chain(left).reduce(wrapping_max).unwrap_or(0);
                if all.iter().all(|p| p.finished == finished) {
                    return self.go_on(now, random);
                }
                roster.turn_to(now, Phase::Finishing(finished));
                self.tell_all()
            }
            Phase::Finishing(calls) if all.iter().any(|p| p.finished != calls) => Vec::new(),
            Phase::Finishing(_) => self.go_on(now, random),
        }
    }

    /// The members, with those who wait for as long as there is room.
    fn let_in(&mut self, now: Duration, random: &mut impl FnMut() -> u32) -> Vec<Action> {
        let most = self.next_of_members().map_or(self.job.config.workers, |next| next.config.workers);
        let Some(roster) = self.seating.roster() else { return Vec::new() };
        let mut seats: Vec<(u8, Present)> =
            roster.members.iter().map(|(&seat, m)| (seat, m.present)).collect();
        let room = usize::from(most).saturating_sub(seats.len());
        let waits = |&(seat, w): &(&u8, &Waiting)| w.workers == 0 && *seat < most;
        let come = roster.waiting.iter().filter(waits).map(|(&seat, w)| (seat, w.present));
        let come: Vec<(u8, Present)> = come.take(room).collect();
        let job = self.job.config.job;
        let tell = |&(seat, _): &(u8, Present)| Action::Tell(job, WorkerId(seat), Happening::Came);
        let mut actions: Vec<Action> = come.iter().map(tell).collect();
        seats.extend(come);
        actions.extend(self.begin(now, seats, None, random));
        actions
    }

    /// All remaining members have finished the same calls: the next session begins with them, if they are
    /// enough.
    fn go_on(&mut self, now: Duration, random: &mut impl FnMut() -> u32) -> Vec<Action> {
        let Some(roster) = self.seating.roster() else { return Vec::new() };
        let seats: Vec<(u8, Present)> = roster.members.iter().map(|(&seat, m)| (seat, m.present)).collect();
        let because_of = roster.because_of;
        let fewer =
            self.job.sizes.as_ref().is_some_and(|sizes| seats.len() < usize::from(sizes.min_workers()));
        if fewer && self.next_of_members().is_none() {
            return self.end_roster(because_of, Vec::new());
        }
        self.begin(now, seats, None, random)
    }
}
