//! Lookup tables: what they must be (P6), and that they do not change under a job.

use p4runtime_proto::v1::entity;
use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use thc_protocol::wire::{FLAG_NUDGE, Header, Kind};
use tonic::Code;

use crate::controller::{Controller, errors, update};
use crate::job_rows::{JOB, TABLE, all_reduce, job_params, plain, rows, values, welcome, workers};
use crate::session::{RawWorker, packet};

fn table(it: &Controller, id: u128, values: [u8; 16]) -> entity::Entity {
    it.row(
        "lookup",
        &[("table", id)],
        "set_values",
        &[("values", u128::from_be_bytes(values)), ("width", 4), ("lane", 8)],
    )
}

/// T[z] = 3·z.
fn other_values() -> [u8; 16] {
    std::array::from_fn(|z| 3 * z as u8)
}

#[tokio::test]
async fn a_table_keeps_its_values_under_a_job() {
    let (server, at) = plain();
    let mut it = Controller::primary(at).await;
    let mut all = workers(&server, 2);
    all.iter_mut().for_each(|worker| welcome(worker, 0x1111, 2, 1));
    let members: Vec<_> = all.iter().map(RawWorker::address).collect();
    it.write(Insert, rows(&it, 0x1111, 1, &members)).await;
    // A slot is half filled, of which the other half is to come.
    all[0].send(&packet(&all[0].header(Kind::Data, 5, 0), &[0x11; 512]), 5);

    let refused = |it: &Controller, kind, values| (kind, table(it, TABLE, values));
    let (same, other) = (values(), other_values());
    for (kind, row) in [refused(&it, Modify, other), refused(&it, Delete, other)] {
        let status = it.try_write(vec![update(kind, row)]).await.unwrap_err();
        let (code, message) = errors(&status).remove(0);
        assert_eq!(code, Code::FailedPrecondition, "{message}");
        for word in ["table 9", "job 1", "epoch"] {
            assert!(message.contains(word), "{message}");
        }
    }
    // The values that it has are no change.
    it.write(Modify, vec![table(&it, TABLE, same)]).await;

    // Taken away from the job it may go, and come back as it was, but not otherwise.
    let may = it.row("job_tables", &[("job", JOB), ("table", TABLE)], "allow_table", &[]);
    it.write(Delete, vec![may.clone(), table(&it, TABLE, same)]).await;
    let status = it.try_write(vec![update(Insert, table(&it, TABLE, other))]).await.unwrap_err();
    assert_eq!(errors(&status)[0].0, Code::FailedPrecondition);
    it.write(Insert, vec![table(&it, TABLE, same), may]).await;
    all[1].send(&packet(&all[1].header(Kind::Data, 5, 0), &[0x22; 512]), 5);
    for worker in &all {
        assert!(worker.expect()[20..].iter().all(|&lane| lane == 2 + 4));
    }

    // In a batch that gives the job another epoch, or takes it away before, the slots are emptied.
    let job =
        |it: &Controller, epoch| it.row("jobs", &[("job", JOB)], "set_job", &job_params(0x1111, epoch, 2));
    let asking = Header { flags: FLAG_NUDGE, ..all[0].header(Kind::Data, 6, 0) };
    all[0].send(&packet(&asking, &[0x11; 512]), 6);
    // Its answer comes to both, and shows that the packet is in the slot before the rows change.
    assert!(all.iter().all(|worker| worker.expect()[1] == Kind::Nudge as u8));
    it.write(Modify, vec![job(&it, 2), table(&it, TABLE, other)]).await;
    all[1].send(&packet(&all[1].header(Kind::Data, 6, 0), &[0x22; 512]), 6);
    all[0].send(&packet(&all[0].header(Kind::Data, 6, 0), &[0x11; 512]), 6);
    for worker in &all {
        assert!(worker.expect()[20..].iter().all(|&lane| lane == 3 + 6));
    }
    let status = it
        .try_write(vec![
            update(Modify, job(&it, 3)),
            update(Modify, table(&it, TABLE, same)),
            update(Modify, job(&it, 2)),
        ])
        .await
        .unwrap_err();
    let codes: Vec<Code> = errors(&status).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::FailedPrecondition]);
    let batch = vec![
        update(Delete, job(&it, 3)),
        update(Modify, table(&it, TABLE, values())),
        update(Insert, job(&it, 3)),
    ];
    it.try_write(batch).await.unwrap();
    all_reduce(&all, 7, 0);
}

#[tokio::test]
async fn tables_that_no_job_may_have_are_refused() {
    let (_server, at) = plain();
    let mut it = Controller::primary(at).await;
    let mut good = [0; 16];
    good[..4].copy_from_slice(&[0, 1, 5, 255]);
    for values in [good, values(), [0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        it.write(Insert, vec![table(&it, 200, values)]).await;
        it.write(Delete, vec![table(&it, 200, values)]).await;
    }
    let with = |at: usize, value: u8| {
        let mut values = values();
        values[at] = value;
        values
    };
    let short = |at: usize, value: u8| {
        let mut values = good;
        values[at] = value;
        values
    };
    for (values, names) in [
        ([0; 16], "all values are 0"),
        (with(0, 1), "T[0] is 1"),
        (with(3, 4), "T[3] is 4"),
        (with(15, 0), "T[15] is 0"),
        (short(7, 1), "T[4] is 0"),
        (short(3, 0), "T[3] is 0"),
    ] {
        let row = table(&it, 77, values);
        let status = it.try_write(vec![update(Insert, row)]).await.unwrap_err();
        let (code, message) = errors(&status).remove(0);
        assert_eq!(code, Code::InvalidArgument, "{values:?}");
        assert!(message.contains("table 77") && message.contains(names), "{message}");
    }
}

/// Clients take 8 to 16 KiB of trailing metadata, base64 of the details among it.
#[tokio::test]
async fn a_batch_of_failures_fits_the_metadata() {
    let (_server, at) = plain();
    let mut it = Controller::primary(at).await;
    for count in [1, 100, 150, 2000] {
        let row = |n: u128| it.row("members", &[("job", 1), ("worker", n)], "set_member", &[]);
        let updates = (0..count).map(|n| update(Delete, row(n % 64))).collect();
        let status = it.try_write(updates).await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{count}: {status:?}");
        let said = errors(&status);
        assert!(said.iter().all(|(code, _)| *code == Code::NotFound));
        assert!(said.len() as u128 == count || said.len() > 40, "{} of {count}", said.len());
        let left = count as usize - said.len();
        let cut = format!("{left} of the updates are left out of the details");
        assert_eq!(status.message().contains(&cut), left > 0, "{}", status.message());
        let carried = status.details().len().div_ceil(3) * 4 + status.message().len();
        assert!(carried < 7800, "{carried} bytes for {count}");
        assert!(status.message().starts_with(&format!("{count} of {count} failed")));
    }
}
