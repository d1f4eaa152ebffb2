//! A connection to one server, and its streams.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream, TransportErrorCode,
};

use super::ClientConfig;
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload;
use crate::proof::{self, Role};
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::transport::{accept_longest, bind, transport};
use crate::wire::{Answer, Frame, Request, read_frame, split};

/// The interval at which a worker that computes sends a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The longest time that closing a connection may take.
const CLOSING: Duration = Duration::from_millis(100);
/// The longest time between the end of a stream and that of its connection.
const LAG: Duration = Duration::from_secs(1);
/// The longest time that an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The time between the attempts at two addresses of a server (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// The longest answer that is not a vector: the server's statistics.
const LONGEST_ANSWER: usize = 1 << 26;

/// A server, and the job there: the errors that its failures become.
#[derive(Debug)]
pub(crate) struct Peer {
    pub server: String,
    job: String,
}

impl Peer {
    /// The server of a configuration.
    pub fn new(config: &ClientConfig) -> Arc<Self> {
        Arc::new(Self { server: config.server.clone(), job: config.job.clone() })
    }

    /// The connection failed. Another connection may succeed.
    pub fn lost(&self, reason: impl Into<String>) -> ModelError {
        ModelError::Unreachable { server: self.server.clone(), reason: reason.into() }
    }

    pub fn refused(&self, reason: impl Into<String>) -> ModelError {
        ModelError::Refused { server: self.server.clone(), reason: reason.into() }
    }

    pub fn malformed(&self) -> ModelError {
        self.refused("its answer is not one of this protocol version")
    }

    fn wrong_secret(&self) -> ModelError {
        self.refused(format!(
            "it and this worker do not have the same secret for job {}: give both the same",
            self.job
        ))
    }

    /// An answer and the bytes behind it. A refusal is an error.
    pub fn accept<'a>(&self, frame: &'a [u8]) -> Result<(Answer, &'a [u8]), ModelError> {
        match split(frame) {
            Some((Answer::Refused { reason: Reason::Empty, .. }, _)) => Err(ModelError::Empty),
            Some((Answer::Refused { text, .. }, _)) => Err(self.refused(text)),
            Some(accepted) => Ok(accepted),
            None => Err(self.malformed()),
        }
    }

    /// The error of a stream that has ended: the reason of its connection's end, which may come a little later.
    async fn end(&self, connection: &Connection, otherwise: String) -> ModelError {
        match tokio::time::timeout(LAG, connection.closed()).await {
            Ok(ConnectionError::ApplicationClosed(close)) => match Reason::of_close(&close) {
                Some(Reason::Proof) => self.wrong_secret(),
                // Failures after which the worker may reconnect.
                None | Some(Reason::Silent | Reason::Full) => {
                    self.lost(format!("it closed the connection: {}", String::from_utf8_lossy(&close.reason)))
                }
                Some(reason) => self.refused(reason.message()),
            },
            Ok(error) => self.lost(format!("its connection was lost: {error}")),
            Err(_) => self.lost(otherwise),
        }
    }
}

/// Waits for the server, for at most `timeout`.
pub(crate) async fn within<T>(
    timeout: Duration,
    peer: &Peer,
    work: impl Future<Output = Result<T, ModelError>>,
) -> Result<T, ModelError> {
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(peer.lost("no answer")))
}

/// A stream and its connection.
pub(crate) struct Stream {
    peer: Arc<Peer>,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
    /// Most bytes of an answer.
    longest: usize,
}

impl Stream {
    async fn open(connection: &Connection, peer: &Arc<Peer>, longest: usize) -> Result<Self, ModelError> {
        let (peer, connection) = (Arc::clone(peer), connection.clone());
        match connection.open_bi().await {
            Ok((send, receive)) => Ok(Self { peer, connection, send, receive, longest }),
            Err(error) => Err(peer.end(&connection, error.to_string()).await),
        }
    }

