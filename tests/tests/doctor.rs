//! `thc-worker doctor` on this host, and in networks where something is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;
use thc_tests::{COOKIE, Host, Network, Ps, WorkerProcess, binary, free_port, run};

/// A finding by its name, and how the program ended.
fn doctor(host: Option<&Host>, name: &str, args: &[&str]) -> (Value, Option<i32>) {
    let binary = binary("thc-worker");
    let mut command = host.map_or_else(|| Command::new(&binary), |host| host.command(&binary));
    let output = command.args(["doctor", "--json"]).args(args).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("no {name} in {report}")).clone();
    assert_eq!(check["mend"].is_string(), check["verdict"] != "ok", "{check}");
    let wrong = checks.iter().any(|check| check["verdict"] == "wrong");
    assert_eq!(report["verdict"] == "wrong", wrong, "{report}");
    assert_eq!(output.status.code(), Some(i32::from(wrong)), "{report}");
    (check, output.status.code())
}

#[track_caller]
fn is(check: &Value, verdict: &str, says: &str) {
    assert_eq!(check["verdict"], verdict, "{check}");
    assert!(check["found"].as_str().unwrap().contains(says), "{check}");
}

#[test]
fn a_server_that_answers() {
    let ps = Ps::start(3, &[]);
    let addr = ps.addr.to_string();
    let (check, code) = doctor(None, "server", &["--ps", &addr, "--cookie", COOKIE, "--worker", "2"]);
    is(&check, "ok", "3 workers, cookie right");
    assert_eq!(code, Some(0), "this host would not do: {check}");
    // Neither was a place taken, nor is a probe something to warn of.
    assert!(!ps.log().contains("joined") && !ps.log().contains("refused"), "{}", ps.log());

    let cases: [(&[&str], &str, &str); 4] = [
        (&["--cookie", COOKIE, "--worker", "3"], "wrong", "no worker 3"),
        (&["--cookie", "0x99"], "wrong", "another cookie"),
        (&[], "warning", "no cookie was given"),
        (&["--job", "9"], "wrong", "has no job 9"),
    ];
    for (args, verdict, says) in cases {
        let mut all = vec!["--ps", &addr];
        all.extend(args);
        is(&doctor(None, "server", &all).0, verdict, says);
    }
}

#[test]
fn a_session_that_runs_is_not_disturbed() {
    let ps = Ps::start(2, &[]);
    let addr = ps.addr.to_string();
    let args = ["--coordinates", "1000000", "--repeat", "40"];
    let workers: Vec<WorkerProcess> =
        (0..2).map(|worker| WorkerProcess::start(ps.addr, worker, &args)).collect();
    while !ps.log().contains("session formed") {
        std::thread::sleep(Duration::from_millis(2));
    }
    is(&doctor(None, "server", &["--ps", &addr, "--cookie", COOKIE]).0, "ok", "2 workers");
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
}

