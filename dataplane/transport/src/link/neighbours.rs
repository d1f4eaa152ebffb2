//! Hardware addresses of hosts on the link, shared by all queues of an endpoint and read without locks.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::MacAddr;

/// Places in the table. Only hosts that answered our request, or asked for us, take one.
const PLACES: usize = 2048;
/// Most places in use: lookups end at an empty place.
const FILL: usize = PLACES / 2;

const KNOWN: u64 = 1 << 63;
const FIXED: u64 = 1 << 62;
const DEVICE_SHIFT: u32 = 48;

/// A receiver whose address on the link is known beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Index of the device it is reached through.
    pub device: usize,
}

/// The way to a host on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Its hardware address,
    pub mac: MacAddr,
    /// through this device.
    pub device: usize,
}

/// The table. Entries are added and changed, never removed.
#[derive(Debug)]
pub struct Neighbours {
    places: Box<[Entry]>,
    /// Places in use; held while one is added.
    used: Mutex<usize>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The IPv4 address, 0 while unused.
    address: AtomicU32,
    /// [`Reach`] in one word, with the flags above; 0 while it is not known.
    reach: AtomicU64,
    /// The time of the last ARP request for it, in ms since the endpoint's start, plus 1.
    asked: AtomicU64,
    /// True if something was sent to it lately.
    wanted: AtomicBool,
}

impl Reach {
    fn to_word(self) -> u64 {
        let mac = self.mac.0.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        KNOWN | (self.device as u64) << DEVICE_SHIFT | mac
    }

    fn from_word(word: u64) -> Option<Reach> {
        let [_, _, a, b, c, d, e, f] = word.to_be_bytes();
        let device = (word & !(KNOWN | FIXED)) >> DEVICE_SHIFT;
        (word & KNOWN != 0).then_some(Reach { mac: MacAddr([a, b, c, d, e, f]), device: device as usize })
    }
}

impl Neighbours {
    /// A table that knows these hosts from the start, and does not learn other addresses for them.
    pub fn new(fixed: &[Neighbour]) -> Neighbours {
        let table =
            Neighbours { places: (0..PLACES).map(|_| Entry::default()).collect(), used: Mutex::new(0) };
        for &Neighbour { address, mac, device } in fixed {
            if let Some(place) = table.enter(address) {
                let word = Reach { mac, device }.to_word() | FIXED;
                table.places[place].reach.store(word, Ordering::Release);
            }
        }
        table
    }

    fn find(&self, address: Ipv4Addr) -> Result<usize, usize> {
        let wanted = address.to_bits();
        let mut at = wanted.wrapping_mul(0x9E37_79B1) as usize >> 21;
        loop {
            match self.places[at % PLACES].address.load(Ordering::Acquire) {
                found if found == wanted => return Ok(at % PLACES),
                0 => return Err(at % PLACES),
                _ => at += 1,
            }
        }
    }