    pub async fn send(&mut self, frame: &[u8]) -> Result<(), ModelError> {
        match self.send.write_all(frame).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.peer.end(&self.connection, error.to_string()).await),
        }
    }

    /// Receives the next answer.
    pub async fn receive(&mut self) -> Result<Vec<u8>, ModelError> {
        let mut frame = Vec::new();
        match read_frame(&mut self.receive, self.longest, Duration::MAX, &mut frame).await {
            Ok(()) => Ok(frame),
            Err(error) => Err(self.peer.end(&self.connection, error.to_string()).await),
        }
    }

    async fn request(&mut self, request: &Request<'_>) -> Result<Vec<u8>, ModelError> {
        self.send(&Frame::new(request).finish()).await?;
        self.receive().await
    }
}

/// A connection to one server, whose two ends have shown each other the secret.
pub(crate) struct Link {
    connection: Connection,
    control: Stream,
    pub incarnation: u64,
    endpoint: Endpoint,
}

impl Link {
    /// Connects to the server, and shows it the secret as it shows its own.
    pub async fn connect(config: &ClientConfig, peer: &Arc<Peer>) -> Result<Self, ModelError> {
        let (endpoint, connection) = reach(peer).await?;
        let mut control = Stream::open(&connection, peer, LONGEST_ANSWER).await?;
        let ClientConfig { secret, job, worker, .. } = config;
        let own = proof::prove(Role::Worker, secret, &connection, job, *worker);
        let proof = own.ok_or_else(|| peer.malformed())?;
        let welcome = control.request(&Request::Hello { worker: *worker, job, proof }).await?;
        match peer.accept(&welcome)? {
            (Answer::Welcome { incarnation, proof }, []) => {
                if !proof::verify(Role::Server, secret, &connection, job, *worker, &proof) {
                    return Err(peer.wrong_secret());
                }
                Ok(Self { connection, control, incarnation, endpoint })
            }
            _ => Err(peer.malformed()),
        }
    }

    pub fn peer(&self) -> Arc<Peer> {
        Arc::clone(&self.control.peer)
    }

    /// Opens the model and attaches to its shards: their streams, their stamps, and the numbers of the worker's last pushes.
    pub async fn open(&mut self, model: &str, spec: &Spec) -> Result<Vec<(Stream, Stamp, u64)>, ModelError> {
        let shards = spec.shards();
        let opened = self.request(&Request::Open { model, spec: spec.clone() }).await?;
        if opened.0 != (Answer::Opened { shards: shards as u32 }) {
            return Err(self.control.peer.malformed());
        }
        let attaching = (0..shards).map(|shard| self.attach(model, shard as u32, spec.range(shard).len()));
        join_all(attaching).await.into_iter().collect()
    }

    async fn attach(
        &self,
        model: &str,
        shard: u32,
        length: usize,
    ) -> Result<(Stream, Stamp, u64), ModelError> {
        let peer = &self.control.peer;
        let mut stream = Stream::open(&self.connection, peer, 64 + payload::max_len(length)).await?;
        let attached = stream.request(&Request::Attach { model, shard }).await?;
        match peer.accept(&attached)? {
            (Answer::Attached { stamp, sequence }, []) => Ok((stream, stamp, sequence)),
            _ => Err(peer.malformed()),
        }
    }

    /// Sends a request that is none of a shard. Returns its answer and the bytes behind that.
    pub async fn request(&mut self, request: &Request<'_>) -> Result<(Answer, Vec<u8>), ModelError> {
        let frame = self.control.request(request).await?;
        self.control.peer.accept(&frame).map(|(answer, rest)| (answer, rest.to_vec()))
    }

    /// The server's counters of this job, as JSON.
    pub async fn stats(&mut self) -> Result<serde_json::Value, ModelError> {
        let (_, json) = self.request(&Request::Stats).await?;
        serde_json::from_slice(&json).map_err(|error| self.control.peer.refused(error.to_string()))
    }

    /// Closes the connection.
    pub async fn leave(self) {
        self.connection.close(0_u32.into(), b"the worker leaves");
        let _ = tokio::time::timeout(CLOSING, self.endpoint.wait_idle()).await;
    }

    /// Returns whether the connection ended because the model was deleted. A reconnecting worker would create the model anew.
    pub fn is_deleted(&self) -> bool {
        matches!(self.connection.close_reason(), Some(ConnectionError::ApplicationClosed(close))
            if Reason::of_close(&close) == Some(Reason::Deleted))
    }

