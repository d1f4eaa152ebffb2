//! A server in shares (`thc-ps --share`).
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thc_codec::table::choose;
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, free_ports, write_gradients};

const WORKERS: u8 = 4;
const REPEAT: &str = "12";

/// Where so many shares are on this machine.
fn places(count: u16) -> Vec<SocketAddr> {
    let first = free_ports(count);
    (first..first + count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
}

fn list(places: &[SocketAddr]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What a worker does: means with error feedback.
fn work(number: u8, input: &Path) -> Vec<String> {
    let output = input.with_extension("out");
    let (input, output, number) = (input.to_str().unwrap(), output.to_str().unwrap(), number.to_string());
    let flags = ["--cookie", COOKIE, "--worker", &number, "--input", input, "--output", output];
    flags.iter().chain(&["--repeat", REPEAT, "--error-feedback"]).map(|&flag| flag.to_owned()).collect()
}

/// The means of these inputs, by workers with these flags before their work.
fn means(inputs: &[PathBuf], flags: &[&str]) -> Vec<Vec<u8>> {
    let start = |(number, input): (u8, &PathBuf)| {
        let work = work(number, input);
        let all: Vec<&str> = flags.iter().copied().chain(work.iter().map(String::as_str)).collect();
        WorkerProcess::with_flags(None, &all)
    };
    let workers: Vec<WorkerProcess> = (0u8..).zip(inputs).map(start).collect();
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    read(inputs, &ends)
}

fn read(inputs: &[PathBuf], ends: &[Finished]) -> Vec<Vec<u8>> {
    ends.iter().for_each(|end| assert_eq!(end.code, Some(0), "{end:?}"));
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

/// The table that a server chooses for so many workers, as flags.
fn table() -> [String; 4] {
    let table = choose(4, 8, WORKERS.into()).unwrap().table;
    [
        "--granularity".into(),
        table.granularity().to_string(),
        "--fraction".into(),
        table.fraction().to_string(),
    ]
}

/// The means that one server gives without faults.
fn reference(inputs: &[PathBuf]) -> Vec<u8> {
    let table = table();
    let ps = Ps::start(WORKERS, &table.each_ref().map(String::as_str));
    let means = means(inputs, &["--ps", &ps.addr.to_string()]);
    assert!(means.iter().all(|mean| *mean == means[0]));
    means.into_iter().next().unwrap()
}

/// P44: one server, and shares, whose sums come down in fewer bits than they are added in.
#[test]
fn packed_sums_change_no_bit_whatever_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 300_001);
    let usual = ["--granularity", "30", "--fraction", "1/32"];
    let of_server = |flags: &[&str]| {
        let ps = Ps::start(WORKERS, flags);
        means(&inputs, &["--ps", &ps.addr.to_string()])
    };
    let faults = ["--inject", "loss=0.01,duplicate=0.01,reorder=0.01"];
    let one = of_server(&[&usual[..], &["--lane", "8"]].concat());
    assert!(one.iter().all(|mean| *mean == one[0]));
    assert!(of_server(&[&usual[..], &["--lane", "7"], &faults].concat()) == one);
    // 8-bit indices: sums of 10 bits in lanes of 16.
    let eight = ["--bits", "8", "--granularity", "255", "--fraction", "1/512"];
    let wide = of_server(&[&eight[..], &["--lane", "16"]].concat());
    assert!(of_server(&[&eight[..], &["--lane", "10"], &faults].concat()) == wide);
    // Shares, with the best table for 6 bits.
    let best = choose(4, 6, WORKERS.into()).unwrap().table;
    let best = [best.granularity().to_string(), best.fraction().to_string()];
    let eight = of_server(&["--granularity", &best[0], "--fraction", &best[1], "--lane", "8"]);
    let places = places(3);
    let flags = ["--granularity", &best[0], "--fraction", &best[1], "--lane", "6"];
    let _servers = shares(&places, &flags);
    assert!(means(&inputs, &["--ps", &places[0].to_string(), "--inject", "loss=0.01"]) == eight);
}

#[test]
fn shares_change_no_bit_whatever_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 700_001);
    let one = reference(&inputs);
    for (count, more) in [(4, &[][..]), (3, &["--inject", "loss=0.01,duplicate=0.01,reorder=0.01"])] {
        let places = places(count);
        let _servers = shares(&places, &table().each_ref().map(String::as_str));
        let first = places[0].to_string();
        let flags = [&["--ps", &first], more].concat();
        assert!(means(&inputs, &flags).iter().all(|mean| *mean == one), "{count} shares");
    }
}

