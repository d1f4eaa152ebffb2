//! Worker processes and a parameter server process over DPDK devices that need no NIC: shared memory (net_memif),
//! one link per worker, and packet sockets on veth (net_af_packet), one network namespace per process. What comes out
//! is compared, bit for bit, with what comes out over kernel UDP.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thc_tests::{COOKIE, Finished, Host, Network, PREFIX_LEN, Ps, WorkerProcess, binary, write_gradients};

const WORKERS: u8 = 4;
/// 16 MiB.
const COORDINATES: usize = 4 << 20;

/// What joins the processes.
enum Carrier {
    /// A folder with the socket where the links meet.
    Memif(tempfile::TempDir),
    /// The server on the first host, worker w on host w + 1.
    AfPacket(Network),
}

impl Carrier {
    fn memif() -> Option<Carrier> {
        built_in().then(|| Carrier::Memif(tempfile::tempdir().unwrap()))
    }

    fn af_packet() -> Option<Carrier> {
        if !built_in() {
            return None;
        }
        match Network::star(WORKERS + 1) {
            Ok(network) => Some(Carrier::AfPacket(network)),
            Err(reason) => {
                println!("not run: {reason}");
                None
            }
        }
    }

    /// The host of the server (0) or of worker `end` - 1.
    fn host(&self, end: u8) -> Option<&Host> {
        match self {
            Carrier::Memif(_) => None,
            Carrier::AfPacket(network) => Some(network.host(usize::from(end))),
        }
    }

    fn address(&self, end: u8) -> Ipv4Addr {
        self.host(end).map_or(Ipv4Addr::new(10, 78, 0, end + 1), |host| host.address)
    }

    /// The flags of one end, for so many workers.
    fn flags(&self, end: u8, workers: u8) -> Vec<String> {
        let mut flags: Vec<String> = ["--io", "dpdk", "--dpdk-hugepages=false"].map(String::from).to_vec();
        flags.push(format!("--dpdk-address={}/{PREFIX_LEN}", self.address(end)));
        let devices: Vec<String> = match self {
            Carrier::AfPacket(_) => vec!["net_af_packet0,iface=eth0".into()],
            Carrier::Memif(folder) => {
                let socket = folder.path().join("memif.sock");
                let links = if end == 0 { 0..workers } else { end - 1..end };
                let role = if end == 0 { "server" } else { "client" };
                let device = |(number, link): (usize, u8)| {
                    let socket = socket.display();
                    format!("net_memif{number},role={role},id={link},socket-abstract=no,socket={socket}")
                };
                links.enumerate().map(device).collect()
            }
        };
        flags.extend(devices.into_iter().flat_map(|device| ["--dpdk-device".to_owned(), device]));
        flags
    }

    fn ps(&self, workers: u8, more: &[&str]) -> Ps {
        let flags = self.flags(0, workers);
        let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
        all.extend(more);
        Ps::start_on(self.host(0), SocketAddr::from((self.address(0), 9000)), workers, &all)
    }

    fn worker(&self, ps: &Ps, number: u8, more: &[&str]) -> WorkerProcess {
        let flags = self.flags(number + 1, 0);
        let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
        all.extend(more);
        WorkerProcess::start_on(self.host(number + 1), ps.addr, number, &all)
    }

    /// One worker per input, to the end; what each wrote.
    fn all_reduce(&self, ps: &Ps, inputs: &[PathBuf], more: &[&str]) -> (Vec<Vec<u8>>, Vec<Finished>) {
        let workers = (0u8..).zip(inputs).map(|(number, input)| {
            let files = files(input);
            let mut all: Vec<&str> = files.iter().map(String::as_str).collect();
            all.extend(more);
            self.worker(ps, number, &all)
        });
        outcome(workers.collect(), inputs)
    }
}

/// Whether the programs have DPDK; says so if not.
fn built_in() -> bool {
    let has = cfg!(feature = "dpdk");
    if !has {
        println!("not run: built without the feature dpdk (libdpdk-dev not found?)");
    }
    has
}

fn files(input: &Path) -> Vec<String> {
    let output = input.with_extension("out");
    ["--json", "--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()]
        .map(String::from)
        .to_vec()
}

fn outcome(workers: Vec<WorkerProcess>, inputs: &[PathBuf]) -> (Vec<Vec<u8>>, Vec<Finished>) {
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    for end in &ends {
        assert_eq!(end.code, Some(0), "{end:?}");
        assert!(!end.err.contains("packets never came back"), "{}", end.err);
    }
    let outputs = inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap());
    (outputs.collect(), ends)
}

/// The mean that kernel UDP brings.
fn reference(inputs: &[PathBuf], more: &[&str]) -> Vec<u8> {
    let ps = Ps::start(WORKERS, &[]);
    let workers = (0u8..).zip(inputs).map(|(number, input)| {
        let files = files(input);
        let mut all: Vec<&str> = files.iter().map(String::as_str).collect();
        all.extend(more);
        WorkerProcess::start(ps.addr, number, &all)
    });
    let (outputs, _) = outcome(workers.collect(), inputs);
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    inputs.iter().for_each(|input| std::fs::remove_file(input.with_extension("out")).unwrap());
    outputs.into_iter().next().unwrap()
}

fn retransmissions(ends: &[Finished]) -> u64 {
    ends.iter().map(|end| end.json()["stats"]["retransmissions"].as_u64().unwrap()).sum()
}

