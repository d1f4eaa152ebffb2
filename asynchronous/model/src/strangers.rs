//! Connections that have not shown a job's secret yet: how many there may be, in all and from one address, and how many new ones
//! an address may make in a second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Most of them.
const MOST: usize = 256;
/// Most of one address.
const MOST_OF_ONE: usize = 32;
/// From so many on, in all or of an address, an address must be shown to be real before memory is spent on it.
const EASY: usize = 64;
const EASY_OF_ONE: usize = 8;

/// An address may make the connections of so many seconds at once.
const BURST: u32 = 4;
/// Addresses whose connections are counted one by one. Beyond it the next ones share a bucket.
const ADDRESSES: usize = 4096;
/// How often buckets that are full again are forgotten, if there are too many.
const SWEEP: Duration = Duration::from_secs(1);

/// The connections that have not shown a job's secret yet, and their limits.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// Connections by address.
    there: Mutex<BTreeMap<IpAddr, usize>>,
    /// `None`: an address may make as many as it likes.
    rate: Option<Mutex<Buckets>>,
}

/// The reason for refusing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// There are too many such connections, in all or from this address.
    Full,
    /// This address has made too many connections in a short time.
    Rate,
}

/// New connections of each address: buckets of tokens, each kept as the time at which it will be full again.
#[derive(Debug)]
struct Buckets {
    /// The time in which one more is allowed.
    each: Duration,
    full: BTreeMap<IpAddr, Instant>,
    /// When full buckets were forgotten last.
    swept: Option<Instant>,
}

impl Buckets {
    /// A limit of so many a second.
    fn new(rate: NonZeroU32) -> Self {
        Self { each: Duration::from_secs(1) / rate.get(), full: BTreeMap::new(), swept: None }
    }

    /// How long it takes until the bucket of an address is full.
    fn lacks(&self, now: Instant, address: IpAddr) -> Duration {
        let full = self.full.get(&address).or_else(|| self.full.get(&self.bucket(address)));
        full.map_or(Duration::ZERO, |full| full.saturating_duration_since(now))
    }

    /// Under which address its connections are counted.
    fn bucket(&self, address: IpAddr) -> IpAddr {
        let alone = self.full.contains_key(&address) || self.full.len() < ADDRESSES;
        if alone { address } else { Ipv6Addr::UNSPECIFIED.into() }
    }

    /// Whether an address may make another connection, which counts then.
    fn take(&mut self, now: Instant, address: IpAddr) -> bool {
        if self.full.len() >= ADDRESSES && self.swept.is_none_or(|swept| now >= swept + SWEEP) {
            self.swept = Some(now);
            self.full.retain(|_, full| *full > now);
        }
        if self.lacks(now, address) + self.each > Duration::from_secs(BURST.into()) {
            return false;
        }
        let bucket = self.bucket(address);
        let full = self.full.entry(bucket).or_insert(now);
        *full = (*full).max(now) + self.each;
        true
    }
}

/// One of them; its place is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    strangers: Arc<Strangers>,
    address: IpAddr,
}

/// What counts as one address: of IPv6 the network, since a host has as many addresses there as it likes.
fn known_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

impl Strangers {
    /// A count of no connections yet; an address may make so many new ones in a second.
    pub fn new(rate: Option<NonZeroU32>) -> Arc<Self> {
        Arc::new(Self { there: Mutex::default(), rate: rate.map(|rate| Mutex::new(Buckets::new(rate))) })
    }

    /// How many there are, and of them from this address.
    fn count(&self, address: IpAddr) -> (usize, usize) {
        let there = lock(&self.there);
        (there.values().sum(), there.get(&known_as(address)).copied().unwrap_or(0))
    }

    /// Whether one more from this address must show first that the address is its own.
    pub fn doubts(&self, now: Instant, address: IpAddr) -> bool {
        let (all, of_one) = self.count(address);
        // Who forges an address must not use up what whoever has it may do.
        let lacks = |rate: &Mutex<Buckets>| lock(rate).lacks(now, known_as(address));
        let half = Duration::from_secs(BURST.into()) / 2;
        all >= EASY || of_one >= EASY_OF_ONE || self.rate.as_ref().is_some_and(|rate| lacks(rate) > half)
    }

