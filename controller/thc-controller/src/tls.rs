//! Certificates for connections to targets. They are read for each connection, so new ones need no restart.

use crate::config::TargetConfig;
use crate::error::ControllerError;
use std::path::Path;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The configuration of a connection to a target.
///
/// # Errors
/// [`ControllerError::Tls`] for a file that cannot be read, and if there are no authorities: the machine's
/// own are for the web.
pub fn client_config(target: &TargetConfig) -> Result<ClientTlsConfig, ControllerError> {
    let wrong = |message: String| ControllerError::Tls { what: format!("target {}", target.name), message };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|cause| wrong(format!("cannot read {}: {cause}", path.display())))
    };
    let Some(authorities) = &target.ca else {
        return Err(wrong(
            "its address is https://, so give ca, the authority of its certificate".to_owned(),
        ));
    };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(authorities)?));
    Ok(match &target.identity {
        Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        None => config,
    })
}
