//! A worker introduces itself, and later may ask to be recognised again (P22–P25).

mod leaving;
mod outcome;

pub use outcome::{JoinError, JoinEvent};

use crate::wire::{
    Ask, Change, FLAG_ROOT, Header, Join, Kind, Leave, Pending, RefuseReason, Refused, Welcome, WelcomeError,
};
use crate::{Cookie, JobId, Round, WorkerId};
use leaving::{Leaving, RETRY};
use std::time::Duration;

/// Time between JOINs while another process is asked whether it still has this worker's number (P24 incarnations).
const IN_USE_RETRY: Duration = Duration::from_millis(60);
/// Time between LEAVEs.
const LEAVE_RETRY: Duration = Duration::from_millis(50);
/// The time for which "worker number in use" may be due to an earlier incarnation of this worker.
const IN_USE_GRACE: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining,
    Joined,
    Leaving(Leaving),
    Left,
}

/// The packets that a joiner sends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// JOIN while it leaves: the server has lost the session.
    Claim,
    Join,
    Leave,
}

/// The worker's side of joining and leaving.
#[derive(Clone, Debug)]
pub struct Joiner {
    job: JobId,
    worker: WorkerId,
    cookie: Cookie,
    nonce: u64,
    definitions: u64,
    /// The last WELCOME.
    welcomed: Option<Welcome>,
    state: State,
    started: Duration,
    next: Duration,
    /// The time of the last JOIN.
    asked: Option<Duration>,
    /// The last PENDING of this attempt: the bitmap, its number of members, and whether these are racks.
    joined: Option<(u64, u8, bool)>,
    /// The members that have not left, as the server said last.
    here: u64,
    /// Distinguishes its JOINs: a new value each time that it begins to join or to claim, which a REFUSED
    /// repeats.
    attempt: Round,
}

impl Joiner {
    /// A worker that is about to join. `nonce` must be random, and different for each joiner. `definitions`
    /// is the digest of the numbers that its build computes (P26 definitions), or 0 to skip the comparison.
    pub fn new(
        job: JobId,
        worker: WorkerId,
        cookie: Cookie,
        nonce: u64,
        definitions: u64,
        now: Duration,
    ) -> Joiner {
        Joiner {
            job,
            worker,
            cookie,
            nonce,
            definitions,
            welcomed: None,
            state: State::Joining,
            started: now,
            next: now,
            asked: None,
            joined: None,
            here: u64::MAX,
            // Not that of an earlier process.
            attempt: Round((nonce ^ (nonce >> 32)) as u32),
        }
    }

    fn next_attempt(&self) -> Round {
        Round(self.attempt.0.wrapping_add(1))
    }

    /// A joiner that claims the session that it was welcomed to so.
    #[must_use]
    pub(super) fn with_claim(self, welcome: Welcome) -> Joiner {
        Joiner { welcomed: Some(welcome), state: State::Joining, next: self.started, ..self }
    }

