//! The answers to a burst of packets, gathered into runs.
//!
//! An aggregator answers while its packets still lie in the receive buffers, so nothing can be sent at that
//! moment, and sending packet by packet would cost a system call each. So answers are copied here. Those of
//! the same length and ECN bits to the same receivers lie side by side, and are sent as one run once the
//! burst is handled (`UDP_SEGMENT` takes a run in one piece).

use std::io;
use std::net::SocketAddr;

use thc_protocol::aggregator::{Endpoint, Sink};
use thc_protocol::wire::MAX_PACKET;
use thc_protocol::{Ecn, JobId};
use thc_transport::{MAX_DATAGRAM, PacketIo, Peer};

/// Room that a new run starts with: the results of a full GSO run.
const RUN_CAPACITY: usize = MOST * MAX_PACKET;
/// Datagrams that a kernel takes in one piece, if together they are no longer than one may be.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receivers {
    One(SocketAddr),
    Members(JobId),
}

/// Packets of one length and with the same ECN bits to the same receivers.
#[derive(Debug)]
struct Run {
    to: Receivers,
    /// The receivers' addresses.
    peers: Vec<Peer>,
    segment: usize,
    ecn: Ecn,
    packets: Vec<u8>,
    /// Its lengths at the ends of the received pieces that it answers.
    ends: Vec<usize>,
}

impl Run {
    /// The pieces in which it is sent: as full as possible, or nearly so if they then end where received
    /// pieces ended. So a receiver that sends whole partitions gets whole partitions.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let most = (MAX_DATAGRAM / self.segment.max(1)).clamp(1, MOST) * self.segment;
        let (mut begin, mut ends) = (0, self.ends.as_slice());
        std::iter::from_fn(move || {
            let rest = &self.packets[begin..];
            let full = begin + most.min(rest.len());
            let behind = ends.iter().position(|&end| end > full).unwrap_or(ends.len());
            let at = behind.checked_sub(1).map(|last| ends[last]);
            let end =
                at.filter(|&end| full < self.packets.len() && end >= begin + most / 8 * 7).unwrap_or(full);
            let piece = &self.packets[begin..end];
            (begin, ends) = (end, &ends[behind..]);
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// The answers to one burst. Its memory grows to what the largest burst needed, which the backend
/// bounds, and is then reused: in the long run nothing is allocated.
#[derive(Debug, Default)]
pub struct TxBatch {
    runs: Vec<Run>,
    /// The number of `runs` in use, from the front.
    open: usize,
    /// The run used last: most packets follow one of their kind.
    last: usize,
}

/// Datagrams that could not be sent to one receiver, and why.
#[derive(Debug)]
pub struct SendFailure {
    /// The receiver.
    pub to: Peer,
    /// Datagrams it did not get.
    pub datagrams: u64,
    /// The operating system's error.
    pub cause: io::Error,
}

impl TxBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> TxBatch {
        TxBatch::default()
    }

    /// Returns whether nothing waits to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    fn stage(&mut self, to: Receivers, peers: impl Iterator<Item = Peer>, ecn: Ecn, packet: &[u8]) {
        let fits = |run: &Run| run.to == to && run.segment == packet.len() && run.ecn == ecn;
        if self.last >= self.open || !fits(&self.runs[self.last]) {
            self.last = match self.runs[..self.open].iter().position(fits) {
                Some(found) => found,
                None => self.begin(to, peers, packet.len(), ecn),
            };
        }
        self.runs[self.last].packets.extend_from_slice(packet);
    }

    /// Opens a run; returns its place.
    fn begin(&mut self, to: Receivers, peers: impl Iterator<Item = Peer>, segment: usize, ecn: Ecn) -> usize {
        if self.open == self.runs.len() {
            let packets = Vec::with_capacity(RUN_CAPACITY);
            self.runs.push(Run { to, peers: Vec::new(), segment, ecn, packets, ends: Vec::new() });
        }
        let run = &mut self.runs[self.open];
        run.to = to;
        run.segment = segment;
        run.ecn = ecn;
        // Copied for each run, so that a change of membership between bursts cannot be missed.
        run.peers.clear();
        run.peers.extend(peers);
        run.packets.clear();
        run.ends.clear();
        self.open += 1;
        self.open - 1
    }

    /// All that answers packets which came in one piece is here.
    pub fn end_piece(&mut self) {
        for Run { packets, ends, .. } in &mut self.runs[..self.open] {
            if ends.last() != Some(&packets.len()) {
                ends.push(packets.len());
            }
        }
    }

    /// Sends everything. A receiver to which nothing can be sent is reported and does not affect the others:
    /// one worker with a wrong address must not stop a server of many.
    pub fn flush(&mut self, io: &mut impl PacketIo, failed: &mut impl FnMut(SendFailure)) {
        let pieces =
            self.runs[..self.open].iter().flat_map(|run| run.pieces().map(move |piece| (run, piece)));
        for (run, packets) in pieces {
            let datagrams = (packets.len() / run.segment.max(1)) as u64;
            let ecn = run.ecn.bits();
            if run.peers.len() > 1 && io.send_run_to_all(&run.peers, packets, run.segment, ecn).is_ok() {
                continue;
            }
            // One receiver, or a group in which one fails and hides those behind it: those before it
            // get copies, which are harmless (P13).
            for &to in &run.peers {
                if let Err(cause) = io.send_run_with(to, packets, run.segment, ecn) {
                    failed(SendFailure { to, datagrams, cause });
                }
            }
        }
        self.open = 0;
        self.last = 0;
    }
}

impl Sink for TxBatch {
    #[inline]
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        self.stage(Receivers::One(to.addr), std::iter::once(to.addr), ecn, packet);
    }

