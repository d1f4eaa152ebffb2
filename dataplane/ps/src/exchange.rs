//! A burst of packets in, their answers out.

use std::io;

use thc_protocol::aggregator::{Endpoint, Sink};
use thc_protocol::{Ecn, JobId};
use thc_transport::{Answers, CapturedIo, DpdkIo, DpdkTx, LossyIo, Origin, PacketIo, UdpIo, XdpIo};

use crate::outbox::{Outbox, SendFailure};

/// What handles packets: answers go to `sink`.
pub trait Handler {
    /// One packet.
    fn handle(&mut self, origin: Origin, packet: &[u8], sink: &mut impl Sink);

    /// A packet, not checked in any way, comes soon: memory that it needs may be brought closer.
    fn expect(&self, packet: &[u8]) {
        let _ = packet;
    }
}

/// How many packets ahead of their turn they are expected.
const AHEAD: usize = 2;

/// A backend by which packets are answered.
pub trait Exchange: PacketIo + Sized {
    /// Receives one burst, has every packet handled and sends what that answers. Returns how many packets there were.
    ///
    /// Answers wait in `outbox` until the burst is over, unless the backend takes them at once.
    ///
    /// # Errors
    /// As [`PacketIo::recv_burst`]. `failed` is told of receivers that cannot be sent to.
    fn exchange(
        &mut self,
        outbox: &mut Outbox,
        handler: &mut impl Handler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        let packets = self.recv_burst_at(&mut |origin, packet| handler.handle(origin, packet, outbox))?;
        if !outbox.is_empty() {
            outbox.flush(self, failed);
        }
        Ok(packets)
    }
}

impl Exchange for UdpIo {
    fn exchange(
        &mut self,
        outbox: &mut Outbox,
        handler: &mut impl Handler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        let packets = self.recv_runs(&mut |run| {
            let mut soon = run.datagrams();
            soon.by_ref().take(AHEAD).for_each(|packet| handler.expect(packet));
            for packet in run.datagrams() {
                if let Some(later) = soon.next() {
                    handler.expect(later);
                }
                handler.handle(run.origin(), packet, outbox);
            }
        })?;
        if !outbox.is_empty() {
            outbox.flush(self, failed);
        }
        Ok(packets)
    }
}

impl Exchange for XdpIo {}
impl<T: PacketIo> Exchange for CapturedIo<T> {}
impl<T: PacketIo> Exchange for LossyIo<T> {}

/// Answers are written where the device takes them from: a RESULT once, whatever the number of members.
impl Exchange for DpdkIo {
    #[inline]
    fn exchange(
        &mut self,
        _: &mut Outbox,
        handler: &mut impl Handler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        Ok(self.answer_burst(&mut AtDevice { handler, failed }))
    }
}

struct AtDevice<'a, H, F> {
    handler: &'a mut H,
    failed: &'a mut F,
}

impl<H: Handler, F: FnMut(SendFailure)> Answers for AtDevice<'_, H, F> {
    #[inline]
    fn answer(&mut self, origin: Origin, packet: &[u8], tx: &mut DpdkTx) {
        self.handler.handle(origin, packet, &mut Direct { tx, failed: self.failed });
    }

    #[inline]
    fn expect(&self, packet: &[u8]) {
        self.handler.expect(packet);
    }
}

struct Direct<'a, F> {
    tx: &'a mut DpdkTx,
    failed: &'a mut F,
}

impl<F: FnMut(SendFailure)> Sink for Direct<'_, F> {
    #[inline]
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        if let Err(cause) = self.tx.send(to.addr, packet, ecn.bits()) {
            (self.failed)(SendFailure { to: to.addr, datagrams: 1, cause });
        }
    }

    #[inline]
    fn multicast(&mut self, _: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        let failed = &mut self.failed;
        let to = members.iter().map(|member| member.addr);
        let mut failed = |to, cause| failed(SendFailure { to, datagrams: 1, cause });
        self.tx.send_to_all(to, packet, ecn.bits(), &mut failed);
    }
}
