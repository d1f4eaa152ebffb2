//! What is to happen in virtual time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events by time; those of the same time come in the order in which they were added, so that a simulation
/// takes the same course each time.
#[derive(Debug)]
pub struct Agenda<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Duration,
    order: u64,
    event: T,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { entries: BinaryHeap::new(), added: 0 }
    }
}

impl<T> Agenda<T> {
    /// Adds an event that happens at `at`, whether that is over or not.
    pub fn add(&mut self, at: Duration, event: T) {
        self.added += 1;
        self.entries.push(Reverse(Entry { at, order: self.added, event }));
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Duration, T)> {
        self.entries.pop().map(|Reverse(Entry { at, event, .. })| (at, event))
    }

    /// Takes the next event that happens at `now` or before.
    pub fn pop_due(&mut self, now: Duration) -> Option<T> {
        self.next_at().filter(|at| *at <= now).and_then(|_| self.pop()).map(|(_, event)| event)
    }

    /// How many events are to happen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is to happen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;
    use std::time::Duration;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_added() {
        let ms = Duration::from_millis;
        let mut agenda = Agenda::default();
        for (at, event) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            agenda.add(ms(at), event);
        }
        assert_eq!((agenda.next_at(), agenda.len()), (Some(ms(1)), 4));
        assert_eq!(
            [agenda.pop_due(ms(1)), agenda.pop_due(ms(1)), agenda.pop_due(ms(1))],
            [Some('a'), Some('b'), None]
        );
        assert_eq!(
            [agenda.pop(), agenda.pop(), agenda.pop()],
            [Some((ms(2), 'c')), Some((ms(2), 'd')), None]
        );
        assert!(agenda.is_empty());
    }
}
