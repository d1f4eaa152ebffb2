//! A job as the registry keeps it: its members, the session that runs, and the packets that it sends them.

use super::action::Action;
use super::peer::{Claim, Peer};
use super::seating::Seating;
use super::static_job::StaticJob;
use super::uplink::Uplink;
use crate::aggregator::{Endpoint, JobConfig, Level};
use crate::wire::{Ask, HEADER_LEN, Header, Join, Kind, Pending, RefuseReason, Refused, Welcome};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct JobState {
    pub(super) job: StaticJob,
    /// The policy of membership, with its own state.
    pub(super) seating: Seating,
    /// Cookie of the session that runs.
    pub(super) session: Option<Cookie>,
    /// The worker in each seat.
    pub(super) peers: Vec<Option<Peer>>,
    /// For each seat, the nonce of the incarnation that was replaced last, and when.
    pub(super) replaced: Vec<Option<(u64, Duration)>>,
    /// The session that a worker's restart has ended.
    pub(super) ended: Option<Ended>,
    /// The session that all have left.
    pub(super) left: Option<Cookie>,
}

/// A session that has ended, and its members that have not joined anew.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) session: Cookie,
    pub(super) because_of: WorkerId,
    pub(super) members: Vec<(WorkerId, SocketAddr)>,
}

impl JobState {
    /// Lets a worker in, in place of an earlier incarnation.
    pub(super) fn admit(&mut self, place: usize, arrival: Peer) {
        if let Some(gone) = self.peers[place].filter(|member| member.nonce != arrival.nonce) {
            self.replaced[place] = Some((gone.nonce, arrival.heard));
        }
        self.peers[place] = Some(arrival);
    }

    /// Ends the session because of this worker (P24 incarnations).
    pub(super) fn end(&mut self, session: Cookie, because_of: WorkerId) {
        let members = self.members().filter(|(worker, member)| *worker != because_of && !member.left);
        let members = members.map(|(worker, member)| (worker, member.addr)).collect();
        self.peers.fill(None);
        self.ended = Some(Ended { session, because_of, members });
        self.session = None;
    }

    /// REFUSED(re-forming) to all that have not joined anew yet, each time the worker that caused it asks.
    pub(super) fn notices(&self, asks: WorkerId) -> impl Iterator<Item = Action> {
        let ended = self.ended.iter().filter(move |ended| ended.because_of == asks);
        ended.flat_map(|ended| {
            let absent = ended
                .members
                .iter()
                .filter(|(worker, _)| self.peers.get(usize::from(worker.0)).is_some_and(Option::is_none));
            absent.map(|&(worker, addr)| self.refuse_reforming(worker, addr, ended.session, ended.because_of))
        })
    }

    /// PENDING to a member of the session that runs: the members that have not left, but for `absent` ones.
    pub(super) fn pending_members(
        &self,
        to: WorkerId,
        addr: SocketAddr,
        session: Cookie,
        absent: u64,
    ) -> Action {
        let here = self.members().filter(|(_, member)| !member.left);
        let joined = here.map(|(worker, _)| worker.bit()).sum::<u64>() & !absent;
        self.pending(addr, to, session, joined)
    }

    /// P25 LEAVE: PENDING to the members that have not left, so that they do not wait for those that have, nor for
    /// `absent` ones.
    pub(super) fn absence_notices(&self, session: Cookie, absent: u64) -> impl Iterator<Item = Action> {
        let here = self.members().filter(move |(worker, member)| !member.left && absent & worker.bit() == 0);
        here.map(move |(worker, member)| self.pending_members(worker, member.addr, session, absent))
    }

    /// PENDING with this bitmap.
    pub(super) fn pending(&self, to: SocketAddr, worker: WorkerId, cookie: Cookie, joined: u64) -> Action {
        packet(to, &self.header(Kind::Pending, worker, cookie), &Pending { joined }.to_bytes())
    }

