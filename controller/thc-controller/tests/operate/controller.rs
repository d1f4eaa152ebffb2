//! A controller's process, and commands that ask it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_support::openmetrics;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_thc-controller");
/// How long nothing may happen until a test counts as hung.
pub const HANG: Duration = Duration::from_secs(600);
/// Where nothing listens: port 1 is nobody's.
pub const NOWHERE: &str = "127.0.0.1:1";

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the program to its end.
pub fn run(args: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(PROGRAM);
    for name in
        ["THC_CONTROLLER", "THC_CONTROLLER_CA", "THC_CONTROLLER_CERT", "THC_CONTROLLER_KEY", "THC_COOKIE"]
    {
        command.env_remove(name);
    }
    let output = command.args(args).envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A target of a configuration: its name, P4Runtime address, and UDP port.
pub fn target(name: &str, address: &str, port: u16) -> String {
    format!("[[target]]\nname = \"{name}\"\naddress = \"{address}\"\nip = \"127.0.0.1\"\nudp_port = {port}\n")
}

/// A controller that runs, on ports of its own.
pub struct Controller {
    child: Child,
    pub listen: SocketAddr,
    pub http: SocketAddr,
    folder: tempfile::TempDir,
}

impl Controller {
    /// With this configuration; `%` in it is its folder.
    pub fn start(config: &str) -> Controller {
        Controller::start_in(tempfile::tempdir().unwrap(), config)
    }

    /// The same, with what is in a folder already.
    pub fn start_in(folder: tempfile::TempDir, config: &str) -> Controller {
        Controller::start_with_flags(folder, config, &[])
    }

    /// The same, with these flags.
    pub fn start_with_flags(folder: tempfile::TempDir, config: &str, flags: &[&str]) -> Controller {
        let state = folder.path().join("jobs.state");
        Controller::start_of(folder, config, &state, flags)
    }

    /// With this file of jobs.
    pub fn start_with(config: &str, state: &Path) -> Controller {
        Controller::start_of(tempfile::tempdir().unwrap(), config, state, &[])
    }

    fn start_of(folder: tempfile::TempDir, config: &str, state: &Path, flags: &[&str]) -> Controller {
        let file = folder.path().join("thc-controller.toml");
        fs::write(&file, config).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["run", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config"])
            .arg(&file)
            .args(["--state"])
            .arg(state)
            .args(flags)
            .env("RUST_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || match lines.next() {
            Some(line) => line.unwrap(),
            None => panic!("{}", fs::read_to_string(folder.path().join("log")).unwrap()),
        };
        let metrics = line();
        let http =
            metrics.strip_prefix("metrics http://").unwrap().trim_end_matches("/metrics").parse().unwrap();
        let listen = line().strip_prefix("ready ").unwrap().parse().unwrap();
        Controller { child, listen, http, folder }
    }

    /// Asks it.
    pub fn ask(&self, args: &[&str]) -> Ended {
        run(args, &[("THC_CONTROLLER", &self.listen.to_string())])
    }

    /// Asks it and gets what it says.
    pub fn ask_done(&self, args: &[&str]) -> String {
        let ended = self.ask(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.out
    }

    /// Asks for JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = args.to_vec();
        all.push("--json");
        serde_json::from_str(&self.ask_done(&all)).unwrap()
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Gets something by HTTP: head and body.
    pub fn get(&self, path: &str) -> (String, String) {
        get(self.http, path)
    }

    /// The value of a metric, of the first sample with these labels.
    pub fn metric(&self, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let families = openmetrics::parse(&self.get("/metrics").1);
        openmetrics::value(&families, family, labels)
    }

    /// Waits until something is so.
    pub fn wait_until(&self, what: &str, so: impl Fn(&Controller) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < HANG, "it does not come to {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until its targets are there.
    pub fn until_connected(&self) {
        self.wait_until("connected", |controller| {
            let list = controller.json(&["target", "list"]);
            list["targets"].as_array().unwrap().iter().all(|target| target["connected"] == true)
        });
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and gives its folder.
    pub fn stop(mut self) -> tempfile::TempDir {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a controller answers and has all its targets.
pub fn has_jobs(at: SocketAddr) -> bool {
    let ended = run(&["target", "list", "--json"], &[("THC_CONTROLLER", &at.to_string())]);
    let list: serde_json::Value = serde_json::from_str(&ended.out).unwrap_or_default();
    list["targets"].as_array().is_some_and(|all| all.iter().all(|target| target["connected"] == true))
}

/// Gets something by HTTP: head and body.
pub fn get(from: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(from).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {from}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}
