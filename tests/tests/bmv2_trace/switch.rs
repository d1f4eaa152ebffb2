//! A running BMv2 with the compiled program, and its command line.

use super::Readings;
use super::pcap::{Input, Output};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thc_tests::{bmv2, free_port, notifications};

pub struct Switch {
    child: Child,
    cli: PathBuf,
    thrift: u16,
    dir: tempfile::TempDir,
    inputs: BTreeMap<u16, Input>,
    outputs: BTreeMap<u16, Output>,
    time: u64,
}

impl Switch {
    /// Starts one with these ports, or says why not.
    pub fn start(ports: &[u16]) -> Result<Switch, String> {
        let program = bmv2("simple_switch_grpc")?;
        let cli = bmv2("simple_switch_CLI")?;
        let dir = tempfile::tempdir().unwrap();
        let json = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/thc.json");
        let thrift = free_port();
        let mut command = Command::new(&program);
        command.args(["--use-files", "0", "--log-level", "error", "--thrift-port", &thrift.to_string()]);
        command.args(notifications(&program, &dir.path().join("notifications.ipc")));
        let inputs = ports.iter().map(|&port| (port, Input::new(dir.path(), port))).collect();
        let outputs = ports.iter().map(|&port| (port, Output::new(dir.path(), port))).collect();
        for port in ports {
            command.args(["-i", &format!("{port}@{port}")]);
        }
        command.arg(json.canonicalize().unwrap());
        command.args(["--", "--grpc-server-addr", &format!("127.0.0.1:{}", free_port())]);
        let log = File::create(dir.path().join("log")).unwrap();
        let child = command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut switch = Switch { child, cli, thrift, dir, inputs, outputs, time: 0 };
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", thrift)).is_err() {
            assert!(start.elapsed() < thc_tests::HANG, "BMv2 does not start: {}", switch.log());
            assert!(switch.child.try_wait().unwrap().is_none(), "BMv2 has ended: {}", switch.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(switch)
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Runs commands and returns what they print.
    pub fn commands(&self, commands: &[String]) -> String {
        let mut child = Command::new(&self.cli)
            .args(["--thrift-port", &self.thrift.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = commands.join("\n") + "\n";
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        for line in printed.lines() {
            let bad = ["Invalid", "Error", "error", "Unknown", "unknown", "Exception", "Wrong", "syntax"];
            assert!(!bad.iter().any(|word| line.contains(word)), "BMv2's command line: {line}");
        }
        printed
    }

    /// Sends a frame into a port, after all frames that were sent before into any port.
    pub fn send(&mut self, port: u16, frame: &[u8]) {
        self.time += 1;
        self.inputs[&port].send(self.time, frame);
    }

    /// Lets the switch take everything that was sent: see [`Input`].
    pub fn push(&mut self, filler: &[u8]) {
        let ports: Vec<u16> = self.inputs.keys().copied().collect();
        for port in ports {
            self.send(port, filler);
        }
    }

    /// What came out of each port since the last call.
    pub fn take(&mut self) -> BTreeMap<u16, Vec<Vec<u8>>> {
        self.outputs.iter_mut().map(|(&port, output)| (port, output.take())).collect()
    }
}

impl Readings for Switch {
    fn registers(&self, names: &[String]) -> Vec<Vec<u64>> {
        let commands: Vec<String> = names.iter().map(|name| format!("register_read {name}")).collect();
        let printed = self.commands(&commands);
        let read = |name: &String| {
            let mark = format!("{name}= ");
            let line = printed.lines().find_map(|line| line.split_once(&mark)).map(|(_, cells)| cells);
            line.unwrap().split(',').map(|cell| cell.trim().parse().unwrap()).collect()
        };
        names.iter().map(read).collect()
    }

    fn counters(&self, cells: &[(&str, usize)]) -> Vec<(u64, u64)> {
        let commands: Vec<String> =
            cells.iter().map(|(name, index)| format!("counter_read {name} {index}")).collect();
        let printed = self.commands(&commands);
        let number = |text: &str| -> u64 { text.split_whitespace().next().unwrap().parse().unwrap() };
        let values: Vec<(u64, u64)> = printed
            .lines()
            .filter_map(|line| line.split_once("]= (").map(|(_, value)| value.split_once(',').unwrap()))
            .map(|(bytes, packets)| (number(packets), number(bytes)))
            .collect();
        assert_eq!(values.len(), cells.len(), "{printed}");
        values
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
