//! The connection to a controller, and its errors as lines of text.

use super::terminal::Failure;
use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thc_control_proto::v1::control_client::ControlClient;
use thc_controller::has_io;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

/// The time-out of connecting.
const CONNECTING: Duration = Duration::from_secs(5);
/// The time for which refused connections to this machine are tried again, since its controller may just have been started.
const STARTING: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(50);
/// The time-out of answers. A job is written to all of its targets before the answer.
const ANSWERING: Duration = Duration::from_secs(60);

/// The default address of a controller.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9700";

/// The controller that commands ask.
#[derive(Args, Debug)]
#[command(next_help_heading = "Controller")]
pub struct Remote {
    /// The controller to ask: HOST:PORT [default: 127.0.0.1:9700]
    #[arg(long, global = true, env = "THC_CONTROLLER", value_name = "CONTROLLER")]
    controller: Option<String>,
    /// PEM file with the authority of the controller's certificate; with it the connection is encrypted
    #[arg(long, global = true, env = "THC_CONTROLLER_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with your own certificate; needed where the controller requires one
    #[arg(long, global = true, env = "THC_CONTROLLER_CERT", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// PEM file with the private key of --cert
    #[arg(long, global = true, env = "THC_CONTROLLER_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
}

/// A connection to the controller.
#[derive(Clone, Debug)]
pub struct Connection {
    client: ControlClient<Channel>,
}

impl Connection {
    /// Connects.
    pub async fn open(remote: &Remote) -> Result<Connection, Failure> {
        let address = remote.controller.as_deref().unwrap_or(DEFAULT_ADDRESS);
        let bare = address.split_once("://").map_or(address, |(_, bare)| bare);
        let bare = bare.trim_end_matches('/');
        let port = bare.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            let text = format!("--controller {address}: give host and port, such as 127.0.0.1:9700");
            return Err(Failure::usage(text));
        }
        let tls = remote.tls()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{bare}"))
            .map_err(|error| Failure::usage(format!("--controller {address}: {error}")))?
            .connect_timeout(CONNECTING)
            .timeout(ANSWERING);
        let encrypted = tls.is_some();
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).map_err(|error| {
                let cause = cause(&error);
                Failure::usage(format!(
                    "certificates: {cause}: give --ca, --cert and --key as PEM files, --key that of --cert"
                ))
            })?;
        }
        let is_local = ["127.", "localhost:", "[::1]:"].iter().any(|host| bare.starts_with(host));
        let since = Instant::now();
        let channel = loop {
            match endpoint.connect().await {
                Err(error) if is_local && is_refused(&error) && since.elapsed() < STARTING => {
                    tokio::time::sleep(RETRY).await;
                }
                connected => break connected.map_err(|error| unreachable(bare, &error, encrypted))?,
            }
        };
        Ok(Connection { client: ControlClient::new(channel) })
    }

    /// The client, for one request.
    pub fn client(&self) -> ControlClient<Channel> {
        self.client.clone()
    }
}

impl Remote {
    fn tls(&self) -> Result<Option<ClientTlsConfig>, Failure> {
        let Some(ca) = &self.ca else {
            if self.cert.is_some() || self.key.is_some() {
                return Err(Failure::usage(
                    "--cert and --key need --ca, the authority of the controller's certificate",
                ));
            }
            return Ok(None);
        };
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem("--ca", ca)?));
        Ok(Some(match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                config.identity(Identity::from_pem(pem("--cert", cert)?, pem("--key", key)?))
            }
            (None, None) => config,
            _ => return Err(Failure::usage("give --cert and --key together")),
        }))
    }
}

fn pem(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::usage(format!("{flag} {}: {error}", path.display())))
}

/// The innermost cause: what is outside of it says little more than that something failed.
fn cause(error: &dyn Error) -> &dyn Error {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    has_io(error, |kind| kind == std::io::ErrorKind::ConnectionRefused)
}

fn unreachable(address: &str, error: &(dyn Error + 'static), encrypted: bool) -> Failure {
    use std::io::ErrorKind::InvalidData;
    let cause = cause(error);
    let mend = if is_refused(error) {
        "is it running? Start `thc-controller run --config FILE`, or name another with --controller"
    } else if encrypted && cause.to_string().to_lowercase().contains("expired") {
        "a certificate, the controller's or yours, has expired: replace it, and restart a controller that has a new one"
    } else if encrypted && has_io(error, |kind| kind == InvalidData) {
        "are --ca, --cert and --key those that it wants, and does it use TLS at all?"
    } else {
        "check --controller and the network between"
    };
    Failure::error(format!("no controller at {address}: {cause}; {mend}"))
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let message = status.message();
        match status.code() {
            Code::InvalidArgument => Failure::usage(message),
            Code::Unimplemented => Failure::error(
                "what answers is not a thc-controller, or is another version: check --controller and both versions",
            ),
            // A server that finds the client's certificate wanting closes after the handshake.
            Code::Cancelled if !message.contains("Timeout") => Failure::error(
                "the controller closed the connection: is it running, and does it want TLS (--ca, --cert, --key)?",
            ),
            Code::DeadlineExceeded | Code::Cancelled => {
                Failure::error("the controller does not answer in time: try again, and look at its log")
            }
            // A refusal of the controller has no source; a connection that broke has.
            Code::Unavailable | Code::Unknown | Code::Internal if status.source().is_some() => {
                let cause = status.source().map_or(message.to_owned(), |error| cause(error).to_string());
                Failure::error(format!(
                    "the controller closed the connection: {cause}; is it running, and does it want TLS (--ca, --cert, --key)?"
                ))
            }
            _ => Failure::error(message),
        }
    }
}
