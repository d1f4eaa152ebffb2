//! The settings of a group.

use crate::{Controller, Seat};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_transport::{Backend, LossyConfig};

/// The time-outs of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the other workers to join. Default 60 s.
    pub join: Duration,
    /// For an all-reduce that makes no progress. Default 60 s.
    pub progress: Duration,
    /// For an all-reduce that makes no progress while the parameter server answers and only other workers are late, if
    /// that is longer than [`Self::progress`]. Default 0.
    pub patience: Duration,
    /// For a packet's result, at least, before the packet is sent again. Default 20 ms.
    pub min_rto: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            join: Duration::from_secs(60),
            progress: Duration::from_secs(60),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
        }
    }
}

/// Settings of a [`crate::Group`]; the rest comes from the parameter server (P23 WELCOME).
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The controller to ask for the seat, in place of [`Self::seat`]. Default: none.
    pub controller: Option<Controller>,
    /// This worker's place in a job.
    pub seat: Seat,
    /// The number of workers that the job must have; with another number joining fails at once. Default: any number.
    pub workers: Option<u16>,
    /// The backend that carries the packets. Default: kernel UDP sockets.
    pub io: Backend,
    /// Address and port to send from. Default: any address, a free port.
    pub bind: SocketAddr,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// The receive buffer to ask the kernel for, in bytes. Default 8 MiB.
    pub recv_buffer: usize,
    /// The send buffer to ask the kernel for, in bytes. Default 4 MiB.
    pub send_buffer: usize,
    /// This worker's way of rounding. Default: [`Rounding::Stratified`].
    pub rounding: Rounding,
    /// Threads that compute, the caller's among them. Default: one less than the process has cores, at least 1.
    pub threads: usize,
    /// Faults to inject into this worker's packets, for tests.
    pub faults: Option<LossyConfig>,
}

/// The relation of a worker's roundings to those of the other workers. With each of them, runs repeat bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// They complement each other (P31), which makes the mean's error smaller. The seed follows from the job's seed.
    #[default]
    Stratified,
    /// Independent of the others', as in the paper (Appendix A.2), with the worker's rank over all racks as seed.
    Independent,
    /// Independent of the others', with this seed, which no other worker of the job may have.
    Seed(u64),
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            controller: None,
            seat: Seat::default(),
            workers: None,
            io: Backend::Udp,
            bind: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            timeouts: Timeouts::default(),
            recv_buffer: 8 << 20,
            send_buffer: 4 << 20,
            rounding: Rounding::Stratified,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
            faults: None,
        }
    }
}
