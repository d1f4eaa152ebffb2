//! Four worker processes, each on a host of its own behind a port of a real BMv2, whose control plane is a real
//! thc-controller: over kernel UDP and over DPDK's packet sockets they end with the bits that thc-ps gives them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_tests::{
    COOKIE, Network, PREFIX_LEN, Ps, Worker, binary, bmv2, free_port, switch_command, write_gradients,
};

const WORKERS: u8 = 4;
/// 1 MiB.
const COORDINATES: usize = 1 << 18;
/// The switch's own address in its network.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// The longest that a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);
/// BMv2 takes milliseconds for a packet, so there is no hurry to send one again.
const SLOWLY: [&str; 2] = ["--min-rto", "500ms"];

/// A process that is ended with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn switch(program: &Path, network: &Network, p4runtime: u16, folder: &Path) -> Running {
    let log = File::create(folder.join("switch.log")).unwrap();
    let mut command = switch_command(program, network.hosts(), p4runtime, folder);
    let output = log.try_clone().unwrap();
    let switch = Running(command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().unwrap());
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", p4runtime)).is_err() {
        assert!(started.elapsed() < PATIENCE, "{}", fs::read_to_string(folder.join("switch.log")).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    switch
}

fn controller(network: &Network, p4runtime: u16, folder: &Path) -> Running {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/thc.json").canonicalize().unwrap();
    let mut text = format!(
        "[controller]\nlisten = \"127.0.0.1:0\"\n\
         [[target]]\nname = \"switch\"\naddress = \"127.0.0.1:{p4runtime}\"\nip = \"{OWN}\"\n\
         device_config = {program:?}\npass_ports = [401, 402, 403, 404, 405, 406, 407]\n"
    );
    for (port, host) in (1..).zip(network.hosts()) {
        text += &format!("[[target.station]]\nmac = \"{}\"\nport = {port}\n", host.mac);
    }
    text += &format!(
        "[[job]]\njob = 1\ncookie = \"{COOKIE}\"\nworkers = {WORKERS}\ndata_slots = 64\n\
         granularity = 30\nfraction = \"1/32\"\n"
    );
    let config = folder.join("controller.toml");
    fs::write(&config, text).unwrap();
    let log = folder.join("controller.log");
    let mut child = Command::new(binary("thc-controller"))
        .args(["run", "--config", config.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let controller = Running(child);
    let ready = BufReader::new(output).lines().map_while(Result::ok).find(|line| line.starts_with("ready "));
    let address = ready.unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap()));
    let address = address.trim_start_matches("ready ").to_owned();
    // The job is made when the target is there.
    let started = Instant::now();
    loop {
        let list = Command::new(binary("thc-controller"))
            .args(["job", "show", "job-1", "--controller", &address])
            .output()
            .unwrap();
        if list.status.success() {
            return controller;
        }
        let said = String::from_utf8_lossy(&list.stderr);
        assert!(started.elapsed() < PATIENCE, "{said}{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts every worker and returns what each wrote.
fn all_reduce(inputs: &[PathBuf], mut start: impl FnMut(u8, &[&str]) -> Worker) -> Vec<Vec<u8>> {
    let workers: Vec<Worker> = (0..)
        .zip(inputs)
        .map(|(number, input)| {
            let output = input.with_extension("out");
            let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
            start(number, &[&files[..], &SLOWLY, &["--json"]].concat())
        })
        .collect();
    for worker in workers {
        let end = worker.finish();
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let read = |input: &PathBuf| {
        let output = input.with_extension("out");
        let bytes = fs::read(&output).unwrap();
        fs::remove_file(output).unwrap();
        bytes
    };
    inputs.iter().map(read).collect()
}

/// All programs of it, or why not.
fn parts() -> Result<(PathBuf, Network), String> {
    Ok((bmv2("simple_switch_grpc")?, Network::cabled(WORKERS)?))
}

#[test]
fn workers_on_hosts_behind_the_switch_get_what_thc_ps_gives() {
    let (program, network) = match parts() {
        Ok(parts) => parts,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    let ps = Ps::start(WORKERS, &["--slots", "64"]);
    let expected = all_reduce(&inputs, |number, flags| Worker::start(ps.addr, number, flags));
    assert!(expected.iter().all(|mean| *mean == expected[0]));

    let p4runtime = free_port();
    let _switch = switch(&program, &network, p4runtime, folder.path());
    let _controller = controller(&network, p4runtime, folder.path());
    let at = SocketAddrV4::new(OWN, 9000);

    for host in network.hosts() {
        host.assign().unwrap();
    }
    let begin = Instant::now();
    let udp = all_reduce(&inputs, |number, flags| {
        Worker::start_on(Some(network.host(number.into())), at, number, flags)
    });
    println!("udp: 1 MiB of {WORKERS} workers in {:.1} s", begin.elapsed().as_secs_f64());
    assert!(udp == expected, "over kernel UDP the switch brings another mean than thc-ps");

    if cfg!(not(feature = "dpdk")) {
        println!("not run: over DPDK: built without the feature dpdk (libdpdk-dev not found?)");
        return;
    }
    for host in network.hosts() {
        host.release().unwrap();
    }
    let begin = Instant::now();
    let dpdk = all_reduce(&inputs, |number, flags| {
        let host = network.host(number.into());
        let address = format!("--dpdk-address={}/{PREFIX_LEN}", host.address);
        let device = "--dpdk-device=net_af_packet0,iface=eth0";
        let io = ["--io", "dpdk", "--dpdk-hugepages=false", &address, device];
        Worker::start_on(Some(host), at, number, &[flags, &io].concat())
    });
    println!("dpdk: 1 MiB of {WORKERS} workers in {:.1} s", begin.elapsed().as_secs_f64());
    assert!(dpdk == expected, "over DPDK the switch brings another mean than thc-ps");
}
