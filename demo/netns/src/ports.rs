//! Ports for servers that are told which one to listen on.
//!
//! A port that the kernel chose is free only until it chooses it again, for any connection of any process. So these lie
//! below those that it chooses from, and processes that ask here never get the same one.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// The first port to try; below are those of well-known services.
const FIRST: u16 = 10_000;
/// The first that the kernel chooses from, where it does not say.
const CHOSEN: u16 = 32_768;
/// How many places are tried.
const TRIES: usize = 1000;

/// What this process has: the names go with it, however it ends.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// The first of `count` ports in a row that are free on all addresses, over UDP and TCP. As long as this process lives, no
/// other one gets them here.
///
/// # Errors
/// If there are none.
pub fn free(count: u16) -> io::Result<u16> {
    let end = chosen_from().max(FIRST + 1000).saturating_sub(count);
    for _ in 0..if end > FIRST { TRIES } else { 0 } {
        let random = RandomState::new().hash_one(count);
        let first = FIRST + (random % u64::from(end - FIRST)) as u16;
        if let Ok(held) = (first..first + count).map(hold).collect::<io::Result<Vec<_>>>() {
            HELD.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(held);
            return Ok(first);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no {count} free ports in a row from {FIRST} to {end}"),
    ))
}

/// Holds a port against others who ask here, if it is free.
fn hold(port: u16) -> io::Result<UnixListener> {
    let held = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("thc-port-{port}"))?)?;
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    Ok(held)
}

/// Where the ports begin that the kernel chooses from.
fn chosen_from() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(CHOSEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn more_than_there_are_is_an_error() {
        assert!(free(u16::MAX).is_err());
    }

    #[test]
    fn nobody_gets_a_port_twice_and_all_are_free_and_not_the_kernels() -> io::Result<()> {
        let firsts = (0..200).map(|_| free(3)).collect::<io::Result<Vec<_>>>()?;
        let all: HashSet<u16> = firsts.iter().flat_map(|&first| first..first + 3).collect();
        assert_eq!(all.len(), 600);
        for port in all {
            assert!((FIRST..chosen_from()).contains(&port));
            assert!(hold(port).is_err(), "{port} is held");
            TcpListener::bind(("127.0.0.1", port))?;
            UdpSocket::bind(("127.0.0.1", port))?;
        }
        Ok(())
    }
}
