//! The certificates of a service and the authorities that it trusts, as its files contain them now.

use crate::server::CertificateFiles;
use crate::tls::read::{CertificateError, Contents, Parsed};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The interval of checking the files for changes.
const PERIOD: Duration = Duration::from_secs(2);

struct Current {
    contents: Contents,
    config: Arc<ServerConfig>,
    not_after: Option<u64>,
    /// The problem with the files that was reported last; empty if there is none.
    complaint: String,
}

/// A service's certificates.
pub struct Certificates {
    /// The owner of the certificates, as messages name it.
    what: &'static str,
    files: CertificateFiles,
    protocol: &'static [u8],
    current: Mutex<Current>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

fn config(
    files: &CertificateFiles,
    parsed: Parsed,
    protocol: &[u8],
) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateError::pair(files, error))?;
    let builder = match (parsed.authorities, &files.client_ca) {
        (Some(authorities), Some(path)) => {
            let what = "certificates of authorities";
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority).map_err(|error| CertificateError::pem(path, error, what))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let verifier = verifier.map_err(|error| CertificateError::pem(path, error, what))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(parsed.chain, parsed.key)
        .map_err(|error| CertificateError::pair(files, error))?;
    config.alpn_protocols.push(protocol.to_vec());
    Ok(config)
}

/// When a certificate expires, in seconds since 1970.
fn not_after(parsed: &Parsed) -> Option<u64> {
    let (_, first) = X509Certificate::from_der(parsed.chain.first()?).ok()?;
    u64::try_from(first.validity().not_after.timestamp()).ok()
}

impl Certificates {
    /// Reads the files. `what` names their owner in messages, such as "the service". `protocol` is the application protocol
    /// (ALPN), such as `h2`.
    ///
    /// # Errors
    /// [`CertificateError`] if a file cannot be read or has other contents than it should have, or if the certificate does not belong
    /// to the key.
    pub fn open(
        what: &'static str,
        files: CertificateFiles,
        protocol: &'static [u8],
    ) -> Result<Certificates, CertificateError> {
        let contents = Contents::read(&files)?;
        let parsed = contents.parse(&files)?;
        let not_after = not_after(&parsed);
        let config = Arc::new(config(&files, parsed, protocol)?);
        let current = Mutex::new(Current { contents, config, not_after, complaint: String::new() });
        let certificates = Certificates { what, files, protocol, current };
        certificates.warn_if_expired();
        Ok(certificates)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // The contents change as a whole, so they are valid even after a panic.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration for the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().config)
    }

    /// When the certificate expires, in seconds since 1970, if that is known.
    pub fn not_after(&self) -> Option<u64> {
        self.current().not_after
    }

    fn warn_if_expired(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.not_after().is_some_and(|end| end <= now) {
            tracing::warn!(
                "certificate of {}: it has expired; write a new one to {}, which is read automatically",
                self.what,
                self.files.cert.display()
            );
        }
    }

    /// Reads the files again, and returns whether they have changed. The certificates that were read last stay in use if
    /// the files are unusable, for example while only one of them has been replaced.
    fn refresh(&self) -> Result<bool, CertificateError> {
        let contents = Contents::read(&self.files)?;
        if contents == self.current().contents {
            self.current().complaint.clear();
            return Ok(false);
        }
        let parsed = contents.parse(&self.files)?;
        let not_after = not_after(&parsed);
        let config = Arc::new(config(&self.files, parsed, self.protocol)?);
        *self.current() = Current { contents, config, not_after, complaint: String::new() };
        self.warn_if_expired();
        Ok(true)
    }

    /// Reads the files every two seconds until this future is dropped, and logs changes and problems.
    pub async fn watch(self: Arc<Certificates>) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            let read = Arc::clone(&self);
            // Reading a disk may block.
            let Ok(refreshed) = tokio::task::spawn_blocking(move || read.refresh()).await else { continue };
            let what = self.what;
            match refreshed {
                Ok(true) => {
                    tracing::info!("certificates of {what}: the files were read again and have changed");
                }
                Ok(false) => {}
                Err(error) => {
                    let text = error.to_string();
                    let mut current = self.current();
                    if text != current.complaint {
                        tracing::warn!(
                            "certificates of {what}: {text}; the certificates that were read before stay in use"
                        );
                        current.complaint = text;
                    }
                }
            }
        }
    }
}
