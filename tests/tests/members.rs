//! Workers that come and go in a running job (P42, P43): `thc-ps --min-workers --max-workers`, and processes that are killed.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use thc_tests::followed::{Followed, Step};
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, free_port, write_gradients};

const MOST: u8 = 4;

fn server(least: &str, more: &[&str]) -> Ps {
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let flags = ["--min-workers", least, "--max-workers", "4", "--gone-after", "1500ms"];
    Ps::listen_at(addr, &[&flags[..], more].concat())
}

fn worker(ps: &Ps, seat: u8, input: &Path, repeat: &str) -> Followed {
    let (at, seat) = (ps.addr.to_string(), seat.to_string());
    let flags = ["--ps", &at, "--cookie", COOKIE, "--worker", &seat, "--input", input.to_str().unwrap()];
    let more = ["--repeat", repeat, "--error-feedback", "--timeout", "20s"];
    Followed::start(None, &flags.iter().chain(&more).map(|&flag| flag.to_owned()).collect::<Vec<_>>())
}

/// Collects what they finish until `so` of what each has finished.
fn collect_until(workers: &[(usize, &Followed)], steps: &mut [Vec<Step>], so: impl Fn(&[Vec<Step>]) -> bool) {
    let started = Instant::now();
    while !so(steps) {
        workers.iter().for_each(|&(i, worker)| steps[i].extend(worker.steps()));
        assert!(started.elapsed() < thc_tests::HANG, "{:?}", steps.iter().map(Vec::len).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn workers_that_are_killed_and_started_come_and_go_and_every_mean_is_the_same_on_all() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), MOST, 400_000);
    let ps = server("2", &["--inject-loss", "0.005"]);
    let start = |seat: u8| worker(&ps, seat, &inputs[usize::from(seat)], "100000");
    let mut all: Vec<Followed> = (0..MOST).map(start).collect();
    let mut steps = vec![Vec::new(); 6];
    let who: Vec<(usize, &Followed)> = all.iter().enumerate().collect();
    collect_until(&who, &mut steps, |steps| steps[..4].iter().all(|steps| steps.len() > 3));
    // One is killed: the others go on at once, and nothing else is asked of them.
    all[2].kill();
    let before = steps[0].len();
    let three: Vec<(usize, &Followed)> = [0, 1, 3].map(|i| (i, &all[i])).to_vec();
    collect_until(&three, &mut steps, |steps| steps[0].len() > before + 10 && steps[3].len() > before + 10);
    // Two come, one of them in its seat, and another is killed.
    let new = start(2);
    let five: Vec<(usize, &Followed)> = three.iter().copied().chain([(4, &new)]).collect();
    collect_until(&five, &mut steps, |steps| steps[4].len() > 3);
    all[0].kill();
    let before = steps[1].len();
    let three: Vec<(usize, &Followed)> = vec![(1, &all[1]), (3, &all[3]), (4, &new)];
    collect_until(&three, &mut steps, |steps| {
        [1, 3, 4].iter().all(|&i| steps[i].len() > 3) && steps[1].len() > before + 10
    });
    // Whoever finished the same all-reduce has the same mean: counted from each one's last, for they began at different ones.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        three.iter().for_each(|&(i, worker)| steps[i].extend(worker.steps()));
    }
    let sums = |i: usize| steps[i].iter().map(|step| step.checksum.as_str()).collect::<Vec<_>>();
    let (one, other, late) = (sums(1), sums(3), sums(4));
    let both = one.len().min(other.len());
    assert!(both > 20 && one[..both] == other[..both]);
    let first = one.iter().position(|sum| *sum == late[0]).unwrap();
    let both = late.len().min(one.len() - first);
    assert!(both > 10 && one[first..first + both] == late[..both]);
    let log = ps.log();
    for said in [
        "job 1: worker 2 is gone",
        "job 1: worker 0 is gone",
        "session formed, 3 workers",
        "worker 2 is let in",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn who_ends_first_leaves_the_others_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 3, 50_000);
    let ps = server("1", &["--gather", "500ms"]);
    let start =
        |seat: u8| worker(&ps, seat, &inputs[usize::from(seat)], ["3", "40", "80"][usize::from(seat)]);
    let ends: Vec<Finished> =
        (0..3).map(start).collect::<Vec<_>>().into_iter().map(Followed::finish).collect();
    assert!(ends.iter().all(|end| end.code == Some(0)), "{ends:?}");
    let log = ps.log();
    assert!(log.contains("worker 0 has left") && log.contains("session formed, 1 workers"), "{log}");
    assert!(!log.contains("is gone"), "{log}");
}

