//! Connections that have not shown a job's secret yet: how many there may be, in all and from one address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Most of them.
const MOST: usize = 256;
/// Most of one address.
const MOST_OF_ONE: usize = 32;
/// From so many on, in all or of an address, an address must be shown to be real before memory is spent on it.
const EASY: usize = 64;
const EASY_OF_ONE: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// By address.
    there: Mutex<BTreeMap<IpAddr, usize>>,
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
    /// How many there are, and of them from this address.
    fn count(&self, address: IpAddr) -> (usize, usize) {
        let there = lock(&self.there);
        (there.values().sum(), there.get(&known_as(address)).copied().unwrap_or(0))
    }

    /// Whether one more from this address must show first that the address is its own.
    pub fn doubts(&self, address: IpAddr) -> bool {
        let (all, of_one) = self.count(address);
        all >= EASY || of_one >= EASY_OF_ONE
    }

    /// A place, if there is one.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let (all, of_one) = self.count(address);
        if all >= MOST || of_one >= MOST_OF_ONE {
            return None;
        }
        let address = known_as(address);
        *lock(&self.there).entry(address).or_default() += 1;
        Some(Stranger { strangers: Arc::clone(self), address })
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
        let strangers = Arc::new(Strangers::default());
        let host = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<_> = (0..MOST_OF_ONE).map(|_| strangers.admit(host(1)).unwrap()).collect();
        assert!(strangers.admit(host(1)).is_none() && strangers.doubts(host(1)));
        assert!(strangers.admit("::ffff:10.0.0.1".parse().unwrap()).is_none());
        assert!(!strangers.doubts(host(2)));
        held.pop();
        held.push(strangers.admit(host(1)).unwrap());
        for host in (2..).map(host).take(MOST / MOST_OF_ONE - 1) {
            held.extend((0..MOST_OF_ONE).map(|_| strangers.admit(host).unwrap()));
        }
        assert_eq!(held.len(), MOST);
        assert!(strangers.admit(host(99)).is_none() && strangers.doubts(host(99)));
        held.clear();
        assert_eq!(strangers.there.lock().unwrap().len(), 0);
        // A network of IPv6 is one address.
        let held: Vec<_> = (0..MOST_OF_ONE as u128)
            .map(|i| strangers.admit(Ipv6Addr::from_bits(0x2001_0db8 << 96 | i).into()).unwrap())
            .collect();
        assert!(strangers.admit("2001:db8::ffff".parse().unwrap()).is_none());
        assert!(strangers.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(held);
    }
}
