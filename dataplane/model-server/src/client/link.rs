//! A connection to one server, and its streams.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream, TransportErrorCode,
};

use super::ClientConfig;
use crate::counters::Reason;
use crate::datagrams;
use crate::error::ModelError;
use crate::proof::{self, Role};
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::wire::{Body, Frame, SMALL, VERSION, kind, read_frame};

/// How often a worker that computes sends a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long sending LEAVE may take.
const PARTING: Duration = Duration::from_secs(2);
/// How long closing a connection may take.
const CLOSING: Duration = Duration::from_millis(100);
/// How much later than a stream's end the end of its connection may come.
const LAG: Duration = Duration::from_secs(1);
/// How long an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The delay between attempts to connect to the addresses of a server.
const STAGGER: Duration = Duration::from_millis(250);

/// The reason for which a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection failed. Another connection may succeed.
    Lost(String),
    /// The secret is wrong.
    Secret,
    /// The server refuses the request.
    Refused(String),
    /// This machine failed.
    Own(ModelError),
}

impl Failure {
    /// Whether a further attempt would fail too.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Lost(_))
    }

    pub fn into_error(self, server: &str, job: &str) -> ModelError {
        let server = server.to_owned();
        match self {
            Self::Lost(reason) => ModelError::Unreachable { server, reason },
            Self::Secret => {
                let reason = format!(
                    "it and this worker do not have the same secret for job {job}: give both the same"
                );
                ModelError::Refused { server, reason }
            }
            Self::Refused(reason) => ModelError::Refused { server, reason },
            Self::Own(error) => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(reason) | Self::Refused(reason) => f.write_str(reason),
            Self::Secret => f.write_str("the secret is wrong"),
            Self::Own(error) => error.fmt(f),
        }
    }
}

/// The reason for which a stream has ended: that of its connection's end, which may come a little later.
async fn close_failure(connection: &Connection, otherwise: String) -> Failure {
    let close = match tokio::time::timeout(LAG, connection.closed()).await {
        Ok(ConnectionError::ApplicationClosed(close)) => close,
        Ok(error) => return Failure::Lost(format!("its connection was lost: {error}")),
        Err(_) => return Failure::Lost(otherwise),
    };
    let code = u8::try_from(close.error_code.into_inner()).unwrap_or(0);
    match Reason::from_code(code) {
        Some(Reason::Proof) => Failure::Secret,
        // Failures after which the worker may reconnect.
        None | Some(Reason::Silent) => {
            Failure::Lost(format!("it closed the connection: {}", String::from_utf8_lossy(&close.reason)))
        }
        Some(reason) => Failure::Refused(reason.message().to_owned()),
    }
}

/// A stream and its connection.
pub(crate) struct Stream {
    /// The number of its shard.
    pub number: u32,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

/// The progress of a shard when a worker attaches.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    pub stamp: Stamp,
    pub sequence: u64,
}

impl Stream {
    async fn open(connection: &Connection, number: u32) -> Result<Self, Failure> {
        match connection.open_bi().await {
            Ok((send, receive)) => Ok(Self { number, connection: connection.clone(), send, receive }),
            Err(error) => Err(close_failure(connection, error.to_string()).await),
        }
    }

    pub async fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        match self.send.write_all(frame).await {
            Ok(()) => Ok(()),
            Err(error) => Err(close_failure(&self.connection, error.to_string()).await),
        }
    }

    /// Receives the kind and the body of the next answer.
    pub async fn receive(&mut self, longest: usize) -> Result<Vec<u8>, Failure> {
        let mut buffer = Vec::new();
        match read_frame(&mut self.receive, longest, &mut buffer).await {
            Ok(_) => Ok(buffer),
            Err(error) => Err(close_failure(&self.connection, error.to_string()).await),
        }
    }

    pub async fn request(&mut self, frame: &[u8], longest: usize) -> Result<Vec<u8>, Failure> {
        self.send(frame).await?;
        self.receive(longest).await
    }
}

