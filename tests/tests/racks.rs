//! Workers in racks below a root, as real processes (P34 to P39).
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, free_ports, run, write_gradients};

const REPEAT: [&str; 2] = ["--repeat", "12"];
const LONG: [&str; 2] = ["--repeat", "100000"];
/// The same table at every server: its sums fit 8 bits below, and 8 or 16 above.
const TABLE: [&str; 4] = ["--granularity", "30", "--fraction", "1/32"];

/// A root and its racks, in this order.
fn tree(sizes: &str, more: &[&str], faults: &[&str]) -> Vec<Ps> {
    let racks = sizes.split(',').count() as u16;
    let first = free_ports(racks + 1);
    let at = |server: u16| SocketAddr::from(([127, 0, 0, 1], first + server));
    let root = at(0).to_string();
    let table = if more.contains(&"--granularity") { &[][..] } else { &TABLE[..] };
    let common = [table, &["--racks", sizes], more, faults].concat();
    let mut servers = vec![Ps::listen_at(at(0), &common)];
    for rack in 0..racks {
        let number = rack.to_string();
        let flags = [&common[..], &["--rack", &number, "--root", &root]].concat();
        servers.push(Ps::listen_at(at(rack + 1), &flags));
    }
    servers
}

/// What a worker does: means with error feedback.
fn work(ps: SocketAddr, number: usize, input: &Path, more: &[&str]) -> Vec<String> {
    let output = input.with_extension("out");
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let (ps, number) = (ps.to_string(), number.to_string());
    let flags = ["--ps", &ps, "--cookie", COOKIE, "--worker", &number, "--input", input, "--output", output];
    let all = flags.iter().chain(&["--error-feedback"]).chain(more);
    all.map(|&flag| flag.to_owned()).collect()
}

/// One worker process for each input, dealt to the racks in order.
fn start(servers: &[Ps], sizes: &str, inputs: &[PathBuf], more: &[&str]) -> Vec<Followed> {
    let sizes = sizes.split(',').map(|size| size.parse::<usize>().unwrap());
    let places =
        sizes.zip(&servers[1..]).flat_map(|(size, rack)| (0..size).map(|number| (rack.addr, number)));
    places
        .zip(inputs)
        .map(|((ps, number), input)| Followed::start(None, &work(ps, number, input, more)))
        .collect()
}

fn means(inputs: &[PathBuf], ends: &[Finished]) -> Vec<Vec<u8>> {
    ends.iter().for_each(|end| assert_eq!(end.code, Some(0), "{end:?}"));
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

/// What one server gives without faults.
fn one_server(inputs: &[PathBuf], more: &[&str]) -> Vec<u8> {
    let ps = Ps::start(inputs.len() as u8, &[&TABLE[..], more].concat());
    let start =
        |(number, input): (usize, &PathBuf)| Followed::start(None, &work(ps.addr, number, input, &REPEAT));
    let ends: Vec<Finished> =
        inputs.iter().enumerate().map(start).collect::<Vec<_>>().into_iter().map(Followed::finish).collect();
    let means = means(inputs, &ends);
    assert!(means.iter().all(|mean| *mean == means[0]));
    means.into_iter().next().unwrap()
}

/// The means of a server in two shares.
fn means_of_shares(inputs: &[PathBuf], more: &[&str]) -> Vec<Vec<u8>> {
    let first = free_ports(2);
    let places = [first, first + 1].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let at = places.map(|place| place.to_string()).join(",");
    let servers = [("0/2", places[0]), ("1/2", places[1])];
    let servers = servers.map(|(share, place)| {
        Ps::start_on(None, place, inputs.len() as u8, &["--share", share, "--shares", &at])
    });
    let start = |(number, input): (usize, &PathBuf)| {
        let work = work(servers[0].addr, number, input, more);
        WorkerProcess::with_flags(None, &work.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let workers: Vec<WorkerProcess> = inputs.iter().enumerate().map(start).collect();
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    means(inputs, &ends)
}

#[test]
fn one_server_shares_and_racks_give_the_same_bits_whatever_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 4, 700_001);
    let one = one_server(&inputs, &["--lane", "8"]);
    let faults = ["--inject", "loss=0.005,duplicate=0.005,reorder=0.005"];
    for (sizes, lane, faults) in [("2,2", "8", &[][..]), ("1,3", "16", &faults), ("2,2", "8", &faults)] {
        let servers = tree(sizes, &["--lane", lane], faults);
        let ends =
            start(&servers, sizes, &inputs, &REPEAT).into_iter().map(Followed::finish).collect::<Vec<_>>();
        let means = means(&inputs, &ends);
        assert!(means.iter().all(|mean| *mean == one), "{sizes}, lanes of {lane} bits, {faults:?}");
    }
    assert!(means_of_shares(&inputs, &REPEAT).iter().all(|mean| *mean == one));
}

#[test]
fn killed_and_restarted_racks_and_roots_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 4, 3_000_000);
    let one = one_server(&inputs, &[]);
    let mut servers = tree("2,2", &[], &["--inject", "loss=0.001"]);
    let mut workers = start(&servers, "2,2", &inputs, &REPEAT);
    workers.iter().for_each(Followed::until_first_step);
    let mut kills = 0;
    for (server, pause) in [(0, 5), (2, 60), (1, 40), (0, 40)] {
        std::thread::sleep(Duration::from_millis(pause));
        if workers.iter_mut().all(|worker| worker.exit_status().is_some()) {
            break;
        }
        servers[server].kill_and_restart();
        kills += 1;
    }
    let ends: Vec<Finished> = workers.into_iter().map(Followed::finish).collect();
    assert!(kills > 0);
    assert!(means(&inputs, &ends).iter().all(|mean| *mean == one), "{kills} kills");
}

