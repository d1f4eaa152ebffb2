//! The errors with which a server does not start, or stops.

use std::io;

use thc_transport::TransportError;

/// An error of a running or starting server. Errors of its configuration are
/// [`ConfigError`](crate::ConfigError)s.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum PsError {
    /// A port cannot be opened, or not as asked.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No run of ports is free.
    #[error("no {shards} consecutive UDP ports are free on {ip}: give a port, or use fewer shards")]
    NoPorts { shards: u8, ip: std::net::IpAddr },
    /// A core to pin to does not exist or is not ours.
    #[error("cannot pin to core {core}: this process may use {allowed}")]
    Core { core: usize, allowed: String },
    /// Pinning failed.
    #[error("cannot pin shard {shard} to core {core}: {cause}")]
    Pin { shard: u8, core: usize, cause: io::Error },
    /// P4Runtime cannot be served.
    #[error("cannot serve P4Runtime on {addr}: {cause}; is another server or switch using it?")]
    P4Runtime { addr: std::net::SocketAddr, cause: io::Error },
    /// A certificate, key or authority is none.
    #[error("certificates of P4Runtime: {message}; give cert and key, and client_ca, as PEM files")]
    Certificates { message: String },
    /// No thread.
    #[error("cannot start a thread: {0}; raise the limit of processes (ulimit -u)")]
    Thread(io::Error),
    /// A lookup table or job is inconsistent, which validated configurations never are.
    #[error(transparent)]
    Job(#[from] thc_protocol::aggregator::JobConfigError),
    /// A shard's port has failed.
    #[error("shard {shard} stopped: {cause}")]
    Receive { shard: u8, cause: io::Error },
}
