//! The program `thc-model` as a process.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Of the job that it serves.
pub const SECRET: &str = "a secret for tests";

/// The program, killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(address: SocketAddr, state: &Path) -> Self {
        Self::start_with(
            address,
            &["--job", "train", "--durable", "30ms", "--state", state.to_str().unwrap()],
        )
    }

    pub fn start_with(address: SocketAddr, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thc-model"))
            .args(["--threads", "2", "--listen", &address.to_string()])
            .args(flags)
            .env("THC_MODEL_SECRET", SECRET)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), format!("ready {address}"));
        Self(child)
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where nobody listens now.
pub fn free_address() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What an administrator's command prints, and its status.
pub fn administer(server: SocketAddr, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thc-model"));
    command.args(arguments).env("THC_MODEL_SECRET", SECRET).env("RUST_LOG", "error");
    command.args(["--server", &server.to_string()]);
    let out = command.output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8(text).unwrap())
}
