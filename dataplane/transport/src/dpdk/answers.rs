//! Handlers that answer datagrams while these lie in a device's buffers.

use super::DpdkTx;
use crate::Origin;

/// A handler that gets a burst of datagrams, one by one.
pub trait Answers {
    /// A datagram, and what answers it.
    fn answer(&mut self, origin: Origin, payload: &[u8], tx: &mut DpdkTx);

    /// Prefetches memory for bytes that come soon, which may be a payload and are not checked yet.
    fn prefetch(&self, payload: &[u8]) {
        let _ = payload;
    }
}

impl<F: FnMut(Origin, &[u8], &mut DpdkTx)> Answers for F {
    #[inline]
    fn answer(&mut self, origin: Origin, payload: &[u8], tx: &mut DpdkTx) {
        self(origin, payload, tx);
    }
}
