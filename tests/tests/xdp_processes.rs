//! Worker processes and a parameter server process over AF_XDP on veth, each in a network namespace of its own. What
//! comes out is compared, bit for bit, with what comes out over kernel UDP on the same interfaces.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Finished, Host, Network, Ps, WorkerProcess, binary, write_gradients};

const XDP: [&str; 4] = ["--io", "xdp", "--xdp-device", "eth0"];
const PORT: u16 = 9000;

/// So many hosts, the first of which is the server's, with their addresses. `None`, with a line that says why, where
/// the kernel does not permit what this takes.
fn network(hosts: u8) -> Option<Network> {
    let network = Network::star(hosts).and_then(|network| {
        network.hosts().iter().try_for_each(Host::assign)?;
        check_permission(network.host(0)).map(|()| network)
    });
    network.map_err(|reason| println!("not run: {reason}")).ok()
}

/// Whether a server opens an interface here.
fn check_permission(host: &Host) -> Result<(), String> {
    let output = doctor(host, &["--patience", "1ms", "--ps", "10.77.0.250:9000"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
    let checks = report["checks"].as_array().ok_or("no checks")?;
    let found = checks.iter().filter_map(|check| check["found"].as_str());
    let refusal =
        found.into_iter().find(|found| found.contains("not permitted") || found.contains("no AF_XDP"));
    refusal.map_or(Ok(()), |refusal| Err(refusal.to_owned()))
}

fn doctor(host: &Host, more: &[&str]) -> Output {
    host.command(&binary("thc-worker")).args(["doctor", "--json"]).args(XDP).args(more).output().unwrap()
}

fn server_address(host: &Host) -> SocketAddr {
    SocketAddr::from((host.address, PORT))
}

fn files(input: &Path) -> Vec<String> {
    let output = input.with_extension("out");
    ["--json", "--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()]
        .map(String::from)
        .to_vec()
}

/// A worker on each host behind the first, as `flags` says of its number, to the end; what each wrote.
fn all_reduce<'a>(
    network: &Network,
    ps: &Ps,
    inputs: &[PathBuf],
    flags: impl Fn(u8) -> &'a [&'a str],
) -> (Vec<Vec<u8>>, Vec<Finished>) {
    let start = |(number, input): (u8, &PathBuf)| {
        let files = files(input);
        let mut all: Vec<&str> = files.iter().map(String::as_str).collect();
        all.extend(flags(number));
        WorkerProcess::start_on(Some(network.host(usize::from(number) + 1)), ps.addr, number, &all)
    };
    let workers: Vec<WorkerProcess> = (0u8..).zip(inputs).map(start).collect();
    outcome(workers.into_iter().map(WorkerProcess::finish).collect(), inputs)
}

fn outcome(ends: Vec<Finished>, inputs: &[PathBuf]) -> (Vec<Vec<u8>>, Vec<Finished>) {
    for end in &ends {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let outputs = inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap());
    (outputs.collect(), ends)
}

/// What `ip -d link` says of a host's interface.
fn link(host: &Host, device: &str) -> String {
    let output = host.command(Path::new("ip")).args(["-d", "link", "show", device]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Kernel UDP, AF_XDP with either kind of program, both together, and loss: the same mean.
#[test]
fn af_xdp_brings_the_mean_of_kernel_udp() {
    const WORKERS: u8 = 3;
    let Some(network) = network(WORKERS + 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, 1_000_000);
    let server = network.host(0);
    let ps = Ps::start_on(Some(server), server_address(server), WORKERS, &[]);
    let (outputs, _) = all_reduce(&network, &ps, &inputs, |_| &[]);
    let expected = outputs[0].clone();
    assert!(outputs.iter().all(|output| *output == expected));
    // The server by the kernel, all workers past it.
    let (outputs, _) = all_reduce(&network, &ps, &inputs, |_| &XDP);
    assert!(outputs.iter().all(|output| *output == expected), "another mean with workers over AF_XDP");
    drop(ps);
    for generic in [false, true] {
        let flags = if generic { [&XDP[..], &["--xdp-generic"]].concat() } else { XDP.to_vec() };
        let ps = Ps::start_on(Some(server), server_address(server), WORKERS, &flags);
        let (outputs, _) = all_reduce(&network, &ps, &inputs, |_| &flags);
        assert!(outputs.iter().all(|output| *output == expected), "another mean, generic: {generic}");
        let mixed = |number| if number == 0 { &[][..] } else { &XDP };
        let (outputs, _) = all_reduce(&network, &ps, &inputs, mixed);
        assert!(outputs.iter().all(|output| *output == expected), "another mean with a kernel's worker");
        let lossy = [&flags[..], &["--inject", "loss=0.01"]].concat();
        let (outputs, ends) = all_reduce(&network, &ps, &inputs, |_| &lossy);
        assert!(outputs.iter().all(|output| *output == expected), "another mean with loss");
        assert!(ends[0].json()["stats"]["retransmissions"].as_u64().unwrap() > 0);
    }
}

/// Killed in the middle, the server leaves its interface as it was, and its successor goes on.
#[test]
fn a_killed_server_leaves_nothing_and_its_successor_goes_on() {
    const WORKERS: u8 = 2;
    let Some(network) = network(WORKERS + 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, 1 << 20);
    let server = network.host(0);
    let flags = ["--repeat", "30"];
    let ps = Ps::start_on(Some(server), server_address(server), WORKERS, &[]);
    let (outputs, _) = all_reduce(&network, &ps, &inputs, |_| &flags);
    let expected = outputs[0].clone();
    drop(ps);
    assert!(!link(server, "eth0").contains("prog/xdp"));
    let mut ps = Ps::start_on(Some(server), server_address(server), WORKERS, &XDP);
    assert!(link(server, "eth0").contains("thc_redirect"), "{}", link(server, "eth0"));
    let start = |(number, input): (u8, &PathBuf)| {
        let (ps, worker) = (ps.addr.to_string(), number.to_string());
        let mut all: Vec<String> =
            ["--ps", &ps, "--cookie", COOKIE, "--worker", &worker].map(String::from).to_vec();
        all.extend(files(input).split_off(1));
        all.extend(XDP.iter().chain(&flags).map(ToString::to_string));
        Followed::start(Some(network.host(usize::from(number) + 1)), &all)
    };
    let mut workers: Vec<Followed> = (0u8..).zip(&inputs).map(start).collect();
    workers.iter().for_each(Followed::until_first_step);
    ps.kill();
    assert!(!link(server, "eth0").contains("prog/xdp"), "the program stays behind");
    std::thread::sleep(Duration::from_millis(50));
    ps.kill_and_restart();
    let ended = workers.iter_mut().any(|worker| worker.exit_status().is_some());
    let (outputs, _) = outcome(workers.into_iter().map(Followed::finish).collect(), &inputs);
    assert!(!ended, "the kill came too late to show anything");
    assert!(outputs.iter().all(|output| *output == expected));
}

/// What is for other ports, and for other addresses, is the kernel's as before.
#[test]
fn everything_else_reaches_the_kernel() {
    let Some(network) = network(3) else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), 2, 100_000);
    let server = network.host(0);
    server.ip("addr add 10.77.0.100/24 dev eth0").unwrap();
    let beyond = Ps::start_on(Some(server), server_address(server), 2, &XDP);
    // The kernel's: the next port, and the same port of the other address.
    for address in [SocketAddr::from((server.address, PORT + 1)), SocketAddr::from(([10, 77, 0, 100], PORT))]
    {
        let ps = Ps::start_on(Some(server), address, 2, &[]);
        let (outputs, _) = all_reduce(&network, &ps, &inputs, |_| &[]);
        assert_eq!(outputs[0], outputs[1]);
        let (over, _) = all_reduce(&network, &beyond, &inputs, |_| &XDP);
        assert_eq!(outputs, over);
    }
}

/// Two shards with a queue each, on a cable whose ends have two queues, and a worker that has both.
#[test]
fn shards_have_a_queue_each() {
    let Some(network) = network(2) else { return };
    let (server, client) = (network.host(0), network.host(1));
    let mut words = client.command(Path::new("x"));
    let name = words.get_args().nth(2).unwrap().to_str().unwrap().to_owned();
    words.env_clear();
    let cable = format!(
        "link add d0 numrxqueues 2 numtxqueues 2 type veth peer name d0 numrxqueues 2 numtxqueues 2 netns {name}"
    );
    server.ip(&cable).unwrap();
    for (host, number) in [(server, 1), (client, 2)] {
        for args in ["-L d0 rx 2 tx 2", "-K d0 tx off"] {
            let output = host.command(Path::new("ethtool")).args(args.split(' ')).output().unwrap();
            // It may have had two.
            assert!(output.status.success() || args.contains("-L"), "{output:?}");
        }
        host.ip(&format!("addr add 10.79.0.{number}/24 dev d0")).unwrap();
        host.ip("link set d0 up").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), 1, 1_000_000);
    let address = SocketAddr::from(([10, 79, 0, 1], PORT));
    let mut means = Vec::new();
    for flags in [&["--shards", "2"][..], &["--shards", "2", "--io", "xdp", "--xdp-device", "d0"]] {
        let ps = Ps::start_on(Some(server), address, 1, flags);
        let (outputs, ends) = all_reduce(&network, &ps, &inputs, |_| &flags[2..]);
        println!("{} packets sent again", ends[0].json()["stats"]["retransmissions"]);
        assert!(!ps.log().contains("other shards"), "{}", ps.log());
        means.extend(outputs);
    }
    assert_eq!(means[0], means[1]);
    // As many shards as queues, or one.
    let output = host_fails(server, &["--shards", "3", "--io", "xdp", "--xdp-device", "d0"]);
    assert!(output.contains("3 shards need 3 queues of d0, one each, and it has 2"), "{output}");
}

