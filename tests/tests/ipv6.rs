//! Hosts that have IPv6 addresses alone, over kernel UDP.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use thc_tests::followed::Followed;
use thc_tests::{COOKIE, Host, Network, Ps, binary, write_gradients};

const WORKERS: u8 = 2;
const COORDINATES: usize = 700_001;
/// The table of [`Ps::start`].
const TABLE: &[&str] = &["--granularity=30", "--fraction=1/32"];

/// Hosts that have no IPv4 address.
fn hosts(count: u8) -> Option<Network> {
    let network = Network::star(count).and_then(|network| {
        network.hosts().iter().try_for_each(Host::assign_v6)?;
        Ok(network)
    });
    network.map_err(|reason| println!("not run: {reason}")).ok()
}

fn server_address(host: &Host) -> SocketAddr {
    SocketAddr::from((host.address_v6, 9000))
}

/// A worker on a host, which averages its file so often.
fn start(host: &Host, number: u8, input: &Path, flags: &[String]) -> Followed {
    let mut all = vec![
        format!("--worker={number}"),
        format!("--cookie={COOKIE}"),
        format!("--input={}", input.display()),
        format!("--output={}", input.with_extension("out").display()),
        "--repeat=12".to_owned(),
        "--join-timeout=20s".to_owned(),
    ];
    all.extend_from_slice(flags);
    Followed::start(Some(host), &all)
}

fn outputs(inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

/// What workers get of a server on the loopback, over IPv4.
fn over_ipv4(inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    let ps = Ps::start(WORKERS, &[]);
    let workers: Vec<Followed> = (0u8..)
        .zip(inputs)
        .map(|(number, input)| {
            let mut flags = vec![format!("--ps={}", ps.addr), format!("--worker={number}")];
            flags.push(format!("--cookie={COOKIE}"));
            flags.push(format!("--input={}", input.display()));
            flags.push(format!("--output={}", input.with_extension("out").display()));
            flags.push("--repeat=12".to_owned());
            Followed::start(None, &flags)
        })
        .collect();
    for end in workers.into_iter().map(Followed::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    outputs(inputs)
}

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let Some(network) = hosts(WORKERS + 1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, COORDINATES);
    let expected = over_ipv4(&inputs);
    let server = network.host(0);
    // On every address, of both kinds; the other way is to name the one.
    for listen in [SocketAddr::from(([0; 16], 9000)), server_address(server)] {
        let flags = [format!("--ps={}", server_address(server))];
        let mut ps = Ps::start_on(Some(server), listen, WORKERS, &["--shards=2"]);
        let workers: Vec<Followed> = (0u8..)
            .zip(&inputs)
            .map(|(number, input)| start(network.host(usize::from(number) + 1), number, input, &flags))
            .collect();
        workers.iter().for_each(Followed::until_first_step);
        ps.kill_and_restart();
        for end in workers.into_iter().map(Followed::finish) {
            assert_eq!(end.code, Some(0), "{end:?}\n{}", ps.log());
        }
        assert!(outputs(&inputs) == expected);
    }
}

#[test]
fn each_worker_has_a_share_beside_it() {
    let Some(network) = hosts(WORKERS) else { return };
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, COORDINATES);
    let list: Vec<String> = network.hosts().iter().map(|host| server_address(host).to_string()).collect();
    let shares = network.hosts().iter().enumerate().map(|(share, host)| {
        let flags = [format!("--share={share}/{WORKERS}"), format!("--shares={}", list.join(","))];
        Ps::start_on(Some(host), server_address(host), WORKERS, &flags.each_ref().map(String::as_str))
    });
    let _servers: Vec<Ps> = shares.collect();
    let flags = [format!("--ps={}", list[0])];
    let workers: Vec<Followed> = (0u8..)
        .zip(&inputs)
        .map(|(number, input)| start(network.host(number.into()), number, input, &flags))
        .collect();
    for end in workers.into_iter().map(Followed::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let [one, other] = &outputs(&inputs)[..] else { panic!() };
    assert!(one == other && one.len() == 4 * COORDINATES);
}

#[test]
fn the_root_of_racks_is_elsewhere() {
    let Some(network) = hosts(WORKERS + 2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), WORKERS, COORDINATES);
    // A rack of both workers, whose root is on another host.
    let expected = over_ipv4(&inputs);
    let (root_host, rack_host) = (network.host(0), network.host(3));
    let root = Ps::of_host(Some(root_host), server_address(root_host), &[&["--racks=2"], TABLE].concat());
    let up = format!("--root={}", server_address(root_host));
    let rack = Ps::of_host(
        Some(rack_host),
        server_address(rack_host),
        &[&["--racks=2", "--rack=0", &up], TABLE].concat(),
    );
    let flags = [format!("--ps={}", server_address(rack_host))];
    let workers: Vec<Followed> = (0u8..)
        .zip(&inputs)
        .map(|(number, input)| start(network.host(usize::from(number) + 1), number, input, &flags))
        .collect();
    for end in workers.into_iter().map(Followed::finish) {
        assert_eq!(end.code, Some(0), "{end:?}\n{}\n{}", root.log(), rack.log());
    }
    assert!(outputs(&inputs) == expected);
}

#[test]
fn the_doctor_finds_the_way_and_what_is_wrong_has_one_clear_error() {
    let Some(network) = hosts(2) else { return };
    let (server, host) = (network.host(0), network.host(1));
    let _ps = Ps::start_on(Some(server), server_address(server), 1, &[]);
    let doctor = |ps: String| {
        let mut command = host.command(&binary("thc-worker"));
        command.args(["doctor", &format!("--ps={ps}"), "--worker=0", &format!("--cookie={COOKIE}")]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = doctor(server_address(server).to_string());
    assert!(code == Some(0) && text.contains("MTU 1500") && text.contains("cookie right"), "{text}");
    let (code, text) = doctor("[2001:db8::7]:9000".to_owned());
    assert!(code != Some(0) && text.contains("no route to 2001:db8::7"), "{text}");
    let failed = |program: &str, flags: &[&str]| {
        let output = Command::new(binary(program)).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = failed("thc-worker", &["--ps=[fe80::1]:9000", "--worker=0", "--cookie=5", "--coordinates=8"]);
    assert!(text.contains("link-local"), "{text}");
    let text = failed("thc-ps", &["--listen=[fe80::1]:9000", "--workers=1", "--cookie=5"]);
    assert!(text.contains("link-local"), "{text}");
    let mixed = ["--share=0/2", "--shares=10.0.0.1:9000,[fd00::1]:9000"];
    let text = failed("thc-ps", &[&mixed[..], &["--job=1", "--workers=2", "--cookie=5"]].concat());
    assert!(text.contains("all of them IPv6"), "{text}");
}
