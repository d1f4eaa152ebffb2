//! What a worker must know to join a group.

use crate::Controller;
use crate::seat::Seat;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_transport::{Backend, LossyConfig};

/// Settings of a [`crate::Group`]; the rest comes from the parameter server (P23).
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The controller to ask for server, job, worker and cookie, in place of the values below. Default: none.
    pub controller: Option<Controller>,
    /// The parameter server. Default 127.0.0.1:9000.
    pub ps: SocketAddr,
    /// The job's number. Default 1.
    pub job: u16,
    /// This worker's number, 0 to n − 1. Default 0.
    pub worker: u8,
    /// The job's cookie, as the parameter server has it. Default 0.
    pub cookie: u32,
    /// How many workers the job must have, if it must. Another number is an error before anybody is waited for.
    /// Default: none.
    pub workers: Option<u16>,
    /// What carries the packets. Default: kernel UDP sockets.
    pub io: Backend,
    /// Address and port to send from. Default: any address, a free port.
    pub bind: SocketAddr,
    /// How long to wait for the others. Default 60 s.
    pub join_timeout: Duration,
    /// How long an all-reduce may stand still before it fails. Default 60 s.
    pub timeout: Duration,
    /// The longer time that applies instead while the parameter server answers and only other workers are
    /// late. Default [`Self::timeout`].
    pub patience: Duration,
    /// Receive buffer wanted, in bytes. Default 8 MiB.
    pub recv_buffer: usize,
    /// Send buffer wanted, in bytes. Default 4 MiB.
    pub send_buffer: usize,
    /// Shortest retransmission time-out. Default 20 ms.
    pub min_rto: Duration,
    /// How this worker rounds. Default: [`Rounding::Stratified`].
    pub rounding: Rounding,
    /// Threads that compute, the caller's among them. Default: one less than the process has cores, at least 1.
    pub threads: usize,
    /// Faults to inject into this worker's packets, for tests.
    pub faults: Option<LossyConfig>,
}

/// How a worker's roundings are related to those of the other workers. With each of them, runs repeat bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// They complement each other (P31), which makes the mean's error smaller. The seed follows from the job's seed.
    #[default]
    Stratified,
    /// Independent of the others', as in the paper (Appendix A.2), with the worker's number as seed.
    Independent,
    /// Independent of the others', with this seed, which no other worker of the job may have.
    Seed(u64),
}

impl GroupConfig {
    /// The seed of independent roundings; `None` if they are stratified.
    pub(crate) fn rounding_seed(&self) -> Option<u64> {
        match self.rounding {
            Rounding::Stratified => None,
            Rounding::Independent => Some(self.worker.into()),
            Rounding::Seed(seed) => Some(seed),
        }
    }

    /// Joins there from now on.
    pub(crate) fn take_seat(&mut self, seat: Seat) {
        (self.ps, self.job, self.worker, self.cookie) = (seat.ps, seat.job, seat.worker, seat.cookie);
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            controller: None,
            ps: SocketAddr::from((Ipv4Addr::LOCALHOST, 9000)),
            job: 1,
            worker: 0,
            cookie: 0,
            workers: None,
            io: Backend::Udp,
            bind: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            join_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            patience: Duration::ZERO,
            recv_buffer: 8 << 20,
            send_buffer: 4 << 20,
            min_rto: Duration::from_millis(20),
            rounding: Rounding::Stratified,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
            faults: None,
        }
    }
}
