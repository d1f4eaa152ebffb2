//! PEM files of a service.

use crate::server::CertificateFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::fs;
use std::path::Path;

/// A problem with the files of certificates: a line that names the file, and says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(String);

impl CertificateError {
    /// A file that has other contents than `what`.
    pub(crate) fn pem(path: &Path, problem: impl Display, what: &str) -> CertificateError {
        CertificateError(format!("{}: {problem}; give a PEM file with {what}", path.display()))
    }

    /// A certificate that does not belong to the key, or a kind of either that is not supported.
    pub(crate) fn pair(files: &CertificateFiles, problem: impl Display) -> CertificateError {
        let (cert, key) = (files.cert.display(), files.key.display());
        CertificateError(format!("{cert} and {key}: {problem}; give a certificate and its own private key"))
    }
}

/// The bytes of the files, by which changes are noticed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The parsed contents of the files.
pub(crate) struct Parsed {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub authorities: Option<Vec<CertificateDer<'static>>>,
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|cause| CertificateError(format!("cannot read {}: {cause}", path.display())))
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    const WHAT: &str = "one certificate or several";
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificateError::pem(path, error, WHAT))?;
    if found.is_empty() {
        return Err(CertificateError::pem(path, "it has no certificate", WHAT));
    }
    Ok(found)
}

impl Contents {
    pub(crate) fn read(files: &CertificateFiles) -> Result<Contents, CertificateError> {
        Ok(Contents {
            cert: read(&files.cert)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    /// Parses the bytes that were read from these files.
    pub(crate) fn parse(&self, files: &CertificateFiles) -> Result<Parsed, CertificateError> {
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| CertificateError::pem(&files.key, error, "a private key"))?;
        let authorities = match (&files.client_ca, &self.client_ca) {
            (Some(path), Some(bytes)) => Some(certificates(path, bytes)?),
            _ => None,
        };
        Ok(Parsed { chain: certificates(&files.cert, &self.cert)?, key, authorities })
    }
}