    /// JOIN that ends the session to which it was welcomed (P38 sessions in racks).
    pub(super) fn write_ending<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        self.join(true, buffer)
    }

    /// A joiner of the same worker, for a share that is not the first. It brings along the session to which
    /// this one has been welcomed.
    pub fn for_other_share(&self, now: Duration) -> Joiner {
        let (state, attempt) = (State::Joining, self.next_attempt());
        let (started, next) = (now, now);
        Joiner { state, attempt, started, next, joined: None, ..self.clone() }
    }

    /// The aggregator may have lost its state: introduces this worker again, with its session.
    pub fn resume(&mut self, now: Duration) {
        if self.state == State::Joined {
            self.state = State::Joining;
            self.attempt = self.next_attempt();
            self.started = now;
            self.next = now;
            self.joined = None;
        }
    }

    /// Introduces this worker again, unless it has sent JOIN a moment ago.
    pub(super) fn resume_after_pause(&mut self, now: Duration) {
        if self.asked.is_none_or(|asked| now >= asked + RETRY) {
            self.resume(now);
        }
    }

    /// The session it was welcomed to; 0 before.
    pub(super) fn session(&self) -> Cookie {
        self.welcomed.map_or(Cookie(0), |welcome| welcome.session)
    }

    /// Begins to leave, with all calls finished: others may still need what it has sent.
    pub fn leave(&mut self, now: Duration) {
        let stays = self.session() != Cookie(0);
        self.depart(now, stays);
    }

    /// Begins to leave a session that is over for it, or in which no member can need it any more.
    pub fn quit(&mut self, now: Duration) {
        self.depart(now, false);
    }

    fn depart(&mut self, now: Duration, stays: bool) {
        match &mut self.state {
            State::Left => {}
            State::Leaving(_) if stays => {}
            State::Leaving(leaving) => leaving.quit(now),
            State::Joining | State::Joined => {
                self.state = State::Leaving(Leaving::new(now, stays));
                self.next = now;
            }
        }
    }

    /// Another worker needed what this leaving worker has sent, which therefore stays as long again.
    pub fn stay(&mut self, now: Duration) {
        if let State::Leaving(leaving) = &mut self.state {
            leaving.extend(now);
        }
    }

    /// Returns whether it was welcomed, and has not asked again since.
    pub fn has_joined(&self) -> bool {
        self.state == State::Joined
    }

    /// The members of the session that have not left (P25 LEAVE), one bit each.
    pub(super) fn members_here(&self) -> u64 {
        self.here
    }

    /// Returns whether BYE came or leaving has taken long enough.
    pub fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// The error if joining has taken `limit` already.
    pub fn timeout_error(&self, now: Duration, limit: Duration) -> Option<JoinError> {
        let waited = now.saturating_sub(self.started);
        if self.state != State::Joining || waited < limit {
            return None;
        }
        let Some((joined, n, of_racks)) = self.joined else { return Some(JoinError::Silent { waited }) };
        let (job, missing) = (self.job, u64::MAX >> (64 - u32::from(n.clamp(1, 64))) & !joined);
        Some(match of_racks {
            true => JoinError::MissingRacks { job, missing, waited },
            false => JoinError::Missing { job, missing, waited },
        })
    }

    /// Returns when each packet is due, in the order in which they are sent.
    fn timers(&self) -> [(Timer, Option<Duration>); 3] {
        let leaving = if let State::Leaving(leaving) = self.state { Some(leaving) } else { None };
        [
            (Timer::Claim, leaving.and_then(|leaving| leaving.claim_at())),
            (Timer::Join, (self.state == State::Joining).then_some(self.next)),
            (Timer::Leave, leaving.map(|_| self.next)),
        ]
    }

    /// Returns when [`Self::poll`] has something to send.
    pub fn deadline(&self) -> Option<Duration> {
        self.timers().into_iter().filter_map(|(_, at)| at).min()
    }

    /// The packet that is due, written to `buffer`.
    pub fn poll<'a>(&mut self, now: Duration, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let due = |(timer, at): (Timer, Option<Duration>)| at.filter(|at| *at <= now).map(|_| timer);
        match self.timers().into_iter().find_map(due)? {
            Timer::Claim => {
                if let State::Leaving(leaving) = &mut self.state {
                    leaving.count_claim(now);
                }
                Some(self.join(false, buffer))
            }
            Timer::Join => {
                (self.next, self.asked) = (now + RETRY, Some(now));
                Some(self.join(false, buffer))
            }
            Timer::Leave if matches!(self.state, State::Leaving(leaving) if leaving.is_over(now)) => {
                self.state = State::Left;
                None
            }
            Timer::Leave => {
                self.next = now + LEAVE_RETRY;
                let body = Leave { nonce: self.nonce }.to_bytes();
                Some(self.header(Kind::Leave, self.session()).emit_packet(buffer, &body))
            }
        }
    }

    /// JOIN, which claims the session to which it was welcomed, if there is one, or `ends` it.
    fn join<'a>(&self, ends: bool, buffer: &'a mut [u8]) -> &'a [u8] {
        let body = Join {
            nonce: self.nonce,
            session: self.session(),
            ends,
            fingerprint: self.welcomed.map_or(0, |welcome| welcome.fingerprint()),
            definitions: self.definitions,
        }
        .to_bytes();
        let header = Header { round: self.attempt, ..self.header(Kind::Join, self.cookie) };
        header.emit_packet(buffer, &body)
    }

    fn header(&self, kind: Kind, cookie: Cookie) -> Header {
        Header::new(kind, 0, self.job, self.worker, cookie)
    }

    /// The answer to this worker's JOIN belongs to a job in which it cannot take part.
    fn unusable(&self, payload: &[u8], reason: WelcomeError) -> Option<JoinEvent> {
        let own = reason != WelcomeError::Damaged && Welcome::nonce_of(payload) == Some(self.nonce);
        (own && self.state == State::Joining)
            .then_some(JoinEvent::Failed(JoinError::Unusable { job: self.job, reason }))
    }

    /// Takes a control packet; `None` if it is none for this worker.
    pub fn handle(&mut self, now: Duration, packet: &[u8]) -> Option<JoinEvent> {
        let (header, payload) = Header::parse(packet).ok()?;
        if header.job != self.job || !header.kind.is_control() {
            return None;
        }
        let in_session = header.cookie == self.session() && self.session() != Cookie(0);
        let in_job = self.state == State::Joining && header.cookie == self.cookie;
        match header.kind {
            Kind::Welcome => self.handle_welcome(header.num_workers, payload),
            Kind::Description if in_job => self.handle_description(payload),
            Kind::Ask if in_session => {
                if Ask::parse(payload)?.nonce == self.nonce {
                    self.handle_ask(now);
                }
                None
            }
            Kind::Pending if in_session => self.handle_members(now, Pending::parse(payload)?.joined),
            Kind::Pending if in_job => {
                let (joined, n) = (Pending::parse(payload)?.joined, header.num_workers);
                let of_racks = header.flags & FLAG_ROOT != 0;
                self.joined = Some((joined, n, of_racks));
                Some(if of_racks {
                    JoinEvent::PendingRacks(joined, n)
                } else {
                    JoinEvent::Pending(joined, n)
                })
            }
            Kind::Refused => self.handle_refused(now, &header, in_session, Refused::parse(payload)?),
            Kind::Bye if matches!(self.state, State::Leaving(_)) && header.cookie == self.session() => {
                self.state = State::Left;
                Some(JoinEvent::Bye)
            }
            _ => None,
        }
    }

    fn handle_welcome(&mut self, workers: u8, payload: &[u8]) -> Option<JoinEvent> {
        let welcome = match Welcome::read(payload) {
            Ok(welcome) => welcome,
            Err(reason) => return self.unusable(payload, reason),
        };
        let possible = welcome.workers == workers && self.worker.0 < workers;
        if welcome.nonce != self.nonce || self.state != State::Joining || !possible {
            return None;
        }
        if let Some(before) = self.welcomed.filter(|before| before.session == welcome.session)
            && let Some(change) = Change::compare(&before, &welcome)
        {
            return Some(JoinEvent::Changed(change));
        }
        self.state = State::Joined;
        self.welcomed = Some(welcome);
        Some(JoinEvent::Welcome(welcome))
    }

    fn handle_description(&mut self, payload: &[u8]) -> Option<JoinEvent> {
        match Welcome::read(payload) {
            Ok(welcome) if welcome.nonce == self.nonce => {
                Change::compare(&self.welcomed?, &welcome).map(JoinEvent::Changed)
            }
            Ok(_) => None,
            Err(reason) => self.unusable(payload, reason),
        }
    }

    fn handle_ask(&mut self, now: Duration) {
        match &mut self.state {
            State::Leaving(leaving) => leaving.lose_sums(now),
            _ => self.resume(now),
        }
    }

    /// The server has said which members have neither left nor ended.
    fn handle_members(&mut self, now: Duration, here: u64) -> Option<JoinEvent> {
        match &mut self.state {
            State::Leaving(leaving) => leaving.find_sums(now),
            State::Left => {}
            State::Joined | State::Joining => {
                self.here = here;
                return Some(JoinEvent::Here(here));
            }
        }
        None
    }

    fn handle_refused(
        &mut self,
        now: Duration,
        header: &Header,
        in_session: bool,
        refused: Refused,
    ) -> Option<JoinEvent> {
        let Refused { reason, worker } = refused;
        let young = now.saturating_sub(self.started) < IN_USE_GRACE;
        match reason {
            // Only the session's cookie counts: any host can know a job's number.
            RefuseReason::Reforming if in_session => {
                if matches!(self.state, State::Leaving(_)) {
                    self.state = State::Left;
                }
                Some(JoinEvent::Reforming(worker))
            }
            RefuseReason::Reforming => None,
            // An answer to an earlier attempt, which has come late.
            _ if header.round != self.attempt => None,
            RefuseReason::WorkerInUse if young => {
                self.next = self.next.min(now + IN_USE_RETRY);
                None
            }
            _ if self.state == State::Joining && header.cookie == self.cookie => {
                let (job, worker) = (self.job, self.worker);
                Some(JoinEvent::Failed(JoinError::Refused { job, worker, reason }))
            }
            _ => None,
        }
    }
}
