//! Counters are read, and reset by a commit.

use std::time::Instant;

use p4runtime_proto::v1::update::Type::Modify;
use p4runtime_proto::v1::{CounterData, CounterEntry, Index, entity};
use tonic::Code;

use crate::controller::{Controller, PipelineAction, errors, update};
use crate::job_rows::{plain, workers};
use crate::session::PATIENCE;

#[tokio::test]
async fn counters_are_read_and_reset() {
    let (server, at) = plain();
    let mut it = Controller::primary(at).await;
    let all = workers(&server, 1);
    all[0].socket.send_to(&[1], server.local()).unwrap();
    let start = Instant::now();
    while it.counter("carrier", 0).await != (1, 0) {
        assert!(start.elapsed() < PATIENCE);
    }
    // A commit sets all counters to 0.
    it.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap();
    assert_eq!(it.counter("carrier", 0).await, (0, 0));
    // All counters at once.
    let everything = entity::Entity::CounterEntry(CounterEntry::default());
    let sizes: i64 = it.info.counters.iter().map(|counter| counter.size).sum();
    assert_eq!(it.read(vec![everything]).await.unwrap().len() as i64, sizes);
    let counter_id = it.info.counter("carrier").unwrap().id();
    let cell =
        CounterEntry { counter_id, index: Some(Index { index: 0 }), data: Some(CounterData::default()) };
    let status = it.try_write(vec![update(Modify, entity::Entity::CounterEntry(cell))]).await.unwrap_err();
    assert_eq!(errors(&status)[0].0, Code::Unimplemented);
}
