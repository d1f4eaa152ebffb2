//! A software parameter server that is a target, and workers of its jobs.

use crate::controller::target;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{Entity, FieldMatch, ReadRequest, TableEntry, entity, field_match};
use p4runtime_proto::{bytes, p4info};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use thc_ps::{Server, ServerOptions};
use thc_worker::{Group, GroupConfig};
use tonic::transport::{Channel, Endpoint};

/// One on free ports, without jobs.
pub fn start() -> Server {
    let text = "listen = \"127.0.0.1:0\"\n[p4runtime]\nlisten = \"127.0.0.1:0\"\n";
    Server::start(ServerOptions::parse(text).unwrap().validate().unwrap()).unwrap()
}

/// As a target of a configuration.
pub fn target_section(server: &Server, name: &str) -> String {
    target(name, &server.p4runtime().unwrap().to_string(), server.local().port())
}

/// The keys of a table's rows that a server holds: the values of their fields.
pub async fn rows(server: Channel, table: &str) -> Vec<Vec<u128>> {
    let info = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/build/thc.p4info.txtpb");
    let info = p4info::parse(&std::fs::read(info).unwrap()).unwrap();
    let table_id = info.table(table).unwrap().id();
    let entity = entity::Entity::TableEntry(TableEntry { table_id, ..TableEntry::default() });
    let entities = vec![Entity { entity: Some(entity) }];
    let request = ReadRequest { device_id: 0, entities, role: String::new() };
    let mut answers = P4RuntimeClient::new(server).read(request).await.unwrap().into_inner();
    let mut rows = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        for entity in answer.entities {
            let Some(entity::Entity::TableEntry(row)) = entity.entity else { continue };
            let value = |field: FieldMatch| match field.field_match_type {
                Some(field_match::FieldMatchType::Exact(exact)) => bytes::decode(&exact.value, 128).unwrap(),
                other => panic!("{other:?}"),
            };
            rows.push(row.r#match.into_iter().map(value).collect());
        }
    }
    rows
}

/// How many rows a server holds in a table.
pub fn count_rows(server: &Server, table: &str) -> usize {
    let address = format!("http://{}", server.p4runtime().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        rows(channel, table).await.len()
    })
}

/// A worker that averages until it is told to stop.
pub struct Averager {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Averager {
    /// Joins a job by its name.
    pub fn join(listen: SocketAddr, job: &str) -> Averager {
        let url = format!("thc://{listen}/{job}").parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let controller = Some(thc_worker::Controller::new(url));
            let group = Group::join(GroupConfig { controller, ..GroupConfig::default() }).unwrap();
            let mut data = vec![1.0; 20_000];
            while !told.load(Ordering::Relaxed) {
                if group.allreduce(&mut data).is_err() {
                    // The others have gone: the test is over.
                    return;
                }
            }
        });
        Averager { stop, thread: Some(thread) }
    }
}

impl Drop for Averager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One that waits for another which has stopped fails when its time is over: nobody waits for that.
        drop(self.thread.take());
    }
}
