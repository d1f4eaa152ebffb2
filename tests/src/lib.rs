//! What the tests that cross crates share: real processes of `thc-ps` and `thc-worker`.
//!
//! The binaries are those that cargo built next to the test; every process is ended when its value is dropped.
#![allow(clippy::unwrap_used, reason = "only tests use it")]
#![forbid(unsafe_code)]

pub mod figures;
pub mod followed;
pub mod guest;
pub mod hostile;
pub mod kills;
pub mod machine;
pub mod p4;
pub mod ready;
pub mod traffic;
pub mod vectors;
pub mod wiretap;

pub use thc_netns::{Host, Network, PREFIX_LEN};

use ready::Ready;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long nothing may happen until a test counts as hung. Limits of time in tests are for hangs, and never tell how busy the machine is: what takes
/// longest takes a tenth of this with the machine at a load of 16.
pub const HANG: Duration = Duration::from_secs(600);

/// The cookie of all test jobs, as flags take it.
pub const COOKIE: &str = "0x5EED1234";
/// The same as a number.
pub const COOKIE_NUMBER: u32 = 0x5EED_1234;

/// The folder that cargo has built binaries in: next to this program, or above it if this is a test.
#[must_use]
pub fn built_in() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folder = if folder.ends_with("deps") { folder.parent().unwrap() } else { folder };
    folder.to_owned()
}

/// A binary of the workspace.
///
/// # Panics
/// If it has not been built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let built = built_in().join(name);
    assert!(built.is_file(), "{} is missing: run `cargo build --workspace --bins` first", built.display());
    built
}

/// Finds a program of BMv2 in the folder `THC_BMV2` or on the PATH.
///
/// # Errors
/// `PROGRAM not found`, for `not run: …`.
pub fn bmv2(program: &str) -> Result<PathBuf, String> {
    let folders = std::env::var_os("THC_BMV2").or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{program} not found"))
}

/// A free port for a server, over UDP and TCP; see [`thc_netns::ports::find_free`].
#[must_use]
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many in a row.
#[must_use]
pub fn free_ports(count: u16) -> u16 {
    thc_netns::ports::find_free(count).unwrap()
}

/// Flags by which several BMv2 do not meet at one socket of notifications, which those with nanomsg have.
#[must_use]
pub fn notifications(program: &Path, socket: &Path) -> Vec<String> {
    let flag = "--notifications-addr";
    let help = Command::new(program).arg("--help").output().unwrap();
    let known = [help.stdout, help.stderr].iter().any(|said| String::from_utf8_lossy(said).contains(flag));
    if known { vec![flag.to_owned(), format!("ipc://{}", socket.display())] } else { Vec::new() }
}

/// A `simple_switch_grpc` that has no program yet, with a port for each of these hosts, numbered from 1, and P4Runtime
/// at a port of the loopback.
#[must_use]
pub fn switch_command(program: &Path, hosts: &[Host], p4runtime: u16, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-p4", "--log-level", "error", "--thrift-port", &free_port().to_string()]);
    command.args(notifications(program, &folder.join(format!("notifications{p4runtime}.ipc"))));
    for (port, host) in (1..).zip(hosts) {
        command.args(["-i", &format!("{port}@{}", host.port)]);
    }
    command.args(["--", "--grpc-server-addr", &format!("127.0.0.1:{p4runtime}"), "--cpu-port", "255"]);
    command
}

/// A command that runs a binary, on a host of a test's network or on this machine itself.
fn command(host: Option<&Host>, name: &str) -> Command {
    let binary = binary(name);
    host.map_or_else(|| Command::new(&binary), |host| host.command(&binary))
}

/// A running parameter server.
pub struct Ps {
    process: Ready,
    /// Where workers join.
    pub addr: SocketAddr,
}

impl Ps {
    /// Starts one for job 1 with a fixed table, on a free port, and waits until it is ready.
    #[must_use]
    pub fn start(workers: u8, more: &[&str]) -> Ps {
        Ps::start_on(None, SocketAddr::from(([127, 0, 0, 1], free_port())), workers, more)
    }

    /// The same on a host and at an address.
    #[must_use]
    pub fn start_on(host: Option<&Host>, addr: SocketAddr, workers: u8, more: &[&str]) -> Ps {
        let mut command = command(host, "thc-ps");
        command.args(["--job", "1", "--cookie", COOKIE, "--workers", &workers.to_string()]);
        command.args(["--listen", &addr.to_string()]);
        if !more.contains(&"--granularity") {
            command.args(["--granularity", "30", "--fraction", "1/32"]);
        }
        command.args(more);
        Ps { process: Ready::start(command), addr }
    }

