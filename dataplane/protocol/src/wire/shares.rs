//! The list of shares behind a WELCOME's fixed part (P21, P23).

use super::layout::Value;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// Most shares of a server, and most ports of all shares together: more would have no slots.
pub const MAX_SHARES: usize = 64;
/// Feature of a WELCOME whose list of shares has IPv6 addresses (P23).
pub const FEATURE_IPV6: u32 = 32;
/// Bytes of a row with an IPv4 address, and with an IPv6 address.
const ROW_LEN: usize = 8;
const ROW_LEN_V6: usize = 18;

/// The address and base port of each share of a job's server, in order. Empty if one server has all slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    count: u8,
    at: [SocketAddr; MAX_SHARES],
}

/// The reason why addresses are no list of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum SharesError {
    #[error(
        "{count} shares of {shards} ports each: name 2 shares or more, with at most {MAX_SHARES} ports together"
    )]
    Count { count: usize, shards: u8 },
    #[error(
        "share {share} is at {at}, which is not a server's address: give an address of its host, and a port"
    )]
    Address { share: usize, at: SocketAddr },
    #[error(
        "share {share} is at {at}, and share 0 at {first_at}: give all shares IPv4 addresses, or all of them IPv6 addresses"
    )]
    Mixed { share: usize, at: SocketAddr, first_at: SocketAddr },
    #[error(
        "shares {first} and {second} overlap: {first_at} and {second_at}, each with {shards} ports in a row"
    )]
    Overlap { first: usize, second: usize, first_at: SocketAddr, second_at: SocketAddr, shards: u8 },
}

impl Shares {
    /// No shares: one server.
    pub const NONE: Shares =
        Shares { count: 0, at: [SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)); MAX_SHARES] };

    /// A list of at least 2 shares with `shards` ports each.
    ///
    /// # Errors
    /// [`SharesError`].
    pub fn new(at: &[SocketAddr], shards: u8) -> Result<Shares, SharesError> {
        let count = at.len();
        if count < 2 || count.saturating_mul(usize::from(shards)) > MAX_SHARES {
            return Err(SharesError::Count { count, shards });
        }
        let bad = |at: &SocketAddr| {
            let of_no_host = match at.ip() {
                IpAddr::V4(ip) => ip.is_broadcast(),
                // The one is of a link alone, the other is an IPv4 address in disguise.
                IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
            };
            of_no_host
                || at.ip().is_unspecified()
                || at.ip().is_multicast()
                || at.port() == 0
                || at.port().checked_add(u16::from(shards) - 1).is_none()
        };
        if let Some(share) = at.iter().position(bad) {
            return Err(SharesError::Address { share, at: at[share] });
        }
        if let Some(share) = at.iter().position(|share| share.is_ipv6() != at[0].is_ipv6()) {
            return Err(SharesError::Mixed { share, at: at[share], first_at: at[0] });
        }
        for (second, &second_at) in at.iter().enumerate() {
            let near = |other: &SocketAddr| {
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
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.at[..usize::from(self.count)]
    }

    /// Returns how many servers there are, at least 1.
    pub fn servers(&self) -> u8 {
        self.count.max(1)
    }

    /// The port of each shard of all shares, share by share. `first` is the address of the first share, where
    /// this worker has joined.
    pub fn ports(&self, first: SocketAddr, shards: u8) -> Vec<SocketAddr> {
        let (servers, shards) = (usize::from(self.servers()), usize::from(shards.max(1)));
        let base = |share: usize| self.as_slice().get(share).copied().filter(|_| share > 0).unwrap_or(first);
        let port = |shard: usize| {
            let base = base(shard / shards);
            SocketAddr::from((base.ip(), base.port().wrapping_add((shard % shards) as u16)))
        };
        (0..servers * shards).map(port).collect()
    }

    /// Returns whether its rows have IPv6 addresses, which a worker must know (P23 WELCOME).
    pub(super) fn features(&self) -> u32 {
        let ipv6 = self.as_slice().first().is_some_and(SocketAddr::is_ipv6);
        if ipv6 { FEATURE_IPV6 } else { 0 }
    }

    /// Bytes of a list of `count` rows in a WELCOME with these features: whole words, since the fingerprint
    /// is computed over words.
    pub(super) fn len_of_list(count: usize, features: u32) -> usize {
        let row = if features & FEATURE_IPV6 == 0 { ROW_LEN } else { ROW_LEN_V6 };
        (count * row).next_multiple_of(8)
    }

    /// Reads a list of `count` rows.
    pub(super) fn parse(list: &[u8], count: usize, features: u32, shards: u8) -> Result<Shares, SharesError> {
        if count == 0 {
            return Ok(Shares::NONE);
        }
        let v4 = |row: &[u8]| Some((<[u8; 4]>::read(row)?, u16::read(&row[4..])?).into());
        let v6 = |row: &[u8]| Some((<[u8; 16]>::read(row)?, u16::read(&row[16..])?).into());
        // Bytes that fill the last word are no row.
        let at: Vec<SocketAddr> = match features & FEATURE_IPV6 {
            0 => list.chunks_exact(ROW_LEN).take(count).filter_map(v4).collect(),
            _ => list.chunks_exact(ROW_LEN_V6).take(count).filter_map(v6).collect(),
        };
        Shares::new(&at, shards)
    }

    /// Appends the list.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + Shares::len_of_list(self.as_slice().len(), self.features());
        for share in self.as_slice() {
            match share.ip() {
                IpAddr::V4(ip) => out.extend(ip.octets()),
                IpAddr::V6(ip) => out.extend(ip.octets()),
            }
            out.extend(share.port().to_be_bytes());
            out.extend(if share.is_ipv4() { &[0; 2][..] } else { &[] });
        }
        out.resize(end, 0);
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}
