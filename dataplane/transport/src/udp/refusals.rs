//! Ports at which no program listens, as their hosts say by ICMP.

use std::time::Duration;

use crate::Peer;

/// The time for which a refusal counts. A host sends one a second at most, and a sender that waits for an answer repeats within a
/// second.
const VALID: Duration = Duration::from_secs(3);

/// Most ports that are kept: each received run is compared with them.
const MOST: usize = 64;

/// A port that is refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    peer: Peer,
    first: Duration,
    last: Duration,
}

/// The ports that are refused now.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    pub fn add(&mut self, peer: Peer, now: Duration) {
        self.0.retain(|it| now.saturating_sub(it.last) <= VALID);
        if let Some(known) = self.0.iter_mut().find(|it| it.peer == peer) {
            known.last = now;
        } else if self.0.len() < MOST {
            self.0.push(Refusal { peer, first: now, last: now });
        }
    }

    /// Something came from there.
    pub fn remove(&mut self, peer: Peer) {
        self.0.retain(|it| it.peer != peer);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The port that has been refused for longest, and since when.
    pub fn oldest(&self, now: Duration) -> Option<(Peer, Duration)> {
        let valid = self.0.iter().filter(|it| now.saturating_sub(it.last) <= VALID);
        valid.min_by_key(|it| it.first).map(|it| (it.peer, it.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_an_answer_or_silence() {
        let [a, b] = [9000, 9001].map(|port| Peer::from(([10, 0, 0, 1], port)));
        let s = Duration::from_secs;
        let mut refusals = Refusals::default();
        refusals.add(a, s(1));
        refusals.add(b, s(2));
        refusals.add(a, s(3));
        assert_eq!(refusals.oldest(s(5)), Some((a, s(1))));
        refusals.remove(a);
        assert_eq!(refusals.oldest(s(5)), Some((b, s(2))));
        assert_eq!(refusals.oldest(s(6)), None);
        refusals.add(b, s(7));
        assert_eq!(refusals.oldest(s(8)), Some((b, s(7))));
    }
}