/// 16 MiB of four workers, undisturbed and with loss.
fn brings_the_same_mean(carrier: &Carrier) {
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    let expected = reference(&inputs, &[]);
    let ps = carrier.ps(WORKERS, &[]);
    let (outputs, ends) = carrier.all_reduce(&ps, &inputs, &[]);
    assert!(outputs.iter().all(|output| *output == expected), "another mean than over kernel UDP");
    println!("undisturbed: {} packets sent again", retransmissions(&ends));
    // The same processes' server, a second session, and packets that get lost in both directions.
    let (outputs, ends) = carrier.all_reduce(&ps, &inputs, &["--inject", "loss=0.01"]);
    assert!(outputs.iter().all(|output| *output == expected), "another mean with loss");
    println!("1 % lost: {} packets sent again", retransmissions(&ends));
    assert!(retransmissions(&ends) > 0);
}

/// A worker is killed in the middle, and one with the same number takes its place.
fn takes_a_killed_worker_back(carrier: &Carrier) {
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, 1 << 20);
    let more = ["--repeat", "30"];
    let expected = reference(&inputs, &more);
    let ps = carrier.ps(WORKERS, &[]);
    let start = |number: u8| {
        let files = files(&inputs[usize::from(number)]);
        let mut all: Vec<&str> = files.iter().map(String::as_str).collect();
        all.extend(more);
        all.push("--rejoin");
        carrier.worker(&ps, number, &all)
    };
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(start).collect();
    while !ps.log().contains("session formed") {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(100));
    workers[1].kill();
    workers[1] = start(1);
    let (outputs, ends) = outcome(workers, &inputs);
    assert!(outputs.iter().all(|output| *output == expected), "another mean after a restart");
    for (number, end) in ends.iter().enumerate() {
        assert_eq!(end.err.contains("joining anew"), number != 1, "{end:?}");
    }
    assert_eq!(ps.log().matches("session formed").count(), 2, "{}", ps.log());
}

#[test]
fn shared_memory_brings_the_same_mean() {
    if let Some(carrier) = Carrier::memif() {
        brings_the_same_mean(&carrier);
    }
}

#[test]
fn packet_sockets_bring_the_same_mean() {
    if let Some(carrier) = Carrier::af_packet() {
        brings_the_same_mean(&carrier);
    }
}

#[test]
fn shared_memory_takes_a_killed_worker_back() {
    if let Some(carrier) = Carrier::memif() {
        takes_a_killed_worker_back(&carrier);
    }
}

#[test]
fn packet_sockets_take_a_killed_worker_back() {
    if let Some(carrier) = Carrier::af_packet() {
        takes_a_killed_worker_back(&carrier);
    }
}

#[test]
fn kernel_workers_and_a_dpdk_server_and_the_other_way_round() {
    let Some(carrier) = Carrier::af_packet() else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, 300_000);
    let expected = reference(&inputs, &[]);
    // The server past the kernel, workers 0 and 1 by the kernel.
    let ps = carrier.ps(WORKERS, &[]);
    let start = |number: u8| {
        let files = files(&inputs[usize::from(number)]);
        let all: Vec<&str> = files.iter().map(String::as_str).collect();
        if number < 2 {
            let host = carrier.host(number + 1).unwrap();
            host.assign().unwrap();
            WorkerProcess::start_on(Some(host), ps.addr, number, &all)
        } else {
            carrier.worker(&ps, number, &all)
        }
    };
    let (outputs, _) = outcome((0..WORKERS).map(start).collect(), &inputs);
    assert!(outputs.iter().all(|output| *output == expected));
    drop(ps);
    // The server by the kernel, all workers past it.
    (1..3).for_each(|end| carrier.host(end).unwrap().release().unwrap());
    let host = carrier.host(0).unwrap();
    host.assign().unwrap();
    let ps = Ps::start_on(Some(host), SocketAddr::from((host.address, 9000)), WORKERS, &[]);
    let (outputs, _) = carrier.all_reduce(&ps, &inputs, &[]);
    assert!(outputs.iter().all(|output| *output == expected));
}

#[test]
fn the_doctor_asks_over_dpdk() {
    let Some(carrier) = Carrier::memif() else { return };
    let ps = carrier.ps(2, &[]);
    let doctor = |end: u8, at: &str, more: &[&str]| -> Value {
        let output = std::process::Command::new(binary("thc-worker"))
            .args(["doctor", "--json", "--ps", at, "--patience", "1s"])
            .args(carrier.flags(end, 0))
            .args(more)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    };
    let finding = |report: &Value, name: &str| -> (String, String) {
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{report}"));
        (check["verdict"].as_str().unwrap().to_owned(), check["found"].as_str().unwrap().to_owned())
    };
    let report = doctor(1, &ps.addr.to_string(), &["--cookie", COOKIE]);
    assert_eq!(report["io"], "dpdk");
    let (verdict, found) = finding(&report, "server");
    assert!(verdict == "ok" && found.contains("2 workers, cookie right"), "{found}");
    let (verdict, found) = finding(&report, "link");
    assert!(verdict == "ok" && found.contains("net_memif0 (net_memif) up"), "{found}");
    // An address that nobody has, on a link that works.
    let report = doctor(2, "10.78.0.200:9000", &[]);
    let (verdict, found) = finding(&report, "server");
    assert!(verdict == "wrong" && found.contains("nobody answers ARP"), "{found}");
}
