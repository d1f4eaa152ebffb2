//! Worker processes and a parameter server process over the loopback.
#![allow(clippy::unwrap_used, missing_docs)]

use rustix::process::Signal;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, free_port, write_gradient};

/// Runs one worker per input file; returns how each ended.
fn all_reduce(ps: &Ps, inputs: &[PathBuf], more: &[&str]) -> Vec<Finished> {
    let workers: Vec<WorkerProcess> = (0u8..)
        .zip(inputs)
        .map(|(number, input)| {
            let output = input.with_extension("out");
            let mut args =
                vec!["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap(), "--json"];
            args.extend(more);
            WorkerProcess::start(ps.addr, number, &args)
        })
        .collect();
    workers.into_iter().map(WorkerProcess::finish).collect()
}

fn inputs(dir: &Path, lengths: &[usize]) -> Vec<PathBuf> {
    (0u64..)
        .zip(lengths)
        .map(|(seed, &length)| {
            let path = dir.join(format!("{seed}.f32"));
            write_gradient(&path, length, seed);
            path
        })
        .collect()
}

fn outputs(inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

fn wait_for(ps: &Ps, line: &str) {
    while !ps.log().contains(line) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn all_well(ends: &[Finished]) {
    for end in ends {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
}

/// The mean that three calls with error feedback end with, on a network without faults.
fn reference(dir: &Path, workers: u8, length: usize, repeat: &str) -> (Vec<PathBuf>, Vec<u8>) {
    let ps = Ps::start(workers, &[]);
    let inputs = inputs(dir, &vec![length; usize::from(workers)]);
    all_well(&all_reduce(&ps, &inputs, &["--repeat", repeat, "--error-feedback"]));
    let outputs = outputs(&inputs);
    assert!(outputs.iter().all(|o| o == &outputs[0]), "all workers have the same mean");
    (inputs, outputs.into_iter().next().unwrap())
}

#[test]
fn bytes_on_the_wire_of_64_mib_by_four_workers() {
    let ps = Ps::start(4, &[]);
    let workers: Vec<WorkerProcess> =
        (0..4).map(|w| WorkerProcess::start(ps.addr, w, &["--coordinates", "16777216", "--json"])).collect();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
        let report = end.json();
        let (up, down) = (&report["bytes_per_coordinate_up"], &report["bytes_per_coordinate_down"]);
        println!("{up} up, {down} down, {} sent again", report["stats"]["retransmissions"]);
        // A busy machine loses packets in full buffers; the rest of what was sent is DATA and NORM, once each.
        let again = report["stats"]["retransmissions"].as_f64().unwrap() * 560.0 / 16_777_216.0;
        assert!(up.as_f64().unwrap() - again <= 0.56, "{report}");
        assert!(down.as_f64().unwrap() <= 1.08, "{report}");
    }
}

#[test]
fn injected_faults_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (inputs, clean) = reference(dir.path(), 4, 1_500_000, "3");
    let ps = Ps::start(4, &[]);
    let faults = ["--repeat", "3", "--error-feedback", "--inject", "loss=0.01,duplicate=0.01,reorder=0.01"];
    let ends = all_reduce(&ps, &inputs, &faults);
    all_well(&ends);
    let repeated = ends.iter().map(|e| e.json()["stats"]["retransmissions"].as_u64().unwrap()).sum::<u64>();
    assert!(repeated > 0, "faults were injected");
    assert!(outputs(&inputs).iter().all(|o| *o == clean));
}

#[test]
fn shards_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (inputs, clean) = reference(dir.path(), 3, 700_001, "2");
    let ps = Ps::start(3, &["--shards", "2"]);
    all_well(&all_reduce(&ps, &inputs, &["--repeat", "2", "--error-feedback"]));
    assert!(outputs(&inputs).iter().all(|o| *o == clean));
}

#[test]
fn a_killed_and_restarted_parameter_server_changes_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (inputs, clean) = reference(dir.path(), 3, 3_000_000, "12");
    let mut ps = Ps::start(3, &[]);
    let start = |(number, input): (u8, &PathBuf)| {
        let output = input.with_extension("out");
        let (ps, number) = (ps.addr.to_string(), number.to_string());
        let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
        let flags =
            ["--ps", &ps, "--cookie", COOKIE, "--worker", &number, "--input", input, "--output", output];
        let flags = flags.iter().chain(&["--repeat", "12", "--error-feedback"]);
        Followed::start(None, &flags.map(|&flag| flag.to_owned()).collect::<Vec<_>>())
    };
    let mut workers: Vec<Followed> = (0u8..).zip(&inputs).map(start).collect();
    // All of them must know of the session, or there is nothing to resume.
    workers.iter().for_each(Followed::until_first_step);
    let mut kills = 0;
    for pause in [5, 60, 40] {
        std::thread::sleep(Duration::from_millis(pause));
        if workers.iter_mut().all(|worker| worker.exit_status().is_some()) {
            break;
        }
        ps.kill_and_restart();
        kills += 1;
    }
    let ends: Vec<Finished> = workers.into_iter().map(Followed::finish).collect();
    all_well(&ends);
    assert!(kills > 0);
    assert!(outputs(&inputs).iter().all(|o| *o == clean));
    let repeated: u64 = ends.iter().map(|e| e.json()["stats"]["retransmissions"].as_u64().unwrap()).sum();
    println!("{kills} kills, {repeated} packets sent again");
    assert!(repeated > 0, "a kill in the middle loses something");
}

