//! The program itself: what it prints, how it ends, and that it can be killed.
#![allow(clippy::unwrap_used)]

mod session;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use session::{COOKIE, Model, PATIENCE, indices, norm, packet, session};
use thc_protocol::wire::Kind;
use thc_ps::ServerStats;
use thc_support::openmetrics::{self, sum, value};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thc-ps"));
    // What is around here must not change what is tested.
    command.env_remove("RUST_LOG").env_remove("THC_COOKIE");
    command
}

/// Runs it with flags that it refuses.
fn fails(flags: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command().args(flags).output().unwrap();
    assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A server that runs, and is killed when the test ends.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it printed before it was ready.
    greeting: Vec<String>,
    address: SocketAddr,
}

impl Running {
    fn start(flags: &[&str]) -> Running {
        Running::start_with(&mut command(), flags)
    }

    fn start_with(command: &mut Command, flags: &[&str]) -> Running {
        let mut child = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut running = Running { child, out, greeting: Vec::new(), address: unknown };
        loop {
            let mut line = String::new();
            let read = running.out.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended before it was ready: {:?}", running.greeting);
            let line = line.trim_end();
            if let Some(address) = line.strip_prefix("ready ") {
                running.address = address.parse().unwrap();
                return running;
            }
            running.greeting.push(line.to_owned());
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end: how, and what it wrote since it was ready to stdout and at all to stderr.
    fn end(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap(), out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const JOB: [&str; 6] = ["--job", "1", "--workers", "2", "--cookie", "0x0badcafe"];
const TABLE: [&str; 4] = ["--granularity", "30", "--fraction", "1/32"];

fn flags<'a>(listen: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    ["--listen", listen].into_iter().chain(JOB).chain(TABLE).chain(more.iter().copied()).collect()
}

#[test]
fn sigterm_ends_it_with_totals() {
    let server = Running::start(&flags("127.0.0.1:0", &["--data-slots", "256"]));
    let expected = format!(
        "thc-ps listening on {}, job 1: 2 workers, b=4 g=30 p=1/32, 256 slots, reliable, expected NMSE 1.38e-2",
        server.address
    );
    assert_eq!(server.greeting, [expected]);
    let workers = session(2, server.address);
    let mut model = Model::from_workers(&workers);
    workers[0].send(&[1, 2, 3], 0);
    for worker in &workers {
        let bytes = packet(&worker.header(Kind::Norm, 0, 0), &norm(1.0, 1024));
        worker.send(&bytes, 0);
        model.handle(0, worker.address(), &bytes);
    }
    for worker in &workers {
        assert_eq!(model.take(worker.address()), [worker.expect()]);
    }
    server.signal(Signal::TERM);
    let (status, out, err) = server.end();
    assert_eq!(status.code(), Some(0), "{err}");
    for part in [
        "job 1: 2 workers, sessions 1, results 1, resent 0, nudges 0",
        "network: in ",
        "dropped, of no job: ",
    ] {
        assert!(out.contains(part), "{out}");
    }
    // A row per worker with its packet.
    let rows = |number: &str| out.lines().any(|line| line.split_whitespace().take(2).eq([number, "1"]));
    assert!(rows("0") && rows("1"), "{out}");
    for event in ["worker 0 joined from 127.0.0.1:", "session formed, 2 workers"] {
        assert!(err.contains(event), "{err}");
    }
    assert!(!format!("{out}{err}").to_lowercase().contains("badcafe"), "the cookie shows");
}

#[test]
fn json_totals_on_stdout() {
    let server = Running::start(&flags("127.0.0.1:0", &["--json", "--shards", "2"]));
    assert!(server.greeting.is_empty(), "stdout is for programs now: {:?}", server.greeting);
    session(2, server.address);
    let address = server.address;
    server.signal(Signal::INT);
    let (status, out, err) = server.end();
    assert_eq!(status.code(), Some(0), "{err}");
    let totals: ServerStats = serde_json::from_str(out.trim_end()).unwrap();
    assert_eq!((totals.listen, totals.shards, totals.jobs.len()), (address, 2, 1));
    assert_eq!((totals.jobs[0].sessions, totals.jobs[0].joined.as_slice()), (1, &[0, 1][..]));
    assert!(err.contains("thc-ps listening on "), "{err}");
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, err) = fails(&flags(&listen, &[]));
    assert_eq!(code, Some(1));
    assert_eq!(
        err,
        format!("thc-ps: address {listen} is in use: stop the other process or choose another port\n")
    );
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("thc-ps.toml");
    let name = path.to_str().unwrap();
    let cases = [
        (
            "listen = \"127.0.0.1:0\"\n[[job]]\njob = 1\nworker = 4\n",
            ": line 4: worker: unknown field `worker`, expected",
        ),
        ("[[job]]\njob = 1\nworkers = 4\n", ": job 1: cookie is missing: give a secret number"),
        ("shards = 2\n", ": no job is configured"),
    ];
    for (text, message) in cases {
        std::fs::write(&path, text).unwrap();
        let (code, err) = fails(&["--config", name]);
        assert_eq!(code, Some(2));
        assert!(err.starts_with(&format!("thc-ps: {name}{message}")), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (code, err) = fails(&["--config", "/no/such/file.toml"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("thc-ps: cannot read /no/such/file.toml: "), "{err}");
}

#[test]
fn flags_that_make_no_sense_end_with_2_and_keep_the_secret() {
    for (wrong, named) in [
        (["--fraction", "3"], "--fraction"),
        (["--policy", "hopeful"], "--policy"),
        (["--recv-buffer", "lots"], "--recv-buffer"),
        (["--inject", "loss=7"], "loss is 7"),
        (["--nonsense", "1"], "--nonsense"),
    ] {
        let (code, err) = fails(&[&wrong[..], &JOB].concat());
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(named), "{err}");
    }
    let (code, err) = fails(&["--job", "1", "--workers", "2", "--cookie", "hunter2"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("job 1: cookie is not a number") && !err.contains("hunter2"), "{err}");
}

#[test]
fn the_cookie_may_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("thc-ps.toml");
    std::fs::write(&path, "[[job]]\njob = 1\nworkers = 2\n").unwrap();
    let help = command().env("THC_COOKIE", "hunter2").arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("THC_COOKIE") && !help.contains("hunter2"), "{help}");
    assert!(help.contains("Examples:") && help.contains("thc-ps --job 1 --workers 4"), "{help}");
    assert!(!help.contains("inject"), "{help}");
    let output = command()
        .env("THC_COOKIE", COOKIE.to_string())
        .args(["--config", path.to_str().unwrap(), "--shards", "99"])
        .output()
        .unwrap();
    // It got past the cookie to the next mistake.
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("shards is 99: use 1 to 64"), "{err}");
}

/// With half of the packets lost each way, JOINs get through in the end.
#[test]
fn faults_can_be_injected() {
    let more = ["--inject", "loss=0.5,duplicate=0.1,reorder=0.1", "--inject-seed", "7"];
    let server = Running::start(&flags("127.0.0.1:0", &more));
    assert!(server.greeting[0].ends_with(", injecting faults"), "{:?}", server.greeting);
    session(2, server.address);
}

/// Without a job it waits for a controller, and ends with one connected.
#[test]
fn a_server_without_jobs_serves_a_controller() {
    let mut server = Running::start(&["--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0"]);
    let [greeting, p4runtime] = &server.greeting[..] else { panic!("{:?}", server.greeting) };
    let address = p4runtime.strip_prefix("p4runtime ").unwrap();
    assert!(greeting.starts_with("thc-ps listening on 127.0.0.1:"), "{greeting}");
    assert!(greeting.ends_with(&format!(", P4Runtime on {address}")), "{greeting}");
    let _connection = TcpStream::connect(address).unwrap();
    let (code, error) = fails(&["--listen", "127.0.0.1:0", "--p4runtime", address]);
    assert_eq!(code, Some(1));
    assert!(error.contains(&format!("cannot serve P4Runtime on {address}")), "{error}");
    server.signal(Signal::TERM);
    assert!(server.child.wait().unwrap().success());
    let (code, error) = fails(&["--p4runtime", "9559"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("p4runtime is \"9559\""), "{error}");
}

/// Where the program says that it answers Prometheus.
fn metrics_of(server: &Running) -> String {
    let line = server.greeting.iter().find_map(|line| line.strip_prefix("metrics http://")).unwrap();
    line.strip_suffix("/metrics").unwrap().to_owned()
}

/// Status line and headers, and the body.
fn get(at: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// What Prometheus reads is what the server prints at its end, shard by shard.
#[test]
fn metrics_are_the_totals() {
    let more = ["--json", "--shards", "2", "--http", "127.0.0.1:0"];
    let server = Running::start(&flags("127.0.0.1:0", &more));
    let at = metrics_of(&server);
    let workers = session(2, server.address);
    let welcome = workers[0].welcome.unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    // Seqs of both shards: slots go to ports in blocks of 64.
    for seq in [0, 1, 70] {
        for worker in &workers {
            let bytes = packet(&worker.header(Kind::Data, seq, 0), &indices(&mut random, &welcome));
            worker.send(&bytes, seq);
        }
        for worker in &workers {
            worker.expect();
        }
    }
    // One more time, which is answered once more; too short a payload; a job that there is none of.
    let again = packet(&workers[1].header(Kind::Data, 1, 0), &indices(&mut random, &welcome));
    workers[1].send(&again, 1);
    workers[1].expect();
    workers[0].send(&packet(&workers[0].header(Kind::Data, 70, 1), &[0; 5]), 70);
    let mut stranger = workers[0].header(Kind::Data, 70, 1);
    stranger.job = thc_protocol::JobId(77);
    workers[0].send(&packet(&stranger, &indices(&mut random, &welcome)), 70);

    let start = Instant::now();
    let families = loop {
        let (head, text) = get(&at, "/metrics");
        assert!(
            head.contains("200 OK") && head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        let families = openmetrics::parse(&text);
        let dropped = [("reason", "job")];
        if sum(&families, "thc_ps_carrier_drops", &dropped) == 1.0
            && sum(&families, "thc_ps_drops", &[]) == 1.0
        {
            break families;
        }
        assert!(start.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    for (name, family) in &families {
        assert!(name.starts_with("thc_ps_") && !family.help.is_empty(), "{name}: {family:?}");
    }
    assert!(get(&at, "/").0.contains("404"));
    server.signal(Signal::TERM);
    let (status, out, err) = server.end();
    assert_eq!(status.code(), Some(0), "{err}");
    let totals: ServerStats = serde_json::from_str(out.trim_end()).unwrap();
    let job = &totals.jobs[0];
    assert_eq!((job.results, job.resent), (3, 1));

    let told = |name: &str, labels: &[(&str, &str)]| sum(&families, &format!("thc_ps_{name}"), labels) as u64;
    let of_job = ("thc_job", "1");
    assert_eq!(told("results", &[of_job, ("shard", "0")]), 2);
    assert_eq!(told("results", &[of_job, ("shard", "1")]), 1);
    assert_eq!(told("results", &[of_job]), job.results);
    assert_eq!(told("results_resent", &[of_job, ("shard", "0")]), job.resent);
    assert_eq!(told("nudges", &[of_job]), job.nudges);
    assert_eq!(told("job_sessions", &[of_job]), job.sessions);
    assert_eq!(value(&families, "thc_ps_job_workers_joined", &[of_job]), Some(2.0));
    assert_eq!(value(&families, "thc_ps_job_running", &[of_job]), Some(1.0));
    for worker in job.members.iter() {
        let number = worker.worker.to_string();
        let labels = [of_job, ("worker", number.as_str())];
        assert_eq!(told("packets", &labels), worker.packets);
        assert_eq!(told("bytes", &labels), worker.bytes);
        for (event, &count) in &worker.events {
            assert_eq!(told("packet_events", &[labels[0], labels[1], ("event", event)]), count, "{event}");
        }
        for (reason, &count) in &worker.drops {
            assert_eq!(told("drops", &[labels[0], labels[1], ("reason", reason)]), count, "{reason}");
        }
    }
    assert_eq!(told("drops", &[("reason", "length"), ("shard", "1"), ("worker", "0")]), 1);
    for (reason, &count) in &totals.drops {
        assert_eq!(told("carrier_drops", &[("reason", reason)]), count, "{reason}");
    }
    let network = &totals.network;
    assert_eq!(told("network_packets", &[("direction", "in")]), network.packets_in);
    assert_eq!(told("network_packets", &[("direction", "out")]), network.packets_out);
    assert_eq!(told("network_bytes", &[("direction", "in")]), network.bytes_in);
    assert_eq!(told("network_bytes", &[("direction", "out")]), network.bytes_out);
    assert_eq!(told("control_packets", &[("event", "taken")]), totals.control.packets);
    assert_eq!(told("memory_bytes", &[]), totals.memory);
}

#[test]
fn metrics_are_off_by_default_and_wrong_addresses_are_told() {
    let server = Running::start(&flags("127.0.0.1:0", &[]));
    assert!(server.greeting.iter().all(|line| !line.contains("metrics")), "{:?}", server.greeting);
    let (code, err) = fails(&flags("127.0.0.1:0", &["--http", "9100"]));
    assert_eq!(code, Some(2));
    assert_eq!(err, "thc-ps: http is \"9100\": give an address and a port, such as 127.0.0.1:9100\n");

    let first = Running::start(&flags("127.0.0.1:0", &["--http", "127.0.0.1:0"]));
    let taken = metrics_of(&first);
    let (code, err) = fails(&flags("127.0.0.1:0", &["--http", &taken]));
    assert_eq!(code, Some(1));
    assert!(err.starts_with(&format!("thc-ps: cannot serve /metrics on {taken}; choose another")), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");

    let open = Running::start(&flags("127.0.0.1:0", &["--http", "0.0.0.0:0"]));
    // Somebody who has asked and does not go away does not keep it from ending.
    let _idle = TcpStream::connect(metrics_of(&open).replace("0.0.0.0", "127.0.0.1")).unwrap();
    open.signal(Signal::TERM);
    let (status, _, err) = open.end();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(err.contains("whoever reaches it can read the statistics"), "{err}");
    first.signal(Signal::TERM);
    assert!(!first.end().2.contains("whoever reaches it"), "nobody does on the loopback");
}
