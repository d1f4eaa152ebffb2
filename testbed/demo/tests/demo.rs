//! `thc demo` with its real processes: a parameter server, workers, and what ends them.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(600);
const THC: &str = env!("CARGO_BIN_EXE_thc");

/// Text enough for a quick demo, on any machine.
fn text(folder: &Path) -> String {
    let path = folder.join("text");
    let lines: String = (0..400).map(|i| format!("{i} times {} is {}\n", i % 7, i * (i % 7))).collect();
    std::fs::write(&path, lines).unwrap();
    path.display().to_string()
}

fn demo(folder: &Path, arguments: &str) -> Output {
    Command::new(THC)
        .args(["demo", "--text", &text(folder)])
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

fn report(folder: &Path, arguments: &str) -> Value {
    let output = demo(folder, &format!("{arguments} --json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}"))
}

/// The published method is another one than the default: its table of 31 steps has the larger error.
#[test]
fn the_published_method_trains() {
    let folder = tempfile::tempdir().unwrap();
    let nmse = |method: &str| {
        let found = report(folder.path(), &format!("--workers 2 --steps 12 --seed 3 --method {method}"));
        let (first, last) = (number(&found, "/thc/losses/0"), number(&found, "/thc/final_loss"));
        assert!(last < 0.8 * first, "{method}: {first} to {last}");
        number(&found, "/nmse_without_feedback")
    };
    let (published, default) = (nmse("thc-paper"), nmse("default"));
    assert!(published > 1.1 * default, "{published} {default}");
}

#[test]
fn a_small_demo_reports_everything() {
    let folder = tempfile::tempdir().unwrap();
    let found = report(folder.path(), "--workers 2 --steps 12 --seed 3");
    // Both runs start from the same parameters and batches, so their first losses are the same number.
    assert_eq!(found.pointer("/thc/losses/0"), found.pointer("/exact/losses/0"));
    for run in ["thc", "exact"] {
        assert_eq!(found[run]["losses"].as_array().unwrap().len(), 12);
        let (first, last) =
            (number(&found, &format!("/{run}/losses/0")), number(&found, &format!("/{run}/final_loss")));
        assert!(last < 0.8 * first, "{run}: {first} to {last}");
        assert!(number(&found, &format!("/{run}/held_out_loss")) < first);
    }
    let difference = number(&found, "/thc/final_loss") - number(&found, "/exact/final_loss");
    assert!(difference.abs() < 0.3, "{difference}");
    assert_eq!(found["errors"].as_array().unwrap().len(), 6);
    for pointer in ["/nmse", "/nmse_without_feedback"] {
        let nmse = number(&found, pointer);
        assert!(nmse > 1e-4 && nmse < 0.1, "{pointer}: {nmse}");
    }
    let (up, down) =
        (number(&found, "/bytes_per_coordinate_up"), number(&found, "/bytes_per_coordinate_down"));
    // 560 and 1072 bytes per packet of 1024 coordinates, norms, and some packets twice on a busy machine.
    assert!((0.546..0.7).contains(&up) && (1.04..1.3).contains(&down), "{up} {down}");
    let parameters = number(&found, "/parameters") as u64;
    assert_eq!(found["traffic"]["coordinates"], 2 * 12 * parameters);
    assert_eq!(found["server"]["dropped"], 0);
    assert!(number(&found, "/times/computing") > 0.0 && number(&found, "/times/compression") > 0.0);
}

#[test]
fn lost_packets_change_nothing_but_the_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let whole = report(folder.path(), "--workers 2 --steps 4");
    let lossy = report(folder.path(), "--workers 2 --steps 4 --loss 0.01");
    assert!(number(&lossy, "/traffic/retransmissions") > 0.0);
    assert_eq!(whole["digest"], lossy["digest"]);
    assert_eq!(whole["thc"]["losses"], lossy["thc"]["losses"]);
    assert_eq!(whole["errors"], lossy["errors"]);
    let other = report(folder.path(), "--workers 2 --steps 4 --no-feedback");
    assert_ne!(whole["digest"], other["digest"]);
    // Without feedback the applied gradient is as near the mean as any all-reduce brings it.
    let ratio = number(&other, "/nmse") / number(&other, "/nmse_without_feedback");
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

/// The demo through a switch program, or why it was not run.
fn through_a_switch(aggregator: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &format!("--aggregator {aggregator} --loss 0.1"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("leave --loss out"));
    let output = demo(folder.path(), &format!("--aggregator {aggregator} --workers 2 --steps 3 --json"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("simple_switch_grpc not found") || said.contains("no hosts for the workers") {
        assert_eq!(output.status.code(), Some(1));
        return Err(said);
    }
    assert!(output.status.success(), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.pointer("/thc/losses/0"), found.pointer("/exact/losses/0"));
    let nmse = number(&found, "/nmse_without_feedback");
    assert!(nmse > 1e-4 && nmse < 0.1, "{nmse}");
    assert_eq!(found["traffic"]["coordinates"], 2 * 3 * number(&found, "/parameters") as u64);
    assert!(found["server"].is_null());
    Ok(())
}

#[test]
fn an_interpreted_switch_aggregates() {
    through_a_switch("interpreted").unwrap();
}

#[test]
fn a_switch_aggregates() {
    if let Err(reason) = through_a_switch("bmv2") {
        println!("not run: {reason}");
        return;
    }
    // Of the network nothing is left.
    let names = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&names.stdout).contains("thc-"), "{names:?}");
}

#[test]
fn dpdk_trains_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), "--workers 2 --steps 4 --aggregator dpdk --json");
    let said = String::from_utf8_lossy(&output.stderr);
    if cfg!(not(feature = "dpdk")) {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("make demo AGGREGATOR=dpdk") && said.contains("libdpdk-dev"), "{said}");
        println!("not run: built without the feature dpdk");
        return;
    }
    assert!(output.status.success(), "{said}");
    let dpdk: Value = serde_json::from_slice(&output.stdout).unwrap();
    let udp = report(folder.path(), "--workers 2 --steps 4");
    for key in ["digest", "thc/losses", "errors", "traffic/coordinates"] {
        let pointer = format!("/{key}");
        assert_eq!(dpdk.pointer(&pointer), udp.pointer(&pointer), "{key}");
        assert!(udp.pointer(&pointer).is_some(), "{key}");
    }
    assert_eq!(dpdk["server"]["dropped"], 0);
    let output = demo(folder.path(), "--workers 1 --steps 1 --aggregator dpdk");
    assert!(String::from_utf8_lossy(&output.stderr).contains("net_memif"), "{output:?}");
}