#[test]
fn sizes_that_cannot_be_are_one_line() {
    let refused = |flags: &[&str], says: &str| {
        let all = [&["--job", "1", "--cookie", COOKIE], flags].concat();
        let out = thc_tests::run("thc-ps", &all);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(says), "{said}");
    };
    refused(
        &["--min-workers", "4", "--max-workers", "3"],
        "min_workers is 4: that is more than max_workers, 3",
    );
    refused(
        &["--workers", "2", "--share", "0/2", "--shares", "127.0.0.1:9000", "--spares", "127.0.0.1:9000"],
        "spares is 127.0.0.1:9000: a server cannot be its own spare",
    );
    // A worker whose seat is none of the job's.
    let ps = server("2", &[]);
    let end = WorkerProcess::start(ps.addr, 4, &["--coordinates", "9"]).finish();
    assert_eq!(end.code, Some(1));
    assert!(end.last_error().contains("worker number out of range"), "{end:?}");
}

#[test]
fn a_spare_stands_by_for_sessions_of_every_size_and_completes_what_the_first_server_left() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), MOST, 200_000);
    let first = thc_tests::free_ports(2);
    let [at, spare] = [first, first + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (of, stands_by) = (at.to_string(), spare.to_string());
    let shares = |share| ["--share", share, "--shares", &of, "--spares", &stands_by].map(str::to_owned);
    let sizes =
        ["--min-workers", "1", "--max-workers", "4", "--gone-after", "1500ms", "--inject-loss", "0.005"];
    let start = |at: SocketAddr, share| {
        let shares = shares(share);
        let flags: Vec<&str> = shares.iter().map(String::as_str).chain(sizes).collect();
        Ps::listen_at(at, &flags)
    };
    let (mut ps, second) = (start(at, "0/2"), start(spare, "1/2"));
    let work = |seat: u8| worker(&ps, seat, &inputs[usize::from(seat)], "100000");
    let mut all: Vec<Followed> = (0..3).map(work).collect();
    let mut steps = vec![Vec::new(); 4];
    let who: Vec<(usize, &Followed)> = all.iter().enumerate().collect();
    collect_until(&who, &mut steps, |steps| steps[..3].iter().all(|steps| steps.len() > 3));
    // Sessions of three, two and three again, with tables of their own.
    all[2].kill();
    let (before, two) = (steps[0].len(), [(0, &all[0]), (1, &all[1])]);
    collect_until(&two, &mut steps, |steps| steps[0].len() > before + 10 && steps[1].len() > before);
    let new = work(3);
    let three = [two[0], two[1], (3, &new)];
    collect_until(&three, &mut steps, |steps| steps[3].len() > 3);
    ps.kill();
    let before = steps.clone();
    collect_until(&three, &mut steps, |steps| {
        [0, 1, 3].iter().all(|&i| steps[i].len() > before[i].len() + 10)
    });
    let sums = |i: usize| steps[i].iter().map(|step| step.checksum.as_str()).collect::<Vec<_>>();
    let (one, other, late) = (sums(0), sums(1), sums(3));
    let both = one.len().min(other.len());
    assert!(one[..both] == other[..both]);
    let first = one.iter().position(|sum| *sum == late[0]).unwrap();
    let both = late.len().min(one.len() - first);
    assert!(both > 10 && one[first..first + both] == late[..both]);
    assert!(!second.log().contains("ERROR"), "{}", second.log());
}
