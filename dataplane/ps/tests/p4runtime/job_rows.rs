//! A server without jobs, the rows of a job, and its workers.

use std::net::SocketAddr;
use thc_p4::rows::address_number;

use p4runtime_proto::v1::entity;
use thc_protocol::TableId;
use thc_protocol::wire::{Kind, Table, Tables, Welcome};
use thc_ps::{P4RuntimeOptions, Server, ServerOptions};

use crate::controller::{Controller, Values, group};
use crate::session::{self, RawWorker, packet};

pub const JOB: u128 = 1;
pub const TABLE: u128 = 9;
pub const OWN_MAC: u128 = 0x02AA_0000_0001;

/// A server without jobs, and where controllers reach it.
pub fn start(shards: u64, more: impl FnOnce(&mut ServerOptions)) -> (Server, SocketAddr) {
    let p4runtime = P4RuntimeOptions { listen: Some("127.0.0.1:0".into()), ..Default::default() };
    let mut options = ServerOptions {
        listen: Some("127.0.0.1:0".into()),
        shards: Some(shards),
        p4runtime: Some(p4runtime),
        ..ServerOptions::default()
    };
    more(&mut options);
    let server = Server::start(options.validate().unwrap()).unwrap();
    let at = server.p4runtime().unwrap();
    (server, at)
}

pub fn plain() -> (Server, SocketAddr) {
    start(1, |_| {})
}

/// T[z] = 2·z.
pub fn values() -> [u8; 16] {
    std::array::from_fn(|z| 2 * z as u8)
}

pub fn job_params(cookie: u32, epoch: u32, workers: u8) -> [(&'static str, u128); 8] {
    [
        ("index", 3),
        ("cookie", cookie.into()),
        ("epoch", epoch.into()),
        ("workers", workers.into()),
        ("quorum", workers.into()),
        ("data_slots", 256),
        ("norm_slots", 64),
        ("group", 1),
    ]
}

pub fn place(at: SocketAddr) -> [(&'static str, u128); 2] {
    [("address", address_number(at.ip())), ("udp_port", at.port().into())]
}

/// All rows of a job with these members, the job's own last.
pub fn rows(it: &Controller, cookie: u32, epoch: u32, members: &[SocketAddr]) -> Vec<entity::Entity> {
    let mut rows = vec![
        it.row(
            "lookup",
            &[("table", TABLE)],
            "set_values",
            &[("values", u128::from_be_bytes(values())), ("width", 4), ("lane", 8)],
        ),
        it.row("job_tables", &[("job", JOB), ("table", TABLE)], "allow_table", &[]),
    ];
    for (worker, &at) in (0u128..).zip(members) {
        let key: Values<'_> = &[("job", JOB), ("worker", worker)];
        rows.push(it.row("members", key, "set_member", &place(at)));
        rows.push(it.row("addresses", key, "set_address", &place(at)));
    }
    let replicas: Vec<(u32, u32)> = (0..members.len() as u32).map(|worker| (1, worker)).collect();
    rows.push(group(1, &replicas));
    rows.push(it.row("jobs", &[("job", JOB)], "set_job", &job_params(cookie, epoch, members.len() as u8)));
    rows
}

/// A worker that needs no JOIN.
pub fn welcome(worker: &mut RawWorker, cookie: u32, workers: u8, shards: u8) {
    worker.welcome = Some(welcome_of(cookie, workers, shards));
}

pub fn welcome_of(cookie: u32, workers: u8, shards: u8) -> Welcome {
    let options = session::options(workers, shards.into());
    let setup = options.validate().unwrap().jobs.remove(0);
    Welcome {
        session: thc_protocol::Cookie(cookie),
        tables: Tables::one(Table {
            id: TableId(TABLE as u8),
            granularity: 30,
            values: values(),
            ..*setup.welcome.tables.first()
        }),
        data_slots: 256,
        norm_slots: 64,
        shards,
        ..setup.welcome
    }
}

/// Sends a packet of each worker's own index for a slot; all must get the sum.
pub fn all_reduce(workers: &[RawWorker], slot: u16, round: u32) {
    let mut sum = 0;
    for worker in workers {
        let index = 1 + worker.number.0;
        sum += 2 * index;
        worker.send(&packet(&worker.header(Kind::Data, slot, round), &[index << 4 | index; 512]), slot);
    }
    for worker in workers {
        let result = worker.expect();
        assert_eq!((result[1], result.len()), (Kind::Result as u8, 1044), "worker {}", worker.number);
        assert!(
            result[20..].iter().all(|&lane| lane == sum),
            "worker {}: {:?}",
            worker.number,
            &result[20..30]
        );
    }
}

pub fn workers(server: &Server, count: u8) -> Vec<RawWorker> {
    (0..count).map(|number| RawWorker::new(number, server.local(), 50 + u64::from(number))).collect()
}
