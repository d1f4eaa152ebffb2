//! What answers datagrams while they lie where a device has put them.

use super::DpdkTx;
use crate::Origin;

/// Whoever gets a burst of datagrams, one by one.
pub trait Answers {
    /// A datagram, and what answers it.
    fn answer(&mut self, origin: Origin, payload: &[u8], tx: &mut DpdkTx);

    /// These bytes, which may be a payload and are not checked yet, come soon, so memory that they need may
    /// be prefetched.
    fn expect(&self, payload: &[u8]) {
        let _ = payload;
    }
}

impl<F: FnMut(Origin, &[u8], &mut DpdkTx)> Answers for F {
    #[inline]
    fn answer(&mut self, origin: Origin, payload: &[u8], tx: &mut DpdkTx) {
        self(origin, payload, tx);
    }
}
