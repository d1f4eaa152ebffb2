//! A burst of packets in, their answers out.

use std::io;
use std::net::IpAddr;

use thc_protocol::aggregator::{Endpoint, Sink};
use thc_protocol::wire::Header;
use thc_protocol::{Ecn, JobId};
use thc_transport::{Answers, DpdkIo, DpdkTx, FrameCounts, LossyIo, Origin, PacketIo, Peer, Run, UdpIo};

use crate::tx_batch::{SendFailure, TxBatch};

/// A handler of packets.
pub trait PacketHandler {
    /// Handles a packet; answers go to `sink`.
    fn handle(&mut self, origin: Origin, packet: &[u8], sink: &mut impl Sink);

    /// Prefetches memory for a packet, not yet checked, that is handled soon.
    fn prefetch(&self, packet: &[u8]) {
        let _ = packet;
    }
}

/// Memory is prefetched this many packets ahead of their turn.
const AHEAD: usize = 2;

/// A backend that a shard can serve and report on.
pub trait Exchange: PacketIo + Sized {
    /// The number of times that the receive buffer overflowed.
    fn recv_overflows(&self) -> u64;

    /// Counts of frames that were not datagrams for it, if it sees frames.
    fn frames(&self) -> FrameCounts {
        FrameCounts::default()
    }

    /// Receives one burst, has every packet handled and sends the answers. Returns how many packets there
    /// were.
    ///
    /// Answers wait in `batch` until the burst is over, unless the backend takes them at once.
    ///
    /// # Errors
    /// As [`PacketIo::recv_runs`]. `failed` is called for receivers to which nothing can be sent.
    fn exchange(
        &mut self,
        batch: &mut TxBatch,
        handler: &mut impl PacketHandler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        let packets = self.recv_burst(&mut |origin, packet| handler.handle(origin, packet, batch))?;
        if !batch.is_empty() {
            batch.flush(self, failed);
        }
        Ok(packets)
    }

    /// Sends to `peer` from this address of the host from now on, as [`UdpIo::answer_from`]; a backend that has one address
    /// does nothing.
    fn answer_from(&mut self, _peer: Peer, _local: Option<IpAddr>) -> Option<IpAddr> {
        None
    }
}

impl Exchange for UdpIo {
    fn recv_overflows(&self) -> u64 {
        UdpIo::recv_overflows(self).unwrap_or(0)
    }

    fn answer_from(&mut self, peer: Peer, local: Option<IpAddr>) -> Option<IpAddr> {
        UdpIo::answer_from(self, peer, local)
    }

    fn exchange(
        &mut self,
        batch: &mut TxBatch,
        handler: &mut impl PacketHandler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        let packets = {
            let (packets, mut runs) = self.recv_all_runs()?;
            loop {
                let mut some = [None; RUNS];
                some.iter_mut().zip(runs.by_ref()).for_each(|(place, run)| *place = Some(run));
                handle_runs(&some, handler, batch);
                if some.last().is_none_or(Option::is_none) {
                    break;
                }
            }
            packets
        };
        if !batch.is_empty() {
            batch.flush(self, failed);
        }
        Ok(packets)
    }
}

/// Runs that are looked at together: as many as the kernel hands over at a time.
const RUNS: usize = 32;

