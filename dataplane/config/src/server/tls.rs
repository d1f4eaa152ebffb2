//! Certificates of the P4Runtime service, with the keys of thc-controller's `[controller.tls]`.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::job::{ConfigError, Section};
use clap::Args;
use serde::{Deserialize, Serialize};

/// The keys of the `[p4runtime.tls]` section, PEM files.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "P4Runtime")]
pub struct TlsOptions {
    /// Encrypt P4Runtime with the certificate in this PEM file, followed by those that lead to its authority
    #[arg(id = "p4runtime_cert", long = "p4runtime-cert", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(id = "p4runtime_key", long = "p4runtime-key", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// PEM file with authorities: only controllers with a certificate of one of them may connect [default: all
    /// controllers]
    #[arg(id = "p4runtime_client_ca", long = "p4runtime-client-ca", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
}

/// The paths of a service's certificates: PEM files that could be read when its options were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The service's certificate, and those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates; without them clients need none.
    pub client_ca: Option<PathBuf>,
}

impl TlsOptions {
    /// Looks for the files.
    pub(crate) fn validate(&self) -> Result<Option<CertificateFiles>, ConfigError> {
        let missing = |key, mend| Err(Section::Server.missing(key, mend));
        match (&self.cert, &self.key, &self.client_ca) {
            (None, None, None) => Ok(None),
            (None, ..) => missing("p4runtime.tls.cert", "give the server's certificate, a PEM file"),
            (_, None, _) => missing("p4runtime.tls.key", "give the certificate's private key, a PEM file"),
            (Some(cert), Some(key), client_ca) => Ok(Some(CertificateFiles {
                cert: readable(cert)?,
                key: readable(key)?,
                client_ca: client_ca.as_deref().map(readable).transpose()?,
            })),
        }
    }

    /// Makes paths relative to the folder of the file in which they are written.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.cert, &mut self.key, &mut self.client_ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }
}

fn readable(path: &Path) -> Result<PathBuf, ConfigError> {
    match File::open(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(cause) => Err(ConfigError::Read { path: path.to_owned(), cause }),
    }
}
