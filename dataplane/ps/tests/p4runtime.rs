//! A server whose jobs a controller writes by P4Runtime.
#![allow(missing_docs, clippy::unwrap_used)]

mod controller;
mod session;

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use controller::{Controller, PipelineAction, Values, all_rows, connect, errors, group, update};
use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use p4runtime_proto::v1::{
    CapabilitiesRequest, CounterData, CounterEntry, GetForwardingPipelineConfigRequest, Index,
    MasterArbitrationUpdate, ReadRequest, RegisterEntry, Role, TableEntry, Uint128, WriteRequest, entity,
    get_forwarding_pipeline_config_request, stream_message_response, write_request,
};
use session::{PATIENCE, RawWorker, packet};
use thc_protocol::session::{Action, Registry, StaticJob};
use thc_protocol::wire::{Kind, Welcome};
use thc_protocol::{JobId, TableId};
use thc_ps::{P4RuntimeOptions, Server, ServerOptions};
use tonic::Code;

const JOB: u128 = 1;
const TABLE: u128 = 9;
const OWN_MAC: u128 = 0x02AA_0000_0001;

/// A server without jobs, and where controllers reach it.
fn start(shards: u64, more: impl FnOnce(&mut ServerOptions)) -> (Server, SocketAddr) {
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

fn plain() -> (Server, SocketAddr) {
    start(1, |_| {})
}

/// T[z] = 2·z.
fn values() -> [u8; 16] {
    std::array::from_fn(|z| 2 * z as u8)
}

fn job_params(cookie: u32, epoch: u32, workers: u8) -> [(&'static str, u128); 8] {
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

fn place(at: SocketAddrV4) -> [(&'static str, u128); 2] {
    [("address", u32::from(*at.ip()).into()), ("udp_port", at.port().into())]
}

/// All rows of a job with these members, the job's own last.
fn rows(it: &Controller, cookie: u32, epoch: u32, members: &[SocketAddrV4]) -> Vec<entity::Entity> {
    let mut rows = vec![
        it.row("lookup", &[("table", TABLE)], "set_values", &[("values", u128::from_be_bytes(values()))]),
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
fn welcome(worker: &mut RawWorker, cookie: u32, workers: u8, shards: u8) {
    worker.workers = workers;
    worker.welcome = Some(welcome_of(cookie, workers, shards));
}

fn welcome_of(cookie: u32, workers: u8, shards: u8) -> Welcome {
    let options = session::options(workers, shards.into());
    let setup = options.validate().unwrap().jobs.remove(0);
    Welcome {
        session: thc_protocol::Cookie(cookie),
        table: TableId(TABLE as u8),
        granularity: 30,
        values: values(),
        data_slots: 256,
        norm_slots: 64,
        shards,
        ..setup.welcome
    }
}

/// Sends a packet of each worker's own index for a slot; all must get the sum.
fn all_reduce(workers: &[RawWorker], slot: u16, round: u32) {
    let mut sum = 0;
    for worker in workers {
        let index = 1 + worker.number.0;
        sum += 2 * index;
        worker.send(&packet(&worker.header(Kind::Data, slot, round), &[index << 4 | index; 512]), slot);
    }
    for worker in workers {
        // A JOIN that was repeated is answered again.
        let mut result = worker.expect();
        while result[1] == Kind::Welcome as u8 {
            result = worker.expect();
        }
        assert_eq!((result[1], result.len()), (Kind::Result as u8, 1044), "worker {}", worker.number);
        assert!(
            result[20..].iter().all(|&lane| lane == sum),
            "worker {}: {:?}",
            worker.number,
            &result[20..30]
        );
    }
}

fn workers(server: &Server, count: u8) -> Vec<RawWorker> {
    (0..count).map(|number| RawWorker::new(number, server.local(), 50 + u64::from(number))).collect()
}

#[tokio::test]
async fn a_job_written_row_by_row_sums() {
    let (server, at) = start(2, |_| {});
    let mut it = Controller::primary(at).await;
    let mut all = workers(&server, 3);
    all.iter_mut().for_each(|worker| welcome(worker, 0x1111, 3, 2));
    let members: Vec<_> = all.iter().map(RawWorker::address).collect();
    it.write(Insert, rows(&it, 0x1111, 1, &members)).await;
    // Slots of both shards.
    all_reduce(&all, 0, 0);
    all_reduce(&all, 64, 0);

    // A member moves in the middle of a round: what is summed so far stays.
    let header = all[0].header(Kind::Data, 5, 0);
    all[0].send(&packet(&header, &[0x11; 512]), 5);
    let header = all[1].header(Kind::Data, 5, 0);
    all[1].send(&packet(&header, &[0x22; 512]), 5);
    wait_for(&mut it, 3 << 7 | 1, 3).await;
    all[2].socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    all[2].socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let key: Values<'_> = &[("job", JOB), ("worker", 2)];
    let moved = vec![
        it.row("members", key, "set_member", &place(all[2].address())),
        it.row("addresses", key, "set_address", &place(all[2].address())),
    ];
    it.write(Modify, moved).await;
    let header = all[2].header(Kind::Data, 5, 0);
    all[2].send(&packet(&header, &[0x33; 512]), 5);
    for worker in &all {
        assert!(worker.expect()[20..].iter().all(|&lane| lane == 2 + 4 + 6));
    }

    // Counters, at the places that the switch program has them.
    assert_eq!(it.counter("packets", 3 << 7).await, (3, 3 * (532 + 42)));
    assert_eq!(it.counter("events", (3 << 7 | 2) << 3 | 1).await, (3, 0));
    assert_eq!(it.counter("answers", 3 << 2).await, (3, 0));
    let stats = server.stats();
    let job = stats.job(1).unwrap();
    assert_eq!((job.workers, job.running, &job.joined[..], job.sessions), (3, true, &[0, 1, 2][..], 1));
    assert_eq!(job.results, 3);

    // Gone: its packets are of no job, and its index goes on counting for the next.
    let gone = it.row("jobs", &[("job", JOB)], "set_job", &[]);
    it.write(Delete, vec![gone]).await;
    all[0].send(&packet(&all[0].header(Kind::Data, 6, 0), &[0; 512]), 6);
    let reason = thc_protocol::aggregator::DropReason::Job as u32;
    let start = Instant::now();
    while it.counter("carrier", reason).await != (1, 0) {
        assert!(start.elapsed() < PATIENCE);
    }
    let stats = server.stats();
    let job = stats.job(1).unwrap();
    assert_eq!((job.running, job.joined.len(), job.results), (false, 0, 3));
    let next = it.row("jobs", &[("job", 4)], "set_job", &job_params(1, 2, 1));
    it.write(Insert, vec![next]).await;
    assert_eq!(it.counter("packets", 3 << 7).await.0, 3);
    let stats = server.stats();
    assert_eq!((stats.jobs.len(), stats.job(4).unwrap().sessions), (1, 2));
}

/// Waits until a cell of `packets` counts so many.
async fn wait_for(it: &mut Controller, cell: u32, packets: i64) {
    let start = Instant::now();
    while it.counter("packets", cell).await.0 != packets {
        assert!(start.elapsed() < PATIENCE, "the packets don't come");
    }
}

/// Workers that know nothing JOIN; the controller hears it as packets, writes rows, and welcomes them.
#[tokio::test]
async fn workers_join_through_the_controller() {
    let (server, at) = plain();
    let mut it = Controller::primary(at).await;
    let mut all = workers(&server, 2);
    // Without a row, JOIN is a packet of a wrong kind.
    all[0].poll();
    let start = Instant::now();
    while it.counter("carrier", thc_protocol::aggregator::DropReason::Kind as u32).await.0 == 0 {
        assert!(start.elapsed() < PATIENCE);
    }
    let to_control = |kind: Kind, it: &Controller| {
        it.row("control_plane", &[("kind", (kind as u8).into())], "to_control", &[("port", 255)])
    };
    let own_ip = u32::from_be_bytes([10, 9, 0, 254]);
    let control = vec![
        to_control(Kind::Join, &it),
        to_control(Kind::Leave, &it),
        it.row("own_address", &[("mac", OWN_MAC), ("address", own_ip.into())], "set_ours", &[]),
    ];
    it.write(Insert, control).await;

    let mut setup = session::options(2, 1).validate().unwrap().jobs.remove(0);
    setup.config.tables = vec![TableId(TABLE as u8)];
    let welcome = Welcome { session: thc_protocol::Cookie(0), ..welcome_of(0, 2, 1) };
    let mut registry = Registry::new([StaticJob { config: setup.config, welcome }]);
    let mut members: BTreeMap<u8, SocketAddrV4> = BTreeMap::new();
    let begun = Instant::now();
    let (mut reduced, mut left) = (false, false);
    while !left {
        assert!(begun.elapsed() < PATIENCE, "the session does not form and end");
        for worker in &mut all {
            worker.poll();
        }
        let Ok(message) = tokio::time::timeout(Duration::from_millis(50), it.packet()).await else {
            for worker in &mut all {
                worker.hear();
            }
            if !reduced && all.iter().all(|worker| worker.welcome.is_some()) {
                all_reduce(&all, 3, 0);
                all.iter_mut().for_each(RawWorker::leave);
                reduced = true;
            }
            continue;
        };
        // The frame names the worker's address, the server's own row and the server's port.
        assert_eq!(message[..6], OWN_MAC.to_be_bytes()[10..]);
        assert_eq!(message[30..34], [10, 9, 0, 254]);
        assert_eq!(message[36..38], server.local().port().to_be_bytes());
        let port = u16::from_be_bytes([message[34], message[35]]);
        let from = SocketAddrV4::new([127, 0, 0, 1].into(), port);
        assert_eq!(message[26..30], [127, 0, 0, 1]);
        let actions = registry.handle(begun.elapsed(), from, &message[42..], |_, _| None, || 0x7777);
        for action in &actions {
            match action {
                Action::Install(config, at) => {
                    members = at.iter().map(|(worker, at)| (worker.0, at.addr)).collect();
                    let places: Vec<_> = members.values().copied().collect();
                    it.write(Insert, rows(&it, config.cookie.0, 1, &places)).await;
                }
                Action::Remove(job) => {
                    assert_eq!((*job, members.len()), (JobId(1), 2));
                    let gone = it.row("jobs", &[("job", JOB)], "set_job", &[]);
                    it.write(Delete, vec![gone]).await;
                    left = true;
                }
                _ => {}
            }
        }
        for action in actions {
            if let Action::Send(to, bytes) = action {
                it.send(frame(server.local(), to, &bytes)).await;
            }
        }
    }
    assert!(reduced);
    assert!(server.stats().control.packets >= 4);
}

/// A frame with a datagram, as a controller makes it.
fn frame(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(from.ip().octets());
    ip.extend(to.ip().octets());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0; 12];
    frame.extend([8, 0]);
    frame.extend(ip);
    for word in [from.port(), to.port(), udp, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

#[tokio::test]
async fn two_controllers_compete() {
    let (_server, at) = plain();
    let (mut first, code) = Controller::new(at, 5).await;
    assert_eq!(code, Code::Ok);
    first.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap();
    let (mut second, code) = Controller::new(at, 4).await;
    assert_eq!(code, Code::AlreadyExists);
    let row = second.row("job_tables", &[("job", 1), ("table", 1)], "allow_table", &[]);
    let denied = second.try_write(vec![update(Insert, row.clone())]).await.unwrap_err();
    assert_eq!((denied.code(), denied.details().len()), (Code::PermissionDenied, 0));
    // Everybody may read.
    assert_eq!(second.read(vec![all_rows(0)]).await.unwrap().len(), 0);
    second
        .send(frame(SocketAddrV4::new([0; 4].into(), 1), SocketAddrV4::new([127, 0, 0, 1].into(), 1), b"x"))
        .await;
    match second.update().await {
        stream_message_response::Update::Error(error) => {
            assert_eq!(error.canonical_code, Code::PermissionDenied as i32);
        }
        other => panic!("{other:?}"),
    }

    // The second raises its id: both are told, and roles change.
    second.introduce(Some(6)).await;
    assert_eq!(first.standing().await, Code::AlreadyExists);
    assert_eq!(second.standing().await, Code::Ok);
    assert_eq!(first.try_write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    second.write(Insert, vec![row]).await;

    // The primary goes: the other is told that there is none, and takes over.
    drop(second);
    assert_eq!(first.standing().await, Code::NotFound);
    assert_eq!(first.try_write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    first.introduce(Some(6)).await;
    assert_eq!(first.standing().await, Code::Ok);
    // What was written stays.
    assert_eq!(first.read(vec![all_rows(0)]).await.unwrap().len(), 1);

    // An id that is taken, another device, a role: the stream ends.
    for (election, device_id, role, code) in [
        (6, 0, None, Code::InvalidArgument),
        (7, 3, None, Code::NotFound),
        (7, 0, Some(Role { name: "sdn".into(), ..Role::default() }), Code::NotFound),
        (7, 0, Some(Role { id: 5, ..Role::default() }), Code::NotFound),
    ] {
        let mut other = Controller::silent(at).await;
        let election_id = Some(Uint128 { high: 0, low: election });
        other.arbitrate(MasterArbitrationUpdate { device_id, role, election_id, status: None }).await;
        assert_eq!(other.message().await.unwrap_err().code(), code);
    }
    // A role that says nothing is none.
    let mut other = Controller::silent(at).await;
    let role = Some(Role::default());
    other.arbitrate(MasterArbitrationUpdate { role, ..Default::default() }).await;
    assert_eq!(other.standing().await, Code::AlreadyExists);
}

#[tokio::test]
async fn the_pipeline_is_checked_set_and_read() {
    let (_server, at) = plain();
    let (mut it, _) = Controller::new(at, 1).await;
    let get = |response_type| GetForwardingPipelineConfigRequest { device_id: 0, response_type };
    let all = get_forwarding_pipeline_config_request::ResponseType::All.into();
    for refused in [
        it.try_write(Vec::new()).await.unwrap_err(),
        it.read(Vec::new()).await.unwrap_err(),
        it.client.get_forwarding_pipeline_config(get(all)).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::FailedPrecondition);
    }
    let code = |result: Result<(), tonic::Status>| result.err().map_or(Code::Ok, |status| status.code());
    assert_eq!(code(it.set_pipeline(PipelineAction::Unspecified, b"").await), Code::InvalidArgument);
    assert_eq!(code(it.pipeline(PipelineAction::Commit, None).await), Code::NotFound);
    assert_eq!(code(it.set_pipeline(PipelineAction::Commit, b"").await), Code::InvalidArgument);
    assert_eq!(code(it.pipeline(PipelineAction::Verify, None).await), Code::InvalidArgument);
    assert_eq!(code(it.set_pipeline(PipelineAction::Verify, b"lanes").await), Code::InvalidArgument);
    assert_eq!(code(it.set_pipeline(PipelineAction::Verify, b"").await), Code::Ok);
    assert_eq!(code(it.try_write(Vec::new()).await), Code::FailedPrecondition);
    let mut other = it.info.clone();
    other.tables[0].size = 3;
    std::mem::swap(&mut it.info, &mut other);
    let refused = it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("jobs"), "{refused:?}");
    std::mem::swap(&mut it.info, &mut other);

    assert_eq!(code(it.set_pipeline(PipelineAction::VerifyAndSave, b"lane = 16").await), Code::Ok);
    assert_eq!(code(it.try_write(Vec::new()).await), Code::FailedPrecondition);
    assert_eq!(code(it.pipeline(PipelineAction::Commit, None).await), Code::Ok);
    assert_eq!(code(it.try_write(Vec::new()).await), Code::Ok);
    let held = it.client.get_forwarding_pipeline_config(get(all)).await.unwrap().into_inner().config.unwrap();
    assert_eq!((held.p4info.unwrap(), &held.p4_device_config[..]), (it.info.clone(), &b"lane = 16"[..]));
    let cookie = get_forwarding_pipeline_config_request::ResponseType::CookieOnly.into();
    let held =
        it.client.get_forwarding_pipeline_config(get(cookie)).await.unwrap().into_inner().config.unwrap();
    assert_eq!((held.p4info, held.p4_device_config.len()), (None, 0));

    // 16-bit lanes take sums that 8-bit ones don't.
    let members = vec![SocketAddrV4::new([127, 0, 0, 1].into(), 9); 10];
    it.write(Insert, rows(&it, 1, 1, &members)).await;
    assert_eq!(code(it.set_pipeline(PipelineAction::ReconcileAndCommit, b"lane = 16").await), Code::Ok);
    assert_eq!(code(it.set_pipeline(PipelineAction::ReconcileAndCommit, b"").await), Code::InvalidArgument);
    assert!(it.read(vec![all_rows(0)]).await.unwrap().len() > 20);
    // A commit empties everything, and the same job does not fit.
    assert_eq!(code(it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await), Code::Ok);
    assert_eq!(it.read(vec![all_rows(0), group(0, &[])]).await.unwrap().len(), 0);
    let wanted = rows(&it, 1, 1, &members).into_iter().map(|row| update(Insert, row)).collect();
    let refused = it.try_write(wanted).await.unwrap_err();
    let failed: Vec<_> = errors(&refused).into_iter().filter(|(code, _)| *code != Code::Ok).collect();
    assert!(
        matches!(&failed[..], [(Code::InvalidArgument, message)] if message.contains("300")),
        "{failed:?}"
    );

    for device in [
        it.client.read(ReadRequest { device_id: 7, ..Default::default() }).await.map(drop),
        it.client.write(WriteRequest { device_id: 7, ..Default::default() }).await.map(drop),
    ] {
        assert_eq!(device.unwrap_err().code(), Code::NotFound);
    }
    let roles = WriteRequest { role: "x".into(), ..Default::default() };
    assert_eq!(it.client.write(roles).await.unwrap_err().code(), Code::NotFound);
    let version = it.client.capabilities(CapabilitiesRequest {}).await.unwrap().into_inner();
    assert_eq!(version.p4runtime_api_version, p4runtime_proto::API_VERSION);
}

#[tokio::test]
async fn a_batch_says_what_became_of_each_update() {
    let (_server, at) = start(1, |options| options.memory_limit = Some("1MiB".parse().unwrap()));
    let mut it = Controller::primary(at).await;
    let row = |it: &Controller, table: u128| {
        it.row("job_tables", &[("job", 1), ("table", table)], "allow_table", &[])
    };
    let big = it.row(
        "jobs",
        &[("job", 9)],
        "set_job",
        &[("workers", 1), ("quorum", 1), ("data_slots", 65536), ("norm_slots", 2)],
    );
    let odd = it.row(
        "jobs",
        &[("job", 9)],
        "set_job",
        &[("workers", 1), ("quorum", 1), ("data_slots", 3), ("norm_slots", 2)],
    );
    let register = entity::Entity::RegisterEntry(RegisterEntry::default());
    let batch = vec![
        update(Insert, row(&it, 1)),
        update(Insert, row(&it, 1)),
        update(Delete, row(&it, 2)),
        update(Insert, big),
        update(Insert, odd),
        update(Modify, register),
        update(Insert, row(&it, 3)),
    ];
    let status = it.try_write(batch.clone()).await.unwrap_err();
    let codes: Vec<Code> = errors(&status).into_iter().map(|(code, _)| code).collect();
    use Code::*;
    assert_eq!(status.code(), Unknown);
    let expected = [Ok, AlreadyExists, NotFound, ResourceExhausted, InvalidArgument, Unimplemented, Ok];
    assert_eq!(codes, expected);
    assert_eq!(it.read(vec![all_rows(0)]).await.unwrap().len(), 2);

    // All or nothing.
    let request = |atomicity: write_request::Atomicity, updates| WriteRequest {
        election_id: Some(Uint128 { high: 0, low: 1 }),
        updates,
        atomicity: atomicity.into(),
        ..WriteRequest::default()
    };
    let updates = vec![update(Insert, row(&it, 7)), update(Insert, row(&it, 1))];
    let rollback = write_request::Atomicity::RollbackOnError;
    let status = it.client.write(request(rollback, updates)).await.unwrap_err();
    let codes: Vec<Code> = errors(&status).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [Aborted, AlreadyExists]);
    assert_eq!(it.read(vec![all_rows(0)]).await.unwrap().len(), 2);
    let updates = vec![update(Insert, row(&it, 7)), update(Delete, row(&it, 1))];
    it.client.write(request(rollback, updates)).await.unwrap();
    let atomic = request(write_request::Atomicity::DataplaneAtomic, Vec::new());
    assert_eq!(it.client.write(atomic).await.unwrap_err().code(), Unimplemented);

    // Reading, too, says it part by part, after what could be read.
    let wrong = entity::Entity::TableEntry(TableEntry { table_id: 5, ..Default::default() });
    let register = entity::Entity::RegisterEntry(RegisterEntry::default());
    let status = it.read(vec![all_rows(0), wrong, register]).await.unwrap_err();
    let codes: Vec<Code> = errors(&status).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [Ok, InvalidArgument, Unimplemented]);
}

#[tokio::test]
async fn counters_are_read_set_and_reset() {
    let (server, at) = plain();
    let mut it = Controller::primary(at).await;
    let all = workers(&server, 1);
    all[0].socket.send_to(&[1], server.local()).unwrap();
    let start = Instant::now();
    while it.counter("carrier", 0).await != (1, 0) {
        assert!(start.elapsed() < PATIENCE);
    }
    let cell = |it: &Controller, name: &str, index: Option<i64>, packet_count: i64| {
        let counter_id = it.info.counter(name).unwrap().id();
        let data = Some(CounterData { packet_count, byte_count: 0 });
        entity::Entity::CounterEntry(CounterEntry {
            counter_id,
            index: index.map(|index| Index { index }),
            data,
        })
    };
    it.write(Modify, vec![cell(&it, "carrier", Some(0), 41)]).await;
    all[0].socket.send_to(&[1], server.local()).unwrap();
    let start = Instant::now();
    while it.counter("carrier", 0).await != (42, 0) {
        assert!(start.elapsed() < PATIENCE);
    }
    it.write(Modify, vec![cell(&it, "carrier", None, 0)]).await;
    assert_eq!(it.counter("carrier", 0).await, (0, 0));
    // All counters at once.
    let everything = entity::Entity::CounterEntry(CounterEntry::default());
    let sizes: i64 = it.info.counters.iter().map(|counter| counter.size).sum();
    assert_eq!(it.read(vec![everything]).await.unwrap().len() as i64, sizes);
    // Wrong ones.
    for (kind, entity, code) in [
        (Insert, cell(&it, "carrier", Some(0), 0), Code::InvalidArgument),
        (Modify, cell(&it, "carrier", Some(16), 0), Code::OutOfRange),
        (Modify, cell(&it, "carrier", Some(-1), 0), Code::InvalidArgument),
        (Modify, entity::Entity::CounterEntry(CounterEntry::default()), Code::InvalidArgument),
    ] {
        let status = it.try_write(vec![update(kind, entity)]).await.unwrap_err();
        assert_eq!(errors(&status)[0].0, code);
    }
}

#[tokio::test]
async fn packets_out_that_cannot_be_sent_are_answered() {
    let (_server, at) = plain();
    let mut it = Controller::primary(at).await;
    let to = SocketAddrV4::new([127, 0, 0, 1].into(), 9);
    let mut broken = frame(to, to, b"hello");
    broken[24] ^= 1;
    for payload in [vec![0; 20], broken, frame(to, to, &[]), frame(to, to, &[0; 1045])] {
        it.send(payload).await;
        match it.update().await {
            stream_message_response::Update::Error(error) => {
                assert_eq!(error.canonical_code, Code::InvalidArgument as i32, "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    // The stream goes on.
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let SocketAddr::V4(to) = socket.local_addr().unwrap() else { panic!() };
    it.send(frame(to, to, b"hello")).await;
    let mut buffer = [0; 64];
    let received = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await;
    assert_eq!(received.unwrap().unwrap(), 5);
}

#[tokio::test]
async fn static_jobs_can_be_read_but_not_written() {
    let p4runtime = P4RuntimeOptions { listen: Some("127.0.0.1:0".into()), device_id: Some(0) };
    let options = ServerOptions { p4runtime: Some(p4runtime), ..session::options(2, 1) };
    let server = Server::start(options.validate().unwrap()).unwrap();
    let all = session::session(2, server.local());
    let (mut it, code) = Controller::new(server.p4runtime().unwrap(), 1).await;
    assert_eq!(code, Code::Ok);
    // The session's rows: table, permission, two members, two addresses, job, and two of control_plane.
    assert_eq!(it.read(vec![all_rows(0)]).await.unwrap().len(), 9);
    assert_eq!(it.read(vec![group(1, &[])]).await.unwrap().len(), 1);
    let cookie = all[0].welcome.unwrap().session.0;
    let jobs = all_rows(it.info.table("jobs").unwrap().id());
    match &it.read(vec![jobs]).await.unwrap()[..] {
        [entity::Entity::TableEntry(row)] => {
            let text = format!("{row:?}");
            assert!(text.contains(&format!("{:?}", p4runtime_proto::bytes::encode(cookie.into()))), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(it.try_write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    let set = it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap_err();
    assert_eq!(set.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn many_jobs_come_and_go_without_leaving_anything() {
    let (server, at) = plain();
    let mut it = Controller::primary(at).await;
    for epoch in 0..100 {
        let job = u128::from(epoch) * 600;
        let row = it.row("jobs", &[("job", job)], "set_job", &job_params(epoch + 1, epoch, 1));
        it.write(Insert, vec![row.clone()]).await;
        it.write(Delete, vec![row]).await;
    }
    assert_eq!(
        server.stats().jobs.iter().map(|job| (job.running, job.sessions)).collect::<Vec<_>>(),
        [(false, 100)]
    );
    assert_eq!(it.read(vec![all_rows(0)]).await.unwrap().len(), 0);
}

#[tokio::test]
async fn streams_are_limited_and_messages_too() {
    let (_server, at) = plain();
    let mut all = Vec::new();
    for election in 0..16 {
        all.push(Controller::new(at, election).await.0);
        // Of a few connections.
        if all.len() == 8 {
            all.truncate(1);
        }
    }
    let mut more = Vec::new();
    let refused = loop {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        match all[0].client.stream_channel(stream).await {
            Ok(stream) => more.push((stream, sender)),
            Err(status) => break status,
        }
        assert!(more.len() < 16);
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let mut it = all.pop().unwrap();
    let big = vec![b'{'; 9 << 20];
    let refused = it.set_pipeline(PipelineAction::VerifyAndCommit, &big).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    it.set_pipeline(PipelineAction::VerifyAndCommit, &big[..4 << 20]).await.unwrap();
}

#[tokio::test]
async fn connections_are_limited() {
    let (server, at) = plain();
    let mut kept = Vec::new();
    for _ in 0..16 {
        kept.push(connect(at).await);
    }
    // One more is closed: a request on it fails, while the others work.
    let refused = match p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient::connect(format!(
        "http://{at}"
    ))
    .await
    {
        Err(_) => true,
        Ok(mut client) => client.capabilities(CapabilitiesRequest {}).await.is_err(),
    };
    assert!(refused);
    for client in &mut kept {
        client.capabilities(CapabilitiesRequest {}).await.unwrap();
    }
    // With open streams, too, a server stops at once.
    let stopped = Instant::now();
    drop(server);
    assert!(stopped.elapsed() < Duration::from_secs(10));
}
