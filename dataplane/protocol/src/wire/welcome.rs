//! Payload of WELCOME and DESCRIPTION (P23).

use super::norm::finalize;
use super::rack::{FEATURE_RACKS, Rack};
use super::shares::{FEATURE_IPV6, Shares};
use super::tables::{TABLE_LEN, Table, Tables};
use super::unusable::WelcomeError;
use super::{Form, bytes, put, u16_at, u32_at, u64_at};
use crate::{Cookie, MAX_WORKERS, Policy, TableId};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Length in bytes of the fixed part, which lists follow.
pub const WELCOME_LEN: usize = 128;
/// log₂ of the coordinates that a full partition can have (P4).
pub const BLOCKS: RangeInclusive<u8> = 10..=20;
const _: () = assert!(*BLOCKS.start() == 10 && *BLOCKS.end() == 20 && MAX_WORKERS == 64, "as the errors say");
/// Not part of the fingerprint: the session, the nonce and the fingerprint itself, and besides
/// [`MARKS_OWN`] and the credit.
const OWN: [std::ops::Range<usize>; 3] = [0..4, 56..64, 72..80];

/// Where it says that marks are reported, the bit for that (P46), and the word that contains it. It is not part
/// of the fingerprint.
const MARKS_AT: usize = 118;
const MARKS: u8 = 1;
const MARKS_WORD: usize = 112;
const MARKS_OWN: u64 = 0xff << (8 * (MARKS_WORD + 7 - MARKS_AT));

/// Everything a worker needs to know of its session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welcome {
    /// The session's cookie; 0 in a DESCRIPTION.
    pub session: Cookie,
    /// S.
    pub data_slots: u32,
    /// N.
    pub norm_slots: u32,
    /// Workers that complete a slot.
    pub quorum: u8,
    /// Loss policy.
    pub policy: Policy,
    /// UDP ports that share the slots (P21).
    pub shards: u8,
    /// When `best-effort` gives a packet up.
    pub deadline: Duration,
    /// The job's tables, the first of which calls take that name none.
    pub tables: Tables,
    /// Seed of the shared signs.
    pub job_seed: u64,
    /// Nonce of the worker answered.
    pub nonce: u64,
    /// log₂ of the coordinates of a full partition (P4), one of [`BLOCKS`].
    pub block: u8,
    /// n.
    pub workers: u8,
    /// Most data packets that a worker may have outstanding; 0 leaves it to the window (P18).
    pub credit: u32,
    /// What a worker must understand or else refuse the job, except [`FEATURE_RACKS`] and [`FEATURE_IPV6`],
    /// which follow from `rack` and `shares`.
    pub features: u32,
    /// Where the shares are among which the slots are dealt, unless one server has all slots (P21).
    pub shares: Shares,
    /// Where the member stands, if workers are in racks (P38).
    pub rack: Option<Rack>,
    /// Whether the aggregator tells congestion marks (P46).
    pub marks: bool,
}

impl Welcome {
    /// The WELCOME of a plain job: one server with one port has all of its 1024 data slots and 64 norm slots,
    /// and all workers complete a slot, reliably. Override these with a job's real numbers:
    /// `Welcome { data_slots, ..Welcome::new(…) }`.
    #[must_use]
    pub const fn new(workers: u8, tables: Tables) -> Welcome {
        Welcome {
            session: Cookie(0),
            data_slots: 1024,
            norm_slots: 64,
            quorum: workers,
            policy: Policy::Reliable,
            shards: 1,
            deadline: Duration::ZERO,
            tables,
            job_seed: 0,
            nonce: 0,
            block: *BLOCKS.end(),
            workers,
            credit: 0,
            features: 0,
            shares: Shares::NONE,
            rack: None,
            marks: false,
        }
    }

    /// Reads a payload, as [`Self::read`].
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Welcome> {
        Welcome::read(payload).ok()
    }

