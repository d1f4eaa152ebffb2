//! The headers of packets to a receiver, and the neighbours on the way.

use std::net::SocketAddrV4;

use super::{ASK_PAUSE_MS, DpdkTx, Unsent};
use crate::Peer;
use crate::link::flows::{Flow, Found};
use crate::link::frame::Template;
use crate::link::neighbours::{Neighbours, Reach};

impl DpdkTx {
    pub(super) fn flow(&mut self, to: Peer) -> Result<usize, Unsent> {
        match self.flows.find(to, &self.endpoint.neighbours) {
            Found::Ready(at) => Ok(at),
            Found::Changed(at, word) => self.renew(at, word),
            Found::Absent => self.new_flow(to),
        }
    }

    #[cold]
    fn new_flow(&mut self, to: Peer) -> Result<usize, Unsent> {
        let config = &self.endpoint.config;
        let Peer::V4(address) = to else { return Err(Unsent::NoRoute) };
        let host = *address.ip();
        let hop = match config.gateway {
            _ if config.on_link(host) => host,
            Some(gateway) => gateway,
            // A neighbour that was given by hand is reached wherever it is.
            None if config.neighbours.iter().any(|neighbour| neighbour.address == host) => host,
            None => return Err(Unsent::NoRoute),
        };
        let Some(place) = self.endpoint.neighbours.enter(hop) else { return Err(Unsent::Unresolved) };
        let word = self.endpoint.neighbours.word(place);
        let Some(reach) = self.resolve(place, hop, word) else { return Err(Unsent::Unresolved) };
        let template = self.template(reach, address);
        Ok(self.flows.add(Flow { to, place, word, device: reach.device, template }))
    }

    #[cold]
    fn renew(&mut self, at: usize, word: u64) -> Result<usize, Unsent> {
        let Some(reach) = Neighbours::reach(word) else { return Err(Unsent::Unresolved) };
        // No other flow is made.
        let Peer::V4(to) = self.flows[at].to else { return Err(Unsent::NoRoute) };
        let template = self.template(reach, to);
        let flow = &mut self.flows[at];
        (flow.word, flow.device, flow.template) = (word, reach.device, template);
        Ok(at)
    }

    pub(super) fn template(&self, reach: Reach, to: SocketAddrV4) -> Template {
        let out = &self.out[reach.device];
        Template::new((out.mac, reach.mac), self.local, to, out.checksums)
    }

    /// Returns the way in `word`, or sends an ARP request on all devices.
    fn resolve(&mut self, place: usize, hop: std::net::Ipv4Addr, word: u64) -> Option<Reach> {
        let known = Neighbours::reach(word).filter(|reach| reach.device < self.out.len());
        if known.is_none() && self.endpoint.neighbours.may_ask(place, self.endpoint.millis(), ASK_PAUSE_MS) {
            for device in 0..self.out.len() {
                self.ask(device, hop);
            }
        }
        known
    }
}
