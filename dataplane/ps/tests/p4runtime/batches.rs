//! What becomes of each update of a write, and who may write none.

use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use p4runtime_proto::v1::{RegisterEntry, TableEntry, Uint128, WriteRequest, entity, write_request};
use thc_ps::{P4RuntimeOptions, Server, ServerOptions};
use tonic::Code;

use crate::controller::{Controller, PipelineAction, all_rows, errors, group, update};
use crate::job_rows::start;
use crate::session;

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
async fn static_jobs_can_be_read_but_not_written() {
    let p4runtime =
        P4RuntimeOptions { listen: Some("127.0.0.1:0".into()), device_id: Some(0), ..Default::default() };
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