    pub fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }
}

/// A connection to the first address of a server that answers.
async fn reach(peer: &Peer) -> Result<(Endpoint, Connection), ModelError> {
    match tokio::net::lookup_host(&peer.server).await {
        Ok(addresses) => reach_first(peer, addresses.collect()).await,
        Err(error) => Err(peer.lost(format!("its name cannot be resolved: {error}"))),
    }
}

/// The attempts begin one shortly after the other, and the first connection is taken.
async fn reach_first(peer: &Peer, addresses: Vec<SocketAddr>) -> Result<(Endpoint, Connection), ModelError> {
    if addresses.is_empty() {
        return Err(peer.lost("its name has no address"));
    }
    let attempts = (0..).zip(addresses).map(|(nth, address)| {
        Box::pin(async move {
            tokio::time::sleep(nth * STAGGER).await;
            reach_at(peer, address).await
        })
    });
    select_ok(attempts).await.map(|(reached, _)| reached)
}

async fn reach_at(peer: &Peer, address: SocketAddr) -> Result<(Endpoint, Connection), ModelError> {
    let endpoint = endpoint(address)?;
    let connecting = endpoint
        .connect(address, "thc-model")
        .map_err(|error| peer.lost(format!("cannot connect to {address}: {error}")))?;
    match tokio::time::timeout(ATTEMPT, connecting).await {
        Ok(Ok(connection)) => Ok((endpoint, connection)),
        // A server that refuses a connection gives no reason, since that would cost it a handshake.
        Ok(Err(ConnectionError::ConnectionClosed(close)))
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            let text = "it has as many connections as it may have (--connections)";
            Err(peer.lost(format!("{address}: {text}")))
        }
        Ok(Err(error)) => Err(peer.lost(format!("{address}: {error}"))),
        Err(_) => Err(peer.lost(format!("{address}: no answer"))),
    }
}

fn endpoint(server: SocketAddr) -> Result<Endpoint, ModelError> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let own = accept_longest(EndpointConfig::default());
    let mut endpoint = Endpoint::new(own, None, bind(local)?, Arc::new(quinn::TokioRuntime))?;
    let mut config = quinn::ClientConfig::new(Arc::new(proof::worker_tls()?));
    let mut transport = transport();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

/// The requests of a call to one shard, and their answers.
#[derive(Default)]
pub(super) struct Exchange {
    frames: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Exchange {
    pub fn of(frame: Frame) -> Self {
        let mut exchange = Self::default();
        exchange.add(frame);
        exchange
    }

    pub fn add(&mut self, frame: Frame) {
        self.frames.push((frame.finish(), None));
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The answers, in the order of the requests.
    pub fn answers(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().filter_map(|(_, answer)| answer.as_deref())
    }

    /// The answer to the only request.
    pub fn answer(&self) -> &[u8] {
        self.answers().next().unwrap_or(&[])
    }

    /// Sends all frames that are not answered, one after the other, and then receives their answers.
    pub async fn run(&mut self, stream: &mut Stream) -> Result<(), ModelError> {
        for (request, answer) in &self.frames {
            if answer.is_none() {
                stream.send(request).await?;
            }
        }
        for (_, answer) in &mut self.frames {
            if answer.is_none() {
                *answer = Some(stream.receive().await?);
            }
        }
        Ok(())
    }
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
        // Nobody listens at the first ones, and they do not say so.
        let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
        let [dead, live] = [dead.local_addr().unwrap(), server.local()];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let peer = &Peer::new(&ClientConfig::default());
        let began = std::time::Instant::now();
        let (_endpoint, connection) = runtime.block_on(reach_first(peer, vec![dead, dead, live])).unwrap();
        assert_eq!(connection.remote_address(), live);
        assert!(began.elapsed() < ATTEMPT, "an address was waited for: {:?}", began.elapsed());
        let none = runtime.block_on(reach_first(peer, Vec::new())).err().unwrap();
        assert!(none.to_string().contains("no address"));
    }
}
