//! The backend over kernel UDP with its own threads: each has a socket, receives and sends, so that the user
//! of the backend makes no system call for a packet.
//!
//! All sockets have one port, so peers see one endpoint. One thread serves each peer in both directions, so
//! packets to and from it keep their order. Memory goes back and forth between the threads and the user of
//! the backend: received packets are handed over as they are, packets to be sent are copied once. There is no
//! lock.

mod counters;
mod network_thread;
mod thread_handle;

use std::{
    collections::HashMap,
    io,
    num::NonZeroUsize,
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    time::{Duration, Instant},
};

use super::{
    SEND_PATIENCE, UdpConfig, UdpIo,
    bell::Sleep,
    recv_capacity,
    socket::{SocketGroup, UdpSocket},
    steering,
};
use crate::{Handler, IoStats, PacketIo, Peer, Run, TransportError, packet_io::check_segment};
use network_thread::NetworkThread;
use thread_handle::{Arrival, BURSTS, Letter, ThreadHandle};

/// Packet I/O over several kernel UDP sockets of one port, each with a thread of its own.
pub struct UdpThreads {
    threads: Vec<ThreadHandle>,
    arrivals: Receiver<Arrival>,
    /// What [`PacketIo::wait`] has found.
    next: Option<Arrival>,
    /// The thread of each peer; of others it is the first.
    dealt: HashMap<Peer, usize>,
    group: SocketGroup,
    /// Datagrams that no thread had room for.
    refused: u64,
    recv_buffer: usize,
    reads_ecn: bool,
    local: Peer,
    start: Instant,
}

impl UdpThreads {
    /// Opens so many sockets on `config.addr` and starts their threads.
    ///
    /// # Errors
    /// Those of [`UdpIo::bind`], and [`TransportError::NetworkThread`].
    pub fn bind(config: UdpConfig, threads: NonZeroUsize) -> Result<Self, TransportError> {
        let first = UdpSocket::open(&config, None)?;
        let local = first.local;
        let group = first.found_group().map_err(|cause| TransportError::Bind { addr: local, cause })?;
        let config = UdpConfig { addr: local, ..config };
        let mut sockets = vec![first];
        while sockets.len() < threads.get() {
            sockets.push(UdpSocket::open(&config, Some(&group))?);
        }
        let (arrived, arrivals) = sync_channel(threads.get() * (BURSTS + 3));
        let mut io = UdpThreads {
            threads: Vec::with_capacity(sockets.len()),
            arrivals,
            next: None,
            dealt: HashMap::new(),
            group,
            refused: 0,
            // All peers may be one thread's.
            recv_buffer: sockets.iter().map(|socket| socket.recv_buffer).min().unwrap_or(0),
            reads_ecn: sockets.iter().all(|socket| socket.reads_ecn),
            local,
            start: Instant::now(),
        };
        for (number, socket) in sockets.into_iter().enumerate() {
            let thread =
                NetworkThread::start(number, UdpIo::from_socket(socket, &config), arrived.clone(), io.start);
            io.threads.push(thread.map_err(|cause| TransportError::NetworkThread { cause })?);
        }
        Ok(io)
    }

    /// As [`UdpIo::recv_capacity`], whichever peers send.
    #[must_use]
    pub fn recv_capacity(&self, datagram_len: usize) -> usize {
        recv_capacity(self.recv_buffer, self.local, datagram_len)
    }
}

impl PacketIo for UdpThreads {
    fn recv_burst(&mut self, f: &mut impl FnMut(Peer, &[u8])) -> io::Result<usize> {
        self.recv_runs(&mut |run| run.datagrams().for_each(|datagram| f(run.from, datagram)))
    }

    fn recv_burst_at(&mut self, f: &mut impl FnMut(crate::Origin, &[u8])) -> io::Result<usize> {
        self.recv_runs(&mut |run| run.datagrams().for_each(|datagram| f(run.origin(), datagram)))
    }

    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let mut received = 0;
        for _ in 0..2 * self.threads.len() {
            match self.next.take().or_else(|| self.arrivals.try_recv().ok()) {
                Some(Arrival::Burst(number, burst)) => {
                    for run in burst.runs() {
                        received += run.len();
                        f(run);
                    }
                    let thread = &self.threads[number];
                    // There is always room. A thread that is gone has told why.
                    let _ = thread.free.try_send(burst);
                    thread.bell.ring(Sleep::ForMemory);
                }
                Some(Arrival::News(number)) => {
                    self.threads[number].news.swap(false, Ordering::AcqRel);
                }
                Some(Arrival::Failed(error)) => return Err(error),
                None => break,
            }
        }
        Ok(received)
    }

    fn reads_ecn(&self) -> bool {
        self.reads_ecn
    }

    fn set_peers(&mut self, peers: &[Peer]) {
        let threads = self.threads.len();
        self.dealt = peers.iter().enumerate().map(|(i, &peer)| (peer, i % threads)).collect();
        let idle = threads.saturating_sub(peers.len());
        if idle > 0 {
            let (ports, have) =
                (if peers.len() == 1 { "port" } else { "ports" }, if idle == 1 { "has" } else { "have" });
            tracing::warn!(
                "the server has {} UDP {ports}, so {idle} of {threads} network threads {have} nothing to do: start it with more shards, \
                 or this worker with fewer threads",
                peers.len()
            );
        }
        // A socket alone is no group.
        if threads > 1
            && let Err(error) = self.group.steer(&steering::program(peers, threads))
        {
            tracing::warn!("the kernel deals packets out to network threads as it likes: {error}");
        }
    }

    fn handlers(&self) -> usize {
        self.threads.len()
    }

    fn set_handlers(&mut self, handlers: Vec<Box<dyn Handler>>) {
        let mut handlers = handlers.into_iter();
        for thread in &self.threads {
            // A thread that is gone has told why.
            let _ = thread.handlers.send(handlers.next());
            thread.bell.ring(Sleep::ForLetters);
        }
    }

    fn wake_handler(&mut self, number: usize) {
        self.threads[number].bell.ring(Sleep::ForLetters);
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        if contents.is_empty() {
            return Ok(());
        }
        let thread = &mut self.threads[self.dealt.get(&to).copied().unwrap_or(0)];
        thread.spare.extend(thread.sent.try_iter());
        let memory = thread.spare.pop().or_else(|| thread.sent.recv_timeout(SEND_PATIENCE).ok());
        let Some(mut memory) = memory else {
            self.refused += contents.len().div_ceil(segment) as u64;
            return Ok(());
        };
        memory.clear();
        memory.extend_from_slice(contents);
        // There is always room. A thread that is gone has told why.
        let _ = thread.letters.try_send(Letter { to, segment, ecn, contents: memory });
        thread.bell.ring(Sleep::ForLetters);
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.next.is_none() {
            self.next = match self.arrivals.recv_timeout(timeout) {
                Ok(arrival) => Some(arrival),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    let cause = io::Error::other("its network threads have ended");
                    return Err(TransportError::Receive { local: self.local, cause }.into());
                }
            };
        }
        Ok(self.next.is_some())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn local(&self) -> Peer {
        self.local
    }

    fn stats(&self) -> IoStats {
        let all =
            self.threads.iter().fold(IoStats::default(), |all, thread| all.plus(thread.counters.read()));
        IoStats { send_errors: all.send_errors + self.refused, ..all }
    }
}

impl Drop for UdpThreads {
    /// What is to be sent is sent.
    fn drop(&mut self) {
        for ThreadHandle { letters, bell, thread, .. } in self.threads.drain(..) {
            drop(letters);
            bell.ring(Sleep::ForLetters);
            // A panic there has been told.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
