//! A switch of this machine's UDP sockets that runs the program for BMv2.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use thc_v1model::Cable;

/// Runs THC's switch program (p4/v1model) without BMv2, for hosts that are UDP sockets of this machine
///
/// A controller loads the program and writes its rows by P4Runtime. Each UDP address that sends a packet to --listen is a host
/// behind the next port, with the Ethernet address 02:00:00:00:00:PORT. The interpreter takes some 100 microseconds a packet and
/// pass: it shows and tests the program, and is no fast switch.
#[derive(Parser)]
#[command(
    name = "thc-v1model",
    version,
    max_term_width = 96,
    after_help = "Example:\n  thc-v1model --listen 127.0.0.1:9000 --p4runtime 127.0.0.1:9559 --hosts 4"
)]
struct Flags {
    /// The aggregator's UDP address
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddrV4,
    /// The address of the P4Runtime server
    #[arg(long, default_value = "127.0.0.1:9559")]
    p4runtime: SocketAddr,
    /// The largest number of hosts; a further one takes the port of the one that has been silent for longest
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    hosts: u8,
    /// The port of the controller
    #[arg(long, default_value_t = 255, value_parser = clap::value_parser!(u16).range(65..=510))]
    cpu_port: u16,
}

/// The aggregator's Ethernet address where a controller's configuration names none.
const OWN_MAC: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 1];

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "thc-v1model: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> anyhow::Result<()> {
    let cable = Cable::bind(flags.listen, OWN_MAC, flags.hosts.into(), flags.cpu_port)
        .with_context(|| format!("--listen {}", flags.listen))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(flags.p4runtime).await;
        let listener = listener.with_context(|| format!("--p4runtime {}", flags.p4runtime))?;
        let _ = writeln!(std::io::stdout(), "ready {}", listener.local_addr()?);
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let end = async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        };
        thc_v1model::serve(listener, cable, end).await
    })
}
