//! The keys `share`, `shares` and `spares`: which part of the slots a server has, and where the others are (P21).

use std::net::SocketAddr;

use crate::{ConfigError, Section, ServerOptions};

impl ServerOptions {
    /// The share's number, where all shares are, and how many of the last ones are spares; 0 and none for a
    /// server that has all slots.
    pub(crate) fn shares(&self) -> Result<(u8, Vec<SocketAddr>, u8), ConfigError> {
        let section = Section::Server;
        let (text, list) = match (&self.share, &self.shares) {
            (None, None) if self.spares.is_none() => return Ok((0, Vec::new(), 0)),
            (_, None) if self.spares.is_some() => {
                let mend = "name the addresses of the servers that the spares stand by for, such as h0:9000";
                return Err(ConfigError::Missing { section, key: "shares", mend });
            }
            (None, None) => return Ok((0, Vec::new(), 0)),
            (Some(text), Some(list)) => (text, list),
            (Some(_), None) => {
                let mend = "name the addresses of all shares, in order, such as h0:9000,h1:9000";
                return Err(ConfigError::Missing { section, key: "shares", mend });
            }
            (None, Some(_)) => {
                let mend = "say which of the shares this server has, such as 0/2 for the first of two";
                return Err(ConfigError::Missing { section, key: "share", mend });
            }
        };
        let wrong = |mend: String| ConfigError::Value { section, key: "share", value: text.clone(), mend };
        let (share, count) = text
            .split_once('/')
            .and_then(|(share, count)| Some((share.parse::<u8>().ok()?, count.parse::<usize>().ok()?)))
            .ok_or_else(|| wrong("write it like 1/4, for the second of four shares".to_owned()))?;
        let spares = self.spares.as_deref().unwrap_or_default();
        if count != list.len() + spares.len() {
            let named = if spares.is_empty() { "shares names" } else { "shares and spares name" };
            let all = list.len() + spares.len();
            return Err(wrong(format!("{named} {all} addresses, name one for each share")));
        }
        if usize::from(share) >= count {
            return Err(wrong(format!("the last of {count} shares is {}/{count}", count.saturating_sub(1))));
        }
        if self.p4runtime.is_some() {
            return Err(wrong(
                "a controller deals the slots of its jobs to servers by itself (servers = …), leave share out".to_owned(),
            ));
        }
        if list.is_empty() {
            let mend = "name the addresses of the servers that the spares stand by for, such as h0:9000";
            return Err(ConfigError::Missing { section, key: "shares", mend });
        }
        let resolve = |key: &'static str, text: &String| {
            thc_transport::resolve(text).map_err(|_| ConfigError::Value {
                section,
                key,
                value: format!("{text:?}"),
                mend: "write addresses (no link-local ones) or names with ports, such as 10.0.0.1:9000 or [fd00::1]:9000"
                    .to_owned(),
            })
        };
        let mut at = list.iter().map(|text| resolve("shares", text)).collect::<Result<Vec<_>, _>>()?;
        for text in spares {
            let spare = resolve("spares", text)?;
            if at.contains(&spare) {
                let (value, mend) =
                    (text.clone(), "a server cannot be its own spare, name another".to_owned());
                return Err(ConfigError::Value { section, key: "spares", value, mend });
            }
            at.push(spare);
        }
        Ok((share, at, spares.len() as u8))
    }
}