/// Servers at these places that have these flags, each with its share.
fn shares(places: &[SocketAddr], more: &[&str]) -> Vec<Ps> {
    let at = list(places);
    let start = |(share, &place): (usize, &SocketAddr)| {
        let share = format!("{share}/{}", places.len());
        let mut flags = vec!["--share", &share, "--shares", &at];
        flags.extend(more);
        Ps::start_on(None, place, WORKERS, &flags)
    };
    places.iter().enumerate().map(start).collect()
}

#[test]
fn a_killed_and_restarted_share_changes_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 3_000_000);
    let one = reference(&inputs);
    let places = places(3);
    let mut servers = shares(&places, &table().each_ref().map(String::as_str));
    let start = |(number, input): (u8, &PathBuf)| {
        let to = ["--ps".to_owned(), places[0].to_string()];
        Followed::start(None, &[&to[..], &work(number, input)].concat())
    };
    let mut workers: Vec<Followed> = (0u8..).zip(&inputs).map(start).collect();
    workers.iter().for_each(Followed::until_first_step);
    let mut kills = 0;
    for (share, pause) in [(2, 5), (0, 60), (1, 40)] {
        std::thread::sleep(Duration::from_millis(pause));
        if workers.iter_mut().all(|worker| worker.exit_status().is_some()) {
            break;
        }
        servers[share].kill_and_restart();
        kills += 1;
    }
    let ends: Vec<Finished> = workers.into_iter().map(Followed::finish).collect();
    assert!(kills > 0);
    assert!(read(&inputs, &ends).iter().all(|mean| *mean == one), "{kills} kills");
}

/// Workers that have begun to reduce at shares of a server, with these flags.
fn start_workers(inputs: &[PathBuf], places: &[SocketAddr], more: &[&str]) -> Vec<Followed> {
    let start = |(number, input): (u8, &PathBuf)| {
        let at = places[0].to_string();
        let to = ["--ps", &at].iter().chain(more).map(|&flag| flag.to_owned()).collect();
        Followed::start(None, &[to, work(number, input)].concat())
    };
    let workers: Vec<Followed> = (0u8..).zip(inputs).map(start).collect();
    workers.iter().for_each(Followed::until_first_step);
    workers
}

#[test]
fn shares_that_are_all_gone_are_named_within_the_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, 3_000_000);
    let places = places(2);
    let mut servers = shares(&places, &table().each_ref().map(String::as_str));
    let workers = start_workers(&inputs, &places, &["--timeout", "3s"]);
    servers.iter_mut().for_each(Ps::kill);
    for end in workers.into_iter().map(Followed::finish) {
        let said = end.last_error();
        assert_eq!(end.code, Some(1), "{end:?}");
        let named = places
            .iter()
            .any(|at| said.contains(&format!("nobody listens on {at} (UDP), refused for 3.0 s")));
        assert!(named, "{end:?}");
    }
}

#[test]
fn a_worker_that_asks_the_wrong_share_is_told() {
    let places = places(2);
    let servers = shares(&places, &[]);
    let end = WorkerProcess::start(servers[1].addr, 0, &["--coordinates", "9"]).finish();
    let says = "not the job's first share, where workers join";
    assert!(end.code == Some(1) && end.last_error().contains(says), "{end:?}");
}