    /// The nonce of the worker to which a payload is the answer, whatever else is in it.
    pub(crate) fn nonce_of(payload: &[u8]) -> Option<u64> {
        payload.first_chunk::<WELCOME_LEN>().map(|p| u64_at(p, 56))
    }

    /// Reads a payload. Refuses numbers that no job can have (P8, P21), and a wrong fingerprint.
    ///
    /// # Errors
    /// [`WelcomeError::Damaged`] if it is no WELCOME, the others if this version cannot take part in the job.
    pub fn read(payload: &[u8]) -> Result<Welcome, WelcomeError> {
        let damaged = WelcomeError::Damaged;
        let (p, lists) = payload.split_first_chunk::<WELCOME_LEN>().ok_or(damaged)?;
        // What is behind the lists, a worker does not know, and so it refuses the job.
        let (features, count) = (u32_at(p, 88), usize::from(p[92]));
        let (shares, tables) = lists.split_at_checked(Shares::len_of_list(count, features)).ok_or(damaged)?;
        if tables.len() != usize::from(p[93]) * TABLE_LEN || u64_at(p, 72) != digest(payload) {
            return Err(damaged);
        }
        let require = WelcomeError::require;
        let (data_slots, norm_slots) = (u32_at(p, 4), u32_at(p, 8));
        for (what, slots) in [("data slots", data_slots), ("norm slots", norm_slots)] {
            let fits = (2..=65536).contains(&slots) && slots.is_multiple_of(2);
            require(fits, what, slots, "even numbers from 2 to 65536")?;
        }
        require((1..=MAX_WORKERS).contains(&p[82].into()), "workers", p[82].into(), "1 to 64")?;
        require((1..=p[82]).contains(&p[12]), "quorum", p[12].into(), "1 to the workers of the job")?;
        require(p[14] <= 1, "loss policy", p[14].into(), "0 and 1")?;
        require(p[15] != 0, "shards", p[15].into(), "1 to 64")?;
        require(BLOCKS.contains(&p[80]), "block", p[80].into(), "10 to 20")?;
        let rack = (features & FEATURE_RACKS != 0).then(|| Rack::parse(p));
        require(rack != Some(None), "racks", p[94].into(), "racks whose workers and ranks add up")?;
        let first = Table {
            id: TableId(p[20]),
            bits: p[21],
            form: table_form(p[20], p[83], p[13])?,
            granularity: u16_at(p, 22),
            fraction: f64::from_bits(u64_at(p, 24)),
            t_p: f64::from_bits(u64_at(p, 64)),
            values: bytes(p, 32),
        };
        Ok(Welcome {
            session: Cookie(u32_at(p, 0)),
            data_slots,
            norm_slots,
            quorum: p[12],
            policy: if p[14] == 0 { Policy::Reliable } else { Policy::BestEffort },
            shards: p[15],
            deadline: Duration::from_micros(u64::from(u32_at(p, 16))),
            tables: parse_tables(first, tables)?,
            job_seed: u64_at(p, 48),
            nonce: u64_at(p, 56),
            block: p[80],
            workers: p[82],
            credit: u32_at(p, 84),
            features: features & !(FEATURE_RACKS | FEATURE_IPV6),
            shares: Shares::parse(shares, count, features, p[15]).map_err(WelcomeError::Shares)?,
            rack: rack.flatten(),
            marks: p[MARKS_AT] & MARKS != 0,
        })
    }

