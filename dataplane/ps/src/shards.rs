//! All shards of a server, as the threads that command them see them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use thc_protocol::wire::{Header, Kind};
use thc_transport::Peer;

use crate::error::PsError;
use crate::rows::ViewChanges;
use crate::shard::ShardCommand;
use crate::state::{ServerState, ShardReport};

/// The longest time that a shard may take to follow a command before that is logged, or to report before its last report is
/// used.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether the receiver of this packet has joined a job with its cookie.
fn lets_in(packet: &[u8]) -> bool {
    Header::parse(packet).is_ok_and(|(header, _)| matches!(header.kind, Kind::Welcome | Kind::Pending))
}

/// The commands and the state of all shards.
#[derive(Clone, Debug)]
pub struct Shards {
    commands: Vec<Sender<ShardCommand>>,
    shared: Arc<ServerState>,
}

impl Shards {
    /// The shards of a server.
    #[must_use]
    pub fn new(commands: Vec<Sender<ShardCommand>>, shared: Arc<ServerState>) -> Shards {
        Shards { commands, shared }
    }

    /// The number of shards.
    #[must_use]
    pub fn count(&self) -> u8 {
        self.commands.len() as u8
    }

    /// Sets the kinds of packets that go to the control thread, as bits of [`crate::kinds::kind_bit`].
    pub fn take_kinds(&self, kinds: u8) {
        self.shared.control_kinds.store(kinds, Ordering::Relaxed);
    }

    /// Gives changes to every shard and waits until all have followed. Returns whether all did; if not, the
    /// server is about to stop.
    #[must_use]
    pub fn follow(&self, changes: ViewChanges) -> bool {
        let changes = Arc::new(changes);
        let (done, answers) = bounded(self.commands.len());
        for shard in &self.commands {
            if shard.send(ShardCommand::Follow(Arc::clone(&changes), done.clone())).is_err() {
                return false;
            }
        }
        drop(done);
        let mut followed = 0;
        while followed < self.commands.len() {
            match answers.recv_timeout(PATIENCE) {
                Ok(Ok(())) => followed += 1,
                Ok(Err(error)) => {
                    // The rows were checked, so this is a fault in the program.
                    self.shared.fail(PsError::Job(error));
                    return false;
                }
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if self.shared.stop.load(Ordering::Relaxed) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("a shard takes long to follow a change; is the machine overloaded?");
                }
            }
        }
        true
    }

    /// Lets the first shard send a packet, waiting for room. The packet is sent from the host's address
    /// `from`, if given; if the packet lets a worker in, all shards use that address for the worker from then
    /// on.
    pub fn send(&self, from: Option<IpAddr>, to: Peer, packet: Vec<u8>) {
        if let Some(from) = from.filter(|_| lets_in(&packet)) {
            for shard in &self.commands {
                let _ = shard.send(ShardCommand::AnswerFrom(from, to));
            }
        }
        if let Some(first) = self.commands.first() {
            // A shard that has ended has ended the server.
            let _ = first.send(ShardCommand::Send(from, to, packet));
        }
    }

    /// Sends as [`Self::send`] does, and returns `false` if there is no room.
    #[must_use]
    pub fn try_send(&self, from: Option<IpAddr>, to: Peer, packet: Vec<u8>) -> bool {
        if let Some(from) = from.filter(|_| lets_in(&packet)) {
            let sent =
                |shard: &Sender<ShardCommand>| shard.try_send(ShardCommand::AnswerFrom(from, to)).is_ok();
            if !self.commands.iter().all(sent) {
                return false;
            }
        }
        self.commands
            .first()
            .is_some_and(|first| first.try_send(ShardCommand::Send(from, to, packet)).is_ok())
    }

    /// Counters of all shards up to now.
    #[must_use]
    pub fn reports(&self) -> Vec<ShardReport> {
        let asked: Vec<_> = self
            .commands
            .iter()
            .map(|shard| {
                let (sender, report) = bounded(1);
                shard.send_timeout(ShardCommand::Report(sender), PATIENCE).ok().map(|()| report)
            })
            .collect();
        let mut reports: Vec<Option<ShardReport>> = asked
            .into_iter()
            .map(|report| report.and_then(|report| report.recv_timeout(PATIENCE).ok()))
            .collect();
        self.shared.last_reports(&mut reports);
        reports.into_iter().flatten().collect()
    }
}