    /// Starts one for job 1 at an address, with these flags alone.
    #[must_use]
    pub fn listen_at(addr: SocketAddr, flags: &[&str]) -> Ps {
        Ps::of_host(None, addr, flags)
    }

    /// The same on a host.
    #[must_use]
    pub fn of_host(host: Option<&Host>, addr: SocketAddr, flags: &[&str]) -> Ps {
        let mut command = command(host, "thc-ps");
        command.args(["--job", "1", "--cookie", COOKIE, "--listen", &addr.to_string()]).args(flags);
        Ps { process: Ready::start(command), addr }
    }

    /// SIGKILL, and a new process with the same arguments.
    pub fn kill_and_restart(&mut self) {
        self.process.kill_and_restart();
    }

    /// SIGKILL, and a new process for the same job with other arguments.
    pub fn kill_and_change(&mut self, workers: u8, more: &[&str]) {
        let mut command = Command::new(binary("thc-ps"));
        command.args(["--job", "1", "--cookie", COOKIE, "--workers", &workers.to_string()]);
        command.args(["--listen", &self.addr.to_string()]).args(more);
        self.process.kill_and_change(command);
    }

    /// SIGKILL without a successor.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// A running worker.
pub struct WorkerProcess(Option<Child>);

impl WorkerProcess {
    /// Starts worker `number` of job 1 at `ps`.
    #[must_use]
    pub fn start(ps: SocketAddr, number: u8, more: &[&str]) -> WorkerProcess {
        WorkerProcess::start_on(None, ps, number, more)
    }

    /// The same on a host.
    #[must_use]
    pub fn start_on(host: Option<&Host>, ps: SocketAddr, number: u8, more: &[&str]) -> WorkerProcess {
        let mut command = command(host, "thc-worker");
        command.args(["--ps", &ps.to_string(), "--worker", &number.to_string()]);
        if !more.contains(&"--cookie") {
            command.args(["--cookie", COOKIE]);
        }
        command
            .args(more)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        WorkerProcess(Some(command.spawn().unwrap()))
    }

    /// Starts a worker with these flags alone.
    #[must_use]
    pub fn with_flags(host: Option<&Host>, flags: &[&str]) -> WorkerProcess {
        let mut command = command(host, "thc-worker");
        command.args(flags).env("NO_COLOR", "1");
        WorkerProcess::spawn(command)
    }

    /// Starts a worker that is another program.
    #[must_use]
    pub fn spawn(mut command: Command) -> WorkerProcess {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        WorkerProcess(Some(command.spawn().unwrap()))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.0.as_ref().unwrap()), signal).unwrap();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.0.as_mut().unwrap().kill().unwrap();
    }

    /// Waits for its end, a minute and a half at most.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        let mut child = self.0.take().unwrap();
        let (out, err) = (drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap()));
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > HANG {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("a worker hangs: {}", err.join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Finished { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = from.read_to_string(&mut text);
        text
    })
}

/// How a process ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status; `None` after a signal.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl Finished {
    /// Its last line on stderr.
    #[must_use]
    pub fn last_error(&self) -> &str {
        self.err.lines().last().unwrap_or("")
    }

    /// Its report, from `--json`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs a binary to its end.
#[must_use]
pub fn run(name: &str, args: &[&str]) -> Output {
    Command::new(binary(name)).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Writes raw f32 coordinates that look like a gradient and differ between `seed`s.
pub fn write_gradient(path: &Path, coordinates: usize, seed: u64) {
    std::fs::write(
        path,
        gradient(coordinates, seed).iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
    )
    .unwrap();
}

/// A file of [`write_gradient`] in a folder for each of some workers, whose numbers are the seeds.
#[must_use]
pub fn write_gradients(folder: &Path, workers: u8, coordinates: usize) -> Vec<PathBuf> {
    let write = |worker: u8| {
        let path = folder.join(format!("{worker}.f32"));
        write_gradient(&path, coordinates, worker.into());
        path
    };
    (0..workers).map(write).collect()
}

/// Coordinates that look like a gradient: products of three uniform numbers.
#[must_use]
pub fn gradient(coordinates: usize, seed: u64) -> Vec<f32> {
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..coordinates).map(|_| next() * next() * next()).collect()
}