    /// The place of an address, a new one if it has none; `None` if the table is full.
    pub fn enter(&self, address: Ipv4Addr) -> Option<usize> {
        if address.is_unspecified() {
            return None;
        }
        if let Ok(place) = self.find(address) {
            return Some(place);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match self.find(address) {
            Ok(place) => Some(place),
            Err(_) if *used >= FILL => None,
            Err(free) => {
                *used += 1;
                self.places[free].address.store(address.to_bits(), Ordering::Release);
                Some(free)
            }
        }
    }

    /// Returns how the host of a place is reached, as a word that changes when that does; 0 if it is not known.
    #[inline]
    pub fn word(&self, place: usize) -> u64 {
        let place = &self.places[place];
        if !place.wanted.load(Ordering::Relaxed) {
            place.wanted.store(true, Ordering::Relaxed);
        }
        place.reach.load(Ordering::Acquire)
    }

    /// Returns the meaning of such a word.
    pub fn reach(word: u64) -> Option<Reach> {
        Reach::from_word(word)
    }

    /// Takes note of an address from ARP: of known hosts always, of unknown ones if `new`.
    pub fn learn(&self, address: Ipv4Addr, reach: Reach, new: bool) {
        let place = if new { self.enter(address) } else { self.find(address).ok() };
        let Some(place) = place else { return };
        let cell = &self.places[place].reach;
        if cell.load(Ordering::Acquire) & FIXED == 0 {
            cell.store(reach.to_word(), Ordering::Release);
        }
    }

    /// Returns whether to ask about a place at the time `now_ms`: not again within `pause_ms`. It counts as asked then.
    pub fn may_ask(&self, place: usize, now_ms: u64, pause_ms: u64) -> bool {
        let asked = &self.places[place].asked;
        let last = asked.load(Ordering::Relaxed);
        let due = last == 0 || now_ms + 1 >= last + pause_ms;
        // If another queue was faster, it asks.
        due && asked.compare_exchange(last, now_ms + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Hosts found by ARP to which something was sent since the last call: they may have changed.
    pub fn in_use(&self) -> impl Iterator<Item = (Ipv4Addr, usize)> {
        self.places.iter().filter_map(|place| {
            let word = place.reach.load(Ordering::Acquire);
            let reach = Reach::from_word(word).filter(|_| word & FIXED == 0)?;
            let address = Ipv4Addr::from_bits(place.address.load(Ordering::Acquire));
            place.wanted.swap(false, Ordering::Relaxed).then_some((address, reach.device))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn host(number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + number)
    }

    fn reach(number: u8, device: usize) -> Reach {
        Reach { mac: MacAddr([0xfe, 1, 2, 3, 4, number]), device }
    }

    #[test]
    fn what_is_learnt_is_found_and_replaced() {
        let table = Neighbours::new(&[]);
        let place = table.enter(host(1)).unwrap();
        assert_eq!(Neighbours::reach(table.word(place)), None);
        table.learn(host(1), reach(1, 0), false);
        assert_eq!(Neighbours::reach(table.word(place)), Some(reach(1, 0)));
        table.learn(host(1), reach(2, 300), false);
        assert_eq!(Neighbours::reach(table.word(place)), Some(reach(2, 300)));
        // Somebody who was neither asked about nor asked for us.
        table.learn(host(2), reach(3, 0), false);
        assert_eq!(Neighbours::reach(table.word(table.enter(host(2)).unwrap())), None);
        assert_eq!(table.enter(Ipv4Addr::UNSPECIFIED), None);
    }

    #[test]
    fn fixed_neighbours_stay() {
        let fixed = Neighbour { address: host(1), mac: MacAddr([2; 6]), device: 1 };
        let table = Neighbours::new(&[fixed]);
        table.learn(host(1), reach(9, 0), true);
        let place = table.enter(host(1)).unwrap();
        assert_eq!(Neighbours::reach(table.word(place)), Some(Reach { mac: MacAddr([2; 6]), device: 1 }));
        assert_eq!(table.in_use().count(), 0);
    }

    #[test]
    fn a_full_table_takes_no_more_and_still_works() {
        let table = Neighbours::new(&[]);
        let entered = (1..5000).filter(|&number| table.enter(host(number * 64)).is_some()).count();
        assert_eq!(entered, FILL);
        table.learn(host(64), reach(7, 0), false);
        assert_eq!(Neighbours::reach(table.word(table.enter(host(64)).unwrap())), Some(reach(7, 0)));
    }

    #[test]
    fn questions_are_not_repeated_at_once() {
        let table = Neighbours::new(&[]);
        let place = table.enter(host(1)).unwrap();
        assert!(table.may_ask(place, 0, 50));
        assert!(!table.may_ask(place, 49, 50));
        assert!(table.may_ask(place, 50, 50));
    }

    #[test]
    fn only_who_was_sent_to_is_in_use() {
        let table = Neighbours::new(&[]);
        table.learn(host(1), reach(1, 0), true);
        table.learn(host(2), reach(2, 1), true);
        assert_eq!(table.in_use().count(), 0);
        table.word(table.enter(host(2)).unwrap());
        assert_eq!(table.in_use().collect::<Vec<_>>(), [(host(2), 1)]);
        assert_eq!(table.in_use().count(), 0);
    }
}
