//! Certificates of THC's services. A service reads them from PEM files, and reads the files again when they change, so that
//! a certificate can be replaced without a restart. Open connections are not affected.
//!
//! * [`CertificateFiles`]: the paths of the files;
//! * [`Certificates`]: the certificates that were read last, for the next connection;
//! * [`Incoming`]: connections, bounded in number and in silence;
//! * [`handshakes`]: connections whose handshakes have succeeded.

mod certificates;
mod connections;
mod incoming;
mod read;

pub use crate::server::CertificateFiles;
pub use certificates::Certificates;
pub use connections::handshakes;
pub use incoming::{Connection, Incoming};
pub use read::CertificateError;
/// A TLS connection, as [`handshakes`] returns it.
pub use tokio_rustls::server::TlsStream;