    #[inline]
    fn multicast(&mut self, job: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        self.stage(Receivers::Members(job), members.iter().map(|member| member.addr), ecn, packet);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use thc_transport::{IoStats, Run};

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::udp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Records runs; sending to port 13 fails.
    #[derive(Default)]
    struct Recorder {
        runs: Vec<(u16, Vec<u8>, usize)>,
    }

    impl PacketIo for Recorder {
        fn recv_runs(&mut self, _: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
            Ok(0)
        }
        fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, _: u8) -> io::Result<()> {
            if to.port() == 13 {
                return Err(io::Error::other("no way"));
            }
            self.runs.push((to.port(), contents.to_vec(), segment));
            Ok(())
        }
        fn wait(&mut self, _: Duration) -> io::Result<bool> {
            Ok(false)
        }
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn local(&self) -> Peer {
            SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
        }
        fn stats(&self) -> IoStats {
            IoStats::default()
        }
    }

    fn no_failure(failure: SendFailure) {
        panic!("{failure:?}");
    }

    #[test]
    fn equal_packets_become_one_run() {
        let (mut batch, mut io) = (TxBatch::new(), Recorder::default());
        let group = [endpoint(1), endpoint(2)];
        for value in 0..3 {
            batch.multicast(JobId(1), &group, Ecn::NotEct, &[value; 4]);
            batch.unicast(endpoint(2), Ecn::NotEct, &[10 + value; 4]);
            batch.unicast(endpoint(1), Ecn::NotEct, &[20 + value; 2]);
        }
        assert!(!batch.is_empty());
        batch.flush(&mut io, &mut no_failure);
        assert!(batch.is_empty());
        let run = |first: u8, len| (0..3u8).flat_map(|value| vec![first + value; len]).collect::<Vec<u8>>();
        assert_eq!(io.runs, [(1, run(0, 4), 4), (2, run(0, 4), 4), (2, run(10, 4), 4), (1, run(20, 2), 2)]);
        batch.flush(&mut io, &mut no_failure);
        assert_eq!(io.runs.len(), 4);
    }

    /// Packets in each piece that is sent, for consecutive answers to pieces of so many packets.
    fn pieces(of: &[usize], len: usize) -> Vec<usize> {
        let (mut batch, mut io) = (TxBatch::new(), Recorder::default());
        for &count in of {
            for _ in 0..count {
                batch.multicast(JobId(1), &[endpoint(1)], Ecn::NotEct, &vec![0; len]);
            }
            batch.end_piece();
        }
        batch.flush(&mut io, &mut no_failure);
        io.runs.iter().map(|(_, packets, segment)| packets.len() / segment).collect()
    }

    #[test]
    fn pieces_end_where_those_that_came_ended_if_they_are_full_enough() {
        assert_eq!(pieces(&[56, 56, 56], 1044), [56, 56, 56]);
        assert_eq!(pieces(&[48, 8, 62, 60, 1, 3], 1044), [56, 62, 61, 3]);
        // Sixty-two are the most.
        assert_eq!(pieces(&[64, 64, 64], 1044), [62, 62, 62, 6]);
        assert_eq!(pieces(&[40, 40, 40], 1044), [62, 58]);
        assert_eq!(pieces(&[100, 29], 60), [64, 64, 1]);
        assert_eq!(pieces(&[1, 2], 40_000), [1, 1, 1]);
    }

    #[test]
    fn jobs_and_changed_members_do_not_mix() {
        let (mut batch, mut io) = (TxBatch::new(), Recorder::default());
        batch.multicast(JobId(1), &[endpoint(1)], Ecn::NotEct, &[1]);
        batch.multicast(JobId(2), &[endpoint(2)], Ecn::NotEct, &[2]);
        batch.flush(&mut io, &mut no_failure);
        batch.multicast(JobId(1), &[endpoint(3)], Ecn::NotEct, &[3]);
        batch.flush(&mut io, &mut no_failure);
        assert_eq!(io.runs, [(1, vec![1], 1), (2, vec![2], 1), (3, vec![3], 1)]);
    }

    #[test]
    fn a_receiver_that_fails_does_not_hide_those_behind_it() {
        let (mut batch, mut io) = (TxBatch::new(), Recorder::default());
        batch.multicast(JobId(1), &[endpoint(13), endpoint(2)], Ecn::NotEct, &[1, 1]);
        batch.multicast(JobId(1), &[endpoint(13), endpoint(2)], Ecn::NotEct, &[2, 2]);
        batch.unicast(endpoint(13), Ecn::NotEct, &[3; 5]);
        let mut failures = Vec::new();
        batch.flush(&mut io, &mut |failure| failures.push((failure.to.port(), failure.datagrams)));
        assert_eq!(failures, [(13, 2), (13, 1)]);
        assert_eq!(io.runs, [(2, vec![1, 1, 2, 2], 2)]);
    }

    #[test]
    fn memory_is_reused() {
        let (mut batch, mut io) = (TxBatch::new(), Recorder::default());
        for burst in 0..100u16 {
            for worker in 0..8 {
                batch.unicast(endpoint(100 + (burst + worker) % 50), Ecn::NotEct, &[0; 40]);
            }
            batch.flush(&mut io, &mut no_failure);
        }
        assert_eq!(batch.runs.len(), 8);
    }
}
