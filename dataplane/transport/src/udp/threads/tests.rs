#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};

use super::*;
use crate::{Handled, RunSender};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(600);

fn bind(at: SocketAddr, threads: usize) -> UdpThreads {
    UdpThreads::bind(UdpConfig::new(at), NonZeroUsize::new(threads).unwrap()).unwrap()
}

fn any_loopback_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn peers(at: SocketAddr, count: usize) -> Vec<UdpIo> {
    (0..count).map(|_| UdpIo::bind(UdpConfig::new(at)).unwrap()).collect()
}

/// Receives until so many datagrams have come.
fn receive(io: &mut impl PacketIo, expected: usize, mut f: impl FnMut(Peer, &[u8])) {
    let mut received = 0;
    while received < expected {
        assert!(io.wait(HANG).unwrap(), "{received} of {expected} datagrams came");
        received += io.recv_burst(&mut f).unwrap();
    }
    assert_eq!(received, expected);
}

/// A run of numbered datagrams.
fn numbered_run(count: u32, segment: usize) -> Vec<u8> {
    (0..count).flat_map(|i| [&i.to_be_bytes()[..], &vec![7; segment - 4]].concat()).collect()
}

fn exchange_with_each(at: SocketAddr, bound: SocketAddr) {
    let mut peers = peers(at, 5);
    let mut io = bind(bound, 2);
    let at: Vec<Peer> = peers.iter().map(UdpIo::local).collect();
    io.set_peers(&at);
    let to = SocketAddr::new(at[0].ip(), io.local().port());
    let runs = 20;
    for (peer, &at) in peers.iter_mut().zip(&at) {
        for _ in 0..runs {
            io.send_run_with(at, &numbered_run(50, 532), 532, 2).unwrap();
        }
        let mut next = 0;
        receive(peer, 50 * runs, |from, datagram| {
            assert_eq!((from, datagram.len()), (to, 532));
            assert_eq!(datagram[..4], u32::to_be_bytes(next % 50));
            next += 1;
        });
        for _ in 0..runs {
            peer.send_run(to, &numbered_run(50, 1044), 1044).unwrap();
        }
    }
    // What comes from one peer keeps its order, whichever threads there are.
    let mut next = vec![0; at.len()];
    receive(&mut io, 50 * runs * at.len(), |from, datagram| {
        let peer = at.iter().position(|&at| at == from).unwrap();
        assert_eq!((datagram.len(), &datagram[..4]), (1044, &u32::to_be_bytes(next[peer] % 50)[..]));
        next[peer] += 1;
    });
    // Each peer is one thread's, for what comes and for what goes: 3 of the one and 2 of the other.
    let packets = |counts: IoStats| (counts.packets_in, counts.packets_out, counts.send_errors);
    let each: Vec<_> = io.threads.iter().map(|thread| packets(thread.counters.read())).collect();
    assert_eq!(each, [(3000, 3000, 0), (2000, 2000, 0)]);
    assert_eq!(packets(io.stats()), (5000, 5000, 0));
    assert_eq!(io.stats().bytes_in, 5000 * (1044 + crate::header_len(at[0]) as u64));
}

#[test]
fn each_peer_is_one_threads_in_both_directions() {
    exchange_with_each(any_loopback_port(), (Ipv4Addr::UNSPECIFIED, 0).into());
}

#[test]
fn each_peer_is_one_threads_over_ipv6() {
    exchange_with_each((Ipv6Addr::LOCALHOST, 0).into(), (Ipv6Addr::UNSPECIFIED, 0).into());
}

#[test]
fn a_peer_of_ipv4_is_dealt_to_a_thread_on_any_address_of_ipv6() {
    exchange_with_each(any_loopback_port(), (Ipv6Addr::UNSPECIFIED, 0).into());
}

#[test]
fn what_nobody_takes_waits_in_the_socket() {
    let mut io = bind(any_loopback_port(), 1);
    let mut peers = peers(any_loopback_port(), 1);
    // More than the thread has memory for, in bursts of a datagram or a few.
    let count = 40 * (BURSTS as u32 + 2);
    for _ in 0..count {
        peers[0].send_run(io.local(), &[1; 100], 100).unwrap();
    }
    receive(&mut io, count as usize, |_, datagram| assert_eq!(datagram, [1; 100]));
    assert!(!io.wait(Duration::ZERO).unwrap());
}

#[test]
fn what_is_to_be_sent_is_sent_before_the_end() {
    let mut io = bind(any_loopback_port(), 2);
    let mut peers = peers(any_loopback_port(), 2);
    let at: Vec<Peer> = peers.iter().map(UdpIo::local).collect();
    io.set_peers(&at);
    for &at in &at {
        for _ in 0..10 {
            io.send_run(at, &numbered_run(64, 100), 100).unwrap();
        }
    }
    drop(io);
    for peer in &mut peers {
        receive(peer, 640, |_, datagram| assert_eq!(datagram.len(), 100));
    }
}