/// It ends when the server is there, and when nobody reads its reports.
#[test]
fn doctor_watches_until_nothing_is_wrong() {
    let addr = format!("127.0.0.1:{}", free_port());
    let watch = |stdout: Stdio| {
        let mut command = Command::new(binary("thc-worker"));
        command.args(["doctor", "--watch", "--patience", "100ms", "--cookie", COOKIE, "--ps", &addr]);
        command.stdout(stdout).spawn().unwrap()
    };
    let closed = || std::io::pipe().unwrap().1.into();
    assert_eq!(watch(closed()).wait().unwrap().code(), Some(0));
    let mut doctor = watch(Stdio::piped());
    let mut reports = BufReader::new(doctor.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(reports.any(|line| line.starts_with("1 thing wrong")));
    let _ps = Ps::start_on(None, addr.parse().unwrap(), 1, &[]);
    assert!(reports.any(|line| line.contains("A run will work")));
    assert_eq!(doctor.wait().unwrap().code(), Some(0));
}

#[test]
fn silent_servers() {
    let addr = format!("127.0.0.1:{}", free_port());
    let (check, _) = doctor(None, "server", &["--ps", &addr, "--patience", "300ms"]);
    is(&check, "wrong", &format!("nobody listens on {addr} (UDP)"));
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = deaf.local_addr().unwrap().to_string();
    let (check, _) = doctor(None, "server", &["--ps", &addr, "--patience", "300ms"]);
    is(&check, "wrong", "(UDP) does not answer (2 probes in 300ms)");
}

#[test]
fn usage_and_text() {
    for args in [
        &["doctor", "--nonsense"][..],
        &["doctor", "--ps", "nowhere"],
        &["doctor", "--ps", "thc://127.0.0.1:9700/train"],
        &["doctor", "--patience", "5"],
    ] {
        let end = run("thc-worker", args);
        assert_eq!(end.status.code(), Some(2), "{end:?}");
    }
    let end = run("thc-worker", &["doctor", "--patience", "0s"]);
    let text = String::from_utf8(end.stdout).unwrap();
    // The MTU of loopback is 65,536, of which kernels report up to 65,535 for IPv4.
    assert!(text.contains("\n  ok       path         a route to 127.0.0.1, MTU 6553"), "{text}");
    assert!(!text.contains("server"), "{text}");
    let help = String::from_utf8(run("thc-worker", &["doctor", "--help"]).stdout).unwrap();
    assert!(help.contains("--dpdk-device") && !help.contains("--coordinates"), "{help}");
}

#[test]
fn dpdk_that_is_not_there() {
    let args = ["--io", "dpdk", "--dpdk-address", "10.77.0.9/24", "--patience", "0s"];
    let device = "net_af_packet0,iface=nosuch0";
    let mut all = args.to_vec();
    all.extend(["--dpdk-device", device]);
    if cfg!(feature = "dpdk") {
        is(&doctor(None, "device", &all).0, "wrong", "nosuch0, which is not an interface here");
    } else {
        let end = run("thc-worker", &[&["doctor"], &all[..]].concat());
        assert!(String::from_utf8(end.stderr).unwrap().contains("libdpdk-dev"));
    }
}

#[test]
fn a_driver_that_is_not_there() {
    if !cfg!(feature = "dpdk") {
        println!("not run: built without the feature dpdk (libdpdk-dev not found?)");
        return;
    }
    let flags = ["--io", "dpdk", "--dpdk-hugepages=false", "--dpdk-address", "10.77.0.9/24"];
    let mut all = flags.to_vec();
    all.extend(["--dpdk-device", "net_afpacket0,iface=lo"]);
    is(&doctor(None, "server", &all).0, "wrong", "not asked, because of what is wrong above");
    let end = run("thc-worker", &[&["doctor"], &all[..]].concat());
    let text = String::from_utf8(end.stdout).unwrap();
    let says =
        "wrong    device       cannot open device net_afpacket0,iface=lo: no installed driver has this name";
    assert!(text.contains(says), "{text}");
}

#[test]
fn paths_of_a_network() {
    let network = match Network::star(2) {
        Ok(network) => network,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let (server, client) = (network.host(0), network.host(1));
    let addr = SocketAddr::from((server.address, 9000));
    let text = addr.to_string();
    let args = ["--ps", &text, "--cookie", COOKIE, "--patience", "400ms"];
    is(&doctor(Some(client), "path", &args).0, "wrong", "no route");
    network.hosts().iter().for_each(|host| host.assign().unwrap());
    let ps = Ps::start_on(Some(server), addr, 2, &[]);
    is(&doctor(Some(client), "server", &args).0, "ok", "2 workers");
    is(&doctor(Some(client), "path", &args).0, "ok", "MTU 1500");
    client.ip("link set eth0 mtu 900").unwrap();
    is(&doctor(Some(client), "path", &args).0, "wrong", "takes packets of 900 bytes");
    client.ip("link set eth0 mtu 1500").unwrap();
    server.ip("link set eth0 down").unwrap();
    is(&doctor(Some(client), "server", &args).0, "wrong", "does not answer");
    client.ip("link set eth0 down").unwrap();
    is(&doctor(Some(client), "path", &args).0, "wrong", "no route");
    drop(ps);
}

/// A server on several addresses answers from the one that was asked.
#[test]
fn a_server_of_several_addresses() {
    let network = match Network::star(2) {
        Ok(network) => network,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let (server, client) = (network.host(0), network.host(1));
    network.hosts().iter().for_each(|host| host.assign().unwrap());
    server.ip("addr add 10.77.0.200/24 dev eth0").unwrap();
    let any = SocketAddr::from(([0, 0, 0, 0], 9000));
    let ps = Ps::start_on(Some(server), any, 2, &[]);
    for address in ["10.77.0.200", &server.address.to_string()] {
        let args = ["--ps", &format!("{address}:9000"), "--cookie", COOKIE, "--patience", "2s"];
        is(&doctor(Some(client), "server", &args).0, "ok", "2 workers");
    }
    drop(ps);
}

/// As through a translation of addresses that knows only one way.
#[test]
fn a_server_that_answers_from_another_address_is_found_out() {
    let ps = Ps::start(2, &[]);
    let [front, back, stranger] =
        ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"].map(|at| UdpSocket::bind(at).unwrap());
    let (asked, other) = (front.local_addr().unwrap(), stranger.local_addr().unwrap());
    front.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    back.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let relay = std::thread::spawn(move || {
        let mut packet = [0; 2048];
        while let Ok((len, client)) = front.recv_from(&mut packet) {
            back.send_to(&packet[..len], ps.addr).unwrap();
            let Ok(len) = back.recv(&mut packet) else { return };
            stranger.send_to(&packet[..len], client).unwrap();
        }
    });
    let (check, _) = doctor(None, "server", &["--ps", &asked.to_string(), "--patience", "300ms"]);
    is(&check, "wrong", &format!("{other} answers"));
    relay.join().unwrap();
}
