//! Who is in a session of a job whose members come and go, and who waits to join (P42).

use super::present::Present;
use crate::WorkerId;
use crate::wire::Position;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A member of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub present: Present,
    pub number: WorkerId,
    /// What it has answered to the present question (P43).
    pub position: Option<Position>,
}

/// A worker that is no member yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub present: Present,
    /// How many workers its session must have: as many as the session that it claims, or as it wants; 0 for
    /// any.
    pub workers: u8,
    /// The epoch of the session that it claims.
    pub epoch: u16,
}

/// Members and those who wait, by seat.
#[derive(Debug)]
pub(super) struct Roster {
    pub members: BTreeMap<u8, Member>,
    pub waiting: BTreeMap<u8, Waiting>,
    /// How many the session began with.
    pub size: u8,
    pub epoch: u16,
    pub phase: Phase,
    /// The number of the current question to members, counted in the session modulo 2^16.
    pub question: u16,
    pub because_of: WorkerId,
    pub told: Duration,
    /// Whether no member has been heard for so long that the server may be cut off.
    pub deaf: bool,
    /// When this roster began.
    pub since: Option<Duration>,
}

/// What is being done about members that come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Steady,
    /// Somebody waits: members are asked how far they are.
    Asking,
    /// They are to stop there.
    Stopping(u32),
    /// A member is gone, or has left after so many calls: the others are to hold and to report how many they
    /// have finished.
    Holding(Option<u32>),
    /// All members finish so many calls and no more. Some may have been told, so the number stays, whoever is
    /// gone then.
    Finishing(u32),
}

impl Roster {
    pub fn new() -> Roster {
        Roster {
            members: BTreeMap::new(),
            waiting: BTreeMap::new(),
            size: 0,
            epoch: 0,
            phase: Phase::Steady,
            question: 0,
            because_of: WorkerId::NONE,
            told: Duration::ZERO,
            deaf: false,
            since: None,
        }
    }

    /// How many are in the session.
    pub fn workers(&self) -> u8 {
        self.members.len() as u8
    }

    /// One bit for each seat that somebody has or wants.
    pub fn seats(&self) -> u64 {
        self.members.keys().chain(self.waiting.keys()).fold(0, |bits, &seat| bits | WorkerId(seat).bit())
    }

    /// Everybody who is here, by seat.
    pub fn present(&self) -> impl Iterator<Item = (u8, &Present)> {
        let members = self.members.iter().map(|(&seat, member)| (seat, &member.present));
        members.chain(self.waiting.iter().map(|(&seat, waiting)| (seat, &waiting.present)))
    }

    /// Whether somebody who is here sends from there.
    pub fn knows(&self, addr: SocketAddr) -> bool {
        self.present().any(|(_, present)| present.addr == addr)
    }

    /// The members, by seat.
    pub fn members(&self) -> impl Iterator<Item = (WorkerId, &Present)> {
        self.members.iter().map(|(&seat, member)| (WorkerId(seat), &member.present))
    }

    /// Takes up members that were in a session before.
    pub fn restore(&mut self, members: impl Iterator<Item = (WorkerId, Present)>) {
        let member = |(number, (seat, present)): (u8, (WorkerId, Present))| {
            (seat.0, Member { present, number: WorkerId(number), position: None })
        };
        self.members = (0..).zip(members).map(member).collect();
        self.size = self.members.len() as u8;
    }

    /// Sessions so far, modulo 2^16.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// As if all had just been heard.
    pub fn listen_anew(&mut self, now: Duration) {
        let members = self.members.values_mut().map(|member| &mut member.present);
        members.chain(self.waiting.values_mut().map(|w| &mut w.present)).for_each(|p| p.heard = now);
    }

    /// The later of two numbers of sessions, which wrap.
    pub fn note_epoch(&mut self, epoch: u16) {
        if epoch.wrapping_sub(self.epoch) as i16 > 0 {
            self.epoch = epoch;
        }
    }
}
