//! Limits how many wrong cookies are answered (P22), so that guessing one takes years.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Wrong JOINs of one address that are answered: at once, and then per second.
const OF_ONE: Allowance = Allowance { burst: 20, each: Duration::from_millis(100) };
/// Guesses from all addresses together, so that forging addresses gains little.
const OF_ALL: Allowance = Allowance { burst: 1000, each: Duration::from_millis(2) };
/// How many addresses are remembered. Beyond that, the one that would be allowed again first is forgotten.
const ADDRESSES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: u32,
    /// Time in which one more is allowed.
    each: Duration,
}

/// A bucket of tokens, kept as the time at which it will be full again.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full: Duration,
}

impl Bucket {
    fn is_empty(self, now: Duration, of: Allowance) -> bool {
        self.full.saturating_sub(now) + of.each > of.each * of.burst
    }

    fn take(&mut self, now: Duration, of: Allowance) {
        self.full = self.full.max(now) + of.each;
    }
}

/// Who has guessed how often.
#[derive(Default)]
pub(super) struct Guesses {
    all: Bucket,
    by_address: Vec<(IpAddr, Bucket)>,
}

/// What counts as one address (P22): for IPv6 the first 64 bits, since a host can have any number of
/// addresses that begin with them.
fn bucket_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl fmt::Debug for Guesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guesses")
    }
}

impl Guesses {
    /// Whether JOINs from there are ignored for now, since a right cookie among too many guesses would also
    /// be a guess.
    pub fn is_exhausted(&self, now: Duration, from: IpAddr) -> bool {
        let from = bucket_address(from);
        let of_one = self.by_address.iter().find(|(address, _)| *address == from);
        self.all.is_empty(now, OF_ALL) || of_one.is_some_and(|(_, bucket)| bucket.is_empty(now, OF_ONE))
    }

    /// A JOIN from there had a wrong cookie or job.
    pub fn note(&mut self, now: Duration, from: IpAddr) {
        let from = bucket_address(from);
        self.all.take(now, OF_ALL);
        if let Some((_, bucket)) = self.by_address.iter_mut().find(|(address, _)| *address == from) {
            bucket.take(now, OF_ONE);
            return;
        }
        if self.by_address.len() >= ADDRESSES {
            self.by_address.retain(|(_, bucket)| bucket.full > now);
        }
        if self.by_address.len() >= ADDRESSES
            && let Some(least) = (0..ADDRESSES).min_by_key(|&i| self.by_address[i].1.full)
        {
            self.by_address.swap_remove(least);
        }
        let mut bucket = Bucket::default();
        bucket.take(now, OF_ONE);
        self.by_address.push((from, bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_address_has_twenty_guesses_and_then_ten_a_second() {
        let mut guesses = Guesses::default();
        let (one, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        let mut looked_at = 0;
        // A guess each millisecond, for ten seconds.
        for now in (0..10_000).map(Duration::from_millis) {
            if !guesses.is_exhausted(now, one) {
                guesses.note(now, one);
                looked_at += 1;
            }
            assert!(!guesses.is_exhausted(now, other));
        }
        assert!((110..=121).contains(&looked_at), "{looked_at}");
        assert!(!guesses.is_exhausted(Duration::from_secs(11), one));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut guesses = Guesses::default();
        let at = |network: u128, host: u128| Ipv6Addr::from_bits(network << 64 | host).into();
        (0..20).for_each(|host| guesses.note(Duration::ZERO, at(7, host)));
        assert!(guesses.is_exhausted(Duration::ZERO, at(7, 99)));
        assert!(!guesses.is_exhausted(Duration::ZERO, at(8, 99)));
    }

    #[test]
    fn many_addresses_share_an_allowance_and_bounded_memory() {
        let mut guesses = Guesses::default();
        let mut looked_at = 0;
        for i in 0..100_000u32 {
            let (now, from) = (Duration::from_micros(100) * i, Ipv4Addr::from(i).into());
            if !guesses.is_exhausted(now, from) {
                guesses.note(now, from);
                looked_at += 1;
            }
        }
        assert!((5_900..=6_100).contains(&looked_at), "{looked_at}");
        assert!(guesses.by_address.len() <= ADDRESSES);
    }
}
