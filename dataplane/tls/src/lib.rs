//! Certificates of THC's services: read from PEM files, and read again when these change or somebody says so, so that nobody has to
//! restart a service whose certificate is about to expire. Connections that are open go on as they are.
//!
//! * [`CertificateFiles`]: where the certificates are;
//! * [`Certificates`]: what was read of them last, for the next connection;
//! * [`handshakes`]: connections that have shown who they are.
#![forbid(unsafe_code)]

mod certificates;
mod connections;
mod read;

pub use certificates::{Certificates, ClientCertificates, PERIOD, Refreshed};
pub use connections::handshakes;
pub use read::CertificateError;
pub use thc_options::CertificateFiles;
/// A connection with certificates, as [`handshakes`] gives it.
pub use tokio_rustls::server::TlsStream;
