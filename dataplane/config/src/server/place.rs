//! The keys that say where a server stands among all servers of its jobs: `share` and `shares`, which part of the slots it
//! has (P21); `rack` and `root`, which rack it is (P34 to P38).

use std::net::{SocketAddr, UdpSocket};

use crate::job::{ConfigError, Section, rack_number, root_address, share_addresses};

use crate::server::options::ServerOptions;

impl ServerOptions {
    /// The share's number, and where all shares are; 0 and none for a server that has all slots.
    pub(crate) fn shares(&self) -> Result<(u8, Vec<SocketAddr>), ConfigError> {
        let section = Section::Server;
        let (text, list) = match (&self.share, &self.shares) {
            (None, None) => return Ok((0, Vec::new())),
            (Some(text), Some(list)) => (text, list),
            (Some(_), None) => {
                let mend = "name the addresses of all shares, in order, such as h0:9000,h1:9000";
                return Err(section.missing("shares", mend));
            }
            (None, Some(_)) => {
                let mend = "say which of the shares this server has, such as 0/2 for the first of two";
                return Err(section.missing("share", mend));
            }
        };
        let wrong = |mend: String| section.wrong("share", text, mend);
        let (share, count) = text
            .split_once('/')
            .and_then(|(share, count)| Some((share.parse::<u8>().ok()?, count.parse::<usize>().ok()?)))
            .ok_or_else(|| wrong("write it like 1/4, for the second of four shares".to_owned()))?;
        if count != list.len() {
            return Err(wrong(format!("shares names {} addresses, name one for each share", list.len())));
        }
        if usize::from(share) >= count {
            return Err(wrong(format!("the last of {count} shares is {}/{count}", count.saturating_sub(1))));
        }
        if self.p4runtime.is_some() {
            return Err(wrong(
                "a controller deals the slots of its jobs to servers by itself (servers = …), leave share out".to_owned(),
            ));
        }
        Ok((share, share_addresses(list, resolve)?))
    }

    /// Which rack this server is, and where the root is; `listen` is where this server is.
    pub(crate) fn rack_place(&self, listen: SocketAddr) -> Result<Option<(u8, SocketAddr)>, ConfigError> {
        let section = Section::Server;
        let (rack, root) = match (self.rack, &self.root) {
            (None, None) => return Ok(None),
            (Some(rack), Some(root)) => (rack, root),
            (Some(_), None) => {
                return Err(section.missing("root", "say where the root is, such as 10.0.0.1:9000"));
            }
            (None, Some(_)) => {
                return Err(
                    section.missing("rack", "say which of the root's racks this server is, from 0 on")
                );
            }
        };
        let number = rack_number(rack, self.shares.is_some())?;
        if self.p4runtime.is_some() {
            let mend = "a thc-ps under a controller cannot be a rack, leave out rack or p4runtime";
            return Err(section.wrong("rack", rack, mend));
        }
        let at = root_address(root, resolve)?;
        let here = at.ip() == listen.ip() || (listen.ip().is_unspecified() && is_own(at));
        if here && at.port() == listen.port() {
            let mend = "that is where this rack listens itself, give the address of another server";
            return Err(section.wrong("root", at, mend));
        }
        if let Some(shards) = self.shards.filter(|shards| *shards != 1) {
            return Err(section.wrong("shards", shards, "a rack has one port, give 1 or leave it out"));
        }
        Ok(Some((number, at)))
    }
}

/// Returns `true` for an address of this host.
fn is_own(at: SocketAddr) -> bool {
    UdpSocket::bind((at.ip(), 0)).is_ok()
}

/// Looks a name up, or reads an address; `None` for one that other hosts cannot use.
fn resolve(text: &str) -> Option<SocketAddr> {
    thc_transport::resolve(text).ok()
}
