//! A parameter server on 0.0.0.0 of a host with several addresses: answers come from the address that was asked, or
//! workers take them for somebody else's.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use thc_tests::followed::Followed;
use thc_tests::ready::Ready;
use thc_tests::{COOKIE, Ps, WorkerProcess, binary, free_port, free_ports, run, write_gradients};

const WORKERS: u8 = 3;

/// Starts a worker for each file, which asks the server at the address of its number: 127.0.0.2, …
fn start(inputs: &[PathBuf], port: u16, repeat: &str) -> Vec<Followed> {
    let one = |(number, input): (u8, &PathBuf)| {
        let output = input.with_extension("out");
        let ps = SocketAddr::from(([127, 0, 0, 2 + number], port));
        let flags = [
            format!("--ps={ps}"),
            format!("--worker={number}"),
            format!("--cookie={COOKIE}"),
            format!("--input={}", input.display()),
            format!("--output={}", output.display()),
            format!("--repeat={repeat}"),
            "--join-timeout=10s".to_owned(),
        ];
        Followed::start(None, &flags)
    };
    (0u8..).zip(inputs).map(one).collect()
}

fn outputs(inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    let read = |input: &PathBuf| std::fs::read(input.with_extension("out")).unwrap();
    inputs.iter().map(read).collect()
}

fn on_every_address(dir: &Path, kills: usize, flags: &[&str], repeat: &str) -> Vec<Vec<u8>> {
    let inputs = write_gradients(dir, WORKERS, 700_001);
    let port = free_ports(2);
    let mut ps = Ps::start_on(None, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), WORKERS, flags);
    let workers = start(&inputs, port, repeat);
    // All of them must know of the session, or there is nothing to resume.
    workers.iter().for_each(Followed::until_first_step);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(30));
        ps.kill_and_restart();
    }
    for end in workers.into_iter().map(Followed::finish) {
        assert_eq!(end.code, Some(0), "{end:?}\n{}", ps.log());
    }
    outputs(&inputs)
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (inputs, ps) = (write_gradients(dir.path(), WORKERS, 700_001), Ps::start(WORKERS, &[]));
    let one_address: Vec<WorkerProcess> = (0u8..)
        .zip(&inputs)
        .map(|(number, input)| {
            let output = input.with_extension("out");
            let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
            WorkerProcess::start(ps.addr, number, &["--input", input, "--output", output])
        })
        .collect();
    one_address.into_iter().for_each(|worker| assert_eq!(worker.finish().code, Some(0)));
    let expected = outputs(&inputs);
    assert_eq!(on_every_address(dir.path(), 0, &["--shards", "2"], "1"), expected);
}

#[test]
fn also_after_a_restart_and_with_faults() {
    let dir = tempfile::tempdir().unwrap();
    let once = on_every_address(dir.path(), 0, &[], "30");
    let flags = ["--shards", "2", "--inject", "loss=0.01,reorder=0.01"];
    let again = on_every_address(dir.path(), 2, &flags, "30");
    assert_eq!(again, once);
}

#[test]
fn a_refusal_comes_from_there_too() {
    let port = free_ports(1);
    let _ps = Ps::start_on(None, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), 2, &[]);
    let ps = SocketAddr::from(([127, 0, 0, 2], port));
    let args = ["--coordinates", "10", "--cookie", "0x99", "--join-timeout", "5s"];
    let end = WorkerProcess::start(ps, 0, &args).finish();
    assert!(end.last_error().contains("wrong cookie"), "{end:?}");
}

/// Under a controller workers are told the address, which need not be the one that the route back starts from.
#[test]
fn a_controller_tells_one_of_several_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let (udp, p4runtime, asked) = (free_ports(2), free_port(), free_port());
    let mut server = Command::new(binary("thc-ps"));
    server.args([format!("--listen=0.0.0.0:{udp}"), format!("--p4runtime=127.0.0.1:{p4runtime}")]);
    let server = Ready::start(server);
    let config = dir.path().join("controller.toml");
    let text = format!(
        "[controller]\nlisten = \"127.0.0.1:{asked}\"\nstate = \"{}\"\n[[target]]\nname = \"ps1\"\nelection_id = 1\n\
         address = \"http://127.0.0.1:{p4runtime}\"\nip = \"127.0.0.2\"\nudp_port = {udp}\n",
        dir.path().join("state").display()
    );
    std::fs::write(&config, text).unwrap();
    let mut controller = Command::new(binary("thc-controller"));
    controller.args(["run", "--config", config.to_str().unwrap()]);
    let controller = Ready::start(controller);
    let create = || {
        let asked = format!("127.0.0.1:{asked}");
        let args = ["job", "create", "train", "--workers", "2", "--controller", &asked];
        run("thc-controller", &args).status.success()
    };
    let started = Instant::now();
    while !create() {
        assert!(started.elapsed() < thc_tests::HANG, "{}", controller.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let ps = format!("--ps=thc://127.0.0.1:{asked}/train");
    let flags = [&ps, "--coordinates=100000", "--repeat=3", "--join-timeout=10s"];
    let workers: Vec<WorkerProcess> = (0..2).map(|_| WorkerProcess::with_flags(None, &flags)).collect();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}\n{}\n{}", server.log(), controller.log());
    }
}