/// A server that comes back with another configuration: the session must not go on, and the error says what differs.
#[test]
fn a_server_restarted_otherwise_ends_the_session_and_says_what_differs() {
    let same = ["--granularity", "30", "--fraction", "1/32"];
    let other = |more: &[&'static str]| [&same[..], more].concat();
    let cases = [
        (2, vec!["--granularity", "20", "--fraction", "1/32"], "granularity 20 instead of 30"),
        (2, other(&["--shards", "2"]), "shards 2 instead of 1"),
        (2, other(&["--data-slots", "512"]), "data slots 512 instead of 1024"),
        (2, other(&["--lane", "16"]), "lane 16 instead of 8"),
        (3, other(&[]), "workers 3 instead of 2"),
        (1, other(&[]), "workers 1 instead of 2"),
    ];
    for (workers, flags, says) in cases {
        let mut ps = Ps::start(2, &[]);
        let args = ["--coordinates", "400000", "--repeat", "100000", "--timeout", "20s"];
        let running: Vec<WorkerProcess> = (0..2).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
        wait_for(&ps, "session formed");
        std::thread::sleep(Duration::from_millis(50));
        ps.kill_and_change(workers, &flags);
        for end in running.into_iter().map(WorkerProcess::finish) {
            assert_eq!(end.code, Some(1), "{says}: {end:?}");
            assert!(end.last_error().contains(says), "{says}: {end:?}");
        }
        assert!(!ps.log().contains("goes on after a restart"), "{says}: {}", ps.log());
    }
}

#[test]
fn a_killed_worker_is_known_within_five_seconds() {
    let ps = Ps::start(3, &[]);
    let args = ["--coordinates", "4000000", "--repeat", "100000"];
    let mut workers: Vec<WorkerProcess> = (0..3).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
    wait_for(&ps, "session formed");
    std::thread::sleep(Duration::from_millis(300));
    let mut victim = workers.remove(1);
    victim.kill();
    let killed = Instant::now();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("worker 1 left or ended after "), "{end:?}");
    }
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A worker that SIGINT or SIGTERM ends sends LEAVE, and the others name it.
#[test]
fn a_worker_that_a_signal_ends_leaves() {
    for (signal, status, name) in [(Signal::INT, 130, "SIGINT"), (Signal::TERM, 143, "SIGTERM")] {
        let ps = Ps::start(3, &[]);
        let args = ["--coordinates", "400000", "--repeat", "100000"];
        let mut workers: Vec<WorkerProcess> =
            (0..3).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
        wait_for(&ps, "session formed");
        std::thread::sleep(Duration::from_millis(300));
        let leaver = workers.remove(1);
        leaver.signal(signal);
        let end = leaver.finish();
        assert_eq!(end.code, Some(status), "{end:?}");
        let error = format!("thc-worker: {name} made worker 1 leave after ");
        assert!(end.last_error().starts_with(&error), "{end:?}");
        // What was done is reported, if anything was.
        let is_any = !end.last_error().contains(" after 0 of ");
        assert_eq!(end.out.contains("coordinates averaged over 3 workers"), is_any, "{end:?}");
        for end in workers.into_iter().map(WorkerProcess::finish) {
            assert_eq!(end.code, Some(1), "{end:?}");
            assert!(end.last_error().contains("worker 1 left or ended after "), "{end:?}");
        }
        // Not by the word of its host, as of a worker that is killed.
        assert!(ps.log().contains("worker 1 has left"), "{}", ps.log());
    }
}

/// A worker that waits for the others gives its place back when a signal or its patience ends it.
#[test]
fn a_worker_that_stops_waiting_gives_its_place_back() {
    let ps = Ps::start(2, &[]);
    let args = ["--coordinates", "1000"];
    let worker = WorkerProcess::start(ps.addr, 0, &args);
    wait_for(&ps, "worker 0 joined");
    worker.signal(Signal::TERM);
    let end = worker.finish();
    assert_eq!(end.code, Some(143), "{end:?}");
    assert_eq!(end.last_error(), "thc-worker: SIGTERM ended the wait for a session");
    assert!(ps.log().contains("worker 0 has left"), "{}", ps.log());
    let end = WorkerProcess::start(ps.addr, 1, &[&args[..], &["--join-timeout", "500ms"]].concat()).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(ps.log().contains("worker 1 has left"), "{}", ps.log());
    let workers: Vec<WorkerProcess> = (0..2).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
    all_well(&workers.into_iter().map(WorkerProcess::finish).collect::<Vec<_>>());
}

