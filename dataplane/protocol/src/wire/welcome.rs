//! Payload of WELCOME and DESCRIPTION (P23).

use super::layout::{Value, payload};
use super::norm::digest;
use super::rack::{FEATURE_RACKS, RACK_LEN, Rack};
use super::shares::{FEATURE_IPV6, Shares, SharesError};
use super::tables::{ROW_LEN, Row, Tables, TablesError};
use crate::{Cookie, MAX_WORKERS, Policy, TableId};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

/// Length in bytes of the fixed part, which lists follow.
pub const WELCOME_LEN: usize = FIXED_LEN;
/// log₂ of the coordinates that a full partition can have (P4 partitions).
pub const BLOCKS: RangeInclusive<u8> = 10..=20;
const _: () = assert!(*BLOCKS.start() == 10 && *BLOCKS.end() == 20 && MAX_WORKERS == 64, "as the errors say");

payload! {
    /// The fixed part of the payload.
    pub(super) struct Fixed[FIXED_LEN = 128] {
        0 session: Cookie,
        4 data_slots: u32,
        8 norm_slots: u32,
        12 quorum: u8,
        13 lane: u8,
        14 policy: u8,
        15 shards: u8,
        16 deadline: u32,
        20 id: TableId,
        21 bits: u8,
        22 granularity: u16,
        24 fraction: f64,
        32 values: [u8; 16],
        48 job_seed: u64,
        56 nonce: u64,
        64 t_p: f64,
        72 fingerprint: u64,
        80 block: u8,
        82 workers: u8,
        83 width: u8,
        84 credit: u32,
        88 features: u32,
        92 shares: u8,
        93 further_tables: u8,
        94 rack: [u8; RACK_LEN],
        118 marks: u8,
    }
}

/// Bytes that the fingerprint does not cover: session, nonce, the fingerprint itself, credit and marks.
const OWN: [Range<usize>; 5] = [0..4, 56..64, 72..80, 84..88, 118..119];
/// The bit of `marks` which says that they are reported (P46).
const MARKS: u8 = 1;

/// The reason why a payload is no WELCOME for this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WelcomeError {
    /// Its length does not match its counts, or its fingerprint is wrong: it was damaged, or is something
    /// else.
    #[error("it is damaged")]
    Damaged,
    /// A table travels in a form that this version does not know (P2 kinds, P44 packed sums).
    #[error(
        "table {id} has indices of {width} bits and sums of the form {lane}, which this version does not know"
    )]
    #[allow(missing_docs, reason = "the message names them")]
    Form { id: TableId, width: u8, lane: u8 },
    /// Its tables cannot be those of a job.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// Its shares cannot be those of a server.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// Numbers that no job has, or that mean something to later versions.
    #[error("{what} {value}: this version knows {may}")]
    #[allow(missing_docs, reason = "the message names them")]
    Number { what: &'static str, value: u32, may: &'static str },
}

/// The parameters of a session, as WELCOME gives them.
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
    /// UDP ports that share the slots.
    pub shards: u8,
    /// The age at which `best-effort` gives a packet up.
    pub deadline: Duration,
    /// The job's tables, the first of which calls take that name none.
    pub tables: Tables,
    /// Seed of the shared signs.
    pub job_seed: u64,
    /// Nonce of the worker answered.
    pub nonce: u64,
    /// log₂ of the coordinates of a full partition, one of [`BLOCKS`].
    pub block: u8,
    /// n.
    pub workers: u8,
    /// Most data packets that a worker may have outstanding; 0 leaves it to the window.
    pub credit: u32,
    /// The features that a worker must know or refuse the job, except [`FEATURE_RACKS`] and [`FEATURE_IPV6`],
    /// which follow from `rack` and `shares`.
    pub features: u32,
    /// The shares over which the slots are spread, unless one server has all slots.
    pub shares: Shares,
    /// The member's place, if workers are in racks.
    pub rack: Option<Rack>,
    /// True if the aggregator reports congestion marks.
    pub marks: bool,
}

impl Welcome {
    /// The WELCOME of a plain job: one server with one port has all of its 1024 data slots and 64 norm slots,
    /// and all workers complete a slot, reliably. Override these with a job's real numbers:
    /// `Welcome { data_slots, ..Welcome::new(…) }`.
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
    pub fn parse(payload: &[u8]) -> Option<Welcome> {
        Welcome::read(payload).ok()
    }

    /// The nonce of the worker to which a payload is the answer, whatever else is in it.
    pub(crate) fn nonce_of(payload: &[u8]) -> Option<u64> {
        Fixed::read(payload).map(|fixed| fixed.nonce)
    }

