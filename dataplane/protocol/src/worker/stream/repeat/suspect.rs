//! Which worker asks for a packet that seems to be lost, and when the others look again (P20, P40).

use super::super::ring::{LossState, Repair};
use super::super::{Stream, Tx};
use super::MAX_TRIES;
use crate::wire::FLAG_NUDGE;
use std::time::Duration;

impl Stream {
    /// There is a sign that a packet was lost. If it is not the first one, what was done about it gets its
    /// round trip.
    pub(super) fn suspect_loss(&mut self, now: Duration, index: usize, tx: &mut impl Tx) {
        if self.loss(index).repair != Repair::None {
            self.loss_mut(index).tries = 1;
            self.look_again(self.packets.entries[index].send_time(), index);
        } else if self.asks(index) {
            self.ask(now, index, tx);
        } else {
            self.loss_mut(index).repair = Repair::Others;
            self.requeue(now, index);
            self.look_again(now, index);
        }
    }

    /// Repeats a packet; whoever is to ask for it asks all.
    pub(super) fn ask(&mut self, now: Duration, index: usize, tx: &mut impl Tx) {
        let flags = if self.asks(index) { FLAG_NUDGE } else { 0 };
        let loss = self.loss_mut(index);
        loss.repair = Repair::Own;
        if flags != 0 && loss.tries == 0 {
            loss.asked = Some(now);
        }
        self.resend(now, index, flags, tx);
        self.look_again(now, index);
        self.count_try(index);
    }

    /// Sets when a packet that seems lost is asked for again: when others have had a round trip for it. If it was
    /// certainly lost, the time doubles after every second try, up to a quarter of the shortest time-out or
    /// four round trips, and doubles again for each time-out in which nothing came. Otherwise somebody may
    /// just be slow: the time doubles after each try, and from the shortest time-out on the rest is left to
    /// time-outs.
    pub(super) fn look_again(&mut self, now: Duration, index: usize) {
        let LossState { overtaken, tries, .. } = self.loss(index);
        let doublings = if overtaken { tries / 2 } else { tries };
        let round = self.rtt.patience();
        let patience = round * (1 << doublings);
        let most = self.rtt.min();
        self.loss_mut(index).due = match overtaken {
            true => {
                now + patience.min(4 * round.max(most / 16))
                    * (1 << self.timing.timeouts.min(MAX_TRIES.into()))
            }
            false if patience < most => now + patience,
            false => Duration::MAX,
        };
        self.list(index);
    }
}
