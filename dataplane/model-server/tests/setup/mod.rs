//! Servers and workers for tests.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::Path;
use std::time::Duration;

use thc_model::{Client, ClientConfig, ModelJobConfig, ModelServer, ModelServerConfig, Spec};

pub const SECRET: &str = "a secret for tests";

pub fn server_config(state: Option<&Path>) -> ModelServerConfig {
    ModelServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        jobs: vec![ModelJobConfig::new("train", SECRET.into())],
        state: state.map(Path::to_owned),
        threads: 2,
        ..ModelServerConfig::default()
    }
}

pub fn server(state: Option<&Path>) -> ModelServer {
    ModelServer::start(server_config(state)).unwrap()
}

pub fn config(server: &ModelServer, worker: u16) -> ClientConfig {
    ClientConfig {
        server: server.local().to_string(),
        secret: SECRET.into(),
        worker,
        timeout: Duration::from_secs(60),
        ..ClientConfig::default()
    }
}

pub fn client(server: &ModelServer, worker: u16, model: &str, spec: Spec) -> Client {
    Client::open(config(server, worker), model, spec).unwrap()
}
