//! CPU time that an all-reduced MiB costs, all processes together: over DPDK (net_af_packet) against kernel UDP, on the
//! same veth interfaces of the same network namespaces, four workers and a server.
//!
//! Two runs of different length of each, so that starting is not in their difference; both carriers take turns. Time is
//! the user and system time of all five processes. Results go to `bench/cpu.json` in the target directory. Takes root;
//! without `--bench` nothing is run.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use thc_tests::{COOKIE, Host, Network, PREFIX_LEN, binary};

const WORKERS: usize = 4;
/// 16 MiB.
const COORDINATES: usize = 4 << 20;
/// All-reduces of the short and of the long run.
const REPEATS: [usize; 2] = [2, 12];
const ROUNDS: usize = 3;

/// A process whose CPU time bash tells when it ends.
struct Timed(Child);

impl Timed {
    fn start(host: &Host, program: &Path, flags: &[String]) -> Timed {
        let inner = host.command(program);
        let mut command = Command::new("bash");
        command.args(["-c", "TIMEFORMAT='cpu %U %S'; time \"$@\"", "timed"]);
        command.arg(inner.get_program()).args(inner.get_args()).args(flags);
        Timed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for a line of its output.
    fn until(&mut self, start: &str) {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with(start)), "it ended before it was {start}");
    }

    fn terminate(&self) {
        let id = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let killed = Command::new("kill").arg("-TERM").args(children.split_whitespace()).status().unwrap();
        assert!(killed.success());
    }

    /// Seconds of CPU time, and what it printed.
    fn end(mut self) -> (f64, String) {
        let (mut out, mut errors) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(self.0.wait().unwrap().success(), "{errors}");
        let line = errors.lines().rev().find_map(|line| line.strip_prefix("cpu ")).unwrap();
        (line.split(' ').map(|part| part.parse::<f64>().unwrap()).sum(), out)
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        // Only if the benchmark fails; the programs end when their output has no reader or by their time-outs.
        let _ = self.0.kill();
    }
}

fn flags(host: &Host, dpdk: bool, more: &[&str]) -> Vec<String> {
    let mut flags: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
    if dpdk {
        flags.extend(["--io", "dpdk", "--dpdk-hugepages=false"].map(str::to_owned));
        flags.push(format!("--dpdk-address={}/{PREFIX_LEN}", host.address));
        flags.extend(["--dpdk-device".to_owned(), "net_af_packet0,iface=eth0,framecnt=2048".to_owned()]);
    }
    flags
}

/// Seconds of CPU time of one run, and the median time of a call.
fn run(network: &Network, dpdk: bool, repeats: usize) -> (f64, f64) {
    for host in network.hosts() {
        if dpdk { host.release() } else { host.release().and_then(|()| host.assign()) }.unwrap();
    }
    let server = network.host(0);
    let address = format!("{}:9000", server.address);
    let more = ["--listen", &address, "--job", "1", "--workers", "4", "--cookie", COOKIE];
    let mut ps = Timed::start(server, &binary("thc-ps"), &flags(server, dpdk, &more));
    ps.until("ready ");
    let (count, repeats) = (COORDINATES.to_string(), repeats.to_string());
    let workers: Vec<Timed> = (0..WORKERS)
        .map(|number| {
            let number_text = number.to_string();
            let more = [
                "--ps",
                &address,
                "--worker",
                &number_text,
                "--cookie",
                COOKIE,
                "--coordinates",
                &count,
                "--repeat",
                &repeats,
                "--json",
            ];
            let host = network.host(number + 1);
            Timed::start(host, &binary("thc-worker"), &flags(host, dpdk, &more))
        })
        .collect();
    let mut cpu = 0.0;
    let mut call = 0.0;
    for worker in workers {
        let (seconds, out) = worker.end();
        cpu += seconds;
        let report: Value = serde_json::from_str(&out).unwrap();
        call = report["median_seconds"].as_f64().unwrap();
    }
    ps.terminate();
    (cpu + ps.end().0, call)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let network = match Network::star(WORKERS as u8 + 1) {
        Ok(network) => network,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let mib = ((REPEATS[1] - REPEATS[0]) * COORDINATES * 4) as f64 / f64::from(1 << 20);
    let mut costs = [Vec::new(), Vec::new()];
    let mut calls = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (place, dpdk) in [false, true].into_iter().enumerate() {
            let [(short, _), (long, call)] = REPEATS.map(|repeats| run(&network, dpdk, repeats));
            costs[place].push((long - short) / mib * 1e3);
            calls[place].push(call * 1e3);
        }
    }
    let [udp, dpdk] = costs.each_mut().map(|values| median(values));
    let [udp_call, dpdk_call] = calls.each_mut().map(|values| median(values));
    let detail = format!(
        "{WORKERS} workers and the server, veth: dpdk {dpdk:.2} ms of CPU time per all-reduced MiB, udp {udp:.2}; a \
         call of 16 MiB takes {dpdk_call:.0} and {udp_call:.0} ms"
    );
    println!("dpdk over udp: {:.2}; {detail}", dpdk / udp);
    let results = serde_json::json!([{
        "name": "CPU time per all-reduced MiB on veth: dpdk (net_af_packet) over udp",
        "ratio": dpdk / udp,
        "better": "lower",
        "aim": 1.0,
        "floor": 2.0,
        "detail": detail,
    }]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("cpu.json");
    std::fs::write(&file, serde_json::to_string_pretty(&results).unwrap()).unwrap();
    println!("written to {}", file.display());
}
