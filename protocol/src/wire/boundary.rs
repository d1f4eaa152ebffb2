//! Payloads of BOUNDARY and POSITION (P43): where one session ends and the next begins.

use super::{put, u16_at, u32_at, u64_at};
use crate::WorkerId;

/// Length of BOUNDARY in bytes.
pub const BOUNDARY_LEN: usize = 8;
/// Length of POSITION in bytes.
pub const POSITION_LEN: usize = 20;

/// What a member is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// Nothing: the session goes on as it is.
    GoOn = 0,
    /// A member is gone: finish no more calls, and report how many are finished.
    Hold = 1,
    /// To finish as many calls as told, and no more.
    Finish = 2,
    /// A worker waits to join: report how many calls have begun, and stop at the next boundary until told
    /// more.
    Ask = 3,
    /// Stop at the first boundary at which as many calls have begun as told.
    Stop = 4,
}

/// To a member of a session that is about to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// What it is to do.
    pub what: What,
    /// The seat of the worker that comes or goes.
    pub because_of: WorkerId,
    /// The number of the question among those of the session, modulo 2^16.
    pub question: u16,
    /// Calls in the session, modulo 2^32.
    pub calls: u32,
}

impl Boundary {
    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Boundary> {
        let p: &[u8; BOUNDARY_LEN] = payload.try_into().ok()?;
        let what = match p[0] {
            0 => What::GoOn,
            1 => What::Hold,
            2 => What::Finish,
            3 => What::Ask,
            4 => What::Stop,
            _ => return None,
        };
        Some(Boundary { what, because_of: WorkerId(p[1]), question: u16_at(p, 2), calls: u32_at(p, 4) })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BOUNDARY_LEN] {
        let mut out = [0; BOUNDARY_LEN];
        (out[0], out[1]) = (self.what as u8, self.because_of.0);
        put(&mut out, 2, &self.question.to_be_bytes());
        put(&mut out, 4, &self.calls.to_be_bytes());
        out
    }
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stand {
    /// It goes on as ever.
    Running = 0,
    /// It finishes no call but those that it was told to.
    Holding = 1,
    /// It has stopped at a boundary.
    Stopped = 2,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The nonce it joined with.
    pub nonce: u64,
    /// Calls that it has finished in the session, modulo 2^32.
    pub finished: u32,
    /// Calls that it has begun in the session, modulo 2^32.
    pub begun: u32,
    /// What it does.
    pub stand: Stand,
    /// The number of the BOUNDARY that it answers.
    pub question: u16,
}

impl Position {
    /// Whether it has stopped at a boundary with so many calls begun, or more, modulo 2^32.
    #[must_use]
    pub fn has_stopped_at(&self, calls: u32) -> bool {
        self.stand == Stand::Stopped && self.begun.wrapping_sub(calls) as i32 >= 0
    }

    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Position> {
        let p: &[u8; POSITION_LEN] = payload.try_into().ok()?;
        let stand = match p[16] {
            0 => Stand::Running,
            1 => Stand::Holding,
            2 => Stand::Stopped,
            _ => return None,
        };
        let (finished, begun, question) = (u32_at(p, 8), u32_at(p, 12), u16_at(p, 18));
        Some(Position { nonce: u64_at(p, 0), finished, begun, stand, question })
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; POSITION_LEN] {
        let mut out = [0; POSITION_LEN];
        put(&mut out, 0, &self.nonce.to_be_bytes());
        put(&mut out, 8, &self.finished.to_be_bytes());
        put(&mut out, 12, &self.begun.to_be_bytes());
        out[16] = self.stand as u8;
        put(&mut out, 18, &self.question.to_be_bytes());
        out
    }
}