    /// Begins or resumes the session of this cookie: installs it with all who are here, and welcomes them.
    pub(super) fn start(&mut self, session: Cookie) -> Vec<Action> {
        self.session = Some(session);
        self.ended = None;
        let mut config = JobConfig { cookie: session, ..self.job.config.clone() };
        if let (Level::Rack { ports, .. }, Some(uplink)) = (&mut config.level, self.seating.uplink()) {
            *ports = uplink.root.welcome.shards;
        }
        let members = self.members().map(|(worker, member)| (worker, Endpoint::udp(member.addr))).collect();
        let welcomes = self.members().map(|(worker, member)| self.welcome(worker, session, member));
        [Action::Install(config, members)].into_iter().chain(welcomes).collect()
    }

    /// All members have left the session: BYE to all (P25 LEAVE).
    pub(super) fn close(&mut self) -> Vec<Action> {
        if let Some(uplink) = self.seating.uplink_mut() {
            uplink.forget();
        }
        let Some(session) = self.session.take() else { return Vec::new() };
        let bye = |(worker, member): (WorkerId, &Peer)| {
            packet(member.addr, &self.header(Kind::Bye, worker, session), &[])
        };
        let actions =
            [Action::Remove(self.job.config.job)].into_iter().chain(self.members().map(bye)).collect();
        self.left = Some(session);
        self.peers.fill(None);
        actions
    }

    /// REFUSED(re-forming) to a worker that believes in `session`.
    pub(super) fn refuse_reforming(
        &self,
        worker: WorkerId,
        addr: SocketAddr,
        session: Cookie,
        because_of: WorkerId,
    ) -> Action {
        let header = Header { num_workers: 0, ..self.header(Kind::Refused, worker, session) };
        let body = Refused { reason: RefuseReason::Reforming, worker: because_of }.to_bytes();
        packet(addr, &header, &body)
    }

