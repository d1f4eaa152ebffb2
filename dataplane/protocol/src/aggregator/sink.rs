//! Where what an aggregator sends goes.

use super::Endpoint;
use crate::{Ecn, JobId};

/// Where an aggregator's packets go.
pub trait Sink {
    /// One packet to one member, to leave with these bits (P46).
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]);
    /// One packet to each member of a job that gets copies. `members` is never empty and stays the same for a
    /// job until its membership is changed.
    fn multicast(&mut self, job: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]);
}
