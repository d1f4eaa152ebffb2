//! The actions of a parameter server for its jobs' sessions.

use crate::aggregator::{Endpoint, JobConfig};
use crate::wire::{Change, RefuseReason};
use crate::{JobId, WorkerId};
use std::net::SocketAddr;

/// An action of the PS.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Install the job with this session's cookie and these members, in place of its previous state.
    Install(JobConfig, Vec<(WorkerId, Endpoint)>),
    /// Let a member send from another address.
    Move(JobId, WorkerId, Endpoint),
    /// Remove the job: it has no members.
    Remove(JobId),
    /// Send a packet.
    Send(SocketAddr, Vec<u8>),
    /// Report to the operator of a rack how its root's job differs.
    RootDiffers(JobId, Change),
    /// Report to the operator of a rack that its root does not let it in.
    RootRefuses(JobId, RefuseReason),
}
