//! Four worker processes through the interpreted switch, whose rows a real thc-controller writes: they end with the bits that
//! thc-ps gives them.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use thc_tests::{COOKIE, HANG, Ps, WorkerProcess, binary, free_port, write_gradients};

const WORKERS: u8 = 4;
const COORDINATES: usize = 1 << 16;
/// So few that a socket's default buffer holds all windows.
const SLOTS: &str = "32";

/// A process that ends with its value, and what it says behind "ready".
struct Running(Child, String);

impl Running {
    fn start(name: &str, flags: &[&str]) -> Running {
        let mut command = Command::new(binary(name));
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.find_map(|line| line.strip_prefix("ready ").map(str::to_owned));
        // Nothing more is read, and the pipe is closed: both programs write to stdout no more.
        Running(child, ready.unwrap_or_else(|| panic!("{name} has ended")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configuration(p4runtime: &str) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/thc.json").canonicalize().unwrap();
    let stations: String = (1..=WORKERS)
        .map(|port| format!("[[target.station]]\nmac = \"02:00:00:00:00:{port:02x}\"\nport = {port}\n"))
        .collect();
    format!(
        "[controller]\nlisten = \"127.0.0.1:0\"\n\
         [[target]]\nname = \"switch\"\naddress = \"{p4runtime}\"\nip = \"127.0.0.1\"\ndevice_config = {program:?}\n\
         pass_ports = {:?}\n{stations}\
         [[job]]\nname = \"train\"\njob = 1\ncookie = \"{COOKIE}\"\nworkers = {WORKERS}\ndata_slots = {SLOTS}\n\
         granularity = 30\nfraction = \"1/32\"\n",
        super::PASS_PORTS
    )
}

/// What each worker wrote, after two calls.
fn all_reduce(at: SocketAddr, inputs: &[PathBuf], mode: &str) -> Vec<Vec<u8>> {
    let start = |(number, input): (u8, &PathBuf)| {
        let output = input.with_extension("out");
        let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let more = ["--repeat", "2", "--error-feedback=true", "--mode", mode, "--min-rto", "500ms"];
        WorkerProcess::start(at, number, &[&files[..], &more].concat())
    };
    let workers: Vec<WorkerProcess> = (0..).zip(inputs).map(start).collect();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    inputs.iter().map(|input| std::fs::read(input.with_extension("out")).unwrap()).collect()
}

#[test]
fn worker_processes_get_what_they_get_from_thc_ps() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let switch = Running::start("thc-v1model", &["--listen", &at.to_string(), "--p4runtime", "127.0.0.1:0"]);
    let file = folder.path().join("controller.toml");
    std::fs::write(&file, configuration(&switch.1)).unwrap();
    let controller =
        Running::start("thc-controller", &["run", "--state", "none", "--config", file.to_str().unwrap()]);
    let begin = Instant::now();
    let shown = || {
        let show = ["job", "show", "train", "--controller", &controller.1];
        Command::new(binary("thc-controller")).args(show).output().unwrap().status.success()
    };
    while !shown() {
        assert!(begin.elapsed() < HANG, "the controller does not create its job");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for mode in ["thc", "raw"] {
        let ps = Ps::start(WORKERS, &["--data-slots", SLOTS]);
        let expected = all_reduce(ps.addr, &inputs, mode);
        assert!(expected.iter().all(|mean| *mean == expected[0]), "all workers have the same mean");
        let begin = Instant::now();
        let got = all_reduce(at, &inputs, mode);
        println!("mode {mode}: 2 x 256 KiB of {WORKERS} workers in {:.1} s", begin.elapsed().as_secs_f64());
        assert!(got == expected, "mode {mode}: through the switch comes another mean than from thc-ps");
    }
}
