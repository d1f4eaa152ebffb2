//! Packet forms (P1–P3, P22–P25): for each a plain struct, its length, and checked conversions
//! from and to bytes. Every byte of a packet is written.

mod change;
mod form;
mod header;
mod join;
mod kind;
mod length;
mod mismatch;
mod norm;
mod nudge;
mod rack;
mod refused;
mod shares;
mod straggler;
mod tables;
mod unusable;
mod welcome;

pub use change::{Change, Field};
pub use form::Form;
pub use header::{BEFORE_ROUND, FLAG_MARK, FLAG_NUDGE, FLAG_ROOT, HEADER_LEN, Header, HeaderError, VERSION};
pub use join::{ASK_LEN, Ask, JOIN_LEN, Join, LEAVE_LEN, Leave, PENDING_LEN, Pending};
pub use kind::Kind;
pub use mismatch::{MISMATCH_LEN, Mismatch};
pub(crate) use norm::finalize;
pub use norm::{Choice, Mode, NORM_LEN, Norm};
pub use nudge::{NUDGE_LEN, Nudge};
pub use rack::{FEATURE_RACKS, FEATURE_ROOT, Rack, rack_layout};
pub use refused::{REFUSED_LEN, RefuseReason, Refused};
pub use shares::{FEATURE_IPV6, MAX_SHARES, Shares, SharesError};
pub use straggler::{STRAGGLER_LEN, Straggler};
pub use tables::{MAX_TABLES, Table, Tables, TablesError};
pub use unusable::WelcomeError;
pub use welcome::{BLOCKS, WELCOME_LEN, Welcome};

/// Bytes of the longest RESULT payload.
pub const RESULT_LEN: usize = 1024;
/// Words of a RAW payload.
pub const RAW_WORDS: usize = 256;
/// Bytes of a RAW or RAW_RESULT payload.
pub const RAW_LEN: usize = RAW_WORDS * 4;
/// The longest packet of the protocol.
pub const MAX_PACKET: usize = HEADER_LEN + RESULT_LEN;

/// Reads `N` bytes at `at`; the caller has checked the length.
fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(from, at))
}

fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(from, at))
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(from, at))
}

fn put(to: &mut [u8], at: usize, value: &[u8]) {
    to[at..at + value.len()].copy_from_slice(value);
}
