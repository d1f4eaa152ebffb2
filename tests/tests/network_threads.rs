//! Workers that receive and send on threads of their own (`thc-worker --network-threads`) beside workers that do not.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, write_gradients};

const WORKERS: u8 = 3;

fn flags(ps: SocketAddr, worker: u8, input: &Path, more: &[&str]) -> Vec<String> {
    let (ps, worker) = (ps.to_string(), worker.to_string());
    let own = ["--ps", &ps, "--cookie", COOKIE, "--worker", &worker, "--input", input.to_str().unwrap()];
    own.iter().chain(more).map(|&flag| flag.to_owned()).collect()
}

/// The means of workers of which each has its own number of network threads, and what they say.
fn means(
    ps: &Ps,
    inputs: &[PathBuf],
    threads: [&str; WORKERS as usize],
    more: &[&str],
) -> Vec<(Vec<u8>, Finished)> {
    let start = |(worker, (input, threads)): (u8, (&PathBuf, &str))| {
        let output = input.with_extension("out");
        let own = ["--output", output.to_str().unwrap(), "--repeat", "6", "--error-feedback"];
        let own = [&own[..], &["--network-threads", threads], more].concat();
        let flags = flags(ps.addr, worker, input, &own);
        WorkerProcess::with_flags(None, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let workers: Vec<_> = (0u8..).zip(inputs.iter().zip(threads)).map(start).collect();
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    let of = |(input, end): (&PathBuf, Finished)| {
        assert_eq!(end.code, Some(0), "{end:?}");
        (std::fs::read(input.with_extension("out")).unwrap(), end)
    };
    inputs.iter().zip(ends).map(of).collect()
}

#[test]
fn threads_change_no_bit_whatever_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 700_001);
    let of = |server: &[&str], threads, more: &[&str]| {
        let ps = Ps::start(WORKERS, server);
        let means = means(&ps, &inputs, threads, more);
        assert!(means.iter().all(|(mean, _)| *mean == means[0].0));
        means
    };
    let usual = of(&["--shards", "4"], ["0", "0", "0"], &[]);
    // Faults at the server meet threads that have all of a data packet's work; those of a worker leave them sending and receiving alone.
    let at_server = "--shards 4 --inject-loss 0.01 --inject-duplicate 0.01 --inject-reorder 0.01";
    let at_server: Vec<&str> = at_server.split(' ').collect();
    let faults = ["--inject", "loss=0.01,duplicate=0.01,reorder=0.01"];
    for (server, threads, more) in [
        (&["--shards", "4"][..], ["2", "2", "2"], &[][..]),
        (&at_server, ["2", "0", "4"], &[]),
        (&["--shards", "4"], ["2", "0", "3"], &faults),
    ] {
        let with = of(server, threads, more);
        assert!(with[0].0 == usual[0].0, "{threads:?} {more:?}");
        assert!(!with[0].1.err.contains("network threads"), "{}", with[0].1.err);
    }
    // Slots of which a seq and the one half a round later are not always of one thread.
    let uneven = of(&["--shards", "3"], ["2", "3", "0"], &[]);
    assert!(uneven[0].0 == usual[0].0);
    let said = "network threads receive and send, and one thread does all else of data packets: its slots do not come in 128 for each port";
    assert!(uneven.iter().filter(|(_, end)| end.err.contains(said)).count() == 2, "{}", uneven[0].1.err);
    // A server with one port, as a switch: one thread carries all, and the worker says so.
    let one = of(&[], ["2", "1", "0"], &[]);
    assert!(one[0].0 == usual[0].0);
    let said = "the server has 1 UDP port, so 1 of 2 network threads has nothing to do";
    assert!(one[0].1.err.contains(said) && !one[1].1.err.contains("network threads"), "{}", one[0].1.err);
}

/// P24: what a killed server had of sums is sent again by each thread for its own slots.
#[test]
fn a_killed_server_changes_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 300_000);
    let of = |threads: [&str; WORKERS as usize], kills: usize| {
        let mut ps = Ps::start(WORKERS, &["--shards", "2"]);
        let start = |(worker, (input, threads)): (u8, (&PathBuf, &str))| {
            let more = ["--repeat", "120", "--error-feedback", "--network-threads", threads];
            Followed::start(None, &flags(ps.addr, worker, input, &more))
        };
        let workers: Vec<_> = (0u8..).zip(inputs.iter().zip(threads)).map(start).collect();
        for _ in 0..kills {
            workers[0].until_first_step();
            ps.kill_and_restart();
        }
        let errors: Vec<_> = workers.iter().map(Followed::errors).collect();
        let steps: Vec<_> = workers[1..].iter().map(Followed::steps).collect();
        for (worker, said) in workers.into_iter().zip(errors) {
            assert_eq!(worker.finish().code, Some(0), "{said}");
        }
        if kills > 0 {
            let log = ps.log();
            assert!(log.contains("session goes on after a restart, 3 workers"), "{log}");
        }
        let sums = steps.into_iter().map(|steps| {
            assert_eq!(steps.len(), 120);
            steps.into_iter().map(|step| step.checksum).collect::<Vec<_>>()
        });
        sums.collect::<Vec<_>>()
    };
    let usual = of(["0", "0", "0"], 0);
    assert!(usual[0] == usual[1]);
    assert!(of(["2", "2", "1"], 2) == usual);
}

#[test]
fn what_cannot_be_is_one_line() {
    for (more, says) in [(
        &["--network-threads", "65"][..],
        "udp: network_threads is 65: 64 is the most, as many as servers have ports",
    )] {
        let flags = [&["--cookie", COOKIE, "--worker", "0", "--coordinates", "9"], more].concat();
        let out = thc_tests::run("thc-worker", &flags);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