/// A worker whose calls are done leaves, and others that go on name it.
#[test]
fn a_worker_that_is_done_leaves() {
    let ps = Ps::start(2, &[]);
    let start = |w, repeat| WorkerProcess::start(ps.addr, w, &["--coordinates", "1000", "--repeat", repeat]);
    let (short, long) = (start(0, "2"), start(1, "3"));
    let (short, long) = (short.finish(), long.finish());
    assert_eq!((short.code, long.code), (Some(0), Some(1)), "{short:?} {long:?}");
    assert!(long.last_error().contains("worker 0 left or ended after 2 of 3 all-reduces"), "{long:?}");
    assert!(ps.log().contains("worker 0 has left"), "{}", ps.log());
}

/// `--rejoin` begins again with a worker in the place of one that was killed, although the others hear of the death first.
#[test]
fn a_worker_takes_the_place_of_a_killed_one() {
    let ps = Ps::start(2, &[]);
    let args = ["--coordinates", "4000000", "--repeat", "40", "--rejoin"];
    let mut workers: Vec<WorkerProcess> = (0..2).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
    wait_for(&ps, "session formed");
    std::thread::sleep(Duration::from_millis(100));
    workers.pop().unwrap().kill();
    // Longer than it takes until the death is known.
    std::thread::sleep(Duration::from_secs(5));
    workers.push(WorkerProcess::start(ps.addr, 1, &args));
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
}

#[test]
fn by_quorum_the_others_go_on() {
    let ps = Ps::start(3, &["--quorum", "2"]);
    let args = ["--coordinates", "1000000", "--repeat", "60"];
    let mut workers: Vec<WorkerProcess> = (0..3).map(|w| WorkerProcess::start(ps.addr, w, &args)).collect();
    wait_for(&ps, "session formed");
    let mut victim = workers.pop().unwrap();
    victim.kill();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
}

#[test]
fn a_nan_fails_every_worker_with_the_same_error() {
    let ps = Ps::start(3, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = inputs(dir.path(), &[50_000; 3]);
    let mut bytes = std::fs::read(&inputs[2]).unwrap();
    bytes[4 * 40_000..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&inputs[2], bytes).unwrap();
    let ends = all_reduce(&ps, &inputs, &[]);
    for end in &ends {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert_eq!(end.last_error(), ends[0].last_error());
        assert!(end.last_error().contains("worker 2 has a NaN"), "{end:?}");
    }
}

#[test]
fn different_lengths_show_both() {
    let ps = Ps::start(2, &[]);
    let dir = tempfile::tempdir().unwrap();
    let inputs = inputs(dir.path(), &[30_000, 31_000]);
    for end in all_reduce(&ps, &inputs, &[]) {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("30000") && end.last_error().contains("31000"), "{end:?}");
    }
}

