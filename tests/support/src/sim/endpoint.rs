//! One endpoint of a simulated network.

use std::{io, sync::Arc, time::Duration};

use thc_transport::{IoStats, Origin, PacketIo, Peer, RetainedTx, Run, check_segment};

use super::SimNet;

/// Datagrams per [`PacketIo::recv_runs`], so that callers meet full bursts and remainders.
const BURST: usize = 64;

/// Packet I/O over a [`SimNet`]. Unlike the real backends it allocates per datagram.
pub struct SimIo {
    net: SimNet,
    local: Peer,
    generation: u64,
    burst: Vec<(Origin, Vec<u8>)>,
}

impl SimNet {
    /// Adds an endpoint, which is removed when its handle is dropped.
    ///
    /// An existing endpoint with this address is taken over, as by a restarted process: datagrams
    /// that waited for it are lost, and its handle neither receives nor sends any more.
    #[must_use]
    pub fn endpoint(&self, peer: Peer) -> SimIo {
        let generation = self.state.borrow_mut().attach(peer);
        SimIo::new(self.clone(), peer, generation)
    }
}

impl SimIo {
    fn new(net: SimNet, local: Peer, generation: u64) -> Self {
        Self { net, local, generation, burst: Vec::with_capacity(BURST) }
    }

    /// The network this endpoint belongs to.
    #[must_use]
    pub fn net(&self) -> &SimNet {
        &self.net
    }
}

impl RetainedTx for SimIo {}

impl PacketIo for SimIo {
    /// Merges datagrams like a kernel: those of one origin and one length that follow each other, and one shorter datagram
    /// behind them.
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        if let Some(endpoint) = self.net.state.borrow_mut().endpoint(self.local, self.generation) {
            endpoint.read(BURST, &mut self.burst);
        }
        // The network is not borrowed any more, so `f` may use other endpoints.
        let received = self.burst.len();
        let (mut run, mut of) = (Arc::new(Vec::new()), None);
        let mut segment = 1;
        for (origin, payload) in self.burst.drain(..) {
            let fits =
                of == Some(origin) && run.len() % segment == 0 && (1..=segment).contains(&payload.len());
            if let Some(Origin { from, at, ecn }) = of.filter(|_| !fits) {
                f(Run { from, at, ecn, contents: &run, segment, memory: Some(&run) });
            }
            if !fits {
                match Arc::get_mut(&mut run) {
                    Some(run) => run.clear(),
                    None => run = Arc::default(),
                }
                (of, segment) = (Some(origin), payload.len().max(1));
            }
            Arc::make_mut(&mut run).extend_from_slice(&payload);
        }
        if let Some(Origin { from, at, ecn }) = of {
            f(Run { from, at, ecn, contents: &run, segment, memory: Some(&run) });
        }
        Ok(received)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        let mut net = self.net.state.borrow_mut();
        let datagrams = contents.len().div_ceil(segment);
        let Some(endpoint) = net.endpoint(self.local, self.generation) else {
            return Ok(());
        };
        if datagrams > 0 {
            endpoint.stats.count_out(to, datagrams, contents.len());
        }
        for payload in contents.chunks(segment) {
            net.send(self.local, to, ecn & 3, payload);
        }
        Ok(())
    }

    /// Advances the whole network until this endpoint has something to receive, but by at most
    /// `timeout`. That suits a test in which one side alone moves time; where a driver moves it
    /// for several endpoints, use [`SimNet::advance_to_next`].
    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let mut net = self.net.state.borrow_mut();
        let deadline = net.now.saturating_add(timeout);
        loop {
            if net.endpoint(self.local, self.generation).is_some_and(|endpoint| endpoint.is_readable()) {
                return Ok(true);
            }
            match net.next_event() {
                Some(due) if due <= deadline => {
                    net.advance_to_next();
                }
                _ => {
                    net.advance_to(deadline);
                    return Ok(false);
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.net.now()
    }

    fn local(&self) -> Peer {
        self.local
    }

    fn stats(&self) -> IoStats {
        self.net
            .state
            .borrow_mut()
            .endpoint(self.local, self.generation)
            .map(|endpoint| endpoint.stats)
            .unwrap_or_default()
    }
}

impl Drop for SimIo {
    fn drop(&mut self) {
        // A handler that panicked inside the network must not panic again here.
        if let Ok(mut net) = self.net.state.try_borrow_mut() {
            net.detach(self.local, self.generation);
        }
    }
}