/// What a server says that cannot be started.
fn host_fails(host: &Host, flags: &[&str]) -> String {
    let mut command = host.command(&binary("thc-ps"));
    command.args(["--job", "1", "--workers", "1", "--cookie", COOKIE]).args(flags).env("NO_COLOR", "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let Some(network) = network(2) else { return };
    let (server, client) = (network.host(0), network.host(1));
    let on = |device| ["--io", "xdp", "--xdp-device", device];
    let more = |more: &[&'static str]| [&XDP[..], more].concat();
    let cases = [
        (on("eth7").to_vec(), "there is no interface eth7 here: use one of eth0"),
        (on("lo").to_vec(), "lo is not an Ethernet interface"),
        (more(&["--listen", "10.77.0.99:9000"]), "10.77.0.99 is not an address of eth0: use 10.77.0.1"),
        (more(&["--listen", "127.0.0.1:9000"]), "127.0.0.1 is not an address of eth0"),
        (more(&["--xdp-queues", "100"]), "queues, 100 were asked for"),
        (more(&["--xdp-zero-copy"]), "eth0's driver does not do zero copy: leave --xdp-zero-copy out"),
    ];
    for (flags, says) in &cases {
        let said = host_fails(server, flags);
        assert!(said.contains(says), "{said}");
    }
    let ps = Ps::start_on(Some(server), server_address(server), 1, &XDP);
    let said = host_fails(server, &more(&["--listen", "10.77.0.1:9100"]));
    assert!(said.contains("eth0 has another XDP program, with the number "), "{said}");
    // The doctor finds the server, and whom nobody answers for.
    let finding = |ps: &str| {
        let output = doctor(client, &["--ps", ps, "--cookie", COOKIE, "--patience", "2s"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["io"], "xdp");
        let checks = report["checks"].as_array().unwrap().clone();
        let check = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap().clone();
        assert_eq!(check("device")["verdict"], "ok", "{report}");
        (check("server")["verdict"].clone(), check("server")["found"].as_str().unwrap().to_owned())
    };
    let (verdict, found) = finding(&ps.addr.to_string());
    assert!(verdict == "ok" && found.contains("1 workers, cookie right"), "{found}");
    let (verdict, found) = finding("10.77.0.200:9000");
    assert!(verdict == "wrong" && found.contains("nobody answers ARP"), "{found}");
    server.ip("link set eth0 down").unwrap();
    drop(ps);
    assert!(host_fails(server, &XDP).contains("eth0 is down: ip link set dev eth0 up"));
    server.ip("link set eth0 up").unwrap();
    server.release().unwrap();
    assert!(host_fails(server, &XDP).contains("eth0 has no IPv4 address: ip addr add"));
}
