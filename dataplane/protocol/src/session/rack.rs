//! A rack's session begins, is resumed and ends with that of its root, of which the rack is a worker (P38 sessions in racks).

use super::action::Action;
use super::job::{JobState, packet};
use super::joiner::{JoinError, JoinEvent, Joiner};
use super::peer::Peer;
use super::uplink::Uplink;
use crate::wire::{Change, FLAG_ROOT, Header, Join, Kind, Pending, RefuseReason, Refused, Welcome, digest};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

/// The time between two LEAVE packets to the root when a session is over.
const ENDING_RETRY: Duration = Duration::from_millis(200);

/// The rack's nonce: it stays the same, even if the rack restarts, as long as no member restarts.
fn nonce(members: &[Peer]) -> u64 {
    digest(members.iter().map(|member| member.nonce))
}

impl JobState {
    /// All members are here, claiming this session or none: the rack joins its root. Returns the packet that `worker` is
    /// sent meanwhile.
    pub(super) fn join_root(
        &mut self,
        now: Duration,
        worker: WorkerId,
        to: SocketAddr,
        claim: Cookie,
    ) -> Vec<Action> {
        let members: Vec<Peer> = self.peers.iter().flatten().copied().collect();
        let pending =
            Header { flags: FLAG_ROOT, ..self.header(Kind::Pending, worker, self.job.config.cookie) };
        let Some(uplink) = self.seating.uplink_mut() else { return Vec::new() };
        let nonce = nonce(&members);
        // This JOIN says it as well.
        uplink.ending = None;
        match &mut uplink.joiner {
            Some((known, joiner)) if *known == nonce && (claim == Cookie(0) || joiner.session() == claim) => {
                joiner.resume(now);
            }
            _ => {
                let definitions =
                    members.iter().map(|member| member.definitions).find(|&d| d != 0).unwrap_or(0);
                let (job, cookie) = (self.job.config.job, self.job.config.cookie);
                let joiner = Joiner::new(job, uplink.root.rack, cookie, nonce, definitions, now);
                let known = Welcome { session: claim, nonce, ..uplink.root.welcome };
                let joiner = if claim == Cookie(0) { joiner } else { joiner.with_claim(known) };
                uplink.joiner = Some((nonce, joiner));
            }
        }
        let header = Header { num_workers: uplink.root.welcome.workers, ..pending };
        vec![packet(to, &header, &Pending { joined: uplink.joined }.to_bytes())]
    }

    /// Returns the packets that are due to the root.
    pub(super) fn poll_root(&mut self, now: Duration) -> Vec<Action> {
        let Some(Uplink { root, joiner, ending, .. }) = self.seating.uplink_mut() else { return Vec::new() };
        let (at, mut buffer) = (root.at, [0; 128]);
        let mut actions = Vec::new();
        if let Some((packet, left, next)) = ending.as_mut().filter(|(.., next)| *next <= now) {
            actions.push(Action::Send(at, packet.clone()));
            (*left, *next) = (*left - 1, now + ENDING_RETRY);
            if *left == 0 {
                *ending = None;
            }
        }
        let Some((_, joiner)) = joiner else { return actions };
        if joiner.deadline().is_some_and(|due| due <= now)
            && let Some(bytes) = joiner.poll(now, &mut buffer)
        {
            actions.push(Action::Send(at, bytes.to_vec()));
        }
        if joiner.has_left() {
            actions.extend(self.close());
        }
        actions
    }

