//! The connections of THC's services, and their certificates.
//!
//! * [`CertificateFiles`]: the paths of PEM files;
//! * [`Certificates`]: what the files had when the service started;
//! * [`Incoming`]: connections, bounded in number and in silence.

mod certificates;
mod incoming;

pub use crate::server::CertificateFiles;
pub use certificates::{CertificateError, Certificates};
pub use incoming::{Connection, Incoming};
