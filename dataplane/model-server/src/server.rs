//! The server of shards over QUIC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quinn::{
    ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, IdleTimeout, TransportConfig, VarInt,
    congestion::CubicConfig,
};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::config::ModelServerConfig;
use crate::counters::{ModelServerStats, Reason};
use crate::error::ModelError;
use crate::registry::Registry;
use crate::wire::SMALL;
use crate::{datagrams, proof, session};

/// A connection that is silent for so long is gone; workers are heard every two seconds.
const SILENCE: Duration = Duration::from_secs(10);
/// What may wait on its way in a stream, and in a connection, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// The window of a connection that has not shown the secret yet.
const STRANGERS_WINDOW: u32 = SMALL as u32;
/// The largest number of connections that have not shown a secret yet: fewer in tests, which make more of them than that.
const MAX_STRANGERS: usize = if cfg!(test) { 32 } else { 256 };
/// How often the thread that writes files looks whether it should stop.
const TICK: Duration = Duration::from_millis(20);

/// Memory that a peer may take up is bounded by this: windows, streams before it is known, idle time.
pub(crate) fn transport() -> TransportConfig {
    // With quinn's own, for datagrams of 1,200 bytes, two longer ones that look for the path's MTU fill the window, and quinn then sends no
    // CONNECTION_CLOSE: the peer gets no reason.
    let mut congestion = CubicConfig::default();
    congestion.initial_window(datagrams::INITIAL_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(datagrams::WINDOW))
        .send_window(u64::from(datagrams::WINDOW))
        .max_idle_timeout(IdleTimeout::try_from(SILENCE).ok())
        .mtu_discovery_config(Some(datagrams::mtu_discovery()))
        .congestion_controller_factory(Arc::new(congestion));
    transport
}

/// The key of stateless resets comes from the jobs' secrets and not from chance: a restarted server can tell workers of
/// the one before that their connections are gone, at their next packet and not after a silence.
fn endpoint_config(config: &ModelServerConfig) -> EndpointConfig {
    let secrets: Vec<String> =
        config.jobs.iter().map(|job| proof::derive_hex(&job.secret, "thc-model reset")).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secrets.concat().as_bytes());
    let mut endpoint = EndpointConfig::new(Arc::new(key));
    datagrams::accept_longest(&mut endpoint);
    endpoint.cid_generator(|| Box::new(ConnectionIds(SystemRandom::new())));
    endpoint
}

/// Numbers of connections that, unlike quinn's usual ones, do not tell which life of a server they are of.
struct ConnectionIds(SystemRandom);

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut number = [0; 8];
        // Without random numbers there would be no TLS either.
        let _ = self.0.fill(&mut number);
        ConnectionId::new(&number)
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A server that runs. Dropping it stops it, after everything was written.
pub struct ModelServer {
    runtime: Option<Runtime>,
    endpoint: Endpoint,
    registry: Arc<Registry>,
    local: SocketAddr,
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Reads the state, listens, and serves until it is dropped.
    ///
    /// # Errors
    /// [`ModelError::Config`]; [`ModelError::State`] if the state cannot be read; [`ModelError::Socket`] if the address
    /// cannot be listened on.
    pub fn start(config: ModelServerConfig) -> Result<Self, ModelError> {
        config.validate()?;
        let mut incarnation = [0; 8];
        SystemRandom::new()
            .fill(&mut incarnation)
            .map_err(|_| ModelError::Config("the system gives no random numbers".to_owned()))?;
        let registry = Arc::new(Registry::read(&config, u64::from_le_bytes(incarnation))?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.threads)
            .thread_name("thc-model")
            .enable_all()
            .build()?;
        let mut tls = quinn::ServerConfig::with_crypto(Arc::new(proof::of_server()?));
        let mut strange = transport();
        strange.receive_window(VarInt::from_u32(STRANGERS_WINDOW));
        tls.transport_config(Arc::new(strange));
        let socket = |error: std::io::Error| ModelError::Socket {
            address: config.listen.to_string(),
            reason: error.to_string(),
        };
        let udp = datagrams::bind(config.listen).map_err(socket)?;
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::new(endpoint_config(&config), Some(tls), udp, Arc::new(quinn::TokioRuntime))
                .map_err(socket)?
        };
        let local = endpoint.local_addr().map_err(socket)?;
        runtime.spawn(accept(Arc::clone(&registry), endpoint.clone(), config.patience.0));
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, stopped, durable) = (Arc::clone(&registry), Arc::clone(&stop), config.durable.0);
        let keeper = std::thread::Builder::new()
            .name("thc-model-keep".to_owned())
            .spawn(move || keep(&kept, &stopped, durable))?;
        Ok(Self { runtime: Some(runtime), endpoint, registry, local, stop, keeper: Some(keeper) })
    }

    /// The address on which the server listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The totals since the start.
    #[must_use]
    pub fn stats(&self) -> ModelServerStats {
        self.registry.stats()
    }

    /// Stops, writes everything, and returns the totals.
    ///
    /// # Errors
    /// [`ModelError::State`] if something could not be written.
    pub fn shutdown(mut self) -> Result<ModelServerStats, ModelError> {
        self.end();
        self.registry.save()?;
        Ok(self.registry.stats())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            self.endpoint.close(0_u32.into(), b"the server stops");
            // Wait until workers have received the close.
            let _ = runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(200), self.endpoint.wait_idle()).await
            });
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
        if let Some(keeper) = self.keeper.take() {
            // A panic has been reported by its own message.
            let _ = keeper.join();
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if self.runtime.is_some() {
            self.end();
            if let Err(error) = self.registry.save() {
                tracing::error!("{error}");
            }
        }
    }
}

/// Writes changed shards at intervals of `durable`.
fn keep(registry: &Registry, stop: &AtomicBool, durable: Duration) {
    let mut due = Instant::now() + durable;
    let mut failing = false;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK.min(durable));
        if Instant::now() < due {
            continue;
        }
        match registry.save() {
            Ok(()) if failing => {
                tracing::info!("the state can be written again");
                failing = false;
            }
            Ok(()) => {}
            Err(error) if !failing => {
                tracing::error!("{error}; the models go on, and it is tried again every {durable:?}");
                failing = true;
            }
            Err(_) => {}
        }
        due = Instant::now() + durable;
    }
}

/// Accepts connections. quinn's retry shows that an address is the peer's own before a handshake costs anything.
async fn accept(registry: Arc<Registry>, endpoint: Endpoint, patience: Duration) {
    let places = Arc::new(Semaphore::new(MAX_STRANGERS));
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() && incoming.may_retry() {
            // The peer comes again at once, with quinn's token.
            let _ = incoming.retry();
            continue;
        }
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            registry.counters.refuse(Reason::Limit);
            // A power of two, so that a flood of connections does not flood the log.
            if registry.counters.refusal_count(Reason::Limit).is_power_of_two() {
                tracing::warn!(
                    "a connection from {} is refused: too many have not shown the secret yet",
                    incoming.remote_address()
                );
            }
            incoming.refuse();
            continue;
        };
        let Ok(connecting) = incoming.accept() else { continue };
        tokio::spawn(session::serve(Arc::clone(&registry), connecting, place, patience));
    }
}