    /// Takes a control packet that the root has sent.
    pub(super) fn handle_root(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Vec<Action> {
        let Some(uplink) = self.seating.uplink_mut().filter(|uplink| uplink.root.at == from) else {
            return Vec::new();
        };
        let answers = |kind| matches!(kind, Kind::Pending | Kind::Refused | Kind::Description);
        if Header::parse(bytes).is_ok_and(|(header, _)| answers(header.kind)) {
            uplink.ending = None;
        }
        let Some((nonce, joiner)) = &mut uplink.joiner else { return Vec::new() };
        if let Ok((header, payload)) = Header::parse(bytes)
            && header.kind == Kind::Description
            && let Some(says) = Welcome::parse(payload)
            && says.shards != uplink.root.welcome.shards
            && says.nonce == *nonce
            && says.fingerprint() == (Welcome { shards: says.shards, ..uplink.root.welcome }).fingerprint()
        {
            // Only how many ports the root has was not known: the claim is made again.
            uplink.root.welcome.shards = says.shards;
            let known = Welcome { session: joiner.session(), nonce: *nonce, ..uplink.root.welcome };
            uplink.joiner = Some((*nonce, joiner.clone().with_claim(known)));
            return Vec::new();
        }
        match joiner.handle(now, bytes) {
            Some(JoinEvent::Welcome(welcome)) => self.handle_welcome(&welcome),
            Some(JoinEvent::Pending(joined, _)) => {
                uplink.joined = joined;
                Vec::new()
            }
            Some(JoinEvent::Reforming(_)) => self.dissolve(),
            Some(JoinEvent::Changed(change)) => self.differs(change),
            Some(JoinEvent::Bye) => self.close(),
            Some(JoinEvent::Failed(JoinError::Refused { reason, .. })) => {
                let mut actions = vec![Action::RootRefuses(self.job.config.job, reason)];
                let same = reason == RefuseReason::Definitions;
                actions.extend(self.refuse_all(if same { reason } else { RefuseReason::Root }));
                actions
            }
            Some(JoinEvent::Here(_) | JoinEvent::PendingRacks(..) | JoinEvent::Failed(_)) | None => {
                Vec::new()
            }
        }
    }

    /// The root has let this rack in: the session begins, or is resumed, for its members too.
    fn handle_welcome(&mut self, says: &Welcome) -> Vec<Action> {
        let Some(uplink) = self.seating.uplink_mut() else { return Vec::new() };
        let expected = Welcome { shards: says.shards, ..uplink.root.welcome };
        if let Some(change) = Change::compare(&expected, says) {
            return self.differs(change);
        }
        uplink.root.welcome.shards = says.shards;
        uplink.root.welcome.marks = says.marks;
        uplink.credit = says.credit;
        let members: Vec<Peer> = self.peers.iter().flatten().copied().collect();
        let same = uplink.joiner.as_ref().is_some_and(|(known, _)| *known == nonce(&members));
        if self.session == Some(says.session) || members.len() != self.peers.len() || !same {
            return Vec::new();
        }
        self.start(says.session)
    }

    /// The root's session is over, and so is this one; workers that claim it are turned away.
    fn dissolve(&mut self) -> Vec<Action> {
        if let Some(uplink) = self.seating.uplink_mut() {
            uplink.forget();
        }
        let Some(session) = self.session else { return self.turn_away_claims() };
        self.end(session, WorkerId::NONE);
        let mut actions = vec![Action::Remove(self.job.config.job)];
        actions.extend(self.notices(WorkerId::NONE));
        actions
    }

    /// The root has another job than this rack.
    fn differs(&mut self, change: Change) -> Vec<Action> {
        let mut actions = vec![Action::RootDiffers(self.job.config.job, change)];
        if self.session.is_some() {
            actions.extend(self.dissolve());
        } else {
            actions.extend(self.refuse_all(RefuseReason::Root));
        }
        actions
    }

    /// Refuses all members, since the root does not let this rack in.
    fn refuse_all(&mut self, reason: RefuseReason) -> Vec<Action> {
        if let Some(uplink) = self.seating.uplink_mut() {
            uplink.forget();
        }
        let cookie = self.job.config.cookie;
        let members: Vec<(WorkerId, Peer)> =
            (0u8..).map(WorkerId).zip(&mut self.peers).filter_map(|(w, p)| Some((w, p.take()?))).collect();
        let refused = members.into_iter().map(|(worker, member)| {
            let header = Header {
                num_workers: 0,
                round: member.attempt,
                ..self.header(Kind::Refused, worker, cookie)
            };
            packet(member.addr, &header, &Refused { reason, worker: WorkerId::NONE }.to_bytes())
        });
        refused.collect()
    }

    /// All members have left: the rack leaves its root before they get BYE. Returns whether it can.
    pub(super) fn leave_root(&mut self, now: Duration) -> bool {
        let Some(Uplink { joiner: Some((_, joiner)), .. }) = self.seating.uplink_mut() else { return false };
        joiner.leave(now);
        true
    }

    /// At a root: a rack says that the session is over. If another sender says so, or of another session, it is
    /// only answered.
    pub(super) fn ended_below(&mut self, worker: WorkerId, from: SocketAddr, join: &Join) -> Vec<Action> {
        let place = usize::from(worker.0);
        let own = |member: &Peer| member.nonce == join.nonce && member.addr == from;
        let mut actions = Vec::new();
        if self.session == Some(join.session) && self.peers[place].as_ref().is_some_and(own) {
            self.end(join.session, worker);
            actions.push(Action::Remove(self.job.config.job));
            actions.extend(self.notices(worker));
        }
        actions.push(self.pending(from, worker, self.job.config.cookie, self.joined_workers()));
        actions
    }
}
