//! Counters are read, set and reset.

use std::time::Instant;

use p4runtime_proto::v1::update::Type::{Insert, Modify};
use p4runtime_proto::v1::{CounterData, CounterEntry, Index, entity};
use tonic::Code;

use crate::controller::{Controller, errors, update};
use crate::job_rows::{plain, workers};
use crate::session::PATIENCE;

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
