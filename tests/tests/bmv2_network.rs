//! Four worker processes, each on a host of its own behind a port of a real BMv2, whose control plane is a real
//! thc-controller: over kernel UDP and over DPDK's packet sockets they end with the bits that thc-ps gives them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_tests::{
    COOKIE, Network, PREFIX_LEN, Ps, WorkerProcess, binary, bmv2, free_port, switch_command, write_gradients,
};

const WORKERS: u8 = 4;
/// 1 MiB.
const COORDINATES: usize = 1 << 18;
/// The switch's own address in its network.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// The longest that a process may take to be ready.
const PATIENCE: Duration = thc_tests::HANG;
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

/// With one job, of these lines.
fn controller(network: &Network, p4runtime: u16, folder: &Path, job: &str) -> Running {
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
        "[[job]]\njob = 1\ncookie = \"{COOKIE}\"\ndata_slots = 64\ngranularity = 30\nfraction = \"1/32\"\n{job}"
    );
    let config = folder.join("controller.toml");
    fs::write(&config, text).unwrap();
    let log = folder.join("controller.log");
    let mut child = Command::new(binary("thc-controller"))
        .args(["run", "--state", "none", "--config", config.to_str().unwrap()])
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
fn all_reduce(inputs: &[PathBuf], mut start: impl FnMut(u8, &[&str]) -> WorkerProcess) -> Vec<Vec<u8>> {
    let workers: Vec<WorkerProcess> = (0..)
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
    Ok((bmv2("simple_switch_grpc")?, Network::with_cables(WORKERS)?))
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
    let ps = Ps::start(WORKERS, &["--data-slots", "64"]);
    let expected = all_reduce(&inputs, |number, flags| WorkerProcess::start(ps.addr, number, flags));
    assert!(expected.iter().all(|mean| *mean == expected[0]));

    let p4runtime = free_port();
    let _switch = switch(&program, &network, p4runtime, folder.path());
    let _controller = controller(&network, p4runtime, folder.path(), &format!("workers = {WORKERS}\n"));
    let at = SocketAddr::from((OWN, 9000));

    for host in network.hosts() {
        host.assign().unwrap();
    }
    let begin = Instant::now();
    let udp = all_reduce(&inputs, |number, flags| {
        WorkerProcess::start_on(Some(network.host(number.into())), at, number, flags)
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
        WorkerProcess::start_on(Some(host), at, number, &[flags, &io].concat())
    });
    println!("dpdk: 1 MiB of {WORKERS} workers in {:.1} s", begin.elapsed().as_secs_f64());
    assert!(dpdk == expected, "over DPDK the switch brings another mean than thc-ps");
}

/// The switch is the rack of the hosts 0 and 1, as its controller has been told; host 2 is the root, and host 3 a rack with two workers
/// of its own. All that goes between these three passes the switch, too.
#[test]
fn a_switch_with_its_controller_is_a_rack() {
    let (program, network) = match parts() {
        Ok(parts) => parts,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES / 4);
    let ps = Ps::start(WORKERS, &["--data-slots", "64"]);
    let expected = all_reduce(&inputs, |number, flags| WorkerProcess::start(ps.addr, number, flags));

    for host in network.hosts() {
        host.assign().unwrap();
    }
    let p4runtime = free_port();
    let _switch = switch(&program, &network, p4runtime, folder.path());
    let at = |host: usize| SocketAddr::from((network.host(host).address, 9000));
    let root = at(2).to_string();
    let job = format!(
        "norm_slots = 64\nracks = [2, 2]\nrack = 0\nroot = \"{root}\"\nroot_mac = \"{}\"\n",
        network.host(2).mac
    );
    let _controller = controller(&network, p4runtime, folder.path(), &job);
    let racks = ["--data-slots", "64", "--norm-slots", "64", "--racks", "2,2"];
    // The root has two ports (P21).
    let _root =
        Ps::start_on(Some(network.host(2)), at(2), WORKERS, &[&racks[..], &["--shards", "2"]].concat());
    let other = [&racks[..], &["--rack", "1", "--root", &root]].concat();
    let _rack = Ps::start_on(Some(network.host(3)), at(3), WORKERS, &other);
    let begin = Instant::now();
    let got = all_reduce(&inputs, |number, flags| match number {
        0 | 1 => WorkerProcess::start_on(
            Some(network.host(number.into())),
            SocketAddr::from((OWN, 9000)),
            number,
            flags,
        ),
        _ => WorkerProcess::start_on(Some(network.host(3)), at(3), number - 2, flags),
    });
    println!("256 KiB of {WORKERS} workers in two racks in {:.1} s", begin.elapsed().as_secs_f64());
    assert!(got == expected, "with the switch as a rack comes another mean than from one thc-ps");
}