#[test]
fn nobody_answers() {
    let addr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let end = WorkerProcess::start(addr, 0, &["--coordinates", "10", "--join-timeout", "1s"]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    let says = format!("nobody listens on {addr} (UDP), refused for ");
    let remedy = format!("`thc-worker doctor --ps {addr}` looks further");
    assert!(end.last_error().contains(&says) && end.last_error().ends_with(&remedy), "{end:?}");
    assert_eq!(end.err.lines().count(), 1, "{end:?}");
}

/// A socket that reads nothing: its host does not say that nobody listens.
#[test]
fn a_server_that_keeps_silent_is_named_while_and_after_it_is_waited_for() {
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = deaf.local_addr().unwrap();
    let end = WorkerProcess::start(addr, 0, &["--coordinates", "10", "--join-timeout", "4s"]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    let says = |waited| format!("the parameter server {addr} (UDP) has not answered for {waited}.0 s");
    let lines: Vec<&str> = end.err.lines().collect();
    assert!(lines[0].contains("WARN") && lines[0].contains(&says(3)), "{end:?}");
    assert!(end.last_error().contains(&says(4)) && end.last_error().contains("doctor"), "{end:?}");
}

#[test]
fn a_worker_that_waits_for_others_names_them() {
    let ps = Ps::start(3, &[]);
    let waits = ["--coordinates", "10", "--join-timeout", "4s"];
    let workers = [0, 2].map(|number| WorkerProcess::start(ps.addr, number, &waits));
    for end in workers.map(WorkerProcess::finish) {
        assert!(end.err.contains("waiting for worker 1 for 3 s"), "{end:?}");
        assert!(end.last_error().contains("worker 1 did not join"), "{end:?}");
    }
}

#[test]
fn a_killed_server_is_known_within_five_seconds() {
    let mut ps = Ps::start(1, &[]);
    let address = ps.addr.to_string();
    let flags = ["--worker", "0", "--cookie", COOKIE, "--coordinates", "1000000", "--repeat", "1000000"];
    let flags = ["--ps", &address].iter().chain(&flags).map(|&flag| flag.to_owned()).collect::<Vec<_>>();
    let worker = Followed::start(None, &flags);
    worker.until_first_step();
    ps.kill();
    let killed = Instant::now();
    let end = worker.finish();
    let took = killed.elapsed();
    assert_eq!(end.code, Some(1), "{end:?}");
    let said = end.last_error();
    assert!(said.contains(&format!("nobody listens on {} (UDP), refused for 4.", ps.addr)), "{end:?}");
    assert!(said.contains("doctor") && end.err.contains("WARN"), "{end:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn missing_workers_are_named() {
    let ps = Ps::start(3, &[]);
    let end = WorkerProcess::start(ps.addr, 1, &["--coordinates", "10", "--join-timeout", "1s"]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.last_error().contains("workers 0, 2 did not join job 1"), "{end:?}");
}

#[test]
fn wrong_job_cookie_and_number_are_refused() {
    let ps = Ps::start(2, &[]);
    for (args, says) in [
        (&["--coordinates", "10", "--job", "9"][..], "unknown job"),
        (&["--coordinates", "10", "--cookie", "0x99"], "wrong cookie"),
    ] {
        let end = WorkerProcess::start(ps.addr, 0, args).finish();
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains(says), "{end:?}");
    }
    let end = WorkerProcess::start(ps.addr, 5, &["--coordinates", "10"]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.last_error().contains("worker number out of range"), "{end:?}");
}

#[test]
fn a_truncated_npy_is_one_clear_line() {
    let ps = Ps::start(1, &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.npy");
    std::fs::write(&path, b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'sha").unwrap();
    let end = WorkerProcess::start(ps.addr, 0, &["--input", path.to_str().unwrap()]).finish();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.last_error().contains("cut.npy"), "{end:?}");
    assert_eq!(end.err.lines().count(), 1, "{end:?}");
}

#[test]
fn usage_errors_exit_with_2() {
    for args in [&["--coordinates", "10"][..], &["--nonsense"], &["--worker", "0", "--cookie", "1"]] {
        let end = thc_tests::run("thc-worker", args);
        assert_eq!(end.status.code(), Some(2), "{end:?}");
    }
}

#[test]
fn a_granularity_that_overflows_the_lane_is_refused() {
    let args = ["--job", "1", "--cookie", "1", "--workers", "9", "--granularity", "30", "--fraction", "1/32"];
    let end = thc_tests::run("thc-ps", &args);
    let error = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(2), "{error}");
    assert!(error.contains("270") && error.contains("lane"), "{error}");
}

/// Tensors travel as `--plan` says, all workers alike; workers that say otherwise, and tables that there are not, are a line.
#[test]
fn a_plan_says_as_what_a_tensor_travels() {
    let dir = tempfile::tempdir().unwrap();
    let ps = Ps::start(2, &["--tables", "bits=2,table_id=7"]);
    let inputs = inputs(dir.path(), &[100_000, 100_000]);
    let up = |plan: &str| {
        let ends = all_reduce(&ps, &inputs, &["--plan", plan]);
        all_well(&ends);
        let outputs = outputs(&inputs);
        assert_eq!(outputs[0], outputs[1], "{plan}");
        ends[0].json()["bytes_per_coordinate_up"].as_f64().unwrap()
    };
    let (four, two, raw, mixed) = (up("4/8"), up("7"), up("raw"), up("2/8:51200,raw"));
    assert!(
        two < 0.33 && four > 0.54 && raw > 4.0 && (2.0..2.5).contains(&mixed),
        "{two} {four} {raw} {mixed}"
    );
    let none = all_reduce(&ps, &inputs, &["--plan", "3/8"]);
    assert!(
        none.iter()
            .all(|end| end.code == Some(1) && end.err.contains("the job has no table 3/8: its tables are")),
        "{none:?}"
    );
    let differ: Vec<WorkerProcess> = ["7", "7:51200,7"]
        .iter()
        .zip(0..)
        .map(|(plan, number)| {
            WorkerProcess::start(ps.addr, number, &["--coordinates", "100000", "--plan", plan])
        })
        .collect();
    for end in differ.into_iter().map(WorkerProcess::finish) {
        assert!(end.code == Some(1) && end.err.contains("called different all-reduces"), "{end:?}");
    }
}
