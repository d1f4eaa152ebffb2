//! The server of shards over QUIC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Endpoint, EndpointConfig, VarInt};
use quinn_proto::RandomConnectionIdGenerator;
use tokio::runtime::Runtime;

use crate::config::ModelServerConfig;
use crate::counters::{ModelServerStats, Reason};
use crate::error::ModelError;
use crate::registry::Registry;
use crate::transport::{accept_longest, bind, transport};
use crate::wire::SMALL;
use crate::{proof, session};

/// The window of a connection that has not shown the secret yet.
const STRANGERS_WINDOW: u32 = SMALL as u32;

/// A server that runs. Dropping it stops it, after everything was written.
pub struct ModelServer {
    runtime: Option<Runtime>,
    endpoint: Endpoint,
    registry: Arc<Registry>,
    local: SocketAddr,
}

impl ModelServer {
    /// Reads the state, listens, and serves until it is dropped.
    ///
    /// # Errors
    /// [`ModelError::Config`]; [`ModelError::State`] if the state cannot be read; [`ModelError::Socket`] if the address
    /// cannot be listened on.
    pub fn start(config: ModelServerConfig) -> Result<Self, ModelError> {
        config.validate()?;
        let registry = Arc::new(Registry::read(&config)?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.threads)
            .thread_name("thc-model")
            .enable_all()
            .build()?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(proof::server_tls()?));
        let mut strange = transport();
        strange.receive_window(VarInt::from_u32(STRANGERS_WINDOW));
        server.transport_config(Arc::new(strange));
        let reset_key = proof::reset_key(config.jobs.iter().map(|job| &job.secret));
        let mut own = accept_longest(EndpointConfig::new(Arc::new(reset_key)));
        // Numbers of connections that, unlike quinn's usual ones, do not depend on the incarnation of the server.
        own.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(8)));
        let socket = |error: std::io::Error| ModelError::Socket {
            address: config.listen.to_string(),
            reason: error.to_string(),
        };
        let udp = bind(config.listen).map_err(socket)?;
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::new(own, Some(server), udp, Arc::new(quinn::TokioRuntime)).map_err(socket)?
        };
        let local = endpoint.local_addr().map_err(socket)?;
        runtime.spawn(accept(Arc::clone(&registry), endpoint.clone(), config.connections, config.patience.0));
        runtime.spawn(keep(Arc::clone(&registry), config.durable.0));
        Ok(Self { runtime: Some(runtime), endpoint, registry, local })
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
        if let Some(runtime) = self.runtime.take() {
            self.endpoint.close(0_u32.into(), b"the server stops");
            // Wait until workers have received the close.
            let _ = runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(200), self.endpoint.wait_idle()).await
            });
            runtime.shutdown_timeout(Duration::from_secs(5));
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

/// Writes changed shards, with a pause of `durable` after each time.
async fn keep(registry: Arc<Registry>, durable: Duration) {
    let mut failing = false;
    loop {
        tokio::time::sleep(durable).await;
        let own = Arc::clone(&registry);
        // A panic has been reported by its own message.
        let saved = tokio::task::spawn_blocking(move || own.save()).await.unwrap_or(Ok(()));
        match &saved {
            Ok(()) if failing => tracing::info!("the state can be written again"),
            Err(error) if !failing => {
                tracing::error!("{error}; the models go on, and it is tried again every {durable:?}");
            }
            _ => {}
        }
        failing = saved.is_err();
    }
}

/// Accepts connections. quinn's retry shows that an address is the peer's own before a handshake costs anything.
async fn accept(registry: Arc<Registry>, endpoint: Endpoint, connections: usize, patience: Duration) {
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() && incoming.may_retry() {
            // The peer comes again at once, with quinn's token.
            let _ = incoming.retry();
            continue;
        }
        if endpoint.open_connections() >= connections {
            registry.refuse(Reason::Limit);
            tracing::debug!("{} is refused: there are {connections} connections", incoming.remote_address());
            incoming.refuse();
            continue;
        }
        let Ok(connecting) = incoming.accept() else { continue };
        tokio::spawn(session::serve(Arc::clone(&registry), connecting, patience));
    }
}
