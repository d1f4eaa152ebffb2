//! Requests to the controller.

use super::Controller;
use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use thc_control_proto::v1::control_client::ControlClient;
use thc_control_proto::v1::{JoinRequest, JoinResponse};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

/// The longest time that a controller may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Advice if a connection ends before an answer.
const REMEDY: &str = "does it want TLS (thcs://, not thc://), and are the controller's authority, this worker's certificate and its key \
                    those that it wants?";

/// A runtime for the calling thread, which must not belong to another runtime.
pub fn runtime() -> Result<Runtime, Status> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Status::internal(format!("no runtime for gRPC: {error}")))
}

/// Asks for a place on a separate thread: the caller's thread may belong to an async runtime, which must not block.
pub fn ask(controller: &Controller, request: JoinRequest) -> Result<JoinResponse, Status> {
    let question =
        || runtime()?.block_on(async { Ok(connect(controller).await?.join(request).await?.into_inner()) });
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("thc-join".to_owned()).spawn_scoped(scope, question);
        let thread = thread.map_err(|error| Status::internal(format!("no thread for gRPC: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(Status::internal("the thread for gRPC has panicked")))
    })
}

/// Connects to a job's controller.
pub async fn connect(controller: &Controller) -> Result<ControlClient<Channel>, Status> {
    let url = &controller.url;
    let mut endpoint = Endpoint::from_shared(url.endpoint())
        .map_err(|error| Status::invalid_argument(cause(&error).to_string()))?
        .connect_timeout(PATIENCE)
        .timeout(PATIENCE);
    if url.is_encrypted() {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &controller.ca {
            tls = tls.ca_certificate(Certificate::from_pem(read(ca)?));
        }
        if let Some((cert, key)) = &controller.identity {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        endpoint = endpoint.tls_config(tls).map_err(|error| {
            let cause = cause(&error);
            Status::invalid_argument(format!(
                "certificates: {cause}: give PEM files, and the key of the certificate"
            ))
        })?;
    }
    let channel = endpoint.connect().await.map_err(|error| {
        let cause = cause(&error);
        let message = format!("cannot connect: {cause}");
        // A controller that does not run may be started yet. Certificates that it refuses stay refused.
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::InvalidData) => Status::failed_precondition(format!("{message}; {REMEDY}")),
            _ => Status::unavailable(format!("{message}; is thc-controller running there?")),
        }
    })?;
    Ok(ControlClient::new(channel))
}

/// The innermost cause. The errors around the innermost one only say that something failed.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    error.source().map_or(error, cause)
}

fn read(path: &Path) -> Result<Vec<u8>, Status> {
    fs::read(path)
        .map_err(|error| Status::invalid_argument(format!("cannot read {}: {error}", path.display())))
}

/// The text of a status.
pub fn words(status: &Status) -> String {
    let is_late = match status.code() {
        Code::Cancelled => status.message().contains("Timeout"),
        code => code == Code::DeadlineExceeded,
    };
    match (status.code(), status.message(), status.source()) {
        _ if is_late => {
            format!("no answer within {} s; is thc-controller running there?", PATIENCE.as_secs())
        }
        // A refusal of the controller has no source; a connection that broke has.
        (_, _, Some(error)) => format!("the controller closed the connection: {}; {REMEDY}", cause(error)),
        (code, "", _) => format!("{code:?}"),
        (_, message, _) => message.to_owned(),
    }
}