    /// P24 incarnations: members that claim a session which cannot go on must join anew; the others stay.
    pub(super) fn turn_away_claims(&mut self) -> Vec<Action> {
        let new = self.members().find(|(_, member)| member.session == Cookie(0));
        let because_of = new.map_or(WorkerId::NONE, |(worker, _)| worker);
        let mut actions = Vec::new();
        self.ended = None;
        for place in 0..self.peers.len() {
            if let Some(claimer) = self.peers[place].filter(|p| p.session != Cookie(0)) {
                self.peers[place] = None;
                let worker = WorkerId(place as u8);
                actions.push(self.refuse_reforming(worker, claimer.addr, claimer.session, because_of));
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
        Header::new(kind, self.job.config.workers, self.job.config.job, worker, cookie)
    }

    pub(super) fn joined_workers(&self) -> u64 {
        let bits = |peers: &[Option<Peer>]| {
            (0u8..).zip(peers).filter(|(_, p)| p.is_some()).fold(0, |bits, (w, _)| bits | WorkerId(w).bit())
        };
        bits(&self.peers) | self.seating.claims().map_or(0, |claims| bits(&claims.by_seat))
    }

    pub(super) fn welcome(&self, worker: WorkerId, session: Cookie, peer: &Peer) -> Action {
        let welcome = &self.job.welcome;
        let credit = self.seating.uplink().map_or(welcome.credit, |uplink| uplink.credit(welcome.credit));
        // A rack reports marks only if its root does, too (P46).
        let marks = welcome.marks && self.seating.uplink().is_none_or(Uplink::reports_marks);
        let body = Welcome { session, nonce: peer.nonce, marks, credit, ..*welcome }.to_bytes();
        packet(peer.addr, &self.header(Kind::Welcome, worker, session), &body)
    }

    /// Describes the job's configuration to a worker that asks, or that claims a session of a differently
    /// configured job (P22 JOIN, P24 incarnations).
    pub(super) fn description(&self, to: SocketAddr, asked: &Header, join: &Join) -> Action {
        let body = Welcome { session: Cookie(0), nonce: join.nonce, ..self.job.welcome }.to_bytes();
        let (round, slot) = (asked.round, asked.slot);
        let header = Header { round, slot, ..self.header(Kind::Description, asked.worker, asked.cookie) };
        packet(to, &header, &body)
    }

    /// Returns whether a session has ended here. A session that neither runs nor has ended was lost in a restart, or
    /// was never here.
    pub(super) fn is_over(&self, session: Cookie) -> bool {
        let ended = self.ended.as_ref().map(|ended| ended.session);
        [Some(Cookie(0)), ended, self.left].contains(&Some(session))
    }

    /// ASK to a worker that leaves an unknown session: the others' claims will show whether they need it
    /// (P25 LEAVE).
    pub(super) fn ask_leaver(&self, leave: &Header, to: SocketAddr, nonce: u64) -> Action {
        packet(to, &self.header(Kind::Ask, leave.worker, leave.cookie), &Ask { nonce }.to_bytes())
    }

    /// ASK to a member whose number another worker wants (P24 incarnations).
    pub(super) fn ask(&self, worker: WorkerId, session: Cookie, member: &Peer) -> Action {
        let body = Ask { nonce: member.nonce }.to_bytes();
        packet(member.addr, &self.header(Kind::Ask, worker, session), &body)
    }

    /// The members of the session, by their numbers in the job.
    pub(super) fn members(&self) -> impl Iterator<Item = (WorkerId, &Peer)> {
        let seats = (0u8..).map(WorkerId).zip(&self.peers);
        seats.filter_map(|(worker, peer)| Some((worker, peer.as_ref()?)))
    }

    /// Returns whether a member, or a worker that waits, sends from there.
    pub(super) fn knows(&self, from: SocketAddr) -> bool {
        let claims = self.seating.claims().map_or(&[][..], |claims| &claims.by_seat);
        self.peers.iter().chain(claims).flatten().any(|p| p.addr == from)
    }

    /// The first worker here, not `worker` itself, whose build computes other numbers (P26 definitions).
    pub(super) fn disagrees(&self, worker: WorkerId, definitions: u64) -> Option<WorkerId> {
        let (other, _) = self.members().find(|&(seat, peer)| {
            let theirs = peer.definitions;
            seat != worker && definitions != 0 && theirs != 0 && theirs != definitions
        })?;
        Some(other)
    }

    /// A JOIN for a member's seat from another address than the member's: the member is asked before its seat,
    /// or what is sent to it, goes elsewhere (P24 incarnations). Returns the answer; `None` if the JOIN may have the seat.
    /// `packets` says when the member's last packet to the aggregator came.
    pub(super) fn defend_seat(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        packets: Option<Duration>,
    ) -> Option<Vec<Action>> {
        let worker = header.worker;
        // Only the member can send from its address while it runs.
        let member = self.peers.get_mut(usize::from(worker.0))?.as_mut();
        let member = member.filter(|member| member.addr != from)?;
        let (claim, member) = (member.claim(now, packets), *member);
        if claim == Claim::Granted {
            return None;
        }
        let mut actions = Vec::new();
        if let Some(session) = self.session.filter(|_| claim == Claim::Ask) {
            actions.push(self.ask(worker, session, &member));
        }
        if member.nonce != join.nonce {
            actions.push(refusal(from, header, RefuseReason::WorkerInUse, worker));
        }
        Some(actions)
    }
}

pub(super) fn packet(to: SocketAddr, header: &Header, body: &[u8]) -> Action {
    let mut bytes = vec![0; HEADER_LEN + body.len()];
    header.emit_packet(&mut bytes, body);
    Action::Send(to, bytes)
}

/// REFUSED to the sender of a JOIN with this header, because of `worker`.
pub(super) fn refusal(to: SocketAddr, join: &Header, reason: RefuseReason, worker: WorkerId) -> Action {
    let answer = Header { kind: Kind::Refused, flags: 0, count: 0, num_workers: 0, ..*join };
    packet(to, &answer, &Refused { reason, worker }.to_bytes())
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