    /// Reads a payload. Refuses numbers that no job can have (P8, P21), and a wrong fingerprint.
    ///
    /// # Errors
    /// [`WelcomeError::Damaged`] if it is no WELCOME, the others if this version cannot take part in the job.
    pub fn read(payload: &[u8]) -> Result<Welcome, WelcomeError> {
        let damaged = WelcomeError::Damaged;
        let (fixed, lists) = payload.split_at_checked(WELCOME_LEN).ok_or(damaged)?;
        let fixed = Fixed::parse(fixed).ok_or(damaged)?;
        let (features, count) = (fixed.features, fixed.shares.into());
        let (shares, rows) = lists.split_at_checked(Shares::len_of_list(count, features)).ok_or(damaged)?;
        // A list that this version does not know makes the payload longer than its counts say.
        if rows.len() != usize::from(fixed.further_tables) * ROW_LEN
            || fixed.fingerprint != fingerprint(payload)
        {
            return Err(damaged);
        }
        fixed.check()?;
        let rack = Rack::parse(&fixed.rack).filter(|_| features & FEATURE_RACKS != 0);
        require(
            rack.is_none_or(|rack| rack.is_sound()),
            "racks",
            fixed.rack[0].into(),
            "racks whose workers and ranks add up",
        )?;
        let further = rows.chunks_exact(ROW_LEN).filter_map(Row::parse);
        let table =
            |row: Row| row.table().ok_or(WelcomeError::Form { id: row.id, width: row.width, lane: row.lane });
        let tables: Result<Vec<_>, _> = [fixed.first_table()].into_iter().chain(further).map(table).collect();
        Ok(Welcome {
            session: fixed.session,
            data_slots: fixed.data_slots,
            norm_slots: fixed.norm_slots,
            quorum: fixed.quorum,
            policy: if fixed.policy == 0 { Policy::Reliable } else { Policy::BestEffort },
            shards: fixed.shards,
            deadline: Duration::from_micros(fixed.deadline.into()),
            tables: Tables::new(&tables?)?,
            job_seed: fixed.job_seed,
            nonce: fixed.nonce,
            block: fixed.block,
            workers: fixed.workers,
            credit: fixed.credit,
            features: features & !(FEATURE_RACKS | FEATURE_IPV6),
            shares: Shares::parse(shares, count, features, fixed.shards)?,
            rack,
            marks: fixed.marks & MARKS != 0,
        })
    }

    /// The payload. Deadlines beyond 71 minutes are sent as 71 minutes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Row { id, bits, width, lane, granularity, fraction, t_p, values } = Row::new(self.tables.first());
        let shares = self.shares.as_slice().len();
        let racks = if self.rack.is_some() { FEATURE_RACKS } else { 0 };
        let fixed = Fixed {
            session: self.session,
            data_slots: self.data_slots,
            norm_slots: self.norm_slots,
            quorum: self.quorum,
            lane,
            policy: u8::from(self.policy == Policy::BestEffort),
            shards: self.shards,
            deadline: u32::try_from(self.deadline.as_micros()).unwrap_or(u32::MAX),
            id,
            bits,
            granularity,
            fraction,
            values,
            job_seed: self.job_seed,
            nonce: self.nonce,
            t_p,
            fingerprint: 0,
            block: self.block,
            workers: self.workers,
            width,
            credit: self.credit,
            features: self.features | racks | self.shares.features(),
            shares: shares as u8,
            further_tables: self.tables.len() as u8 - 1,
            rack: self.rack.map_or([0; _], |rack| rack.to_bytes()),
            marks: u8::from(self.marks) * MARKS,
        };
        let mut out = fixed.to_bytes().to_vec();
        self.shares.append_to(&mut out);
        self.tables[1..].iter().for_each(|table| out.extend(Row::new(table).to_bytes()));
        let fixed = Fixed { fingerprint: fingerprint(&out), ..fixed };
        fixed.write(&mut out);
        out
    }

    /// Returns the hash that two sessions must have in common for one to continue the other (P24): of everything except
    /// session, nonce, credit and marks.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(&self.to_bytes())
    }

    /// UDP ports over which the slots are spread, of all shares together (P21 shards and shares).
    pub fn all_shards(&self) -> u8 {
        self.shards.max(1) * self.shares.servers()
    }
}

impl Fixed {
    /// Checks the numbers outside of the lists (P47 what a worker takes).
    fn check(&self) -> Result<(), WelcomeError> {
        for (what, slots) in [("data slots", self.data_slots), ("norm slots", self.norm_slots)] {
            let fits = (2..=65536).contains(&slots) && slots.is_multiple_of(2);
            require(fits, what, slots, "even numbers from 2 to 65536")?;
        }
        let workers = self.workers;
        require((1..=MAX_WORKERS).contains(&workers.into()), "workers", workers.into(), "1 to 64")?;
        let quorum = (1..=workers).contains(&self.quorum);
        require(quorum, "quorum", self.quorum.into(), "1 to the workers of the job")?;
        require(self.policy <= 1, "loss policy", self.policy.into(), "0 and 1")?;
        require(self.shards != 0, "shards", self.shards.into(), "1 to 64")?;
        require(BLOCKS.contains(&self.block), "block", self.block.into(), "10 to 20")
    }

    fn first_table(&self) -> Row {
        let &Fixed { id, bits, width, lane, granularity, fraction, t_p, values, .. } = self;
        Row { id, bits, width, lane, granularity, fraction, t_p, values }
    }
}

fn require(fits: bool, what: &'static str, value: u32, may: &'static str) -> Result<(), WelcomeError> {
    if fits { Ok(()) } else { Err(WelcomeError::Number { what, value, may }) }
}

/// The fingerprint of a payload, which is a whole number of words (P23 WELCOME).
fn fingerprint(payload: &[u8]) -> u64 {
    let mut covered = payload.to_vec();
    OWN.into_iter().for_each(|own| covered[own].fill(0));
    digest(covered.chunks_exact(8).filter_map(u64::read))
}
