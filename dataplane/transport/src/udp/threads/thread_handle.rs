//! What goes between the backend and one of its threads.

use std::{
    io,
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{Receiver, Sender, SyncSender},
    },
    thread::JoinHandle,
};

use super::counters::Counters;
use crate::{
    Handler, Peer,
    udp::{bell::Bell, burst::Burst},
};

/// Bursts that a thread may have handed over, beside the one into which it receives.
pub(super) const BURSTS: usize = 4;
/// Runs that may wait for a thread to send them.
pub(super) const LETTERS: usize = 64;

/// A run on its way out.
pub(super) struct Letter {
    pub(super) to: Peer,
    pub(super) segment: usize,
    pub(super) ecn: u8,
    pub(super) contents: Vec<u8>,
}

/// What a thread has to tell.
pub(super) enum Arrival {
    /// Its number, and what it has received.
    Burst(usize, Box<Burst>),
    /// Its number: its handler has news.
    News(usize),
    /// Why it could not send or receive.
    Failed(io::Error),
}

/// The backend's end of the channels to and from one thread.
pub(super) struct ThreadHandle {
    pub(super) letters: SyncSender<Letter>,
    /// Memory of sent letters, and what of it is here. The memory that came last is used first, since it is
    /// in a cache.
    pub(super) sent: Receiver<Vec<u8>>,
    pub(super) spare: Vec<Vec<u8>>,
    /// Memory to receive into.
    pub(super) free: SyncSender<Box<Burst>>,
    pub(super) bell: Bell,
    pub(super) handlers: Sender<Option<Box<dyn Handler>>>,
    /// Whether [`Arrival::News`] is under way.
    pub(super) news: Arc<AtomicBool>,
    pub(super) counters: Arc<Counters>,
    pub(super) thread: JoinHandle<()>,
}