/// Handles runs in their order, except that runs which begin with the same slot are handled together: their
/// packets take turns, so that a slot stays in the first-level cache until all of its packets have been
/// added. No run overtakes an earlier one of its sender. Otherwise sums would be completed in another order
/// than their packets were sent in, and workers would take the late ones for lost.
fn handle_runs(runs: &[Option<Run<'_>>; RUNS], handler: &mut impl PacketHandler, batch: &mut TxBatch) {
    let alike =
        |a: &Run<'_>, b: &Run<'_>| a.segment == b.segment && Header::name_one_slot(a.contents, b.contents);
    let mut taken = 0_u32;
    for (first, at) in runs.iter().flatten().zip(0..) {
        if taken >> at & 1 != 0 {
            continue;
        }
        let (mut together, mut count) = ([first; RUNS], 1);
        // A packet alone has nothing to wait for.
        let others = if first.contents.len() > first.segment { &runs[at + 1..] } else { &[] };
        for (run, other) in others.iter().flatten().zip(at + 1..) {
            let overtakes = || {
                let before = runs[at + 1..other].iter().flatten().zip(at + 1..);
                before
                    .filter(|&(_, place)| taken >> place & 1 == 0)
                    .any(|(earlier, _)| earlier.from == run.from)
            };
            if taken >> other & 1 == 0 && alike(first, run) && !overtakes() {
                together[count] = run;
                count += 1;
                taken |= 1 << other;
            }
        }
        take_turns(&together[..count], handler, batch);
        batch.end_piece();
    }
}

const _: () = assert!(RUNS <= u32::BITS as usize);

/// Handles the first packet of each run, then the second of each, and so on.
fn take_turns(runs: &[&Run<'_>], handler: &mut impl PacketHandler, sink: &mut impl Sink) {
    // One packet of each slot is enough.
    let one = |number| runs.iter().find_map(|run| run.datagram(number));
    (0..AHEAD).filter_map(one).for_each(|packet| handler.prefetch(packet));
    for number in 0..runs.iter().map(|run| run.len()).max().unwrap_or(0) {
        if let Some(packet) = one(number + AHEAD) {
            handler.prefetch(packet);
        }
        for run in runs {
            if let Some(packet) = run.datagram(number) {
                handler.handle(run.origin(), packet, sink);
            }
        }
    }
}

impl<T: Exchange> Exchange for LossyIo<T> {
    fn recv_overflows(&self) -> u64 {
        self.inner().recv_overflows()
    }

    fn frames(&self) -> FrameCounts {
        self.inner().frames()
    }

    fn answer_from(&mut self, peer: Peer, local: Option<IpAddr>) -> Option<IpAddr> {
        self.inner_mut().answer_from(peer, local)
    }
}

/// Writes answers where the device reads them: a RESULT once, whatever the number of members.
impl Exchange for DpdkIo {
    fn recv_overflows(&self) -> u64 {
        DpdkIo::recv_overflows(self)
    }

    fn frames(&self) -> FrameCounts {
        self.frame_counts()
    }

    #[inline]
    fn exchange(
        &mut self,
        _: &mut TxBatch,
        handler: &mut impl PacketHandler,
        failed: &mut impl FnMut(SendFailure),
    ) -> io::Result<usize> {
        Ok(self.answer_burst(&mut AtDevice { handler, failed }))
    }
}

struct AtDevice<'a, H, F> {
    handler: &'a mut H,
    failed: &'a mut F,
}

impl<H: PacketHandler, F: FnMut(SendFailure)> Answers for AtDevice<'_, H, F> {
    #[inline]
    fn answer(&mut self, origin: Origin, packet: &[u8], tx: &mut DpdkTx) {
        self.handler.handle(origin, packet, &mut Direct { tx, failed: self.failed });
    }

    #[inline]
    fn prefetch(&self, packet: &[u8]) {
        self.handler.prefetch(packet);
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

#[cfg(test)]
mod tests {
    use super::*;
    use thc_protocol::wire::{HEADER_LEN, Kind};
    use thc_protocol::{Cookie, Round, SlotId, TableId, WorkerId};

    const DATA: usize = HEADER_LEN + 4;

    /// Worker, round and slot of each handled packet.
    #[derive(Default)]
    struct Seen(Vec<(u8, u32, u16)>);

    impl PacketHandler for Seen {
        fn handle(&mut self, origin: Origin, packet: &[u8], _: &mut impl Sink) {
            let head = Header::parse(packet).map(|(header, _)| header);
            let head = head.ok().filter(|header| u16::from(header.worker.0) == origin.from.port());
            self.0.extend(head.map(|header| (header.worker.0, header.round.0, header.slot.0)));
        }
    }

    fn packets(job: u16, worker: u8, round: u32, slots: std::ops::Range<u16>) -> (u8, Vec<u8>) {
        let mut all = Vec::new();
        for slot in slots {
            let mut packet = [worker; DATA];
            let header = Header {
                kind: Kind::Data,
                flags: 0,
                num_workers: 4,
                job: JobId(job),
                worker: WorkerId(worker),
                table: TableId(1),
                cookie: Cookie(1),
                round: Round(round),
                slot: SlotId(slot),
                count: 0,
            };
            header.emit(&mut packet);
            all.extend(packet);
        }
        (worker, all)
    }

    /// In which order these runs, a worker's each, are handled.
    fn result_heads(all: &[(u8, Vec<u8>)]) -> Vec<(u8, u32, u16)> {
        let mut runs = [None; RUNS];
        for (place, (worker, contents)) in runs.iter_mut().zip(all) {
            let from = Peer::from(([127, 0, 0, 1], u16::from(*worker)));
            *place = Some(Run { from, at: None, ecn: 0, contents, segment: DATA, memory: None });
        }
        let mut seen = Seen::default();
        handle_runs(&runs, &mut seen, &mut TxBatch::new());
        seen.0
    }

    #[test]
    fn runs_that_begin_with_one_slot_take_turns() {
        let all = [
            packets(1, 1, 7, 0..3),
            packets(1, 2, 7, 64..66),
            packets(1, 3, 7, 0..2),
            // Another round, another job, and what is no packet at all.
            packets(1, 4, 8, 0..2),
            packets(2, 5, 7, 0..2),
            (6, vec![0; 2 * DATA]),
            packets(1, 7, 7, 64..67),
            packets(1, 8, 7, 0..1),
        ];
        let expected = [
            // Of one packet, too: it is where the others are.
            [(1, 7, 0), (3, 7, 0), (8, 7, 0), (1, 7, 1), (3, 7, 1), (1, 7, 2)].as_slice(),
            &[(2, 7, 64), (7, 7, 64), (2, 7, 65), (7, 7, 65), (7, 7, 66)],
            &[(4, 8, 0), (4, 8, 1)],
            &[(5, 7, 0), (5, 7, 1)],
        ];
        assert_eq!(result_heads(&all), expected.concat());
    }

    #[test]
    fn no_run_overtakes_one_of_its_sender() {
        // The second worker is a run behind the first: its second run is of the slots of the first one's first.
        let all = [
            packets(1, 1, 7, 2..4),
            packets(1, 2, 7, 0..2),
            packets(1, 3, 7, 2..4),
            packets(1, 2, 7, 2..4),
            packets(1, 3, 7, 4..6),
        ];
        let expected = [
            [(1, 7, 2), (3, 7, 2), (1, 7, 3), (3, 7, 3)].as_slice(),
            &[(2, 7, 0), (2, 7, 1), (2, 7, 2), (2, 7, 3)],
            &[(3, 7, 4), (3, 7, 5)],
        ];
        assert_eq!(result_heads(&all), expected.concat());
    }
}
