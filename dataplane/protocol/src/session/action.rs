//! What a parameter server must do for its jobs' sessions.

use crate::aggregator::{Endpoint, JobConfig};
use crate::wire::{Change, RefuseReason};
use crate::{JobId, WorkerId};
use std::net::SocketAddr;

/// What the PS must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Install the job with this session's cookie and these members, in place of its previous state.
    Install(JobConfig, Vec<(WorkerId, Endpoint)>),
    /// Let a member send from another address.
    Move(JobId, WorkerId, Endpoint),
    /// Remove the job: nobody is in it.
    Remove(JobId),
    /// Send a packet.
    Send(SocketAddr, Vec<u8>),
    /// Tell the operator of a rack how its root's job differs.
    RootDiffers(JobId, Change),
    /// Tell the operator of a rack that its root does not let it in.
    RootRefuses(JobId, RefuseReason),
}
