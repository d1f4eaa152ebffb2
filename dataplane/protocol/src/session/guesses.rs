//! Limits how many wrong cookies are answered (P22), so that guessing one takes months, and JOINs of workers come through
//! meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Wrong JOINs of one address that are answered: at once, and then per second.
const OF_ONE: Allowance = Allowance { burst: 20, each: Duration::from_millis(100) };
/// Wrong JOINs of all addresses together that have guessed before: forging addresses gains little.
const OF_GUESSERS: Allowance = Allowance { burst: 100, each: Duration::from_millis(10) };
/// Wrong JOINs of all other addresses together, among which are those of workers that join.
const OF_OTHERS: Allowance = Allowance { burst: 2000, each: Duration::from_millis(2) };
/// For how long an address counts as one that has guessed.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Most addresses that are remembered. Beyond that, the one that guessed longest ago is forgotten.
const ADDRESSES: usize = 4096;

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

/// An address that has guessed.
#[derive(Clone, Copy, Debug, Default)]
struct Guesser {
    bucket: Bucket,
    /// Its last guess.
    last: Duration,
}

/// The guesses of each address.
#[derive(Default)]
pub(super) struct Guesses {
    of_guessers: Bucket,
    of_others: Bucket,
    by_address: BTreeMap<IpAddr, Guesser>,
}

/// Returns the part of an address that is counted (P22 JOIN): of IPv6 the first 64 bits, since a host can have any number of
/// addresses that begin with them.
fn bucket_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// Without the guesses: tests compare registries by this text, and a wrong JOIN changes nothing else.
impl fmt::Debug for Guesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guesses")
    }
}

impl Guesses {
    fn guesser(&self, now: Duration, address: IpAddr) -> Option<&Guesser> {
        self.by_address.get(&address).filter(|guesser| now.saturating_sub(guesser.last) < REMEMBERED)
    }

    /// Returns whether JOINs from there are ignored for now, since a right cookie among too many guesses would also
    /// be a guess.
    pub fn is_exhausted(&self, now: Duration, from: IpAddr) -> bool {
        match self.guesser(now, bucket_address(from)) {
            Some(guesser) => {
                guesser.bucket.is_empty(now, OF_ONE) || self.of_guessers.is_empty(now, OF_GUESSERS)
            }
            None => self.of_others.is_empty(now, OF_OTHERS),
        }
    }

    /// A JOIN from there had a wrong cookie or job.
    pub fn record(&mut self, now: Duration, from: IpAddr) {
        let from = bucket_address(from);
        match self.guesser(now, from) {
            Some(_) => self.of_guessers.take(now, OF_GUESSERS),
            None => self.of_others.take(now, OF_OTHERS),
        }
        if self.by_address.len() >= ADDRESSES && !self.by_address.contains_key(&from) {
            let oldest = self.by_address.iter().min_by_key(|(_, guesser)| guesser.last);
            if let Some(&oldest) = oldest.map(|(address, _)| address) {
                self.by_address.remove(&oldest);
            }
        }
        let guesser = self.by_address.entry(from).or_default();
        guesser.bucket.take(now, OF_ONE);
        guesser.last = now;
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
                guesses.record(now, one);
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
        (0..20).for_each(|host| guesses.record(Duration::ZERO, at(7, host)));
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
                guesses.record(now, from);
                looked_at += 1;
            }
        }
        assert!((6_900..=7_100).contains(&looked_at), "{looked_at}");
        assert!(guesses.by_address.len() <= ADDRESSES);
    }

    #[test]
    fn a_thousand_addresses_that_guess_leave_room_for_others() {
        let mut guesses = Guesses::default();
        let mut looked_at = 0;
        for i in 0..50_000u32 {
            // 5,000 a second, for ten seconds.
            let (now, from) = (Duration::from_micros(200) * i, Ipv4Addr::from(i % 1000).into());
            if !guesses.is_exhausted(now, from) {
                guesses.record(now, from);
                looked_at += 1;
            }
            assert!(!guesses.is_exhausted(now, Ipv4Addr::new(10, 0, 0, (i % 64) as u8).into()), "{now:?}");
        }
        assert!((2_000..=2_200).contains(&looked_at), "{looked_at}");
    }
}
