//! CPU time that an all-reduced MiB costs, all processes together: over DPDK (net_af_packet) against kernel
//! UDP, on the same veth interfaces of the same network namespaces, four workers and a server. All runs must bring the
//! same mean.
//!
//! Two runs of different length of each, so that starting is not in their difference; the carriers take turns. Time is
//! the user and system time of all five processes. Results go to `bench/cpu.json` in the target directory. Takes root;
//! without `--bench` nothing is run.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use thc_bench::{is_measuring, median};
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
    fn read_until(&mut self, start: &str) {
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

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Udp,
    Dpdk,
}

fn flags(host: &Host, carrier: Carrier, more: &[&str]) -> Vec<String> {
    let mut flags: Vec<String> = more.iter().map(|&flag| flag.to_owned()).collect();
    match carrier {
        Carrier::Udp => {}
        Carrier::Dpdk => {
            flags.extend(["--io", "dpdk", "--dpdk-hugepages=false"].map(str::to_owned));
            flags.push(format!("--dpdk-address={}/{PREFIX_LEN}", host.address));
            flags.extend(["--dpdk-device".to_owned(), "net_af_packet0,iface=eth0,framecnt=2048".to_owned()]);
        }
    }
    flags
}

/// What one run cost and brought.
struct Outcome {
    /// Seconds of CPU time.
    cpu: f64,
    /// Median seconds of a call.
    call: f64,
    /// Packets of all workers, both ways.
    packets: f64,
    /// A checksum of the last mean's bits.
    mean: String,
}

/// One run to its end.
fn run(network: &Network, carrier: Carrier, repeats: usize) -> Outcome {
    for host in network.hosts() {
        host.release().unwrap();
        if carrier != Carrier::Dpdk {
            host.assign().unwrap();
        }
    }
    let server = network.host(0);
    let address = format!("{}:9000", server.address);
    let more = ["--listen", &address, "--job", "1", "--workers", "4", "--cookie", COOKIE];
    let mut ps = Timed::start(server, &binary("thc-ps"), &flags(server, carrier, &more));
    ps.read_until("ready ");
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
                "--each",
                "--json",
            ];
            let host = network.host(number + 1);
            Timed::start(host, &binary("thc-worker"), &flags(host, carrier, &more))
        })
        .collect();
    let mut outcome = Outcome { cpu: 0.0, call: 0.0, packets: 0.0, mean: String::new() };
    for worker in workers {
        let (seconds, out) = worker.end();
        outcome.cpu += seconds;
        // A line for each all-reduce, then the report, over several lines or on one.
        let mut values = serde_json::Deserializer::from_str(&out).into_iter::<Value>().map(Result::unwrap);
        let (steps, report): (Vec<Value>, Vec<Value>) =
            values.by_ref().partition(|value| value["all_reduce"].is_u64());
        let mean = steps.last().unwrap()["checksum"].as_str().unwrap().to_owned();
        assert!(outcome.mean.is_empty() || outcome.mean == mean, "workers have different means");
        outcome.mean = mean;
        outcome.call = report[0]["median_seconds"].as_f64().unwrap();
        let stats = &report[0]["stats"];
        outcome.packets += stats["packets_up"].as_f64().unwrap() + stats["packets_down"].as_f64().unwrap();
    }
    ps.terminate();
    outcome.cpu += ps.end().0;
    outcome
}

fn main() {
    if !is_measuring() {
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
    let carriers = [Carrier::Udp, Carrier::Dpdk];
    let mut costs = carriers.map(|_| Vec::new());
    let mut calls = carriers.map(|_| Vec::new());
    let mut packets = carriers.map(|_| Vec::new());
    let mut means: [String; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (place, &carrier) in carriers.iter().enumerate() {
            let runs = REPEATS.map(|repeats| run(&network, carrier, repeats));
            for (mean, run) in means.iter_mut().zip(&runs) {
                assert!(mean.is_empty() || *mean == run.mean, "{carrier:?} brings another mean");
                mean.clone_from(&run.mean);
            }
            let [short, long] = runs;
            costs[place].push((long.cpu - short.cpu) / mib * 1e3);
            calls[place].push(long.call * 1e3);
            packets[place].push((long.cpu - short.cpu) / (long.packets - short.packets) * 1e9);
        }
    }
    let costs = costs.map(median);
    let calls = calls.map(median);
    let packets = packets.map(median);
    let mut results = Vec::new();
    for (place, &carrier) in carriers.iter().enumerate() {
        println!(
            "{carrier:?}: {:.2} CPU seconds a GiB, {:.0} ns a packet with everything, {:.0} ms a call of 16 MiB",
            costs[place] * 1.024,
            packets[place],
            calls[place]
        );
        if carrier == Carrier::Udp {
            continue;
        }
        let detail = format!(
            "{WORKERS} workers and the server, veth: {:.2} ms of CPU time per all-reduced MiB, udp {:.2}; a call of 16 MiB \
             takes {:.0} and {:.0} ms",
            costs[place], costs[0], calls[place], calls[0]
        );
        results.push(serde_json::json!({
            "name": "CPU time per all-reduced MiB on veth: dpdk (net_af_packet) over udp",
            "ratio": costs[place] / costs[0],
            "better": "lower",
            "aim": 1.0,
            "floor": 2.0,
            "detail": detail,
        }));
    }
    thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "cpu", &results).unwrap();
}
