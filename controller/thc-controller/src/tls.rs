//! Certificates: of the controller's service, and towards targets.

use crate::config::{TargetConfig, Tls};
use crate::error::ControllerError;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// For the controller's own service.
#[must_use]
pub fn of_service(tls: &Tls) -> ServerTlsConfig {
    let config = ServerTlsConfig::new().identity(Identity::from_pem(&tls.cert, &tls.key));
    match &tls.client_ca {
        Some(authorities) => config.client_ca_root(Certificate::from_pem(authorities)),
        None => config,
    }
}

/// For a connection to a target.
///
/// # Errors
/// [`ControllerError::Tls`] without authorities: the machine's own are for the web.
pub fn of_target(target: &TargetConfig) -> Result<ClientTlsConfig, ControllerError> {
    let Some(authorities) = &target.ca else {
        return Err(ControllerError::Tls {
            what: format!("target {}", target.name),
            message: "its address is https://, so give ca, the authority of its certificate".to_owned(),
        });
    };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities));
    Ok(match &target.identity {
        Some(own) => config.identity(Identity::from_pem(&own.cert, &own.key)),
        None => config,
    })
}
