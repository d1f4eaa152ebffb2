//! Packet forms (P1–P3, P22–P25): for each a plain struct, its length, and checked conversions
//! from and to bytes. Every byte of a packet is written.

mod answers;
mod change;
mod control;
mod form;
mod header;
mod kind;
mod layout;
mod length;
mod norm;
mod rack;
mod shares;
mod tables;
mod welcome;

pub use answers::{MISMATCH_LEN, Mismatch, NUDGE_LEN, Nudge, STRAGGLER_LEN, Straggler};
pub use change::Change;
pub use control::{
    ASK_LEN, Ask, JOIN_LEN, Join, LEAVE_LEN, Leave, PENDING_LEN, Pending, REFUSED_LEN, RefuseReason, Refused,
};
pub use form::Form;
pub use header::{BEFORE_ROUND, FLAG_MARK, FLAG_NUDGE, FLAG_ROOT, HEADER_LEN, Header, HeaderError, VERSION};
pub use kind::Kind;
pub(crate) use norm::digest;
pub use norm::{Choice, Mode, NORM_LEN, Norm};
pub use rack::{FEATURE_RACKS, FEATURE_ROOT, Rack, rack_layout};
pub use shares::{FEATURE_IPV6, MAX_SHARES, Shares, SharesError};
pub use tables::{MAX_TABLES, Table, Tables, TablesError};
pub use welcome::{BLOCKS, WELCOME_LEN, Welcome, WelcomeError};

/// Bytes of the longest RESULT payload.
pub const RESULT_LEN: usize = 1024;
/// Words of a RAW payload.
pub const RAW_WORDS: usize = 256;
/// Bytes of a RAW or RAW_RESULT payload.
pub const RAW_LEN: usize = RAW_WORDS * 4;
/// The longest packet of the protocol.
pub const MAX_PACKET: usize = HEADER_LEN + RESULT_LEN;