#[test]
fn people_get_a_table_and_progress_lines() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), "--workers 1 --steps 2");
    let table = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "exact",
        "difference",
        "NMSE",
        "bytes per coordinate",
        "packets",
        "retransmissions",
        "computing",
        "compression",
        "communication",
        "waiting",
    ] {
        assert!(table.contains(expected), "no {expected} in {table}");
    }
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("step    2 of 2"), "{progress}");
}

/// A demo that would run for hours, with its children once all of them train.
struct Long {
    demo: Child,
    stderr: BufReader<std::process::ChildStderr>,
    children: Vec<u32>,
    said: String,
    _folder: tempfile::TempDir,
}

impl Long {
    fn start() -> Self {
        Self::start_with(&[], 3)
    }

    /// With more flags, and so many children.
    fn start_with(more: &[&str], processes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Command::new(THC)
            .args(["demo", "--workers", "2", "--steps", "10000", "--text", &text(folder.path())])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(demo.stderr.take().unwrap());
        let mut line = String::new();
        let mut said = String::new();
        while !line.contains("step ") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the demo ended: {said}");
            said += &line;
        }
        let children = format!("/proc/{0}/task/{0}/children", demo.id());
        let children: Vec<u32> = std::fs::read_to_string(children)
            .unwrap()
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        assert_eq!(children.len(), processes, "servers and two workers");
        Self { demo, stderr, children, said, _folder: folder }
    }

    fn child(&self, what: &str) -> u32 {
        let is = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains(what);
        *self.children.iter().find(|pid| is(pid)).unwrap()
    }

    /// Its exit status and last line, once it and all its children are gone, which must be soon.
    fn end(mut self) -> (Option<i32>, String) {
        let asked = Instant::now();
        let status = self.demo.wait().unwrap();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        while self.children.iter().any(|&pid| runs(pid)) {
            assert!(asked.elapsed() < HANG, "children outlive the demo");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(asked.elapsed() < HANG);
        (status.code(), rest.lines().last().unwrap_or_default().to_owned())
    }
}

/// Whether a process exists and is no zombie (whose new parent may be slow to collect it).
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn an_interrupt_ends_all_processes() {
    let demo = Long::start();
    signal(demo.demo.id(), Signal::INT);
    assert_eq!(demo.end(), (Some(130), "thc: interrupted".to_owned()));
}

#[test]
fn no_child_outlives_a_killed_demo() {
    let demo = Long::start();
    signal(demo.demo.id(), Signal::KILL);
    assert_eq!(demo.end().0, None);
}

#[test]
fn a_killed_worker_is_named() {
    let demo = Long::start();
    signal(demo.child("internal-worker"), Signal::KILL);
    let (status, line) = demo.end();
    assert_eq!(status, Some(1));
    assert!(line.starts_with("thc: worker ") && line.contains("SIGKILL"), "{line}");
}

#[test]
fn a_killed_server_is_named() {
    let demo = Long::start();
    signal(demo.child("thc-ps"), Signal::KILL);
    let (status, line) = demo.end();
    assert_eq!(status, Some(1));
    assert!(line.starts_with("thc: thc-ps ended") && line.contains("SIGKILL"), "{line}");
}

