//! The certificates of a service and the authorities that it trusts.

use crate::server::CertificateFiles;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use x509_parser::pem::parse_x509_pem;

/// The longest time that a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A problem with the files of certificates: a line that names the file, and says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(String);

/// The certificates of a service, as its files had them when they were read.
#[derive(Clone, Debug)]
pub struct Certificates {
    config: ServerTlsConfig,
    not_after: Option<u64>,
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|cause| CertificateError(format!("cannot read {}: {cause}", path.display())))
}

/// When the certificate of a PEM file expires, in seconds since 1970.
fn not_after(pem: &[u8]) -> Option<u64> {
    let (_, pem) = parse_x509_pem(pem).ok()?;
    u64::try_from(pem.parse_x509().ok()?.validity().not_after.timestamp()).ok()
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    error.source().map_or(error, innermost)
}

impl Certificates {
    /// Reads the files. `what` names their owner in messages, such as "the service".
    ///
    /// # Errors
    /// [`CertificateError`] if a file cannot be read or has other contents than it should have, or if the certificate does not belong
    /// to the key.
    pub fn read(what: &str, files: &CertificateFiles) -> Result<Certificates, CertificateError> {
        let cert = read(&files.cert)?;
        let not_after = not_after(&cert);
        let mut config = ServerTlsConfig::new().timeout(HANDSHAKE);
        config = config.identity(Identity::from_pem(cert, read(&files.key)?));
        if let Some(path) = &files.client_ca {
            config = config.client_ca_root(Certificate::from_pem(read(path)?));
        }
        Server::builder().tls_config(config.clone()).map_err(|error| {
            let files = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
            let files = files.into_iter().flatten().map(|path| path.display().to_string());
            CertificateError(format!(
                "{}: {}; give PEM files: a certificate, its own private key, and authorities",
                files.collect::<Vec<_>>().join(", "),
                innermost(&error)
            ))
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if not_after.is_some_and(|end| end <= now) {
            tracing::warn!(
                "certificate of {what}: it has expired; write a new one to {}, and start this program again",
                files.cert.display()
            );
        }
        Ok(Certificates { config, not_after })
    }

    /// The configuration of a server.
    pub fn config(&self) -> ServerTlsConfig {
        self.config.clone()
    }

    /// When the certificate expires, in seconds since 1970, if that is known.
    pub fn not_after(&self) -> Option<u64> {
        self.not_after
    }
}