#[test]
fn its_port_is_nobody_elses() {
    let io = bind(any_loopback_port(), 2);
    let config = UdpConfig::new(io.local());
    let in_use = |error: Option<TransportError>| matches!(error, Some(TransportError::AddressInUse { .. }));
    assert!(in_use(UdpIo::bind(config).err()));
    assert!(in_use(UdpThreads::bind(config, NonZeroUsize::MIN.saturating_add(1)).err()));
    let taken = peers(any_loopback_port(), 1);
    assert!(in_use(UdpThreads::bind(UdpConfig::new(taken[0].local()), NonZeroUsize::MIN).err()));
}

#[test]
fn an_error_in_sending_is_told_and_not_the_end() {
    let mut io = bind(any_loopback_port(), 1);
    let mut peers = peers(any_loopback_port(), 1);
    io.send_run((Ipv4Addr::LOCALHOST, 0).into(), &[1], 1).unwrap();
    assert!(io.wait(HANG).unwrap());
    let error = io.recv_burst(&mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("port 0 is not a valid port"), "{error}");
    io.send_run(peers[0].local(), &[1, 2], 2).unwrap();
    receive(&mut peers[0], 1, |_, datagram| assert_eq!(datagram, [1, 2]));
}

/// Takes datagrams that begin with 1 and sends them back, and sends to their sender what it is told.
struct Echo {
    told: Receiver<Vec<u8>>,
    to: Option<Peer>,
    /// What it takes; nothing when it begins.
    taken: Sender<Vec<u8>>,
    works: bool,
    news: bool,
}

impl Handler for Echo {
    fn take(&mut self, _: Duration, run: &Run<'_>, io: &mut dyn RunSender) -> bool {
        if run.contents.first() != Some(&1) {
            return false;
        }
        (self.to, self.news) = (Some(run.from), true);
        self.taken.send(run.contents.to_vec()).unwrap();
        io.send_run_with(run.from, run.contents, run.segment, 0).unwrap();
        true
    }

    fn work(&mut self, _: Duration, io: &mut dyn RunSender) -> io::Result<Handled> {
        let mut busy = false;
        if !std::mem::replace(&mut self.works, true) {
            self.taken.send(Vec::new()).unwrap();
        }
        while let (Some(to), Ok(told)) = (self.to, self.told.try_recv()) {
            io.send_run_with(to, &told, told.len(), 0)?;
            busy = true;
        }
        Ok(Handled { busy, news: std::mem::take(&mut self.news) })
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }
}

#[test]
fn a_handler_has_what_it_takes_and_nobody_else_has() {
    let mut io = bind(any_loopback_port(), 2);
    let mut peers = peers(any_loopback_port(), 2);
    let at: Vec<Peer> = peers.iter().map(UdpIo::local).collect();
    io.set_peers(&at);
    let (tell, told) = channel();
    let (taken, takes) = channel();
    io.set_handlers(vec![Box::new(Echo { told, to: None, taken, works: false, news: false })]);
    assert!(takes.recv().unwrap().is_empty());
    for round in 0..50 {
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.send_run(io.local(), &[1, round, number as u8], 3).unwrap();
            peer.send_run(io.local(), &[2, round, number as u8, 0], 4).unwrap();
        }
        // The first thread's are taken, and the other has no handler.
        let mut left = Vec::new();
        receive(&mut io, 3, |from, datagram| left.push((from, datagram.to_vec())));
        left.sort_unstable();
        let mut expected =
            vec![(at[0], vec![2, round, 0, 0]), (at[1], vec![1, round, 1]), (at[1], vec![2, round, 1, 0])];
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert_eq!(takes.recv().unwrap(), [1, round, 0]);
        receive(&mut peers[0], 1, |from, datagram| {
            assert_eq!((from, datagram), (io.local(), &[1, round, 0][..]));
        });
        // It may be asleep.
        tell.send(vec![3, round]).unwrap();
        io.wake_handler(0);
        receive(&mut peers[0], 1, |_, datagram| assert_eq!(datagram, [3, round]));
    }
    // Without a handler all is handed over again.
    io.set_handlers(Vec::new());
    while tell.send(vec![3]).is_ok() {
        std::thread::yield_now();
    }
    peers[0].send_run(io.local(), &[1, 1], 2).unwrap();
    receive(&mut io, 1, |_, datagram| assert_eq!(datagram, [1, 1]));
}