/// The requests of a call to one shard, and their answers.
#[derive(Default)]
pub(super) struct Exchange {
    pub frames: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Exchange {
    /// Sends all frames that are not answered, one after the other, and then receives their answers.
    pub async fn run(&mut self, stream: &mut Stream, longest: usize) -> Result<(), Failure> {
        for (request, answer) in &self.frames {
            if answer.is_none() {
                stream.send(request).await?;
            }
        }
        for (_, answer) in &mut self.frames {
            if answer.is_none() {
                *answer = Some(stream.receive(longest).await?);
            }
        }
        Ok(())
    }
}

/// A connection to one server.
pub(crate) struct Link {
    connection: Connection,
    pub control: Stream,
    pub incarnation: u64,
    endpoint: Endpoint,
}

/// A connection whose two ends have shown each other the secret.
pub(crate) struct Introduction {
    pub connection: Connection,
    pub control: Stream,
    incarnation: u64,
    endpoint: Endpoint,
}

pub(crate) fn nonsense() -> Failure {
    Failure::Refused("its answer is not one of this protocol version".to_owned())
}

impl Link {
    /// Connects, opens the model and attaches to its `shards` shards.
    pub async fn connect(
        config: &ClientConfig,
        server: usize,
        model: &str,
        spec: &Spec,
        shards: u32,
    ) -> Result<(Self, Vec<(Stream, Attached)>), Failure> {
        let introduced = introduce(config, &config.servers[server]).await?;
        let Introduction { connection, mut control, incarnation, endpoint } = introduced;
        let spec = serde_json::to_vec(spec).map_err(|_| nonsense())?;
        let open = Frame::new(kind::OPEN).name(model).raw(&spec).finish();
        match control.request(&open, SMALL).await?.as_slice() {
            [kind::OPENED, count @ ..] if Body(count).u32() == Some(shards) => {}
            [kind::REFUSED, _, text @ ..] => {
                return Err(Failure::Refused(String::from_utf8_lossy(text).into_owned()));
            }
            _ => return Err(nonsense()),
        }
        let attaching = (0..shards).map(|number| attach(&connection, model, number));
        let streams = join_all(attaching).await.into_iter().collect::<Result<_, _>>()?;
        Ok((Self { connection, control, incarnation, endpoint }, streams))
    }

    /// Tells the server by a request that the worker leaves, so that no other worker waits for it. The packet that closes a
    /// connection would be sent only once, and may be lost.
    pub async fn leave(mut self) {
        let farewell = Frame::new(kind::LEAVE).finish();
        let _ = tokio::time::timeout(PARTING, self.control.request(&farewell, SMALL)).await;
        self.connection.close(0_u32.into(), b"the worker leaves");
        let _ = tokio::time::timeout(CLOSING, self.endpoint.wait_idle()).await;
    }

    /// Whether the connection ended because the model was deleted. A reconnecting worker would create the model anew.
    pub fn is_deleted(&self) -> bool {
        let reason = self.connection.close_reason();
        matches!(reason, Some(ConnectionError::ApplicationClosed(close))
            if close.error_code.into_inner() == Reason::Deleted as u64)
    }

    pub fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }
}

/// Connects to the server, and shows it the secret as it shows its own.
pub(crate) async fn introduce(config: &ClientConfig, server: &str) -> Result<Introduction, Failure> {
    let (endpoint, connection) = reach(server).await?;
    let mut control = Stream::open(&connection, u32::MAX).await?;
    let own = proof::prove(Role::Worker, &config.secret, &connection, &config.job, config.worker)
        .ok_or_else(nonsense)?;
    let hello = Frame::new(kind::HELLO).u8(VERSION).u16(config.worker).name(&config.job).raw(&own);
    let welcome = control.request(&hello.finish(), SMALL).await?;
    let mut body = Body(welcome.get(1..).unwrap_or(&[]));
    let incarnation = body.u64().ok_or_else(nonsense)?;
    let theirs = body.raw(32).ok_or_else(nonsense)?;
    if !proof::verify(Role::Server, &config.secret, &connection, &config.job, config.worker, theirs) {
        return Err(Failure::Secret);
    }
    Ok(Introduction { connection, control, incarnation, endpoint })
}

