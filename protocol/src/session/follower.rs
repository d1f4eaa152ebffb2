//! A share other than the first: workers bring it the session into which the first share has let them (P24).

use super::action::Action;
use super::job::{JobState, packet, refusal};
use super::present::Present;
use super::seating::Seating;
use crate::aggregator::{Endpoint, JobConfig};
use crate::wire::{Header, Join, Kind, Pending, RefuseReason};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

impl JobState {
    /// A JOIN with the job's cookie and, if it claims a session, with the fingerprint of this job. Its
    /// session's cookie shows that the first share, which alone assigns numbers, has let this worker in.
    pub(super) fn follow(
        &mut self,
        now: Duration,
        from: SocketAddr,
        header: &Header,
        join: &Join,
    ) -> Vec<Action> {
        let worker = header.worker;
        let place = usize::from(worker.0);
        let refuse = |reason| vec![refusal(from, header, reason, worker)];
        if join.session == Cookie(0) {
            return refuse(RefuseReason::NotFirst);
        }
        if self.session == Some(join.session) {
            return match self.present[place].as_mut() {
                Some(member) if member.nonce == join.nonce => {
                    let moved = member.addr != from;
                    (member.addr, member.heard) = (from, now);
                    let member = *member;
                    let moved = moved.then(|| Action::Move(header.job, worker, Endpoint::udp(from)));
                    moved.into_iter().chain([self.welcome(worker, join.session, &member)]).collect()
                }
                _ => refuse(RefuseReason::WorkerInUse),
            };
        }
        let Seating::Follower(claims) = &mut self.seating else { return Vec::new() };
        claims.resize(self.present.len(), None);
        claims.iter_mut().for_each(|claim| *claim = claim.filter(|claim| !claim.is_forgotten(now)));
        let same = |claim: &Present| claim.session == join.session;
        if claims[place].is_some_and(|claim| same(&claim) && claim.nonce != join.nonce) {
            return refuse(RefuseReason::WorkerInUse);
        }
        claims[place] = Some(Present::from_join(now, from, header, join));
        let workers = if self.job.sizes.is_some() { header.num_workers } else { self.job.config.workers };
        if claims.iter().flatten().filter(|claim| same(claim)).count() < usize::from(workers) {
            let claims = (0u8..).map(WorkerId).zip(&*claims);
            let joined = claims.filter(|(_, claim)| claim.as_ref().is_some_and(same));
            let body = Pending { joined: joined.map(|(worker, _)| worker.bit()).sum() }.to_bytes();
            return vec![packet(from, &self.header(Kind::Pending, worker, header.cookie), &body)];
        }
        // All members of one session are here: it begins, or goes on, with empty slots, in place of what ran before.
        self.present = std::mem::take(claims);
        for claim in &mut self.present {
            *claim = claim.filter(same);
        }
        let ran = self.session.replace(join.session).is_some();
        self.ended = None;
        let config = self.job.sizes.as_ref().and_then(|sizes| sizes.size(workers)).map(|(config, _)| config);
        let config = config.unwrap_or(&self.job.config).clone();
        let config = JobConfig { cookie: join.session, ..config };
        let members = (0u8..).map(WorkerId).zip(&self.present);
        let members: Vec<(WorkerId, Present)> = members.filter_map(|(seat, m)| Some((seat, (*m)?))).collect();
        let numbers = (0u8..).map(WorkerId);
        let endpoints = numbers.zip(members.iter().map(|(_, m)| Endpoint::udp(m.addr))).collect();
        let welcomes = members.iter().map(|(seat, m)| self.welcome(*seat, join.session, m));
        // Of another size it may have another table: it cannot take the place of what runs.
        let ends = (ran && self.job.sizes.is_some()).then_some(Action::Remove(header.job));
        ends.into_iter().chain([Action::Install(config, endpoints)]).chain(welcomes).collect()
    }
}
