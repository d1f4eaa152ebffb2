//! The list of shares behind a WELCOME's fixed part (P21, P23).

use super::{bytes, put, u16_at};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Most shares of a server, and most ports that all shares have together: more would find no slots.
pub const MAX_SHARES: usize = 64;
/// Bytes of a row.
pub(super) const ROW_LEN: usize = 8;

/// Where the shares of a job's server are, in order: a share's address and base port. Empty where one server has all slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    count: u8,
    at: [SocketAddrV4; MAX_SHARES],
}

/// Why addresses are no list of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    /// One share, or too many.
    #[error(
        "{count} shares of {shards} ports each: name 2 shares or more, with at most {MAX_SHARES} ports together"
    )]
    Count {
        /// How many.
        count: usize,
        /// Ports of each.
        shards: u8,
    },
    /// An address that no server has.
    #[error(
        "share {share} is at {at}, which is no server's address: give an address of its host, and a port"
    )]
    Address {
        /// The share.
        share: usize,
        /// Its address.
        at: SocketAddrV4,
    },
    /// Two shares in one place.
    #[error(
        "shares {first} and {second} overlap: {first_at} and {second_at}, each with {shards} ports in a row"
    )]
    Overlap {
        /// A share.
        first: usize,
        /// Another.
        second: usize,
        /// Where the first is.
        first_at: SocketAddrV4,
        /// Where the second is.
        second_at: SocketAddrV4,
        /// Ports of each.
        shards: u8,
    },
}

impl Shares {
    /// No shares: one server.
    pub const NONE: Shares =
        Shares { count: 0, at: [SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0); MAX_SHARES] };

    /// A list of shares that have so many ports each, at least 2 of them.
    ///
    /// # Errors
    /// [`SharesError`].
    pub fn new(at: &[SocketAddrV4], shards: u8) -> Result<Shares, SharesError> {
        let count = at.len();
        if count < 2 || count.saturating_mul(usize::from(shards)) > MAX_SHARES {
            return Err(SharesError::Count { count, shards });
        }
        let bad = |at: &SocketAddrV4| {
            let ip = at.ip();
            ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_multicast()
                || at.port() == 0
                || at.port().checked_add(u16::from(shards) - 1).is_none()
        };
        if let Some(share) = at.iter().position(bad) {
            return Err(SharesError::Address { share, at: at[share] });
        }
        for (second, &second_at) in at.iter().enumerate() {
            let near = |other: &SocketAddrV4| {
                other.ip() == second_at.ip() && other.port().abs_diff(second_at.port()) < u16::from(shards)
            };
            if let Some(first) = at[..second].iter().position(near) {
                let first_at = at[first];
                return Err(SharesError::Overlap { first, second, first_at, second_at, shards });
            }
        }
        let mut shares = Shares { count: count as u8, ..Shares::NONE };
        shares.at[..count].copy_from_slice(at);
        Ok(shares)
    }

    /// In order; empty for one server.
    #[must_use]
    pub fn as_slice(&self) -> &[SocketAddrV4] {
        &self.at[..usize::from(self.count)]
    }

    /// How many servers there are, at least 1.
    #[must_use]
    pub fn servers(&self) -> u8 {
        self.count.max(1)
    }

    /// The port of each shard of all shares, share by share. The first share is where `first` says: where this worker has joined.
    #[must_use]
    pub fn ports(&self, first: SocketAddrV4, shards: u8) -> Vec<SocketAddrV4> {
        let (servers, shards) = (usize::from(self.servers()), usize::from(shards.max(1)));
        let base = |share: usize| self.as_slice().get(share).copied().filter(|_| share > 0).unwrap_or(first);
        let port = |shard: usize| {
            let base = base(shard / shards);
            SocketAddrV4::new(*base.ip(), base.port().wrapping_add((shard % shards) as u16))
        };
        (0..servers * shards).map(port).collect()
    }

    pub(super) fn parse(rows: &[u8], shards: u8) -> Result<Shares, SharesError> {
        if rows.is_empty() {
            return Ok(Shares::NONE);
        }
        let row = |row: &[u8]| SocketAddrV4::new(Ipv4Addr::from(bytes::<4>(row, 0)), u16_at(row, 4));
        let at: Vec<_> = rows.chunks_exact(ROW_LEN).map(row).collect();
        Shares::new(&at, shards)
    }

    /// Writes the rows.
    pub(super) fn emit(&self, rows: &mut [u8]) {
        for (row, at) in rows.chunks_exact_mut(ROW_LEN).zip(self.as_slice()) {
            put(row, 0, &at.ip().octets());
            put(row, 4, &at.port().to_be_bytes());
            put(row, 6, &[0; 2]);
        }
    }

    /// What two lists differ in, as a number; 0 for none.
    pub(super) fn digest(&self) -> u64 {
        self.as_slice().iter().fold(0, |hash, at| {
            let row = u64::from(at.ip().to_bits()) << 16 | u64::from(at.port());
            super::norm::finalize(hash ^ row).wrapping_add(1)
        })
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}