/// A connection to the first address of a server that answers.
async fn reach(server: &str) -> Result<(Endpoint, Connection), Failure> {
    match tokio::net::lookup_host(server).await {
        Ok(addresses) => reach_one(addresses.collect()).await,
        Err(error) => Err(Failure::Lost(format!("its name cannot be resolved: {error}"))),
    }
}

/// All addresses are tried, each a little later than the one before, and the first that answers is taken.
async fn reach_one(addresses: Vec<SocketAddr>) -> Result<(Endpoint, Connection), Failure> {
    if addresses.is_empty() {
        return Err(Failure::Lost("its name has no address".to_owned()));
    }
    let attempts = (0_u32..).zip(addresses).map(|(turn, address)| {
        Box::pin(async move {
            tokio::time::sleep(turn * STAGGER).await;
            reach_at(address).await
        })
    });
    select_ok(attempts).await.map(|(reached, _)| reached)
}

async fn reach_at(address: SocketAddr) -> Result<(Endpoint, Connection), Failure> {
    let endpoint = endpoint(address).map_err(Failure::Own)?;
    let connecting = endpoint
        .connect(address, "thc-model")
        .map_err(|error| Failure::Lost(format!("cannot connect to {address}: {error}")))?;
    match tokio::time::timeout(ATTEMPT, connecting).await {
        Ok(Ok(connection)) => Ok((endpoint, connection)),
        Ok(Err(error)) => Err(Failure::Lost(format!("{address}: {}", connect_failure_text(&error)))),
        Err(_) => Err(Failure::Lost(format!("{address}: no answer"))),
    }
}

/// The reason for which there is no connection. A server that refuses a connection gives no reason, since that would cost
/// it a handshake.
fn connect_failure_text(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            "it takes no more connections for now, as too many have not shown the secret yet".to_owned()
        }
        error => error.to_string(),
    }
}

async fn attach(connection: &Connection, model: &str, number: u32) -> Result<(Stream, Attached), Failure> {
    let mut stream = Stream::open(connection, number).await?;
    let answer = stream.request(&Frame::new(kind::ATTACH).name(model).u32(number).finish(), SMALL).await?;
    let mut body = Body(answer.get(1..).unwrap_or(&[]));
    match answer.as_slice() {
        [kind::ATTACHED, ..] => {}
        [kind::REFUSED, _, text @ ..] => {
            return Err(Failure::Refused(String::from_utf8_lossy(text).into_owned()));
        }
        _ => return Err(nonsense()),
    }
    let attached = (body.u8(), body.stamp(), body.u64());
    let (Some(_), Some(stamp), Some(sequence)) = attached else { return Err(nonsense()) };
    Ok((stream, Attached { stamp, sequence }))
}

fn endpoint(server: SocketAddr) -> Result<Endpoint, ModelError> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket =
        |error: std::io::Error| ModelError::Socket { address: local.to_string(), reason: error.to_string() };
    let udp = datagrams::bind(local).map_err(socket)?;
    let mut own = EndpointConfig::default();
    datagrams::accept_longest(&mut own);
    let mut endpoint = Endpoint::new(own, None, udp, Arc::new(quinn::TokioRuntime)).map_err(socket)?;
    let mut config = quinn::ClientConfig::new(Arc::new(proof::of_worker()?));
    let mut transport = crate::server::transport();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::{ModelJobConfig, ModelServer, ModelServerConfig};

    #[test]
    fn any_address_of_a_server_will_do() {
        let config = ModelServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            jobs: vec![ModelJobConfig::new("train", "a secret for tests".into())],
            ..ModelServerConfig::default()
        };
        let server = ModelServer::start(config).unwrap();
        // Nobody listens at the first one, and it does not say so.
        let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addresses = vec![dead.local_addr().unwrap(), server.local()];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (_endpoint, connection) = runtime.block_on(reach_one(addresses)).unwrap();
        assert_eq!(connection.remote_address(), server.local());
        let none = runtime.block_on(reach_one(Vec::new())).err().unwrap();
        assert!(none.to_string().contains("no address"));
    }
}
