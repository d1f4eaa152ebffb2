//! The settings of the P4Runtime service.

use std::net::SocketAddr;

use crate::job::ConfigError;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::server::socket_address;
use crate::server::tls::{CertificateFiles, TlsOptions};

/// The default address of P4Runtime: BMv2's usual port, reachable from this machine alone.
const DEFAULT_LISTEN: &str = "127.0.0.1:9559";

/// The keys of the `[p4runtime]` section.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "P4Runtime")]
pub struct P4RuntimeOptions {
    /// Let a controller write the jobs, by P4Runtime at this address. Anyone who can reach it can change them: use a
    /// loopback address, or require certificates with --p4runtime-client-ca [default in a file: 127.0.0.1:9559]
    #[arg(id = "p4runtime_listen", long = "p4runtime", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// P4Runtime device ID of this server, which controllers must name [default: 0]
    #[arg(long = "p4runtime-device-id", value_name = "NUMBER")]
    pub device_id: Option<u64>,
    /// The `[p4runtime.tls]` section.
    #[arg(skip)]
    pub tls: Option<TlsOptions>,
}

/// A checked `[p4runtime]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct P4RuntimeConfig {
    /// The address to listen at; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The number that requests must name.
    pub device_id: u64,
    /// Certificates; without them nothing is encrypted.
    pub tls: Option<CertificateFiles>,
}

impl P4RuntimeOptions {
    /// Checks it.
    pub(crate) fn validate(&self) -> Result<P4RuntimeConfig, ConfigError> {
        let text = self.listen.as_deref().unwrap_or(DEFAULT_LISTEN);
        let listen = socket_address("p4runtime", text, DEFAULT_LISTEN)?;
        let tls = self.tls.as_ref().map(TlsOptions::validate).transpose()?.flatten();
        Ok(P4RuntimeConfig { listen, device_id: self.device_id.unwrap_or(0), tls })
    }
}
