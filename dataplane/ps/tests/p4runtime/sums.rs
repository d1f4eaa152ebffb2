//! Jobs that a controller writes add up what their workers send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use p4runtime_proto::v1::update::Type::{Delete, Insert, Modify};
use thc_protocol::session::{Action, Registry, StaticJob};
use thc_protocol::wire::{Kind, Welcome};
use thc_protocol::{JobId, TableId};

use crate::controller::{Controller, Values, all_rows};
use crate::job_rows::{
    JOB, OWN_MAC, TABLE, all_reduce, job_params, place, plain, rows, start, welcome, welcome_of, workers,
};
use crate::packets::frame;
use crate::session::{self, PATIENCE, RawWorker, packet};

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
    let mut registry = Registry::new([StaticJob::new(setup.config, welcome)]);
    let mut members: BTreeMap<u8, SocketAddr> = BTreeMap::new();
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
        let from = SocketAddr::from(([127, 0, 0, 1], port));
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