#[test]
fn a_controller_changes_nothing_but_that_the_run_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let plain = report(folder.path(), "--workers 2 --steps 4");
    let found = report(folder.path(), "--workers 2 --steps 4 --aggregator controller");
    for key in ["digest", "thc/losses", "errors", "traffic/coordinates", "server/dropped"] {
        let pointer = format!("/{key}");
        assert_eq!(found.pointer(&pointer), plain.pointer(&pointer), "{key}");
        assert!(found.pointer(&pointer).is_some(), "{key}");
    }
    assert!(number(&found, "/server/results") >= number(&plain, "/server/results"), "{found}");
    let lossy = report(folder.path(), "--workers 2 --steps 4 --aggregator controller --loss 0.01");
    assert_eq!(lossy["digest"], plain["digest"]);
    assert!(number(&lossy, "/traffic/retransmissions") > 0.0);
}

#[test]
fn the_metrics_of_a_demo_with_a_controller_are_there_and_all_ends_with_it() {
    let demo = Long::start_with(&["--aggregator", "controller"], 4);
    let address =
        demo.said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    let asked = Instant::now();
    loop {
        let answer = get(&address, "/metrics");
        if answer.lines().any(|line| line.starts_with("thc_results_total{") && !line.ends_with(" 0")) {
            assert!(answer.contains("thc_job_running{thc_job=\"demo\""), "{answer}");
            break;
        }
        assert!(asked.elapsed() < HANG, "{answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(demo.demo.id(), Signal::INT);
    assert_eq!(demo.end(), (Some(130), "thc: interrupted".to_owned()));
}

#[test]
fn servers_beside_the_workers_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let plain = report(folder.path(), "--workers 3 --steps 4");
    for more in ["", " --loss 0.01"] {
        let found = report(folder.path(), &format!("--workers 3 --steps 4 --aggregator shares{more}"));
        for key in ["digest", "thc/losses", "exact/losses", "errors", "traffic/coordinates", "server/dropped"]
        {
            let pointer = format!("/{key}");
            assert_eq!(found.pointer(&pointer), plain.pointer(&pointer), "{key}{more}");
            assert!(found.pointer(&pointer).is_some(), "{key}");
        }
        // All shares together have completed what one server has.
        assert!(number(&found, "/server/results") >= number(&plain, "/server/results"), "{found}");
        assert!(more.is_empty() || number(&found, "/traffic/retransmissions") > 0.0, "{found}");
    }
    let output = demo(folder.path(), "--aggregator shares --workers 1");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("one worker has no other worker to share a server with"), "{said}");
}

#[test]
fn a_killed_worker_takes_its_share_along_and_is_named() {
    let demo = Long::start_with(&["--aggregator", "shares"], 2);
    signal(demo.child("internal-worker"), Signal::KILL);
    let (status, line) = demo.end();
    assert_eq!(status, Some(1));
    assert!(line.starts_with("thc: worker ") && line.contains("SIGKILL"), "{line}");
}

#[test]
fn a_killed_controller_is_named() {
    let demo = Long::start_with(&["--aggregator", "controller"], 4);
    signal(demo.child("thc-controller"), Signal::KILL);
    let (status, line) = demo.end();
    assert_eq!(status, Some(1));
    assert!(line.starts_with("thc: thc-controller ended") && line.contains("SIGKILL"), "{line}");
}

/// What an HTTP server answers.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_missing_server_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("thc");
    std::fs::copy(THC, &alone).unwrap();
    let output = Command::new(&alone).args(["demo", "--text", &text(folder.path())]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("thc-ps does not exist") && errors.contains("cargo build"), "{errors}");
}

/// Hosts with links, an aggregator and a worker on each host, of which nothing is left.
#[test]
fn a_testbed_runs_a_command_on_each_host() {
    for aggregator in ["ps", "shares"] {
        // A controller gives the cookie to the workers itself.
        let command = r#"echo "joins $THC_PS as $THC_WORKER, cookie: ${THC_COOKIE:-none}""#;
        let flags = ["testbed", "--workers", "2", "--rate", "100mbit", "--aggregator", aggregator];
        let output = Command::new(THC).args(flags).args(["--command", command]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("no hosts for the workers") {
            println!("not run: {said}");
            return;
        }
        assert!(output.status.success(), "{aggregator}: {said}");
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let at = if aggregator == "ps" { "thc://10.77.0.3:" } else { "10.77.0.1:9000 " };
        for host in 0..2 {
            let line = lines.lines().find(|line| line.starts_with(&format!("{host}: joins {at}")));
            let line = line.unwrap_or_else(|| panic!("{lines}"));
            assert!(line.contains(&format!("as {host}, ")), "{lines}");
            assert_eq!(line.ends_with("none"), aggregator == "ps", "{lines}");
        }
    }
    let output =
        Command::new(THC).args(["testbed", "--aggregator", "dpdk", "--command", "true"]).output().unwrap();
    assert!(!output.status.success());
}
