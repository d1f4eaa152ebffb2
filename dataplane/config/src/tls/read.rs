//! PEM files of a service.

use crate::server::CertificateFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Why certificates are unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// A file has other contents than it should have.
    #[error("{}: {message}; give a PEM file with {what}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
        /// The contents that the file should have.
        what: &'static str,
    },
    /// The certificate does not belong to the key, or their kind is not supported.
    #[error("{} and {}: {message}; give a certificate and its own private key", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The problem.
        message: String,
    },
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
    fs::read(path).map_err(|cause| CertificateError::Read { path: path.to_owned(), cause })
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let wrong = |message: String| CertificateError::Pem {
        path: path.to_owned(),
        message,
        what: "one certificate or several",
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("it has no certificate".to_owned()));
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
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| CertificateError::Pem {
            path: files.key.clone(),
            message: error.to_string(),
            what: "a private key",
        })?;
        let authorities = match (&files.client_ca, &self.client_ca) {
            (Some(path), Some(bytes)) => Some(certificates(path, bytes)?),
            _ => None,
        };
        Ok(Parsed { chain: certificates(&files.cert, &self.cert)?, key, authorities })
    }
}
