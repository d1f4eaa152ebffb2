//! A worker's place in a job.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The port of a parameter server whose address has none.
const DEFAULT_PORT: u16 = 9000;

/// A worker's place in a job, and the server at which it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The parameter server. Default 127.0.0.1:9000.
    pub ps: SocketAddr,
    /// The job's number. Default 1.
    pub job: u16,
    /// This worker's number, 0 to n − 1. Default 0.
    pub worker: u8,
    /// The job's cookie, as the parameter server has it. Default 0, which no job has.
    pub cookie: u32,
}

impl Default for Seat {
    fn default() -> Self {
        Seat { ps: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)), job: 1, worker: 0, cookie: 0 }
    }
}

/// The address of a parameter server, written as a name or a number, with a port or with the default one, 9000.
///
/// # Errors
/// The reason why no server can be there, and how to write one.
pub fn server_address(text: &str) -> Result<SocketAddr, String> {
    let is_ipv6 = text.parse::<Ipv6Addr>().is_ok();
    let whole = match text {
        _ if is_ipv6 => format!("[{text}]:{DEFAULT_PORT}"),
        _ if text.is_empty() || text.contains(':') && !text.ends_with(']') => text.to_owned(),
        _ => format!("{text}:{DEFAULT_PORT}"),
    };
    let ps = thc_transport::resolve(&whole)
        .map_err(|error| format!("{error}; write it like 10.0.0.1:9000 or [fd00::1]:9000"))?;
    if ps.port() == 0 {
        return Err(format!("no server has port 0; the usual port is {DEFAULT_PORT}"));
    }
    let broadcast = matches!(ps.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    if ps.ip().is_unspecified() || broadcast || ps.ip().is_multicast() {
        let own = if ps.is_ipv4() { "127.0.0.1" } else { "[::1]" };
        return Err(format!("that is not a server's address; on this host it is {own}"));
    }
    Ok(ps)
}
