//! What a worker must know to join a group.

use crate::Controller;
use crate::seat::Seat;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_transport::{Backend, LossyConfig, TransportError};

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
    /// Seed of this worker's private rounding; `None` derives it from the job's seed and the worker's
    /// number, so that runs repeat bit for bit.
    pub seed: Option<u64>,
    /// Threads that compute, the caller's among them. Default: one less than the process has cores, at least 1.
    pub threads: usize,
    /// Threads for packets, each with its own socket and slots, beside those that compute; kernel UDP only.
    /// The server's ports are divided among them, so more threads than ports have nothing to do. Default 0:
    /// the computing threads also receive and send.
    pub network_threads: usize,
    /// Faults to inject into this worker's packets, for tests.
    pub faults: Option<LossyConfig>,
}

/// Most [`GroupConfig::network_threads`]: servers have no more ports.
const MOST_NETWORK_THREADS: usize = 64;

impl GroupConfig {
    /// Checks whether these network threads are possible.
    ///
    /// # Errors
    /// [`TransportError::Setting`] says why not.
    pub fn check_network_threads(&self) -> Result<(), TransportError> {
        let backend = match &self.io {
            Backend::Udp => "udp",
            Backend::Dpdk(_) => "dpdk",
        };
        let mend = match self.network_threads {
            0 => return Ok(()),
            _ if backend != "udp" => "these threads are for kernel UDP alone: leave the option out",
            threads if threads > MOST_NETWORK_THREADS => "64 is the most, as many as servers have ports",
            _ => return Ok(()),
        };
        let value = self.network_threads.to_string();
        Err(TransportError::Setting { backend, key: "network_threads", value, mend })
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
            io: Backend::Udp,
            bind: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            join_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            patience: Duration::ZERO,
            recv_buffer: 8 << 20,
            send_buffer: 4 << 20,
            min_rto: Duration::from_millis(20),
            seed: None,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
            network_threads: 0,
            faults: None,
        }
    }
}
