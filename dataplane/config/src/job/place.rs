//! The place of a server among all servers of its jobs: its part of the slots (P21), or its rack (P34).

use std::net::SocketAddr;

use thc_protocol::MAX_WORKERS;
use thc_protocol::wire::Shares;

use crate::job::error::{ConfigError, Section};

/// The place of a server among all servers of its jobs.
#[derive(Clone, Copy, Debug)]
pub struct ServerPlace {
    /// Its ports; the servers of all shares have as many.
    pub shards: u8,
    /// The addresses of all shares; none for a server that has all slots.
    pub shares: Shares,
    /// The number of its rack, and the root's address; `None` for a server that is alone or the root of racks.
    pub rack: Option<(u8, SocketAddr)>,
    /// `true` if its jobs may be on switches as well, as those of a controller: a job's first table travels in the usual form,
    /// only tables with a lane of their own pack sums, and the default of norm slots is at most 256.
    pub may_be_switch: bool,
}

impl ServerPlace {
    /// The place of a server that has all slots, behind `shards` ports, and is no rack.
    pub const fn alone(shards: u8) -> ServerPlace {
        ServerPlace { shards, shares: Shares::NONE, rack: None, may_be_switch: false }
    }

    /// Returns `true` if other servers have slots, too.
    pub(crate) fn is_share(&self) -> bool {
        self.shares != Shares::NONE
    }

    /// Which rack it is.
    pub(crate) fn rack_number(&self) -> Option<u8> {
        self.rack.map(|(number, _)| number)
    }
}

/// The addresses of the servers of all shares. `resolve` looks a name up, or reads an address.
///
/// # Errors
/// The key `shares`: a name without an address.
pub fn share_addresses(
    shares: &[String],
    resolve: impl Fn(&str) -> Option<SocketAddr>,
) -> Result<Vec<SocketAddr>, ConfigError> {
    let mend =
        "write addresses (no link-local ones) or names with ports, such as 10.0.0.1:9000 or [fd00::1]:9000";
    let wrong = |text: &String| Section::Server.wrong("shares", format!("{text:?}"), mend);
    shares.iter().map(|text| resolve(text).ok_or_else(|| wrong(text))).collect()
}

/// The number of a rack, which cannot have a share of the slots as well.
///
/// # Errors
/// The key `rack`: a root has no rack of that number, or the server has a share.
pub fn rack_number(rack: u64, has_share: bool) -> Result<u8, ConfigError> {
    let mend = match rack {
        rack if rack >= MAX_WORKERS as u64 => "a root has at most 64 racks, 0 to 63",
        _ if has_share => "racks have no shares, leave out rack or shares",
        rack => return Ok(rack as u8),
    };
    Err(Section::Server.wrong("rack", rack, mend))
}

/// The address of a rack's root; `resolve` looks a name up, or reads an address.
///
/// # Errors
/// The key `root`: there is no server at such an address.
pub fn root_address(
    root: &str,
    resolve: impl Fn(&str) -> Option<SocketAddr>,
) -> Result<SocketAddr, ConfigError> {
    let mend =
        "write an address (no link-local one) or a name with a port, such as 10.0.0.1:9000 or [fd00::1]:9000";
    resolve(root)
        .filter(|at| at.port() != 0 && !at.ip().is_unspecified())
        .ok_or_else(|| Section::Server.wrong("root", format!("{root:?}"), mend))
}