/// A worker that comes back ends the session on every rack, and all join anew.
#[test]
fn a_restarted_worker_ends_the_session_in_all_racks() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 3, 200_000);
    let servers = tree("2,1", &[], &[]);
    let mut workers = start(&servers, "2,1", &inputs, &LONG);
    workers.iter().for_each(Followed::until_first_step);
    let last = workers.remove(0);
    drop(last);
    let again = Followed::start(None, &work(servers[1].addr, 0, &inputs[0], &LONG));
    for end in workers.into_iter().map(Followed::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
        let said = end.last_error();
        assert!(said.contains("all workers must join anew"), "{said}");
    }
    drop(again);
}

#[test]
fn a_rack_that_is_gone_is_named_to_the_workers_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 3, 1_000_000);
    let mut servers = tree("2,1", &[], &[]);
    let workers = start(&servers, "2,1", &inputs, &[&LONG[..], &["--timeout", "2s"]].concat());
    workers.iter().for_each(Followed::until_first_step);
    servers[2].kill();
    let ends: Vec<Finished> = workers.into_iter().map(Followed::finish).collect();
    for end in &ends[..2] {
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.last_error().contains("still missing after 2.0 s: workers of rack 1"), "{end:?}");
    }
    let said = ends[2].last_error();
    assert!(said.contains(&format!("nobody listens on {} (UDP)", servers[2].addr)), "{said}");
}

/// The root is told of another job than its rack: workers hear of it, and so does the rack's operator.
#[test]
fn a_rack_whose_root_has_another_job_says_what_differs() {
    let first = free_ports(2);
    let at = |server: u16| SocketAddr::from(([127, 0, 0, 1], first + server));
    let racks = ["--racks", "1"];
    let _root = Ps::listen_at(at(0), &[&["--granularity", "20", "--fraction", "1/32"], &racks[..]].concat());
    let root = at(0).to_string();
    let rack = Ps::listen_at(at(1), &[&TABLE[..], &racks[..], &["--rack", "0", "--root", &root]].concat());
    let end = WorkerProcess::start(rack.addr, 0, &["--coordinates", "9"]).finish();
    assert!(
        end.code == Some(1) && end.last_error().contains("the rack's root does not let it in"),
        "{end:?}"
    );
    assert!(rack.log().contains("granularity 20 instead of 30"), "{}", rack.log());
    // Whoever is no rack is not taken for one.
    let end = WorkerProcess::start(at(0), 0, &["--coordinates", "9"]).finish();
    assert!(end.code == Some(1) && end.last_error().contains("give the address of a rack"), "{end:?}");
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--racks", "2,2", "--rack", "0", "--root", "127.0.0.1:7011", "--listen", "127.0.0.1:7011"],
            "root is 127.0.0.1:7011: that is where this rack listens itself",
        ),
        (
            &["--racks", "2,2", "--rack", "0", "--root", "127.0.0.1:7011", "--listen", "0.0.0.0:7011"],
            "root is 127.0.0.1:7011: that is where this rack listens itself",
        ),
        (&["--racks", "2,65"], "racks is 65 workers in rack 1: an aggregator has 1 to 64 members"),
        (&["--racks", &["1"; 65].join(",")], "racks is a list of 65: a root has 1 to 64 racks"),
        (
            &["--racks", "8,8", "--granularity", "30", "--fraction", "1/32", "--lane", "8"],
            "workers × granularity = 16 × 30 = 480 does not fit lanes of 8 bits",
        ),
        (
            &["--racks", &["64"; 64].join(","), "--granularity", "30", "--fraction", "1/32", "--lane", "16"],
            "workers × granularity = 4096 × 30 = 122880 does not fit lanes of 16 bits",
        ),
        (&["--racks", "2,2", "--lane", "4", "--bits", "1"], "lane is 4: racks need lanes of 8 or 16 bits"),
        (&["--racks", "2,3/2"], "racks is 3/2 in rack 1: the quorum of 2 workers is 1 to 2"),
        (&["--racks", "2,x"], "write 8 for 8 workers, or 7/8 for 8 of whom 7 complete a sum"),
        (&["--racks", "2,2", "--workers", "5"], "workers is 5: racks have 4 workers together"),
        (&["--racks", "2,2", "--quorum", "1"], "quorum is 1: racks have a quorum each"),
        (
            &["--racks", "2,2", "--rack", "2", "--root", "127.0.0.1:1"],
            "racks is a list of 2: rack is 2, and the last of 2 is 1",
        ),
        (&["--racks", "2,2", "--rack", "0"], "root is missing: say where the root is"),
        (&["--racks", "2,2", "--root", "127.0.0.1:1"], "rack is missing: say which of the root's racks"),
        (
            &["--workers", "2", "--rack", "0", "--root", "127.0.0.1:1"],
            "racks is missing: a rack's jobs name all racks",
        ),
        (
            &["--racks", "2,2", "--rack", "0", "--root", "127.0.0.1:1", "--shards", "2"],
            "shards is 2: a rack has one port",
        ),
    ];
    for (flags, says) in cases {
        let all = [&["--job", "1", "--cookie", COOKIE], *flags].concat();
        let end = run("thc-ps", &all);
        let said = String::from_utf8(end.stderr).unwrap();
        assert!(end.status.code() == Some(2) && said.contains(says), "{flags:?}: {said}");
        // A line, and what clap adds to one of its own.
        assert!(said.lines().count() == 1 || said.starts_with("error:"), "{said}");
    }
}
