//! The handle of a simulated network.

use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

use thc_transport::Peer;

use super::{LinkConfig, SimConfig, state::NetState, stats::SimStats};

/// A simulated network. Clones are handles of the same network, which lives in one thread.
#[derive(Clone)]
pub struct SimNet {
    pub(super) state: Rc<RefCell<NetState>>,
}

impl SimNet {
    /// Creates a network without endpoints at time 0. Rates outside 0 to 1 act as the nearer bound.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self { state: Rc::new(RefCell::new(NetState::new(config))) }
    }

    /// The virtual time since the network was created.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state.borrow().now
    }

    /// The time of the next event, if datagrams are under way.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.state.borrow().next_event()
    }

    /// Moves time to the next event and carries out all events of that time, at which datagrams reach
    /// a receiver's last hop or its queue. Returns the new time, or `None` if nothing is under way.
    pub fn advance_to_next(&self) -> Option<Duration> {
        self.state.borrow_mut().advance_to_next()
    }

    /// Moves time to `time` and carries out all events until then. A `time` in the past changes
    /// nothing.
    pub fn advance_to(&self, time: Duration) {
        self.state.borrow_mut().advance_to(time);
    }

    /// The number of datagrams under way, copies included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state.borrow().in_flight()
    }

    /// The settings for datagrams from `from` to `to`.
    #[must_use]
    pub fn link(&self, from: Peer, to: Peer) -> LinkConfig {
        self.state.borrow().link(from, to)
    }

    /// Gives the direction `from` → `to` settings of its own, for datagrams sent from now on.
    pub fn set_link(&self, from: Peer, to: Peer, link: LinkConfig) {
        self.state.borrow_mut().set_link(from, to, Some(link));
    }

    /// Returns the direction `from` → `to` to the settings of the network.
    pub fn reset_link(&self, from: Peer, to: Peer) {
        self.state.borrow_mut().set_link(from, to, None);
    }

    /// Changes only the loss of the direction `from` → `to`.
    pub fn set_loss(&self, from: Peer, to: Peer, loss: f64) {
        let link = self.link(from, to);
        self.set_link(from, to, LinkConfig { loss, ..link });
    }

    /// Gives an endpoint a bandwidth of its own, in bits per second in each direction. A restart of
    /// the endpoint keeps the bandwidth.
    pub fn set_bandwidth(&self, peer: Peer, bandwidth: Option<u64>) {
        self.state.borrow_mut().set_bandwidth(peer, bandwidth);
    }

    /// Makes an address a host. All endpoints with this address share one wire out of the host and one into it, each of
    /// `bandwidth` bits per second (`None` is unlimited), instead of having a bandwidth of their own. Datagrams between them
    /// cross neither wire, take no time and meet no faults.
    pub fn set_host(&self, address: impl Into<IpAddr>, bandwidth: Option<u64>) {
        self.state.borrow_mut().set_host(address.into(), bandwidth);
    }

    /// Moves to `found` the endpoints that had nothing to read and have received a datagram since the last call, in the order
    /// of arrival. The first call only begins to record these endpoints.
    pub fn take_arrivals(&self, found: &mut Vec<Peer>) {
        found.append(self.state.borrow_mut().arrivals.get_or_insert_default());
    }

    /// Cuts `peer` off: all datagrams to and from it are dropped, those under way included,
    /// until [`heal`](Self::heal).
    pub fn partition(&self, peer: Peer) {
        self.state.borrow_mut().partitioned.insert(peer);
    }

    /// Ends a [`partition`](Self::partition).
    pub fn heal(&self, peer: Peer) {
        self.state.borrow_mut().partitioned.remove(&peer);
    }

    /// The counters since the network was created.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.state.borrow().stats
    }
}