    /// The payload. Deadlines beyond 71 minutes are sent as 71 minutes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let first = self.tables.first();
        let (shares, more) = (self.shares.as_slice().len(), self.tables.len() - 1);
        let len_of_shares = Shares::len_of_list(shares, self.shares.features());
        let mut out = vec![0; WELCOME_LEN + len_of_shares + more * TABLE_LEN];
        put(&mut out, 0, &self.session.0.to_be_bytes());
        put(&mut out, 4, &self.data_slots.to_be_bytes());
        put(&mut out, 8, &self.norm_slots.to_be_bytes());
        out[12] = self.quorum;
        out[13] = first.form.sums();
        out[14] = match self.policy {
            Policy::Reliable => 0,
            Policy::BestEffort => 1,
        };
        out[15] = self.shards;
        let micros = u32::try_from(self.deadline.as_micros()).unwrap_or(u32::MAX);
        put(&mut out, 16, &micros.to_be_bytes());
        out[20] = first.id.0;
        out[21] = first.bits;
        put(&mut out, 22, &first.granularity.to_be_bytes());
        put(&mut out, 24, &first.fraction.to_bits().to_be_bytes());
        put(&mut out, 32, &first.values);
        put(&mut out, 48, &self.job_seed.to_be_bytes());
        put(&mut out, 56, &self.nonce.to_be_bytes());
        put(&mut out, 64, &first.t_p.to_bits().to_be_bytes());
        out[80] = self.block;
        out[82] = self.workers;
        out[83] = first.form.width();
        put(&mut out, 84, &self.credit.to_be_bytes());
        let racks = if self.rack.is_some() { FEATURE_RACKS } else { 0 };
        put(&mut out, 88, &(self.features | racks | self.shares.features()).to_be_bytes());
        out[92] = shares as u8;
        out[93] = more as u8;
        if let Some(rack) = &self.rack {
            rack.emit(&mut out);
        }
        out[MARKS_AT] = u8::from(self.marks) * MARKS;
        let (to_shares, to_tables) = out[WELCOME_LEN..].split_at_mut(len_of_shares);
        self.shares.emit(to_shares);
        self.tables.emit_rest(to_tables);
        let fingerprint = digest(&out);
        put(&mut out, 72, &fingerprint.to_be_bytes());
        out
    }

    /// What two sessions must have in common for one to continue the other (P24): a hash of everything except
    /// session, nonce, credit and marks.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        digest(&self.to_bytes())
    }

    /// UDP ports over which the slots are spread, of all shares together (P21).
    #[must_use]
    pub fn all_shards(&self) -> u8 {
        self.shards.max(1) * self.shares.servers()
    }
}

fn table_form(id: u8, width: u8, lane: u8) -> Result<Form, WelcomeError> {
    Form::with_sums(width, lane).ok_or(WelcomeError::Form { id: TableId(id), width, lane })
}

fn parse_table(row: &[u8]) -> Result<Table, WelcomeError> {
    Ok(Table {
        id: TableId(row[0]),
        bits: row[1],
        form: table_form(row[0], row[2], row[3])?,
        granularity: u16_at(row, 4),
        fraction: f64::from_bits(u64_at(row, 8)),
        t_p: f64::from_bits(u64_at(row, 16)),
        values: bytes(row, 24),
    })
}

/// The first table, and those of the rows.
fn parse_tables(first: Table, rows: &[u8]) -> Result<Tables, WelcomeError> {
    let rest: Result<Vec<Table>, _> = rows.chunks_exact(TABLE_LEN).map(parse_table).collect();
    Tables::new(&[&[first], &rest?[..]].concat()).map_err(WelcomeError::Tables)
}

/// The fingerprint of a payload: SplitMix64's finalizer over its words, one after the other (P23).
fn digest(payload: &[u8]) -> u64 {
    let words = (0..payload.len()).step_by(8);
    words.fold(0, |hash, at| {
        let own = OWN.iter().any(|own| own.contains(&at));
        // Its first word has the session's cookie and S.
        let word = match at {
            0 => u64::from(u32_at(payload, 4)),
            _ if own => 0,
            // Its second half is the credit, which may be another one in a server that is started again (P41).
            80 => u64_at(payload, at) >> 32 << 32,
            MARKS_WORD => u64_at(payload, at) & !MARKS_OWN,
            _ => u64_at(payload, at),
        };
        finalize(hash ^ word).wrapping_add(1)
    })
}
