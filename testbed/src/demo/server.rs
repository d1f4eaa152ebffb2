//! The demo's parameter server: where the program `thc-ps` is and how it is started.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Name of the parameter server's program.
const PROGRAM: &str = "thc-ps";

/// The job number that the demo uses.
pub const JOB: u16 = 1;

/// The parameter server beside this program. When this program was started by cargo, which
/// builds only the package asked for, `thc-ps` is built first, in the same profile, so
/// that the demo never runs an old one.
pub fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(Error::Process)?;
    let folder = own.parent().unwrap_or(Path::new("."));
    // Test programs lie in `deps`, one level below.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let program = folder.join(PROGRAM);
    if let (Some(cargo), Some(package)) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        build(Path::new(&cargo), Path::new(&package), folder)?;
    }
    if program.is_file() { Ok(program) } else { Err(Error::NoServer { program }) }
}

/// Builds `thc-ps` into `folder`, which is `<target>/<profile>`.
fn build(cargo: &Path, package: &Path, folder: &Path) -> Result<()> {
    let (Some(target), Some(profile)) = (folder.parent(), folder.file_name()) else {
        return Ok(());
    };
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", PROGRAM, "--bin", PROGRAM])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null());
    if profile != "debug" {
        command.arg("--profile").arg(profile);
    }
    let output = command.output().map_err(|source| Error::Start { name: "cargo".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first = complaint.lines().find(|line| line.starts_with("error"));
    Err(Error::Build { complaint: first.unwrap_or("cargo gave no reason").to_owned() })
}

/// A loopback address whose UDP port is free at this moment.
pub fn free_address() -> Result<SocketAddrV4> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::Process)?;
    let port = socket.local_addr().map_err(Error::Process)?.port();
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

/// The command line of the parameter server for one demo.
pub fn arguments(address: SocketAddrV4, workers: u8, bits: u8, cookie: u32) -> Vec<String> {
    let pairs = [
        ("--listen", address.to_string()),
        ("--job", JOB.to_string()),
        ("--workers", workers.to_string()),
        ("--bits", bits.to_string()),
        ("--cookie", format!("{cookie:#010x}")),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}
