//! The keys `share` and `shares`: which part of the slots a server has, and where the others are (P21).

use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

use super::{ConfigError, Place, ServerOptions};

impl ServerOptions {
    /// The share's number and where all are; 0 and none for a server that has all slots.
    pub(super) fn shares(&self) -> Result<(u8, Vec<SocketAddrV4>), ConfigError> {
        let place = Place::Server;
        let (text, list) = match (&self.share, &self.shares) {
            (None, None) => return Ok((0, Vec::new())),
            (Some(text), Some(list)) => (text, list),
            (Some(_), None) => {
                let mend = "name the addresses of all shares, in order, such as h0:9000,h1:9000";
                return Err(ConfigError::Missing { place, key: "shares", mend });
            }
            (None, Some(_)) => {
                let mend = "say which of the shares this server has, such as 0/2 for the first of two";
                return Err(ConfigError::Missing { place, key: "share", mend });
            }
        };
        let wrong = |mend: String| ConfigError::Value { place, key: "share", value: text.clone(), mend };
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
        let resolve = |text: &String| {
            let found = text.to_socket_addrs().ok().and_then(|mut found| {
                found.find_map(|at| match at {
                    SocketAddr::V4(at) => Some(at),
                    SocketAddr::V6(_) => None,
                })
            });
            found.ok_or_else(|| ConfigError::Value {
                place,
                key: "shares",
                value: format!("{text:?}"),
                mend: "write IPv4 addresses or names with ports, such as 10.0.0.1:9000".to_owned(),
            })
        };
        Ok((share, list.iter().map(resolve).collect::<Result<_, _>>()?))
    }
}
