//! Free ports for servers that need to be given one.
//!
//! A port that the kernel chose is free only until the kernel chooses it again, for any connection of any process. The
//! ports of this module therefore lie below the kernel's range, and two processes that use this module never get the same
//! one.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// The lowest port to try. Those of well-known services lie below it.
const FIRST: u16 = 10_000;
/// The lowest port of the kernel's range, if the kernel does not report it.
const CHOSEN: u16 = 32_768;
/// The number of random ranges that are tried.
const TRIES: usize = 1000;

/// Names that reserve this process's ports. The kernel removes them when the process ends.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Finds `count` consecutive ports that are free on all addresses, over UDP and TCP, and returns the first one. As long
/// as this process lives, this function gives the ports to no other process.
///
/// # Errors
/// An error if there are none.
pub fn find_free(count: u16) -> io::Result<u16> {
    let end = first_ephemeral_port().max(FIRST + 1000).saturating_sub(count);
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

/// Reserves a port for this process, if the port is free.
fn hold(port: u16) -> io::Result<UnixListener> {
    let held = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("thc-port-{port}"))?)?;
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    Ok(held)
}

/// The lowest port from which the kernel chooses.
fn first_ephemeral_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(CHOSEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn more_than_there_are_is_an_error() {
        assert!(find_free(u16::MAX).is_err());
    }

    #[test]
    fn nobody_gets_a_port_twice_and_all_are_free_and_not_the_kernels() -> io::Result<()> {
        let firsts = (0..200).map(|_| find_free(3)).collect::<io::Result<Vec<_>>>()?;
        let all: HashSet<u16> = firsts.iter().flat_map(|&first| first..first + 3).collect();
        assert_eq!(all.len(), 600);
        for port in all {
            assert!((FIRST..first_ephemeral_port()).contains(&port));
            assert!(hold(port).is_err(), "{port} is held");
            TcpListener::bind(("127.0.0.1", port))?;
            UdpSocket::bind(("127.0.0.1", port))?;
        }
        Ok(())
    }
}