    /// A place.
    ///
    /// # Errors
    /// Why there is none.
    pub fn admit(self: &Arc<Self>, now: Instant, address: IpAddr) -> Result<Stranger, NoPlace> {
        let (all, of_one) = self.count(address);
        if all >= MOST || of_one >= MOST_OF_ONE {
            return Err(NoPlace::Full);
        }
        let address = known_as(address);
        if self.rate.as_ref().is_some_and(|rate| !lock(rate).take(now, address)) {
            return Err(NoPlace::Rate);
        }
        *lock(&self.there).entry(address).or_default() += 1;
        Ok(Stranger { strangers: Arc::clone(self), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut there = lock(&self.strangers.there);
        if let Some(count) = there.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                there.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_all_have_theirs() {
        let (strangers, now) = (Strangers::new(None), Instant::now());
        let host = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<_> = (0..MOST_OF_ONE).map(|_| strangers.admit(now, host(1)).unwrap()).collect();
        assert_eq!(strangers.admit(now, host(1)).unwrap_err(), NoPlace::Full);
        assert!(strangers.doubts(now, host(1)));
        assert!(strangers.admit(now, "::ffff:10.0.0.1".parse().unwrap()).is_err());
        assert!(!strangers.doubts(now, host(2)));
        held.pop();
        held.push(strangers.admit(now, host(1)).unwrap());
        for host in (2..).map(host).take(MOST / MOST_OF_ONE - 1) {
            held.extend((0..MOST_OF_ONE).map(|_| strangers.admit(now, host).unwrap()));
        }
        assert_eq!(held.len(), MOST);
        assert!(strangers.admit(now, host(99)).is_err() && strangers.doubts(now, host(99)));
        held.clear();
        assert_eq!(strangers.there.lock().unwrap().len(), 0);
        // A network of IPv6 is one address.
        let held: Vec<_> = (0..MOST_OF_ONE as u128)
            .map(|i| strangers.admit(now, Ipv6Addr::from_bits(0x2001_0db8 << 96 | i).into()).unwrap())
            .collect();
        assert!(strangers.admit(now, "2001:db8::ffff".parse().unwrap()).is_err());
        assert!(strangers.admit(now, "2001:db8:0:1::1".parse().unwrap()).is_ok());
        drop(held);
    }

    #[test]
    fn an_address_makes_a_burst_of_connections_and_then_so_many_a_second() {
        let mut rate = Buckets::new(NonZeroU32::new(10).unwrap());
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let began = Instant::now();
        // One each millisecond, for ten seconds.
        let mut taken = 0;
        for now in (0..10_000).map(|passed| began + Duration::from_millis(passed)) {
            taken += u32::from(rate.take(now, one));
        }
        assert!((138..=140).contains(&taken), "{taken}");
        assert!(rate.take(began + Duration::from_secs(10), other));
        assert!(rate.take(began + Duration::from_secs(11), one));
    }

    #[test]
    fn addresses_without_end_take_bounded_memory_and_harm_none_that_is_known() {
        let mut rate = Buckets::new(NonZeroU32::new(10).unwrap());
        let now = Instant::now();
        let known = IpAddr::from([127, 0, 0, 1]);
        assert!(rate.take(now, known));
        let hosts = (0..100_000_u32).map(|host| IpAddr::from((10 << 24 | host).to_be_bytes()));
        let taken = hosts.filter(|host| rate.take(now, *host)).count();
        // One of each that has a bucket, and a burst of those that share one.
        assert_eq!((taken, rate.full.len()), (ADDRESSES - 1 + 40, ADDRESSES + 1));
        assert!(rate.take(now, known));
        // Later all of this is forgotten.
        assert!(rate.take(now + Duration::from_secs(5), [10, 1, 2, 3].into()));
        assert_eq!(rate.full.len(), 1);
    }

    #[test]
    fn whoever_forges_an_address_leaves_half_of_its_connections_to_whoever_has_it() {
        let (strangers, now) = (Strangers::new(NonZeroU32::new(1)), Instant::now());
        let address = [10, 0, 0, 1].into();
        // Unproven ones are let in only where nothing is doubted.
        let forged = (0..100)
            .filter(|_| !strangers.doubts(now, address) && strangers.admit(now, address).is_ok())
            .count();
        assert_eq!(forged, 3);
        assert!(strangers.admit(now, address).is_ok());
        assert_eq!(strangers.admit(now, address).unwrap_err(), NoPlace::Rate);
        let unlimited = Strangers::new(None);
        assert!((0..100).all(|_| unlimited.admit(now, address).is_ok()));
    }
}
