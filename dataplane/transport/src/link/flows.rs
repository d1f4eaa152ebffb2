//! Headers to receivers, ready to be written in front of payloads.

use std::ops::{Index, IndexMut};

use super::frame::Template;
use super::neighbours::Neighbours;
use crate::Peer;

/// Receivers whose headers are kept ready.
const FLOWS: usize = 256;

/// Headers to one receiver.
pub struct Flow {
    pub to: Peer,
    /// The neighbour on the way, its place in the table.
    pub place: usize,
    /// The word of the neighbour table from which the headers were made.
    pub word: u64,
    /// The device or queue that it is sent through.
    pub device: usize,
    pub template: Template,
}

/// The flows of an endpoint.
pub struct Flows {
    flows: Vec<Flow>,
    /// The flow used last: receivers of a group follow each other in the same order every time.
    last: usize,
}

/// The result of a search for a receiver.
pub enum Found {
    /// Its flow.
    Ready(usize),
    /// Its flow, whose neighbour has changed: what the table says now.
    Changed(usize, u64),
    /// It has none.
    Absent,
}

impl Flows {
    pub fn new() -> Flows {
        Flows { flows: Vec::with_capacity(FLOWS), last: 0 }
    }

    /// The flow to a receiver, if it is in the first place searched and nothing has changed.
    #[inline]
    pub fn ready(&mut self, to: Peer, neighbours: &Neighbours) -> Option<usize> {
        // The one behind the last is whom a group's next packet goes to.
        let next = if self.last + 1 < self.flows.len() { self.last + 1 } else { 0 };
        let flow = self.flows.get(next)?;
        let same = flow.to == to && flow.word == neighbours.word(flow.place);
        if same {
            self.last = next;
        }
        same.then_some(next)
    }

    /// Looks for a receiver, wherever it is.
    #[inline]
    pub fn find(&mut self, to: Peer, neighbours: &Neighbours) -> Found {
        if let Some(ready) = self.ready(to, neighbours) {
            return Found::Ready(ready);
        }
        let Some(at) = self.flows.iter().position(|flow| flow.to == to) else { return Found::Absent };
        self.last = at;
        let word = neighbours.word(self.flows[at].place);
        if word == self.flows[at].word { Found::Ready(at) } else { Found::Changed(at, word) }
    }

    /// Adds a flow. Its place stays until [`find`](Self::find) finds none for some receiver.
    pub fn add(&mut self, flow: Flow) -> usize {
        if self.flows.len() == FLOWS {
            // More receivers than places, which no job has: begin again.
            self.flows.clear();
        }
        self.flows.push(flow);
        self.last = self.flows.len() - 1;
        self.last
    }
}

impl Index<usize> for Flows {
    type Output = Flow;

    #[inline]
    fn index(&self, place: usize) -> &Flow {
        &self.flows[place]
    }
}

impl IndexMut<usize> for Flows {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Flow {
        &mut self.flows[place]
    }
}
