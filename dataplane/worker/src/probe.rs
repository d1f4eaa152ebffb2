//! Probes of a parameter server, which take no place in a job.

use crate::{AnyIo, GroupConfig, WorkerError, engine};
use std::net::SocketAddr;
use std::time::Duration;
use thc_codec::definitions;
use thc_protocol::wire::{Header, Join, Kind, MAX_PACKET, RefuseReason, Refused, Welcome, WelcomeError};
use thc_protocol::{Cookie, JobId, Round, WorkerId};
use thc_transport::{DeviceInfo, PacketIo};

/// After this many answers a probe ends.
const ENOUGH: u32 = 5;
/// The time after which an answer counts as lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// A parameter server's answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// Job and cookie are right, and this build computes the same numbers as the workers that have joined
    /// (P26).
    Job {
        /// The number of the job's workers.
        workers: u8,
        /// What this build does not know, and cannot take part without: a table, lanes, blocks or features.
        unusable: Option<String>,
    },
    /// The server's reason for refusing workers with this job and cookie.
    Refused(RefuseReason),
}

/// The outcome of probing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The last answer, if there was one.
    pub answer: Option<ProbeAnswer>,
    /// Probes sent, not counting those lost before the first answer, which may have waited for ARP.
    pub asked: u32,
    /// Probes answered.
    pub answered: u32,
    /// The shortest time from a probe to its answer.
    pub best: Duration,
    /// Another address from which the answer came.
    pub strangers: Option<SocketAddr>,
    /// Its host says that no program listens at its port (ICMP).
    pub refused: bool,
    /// The parameter server's address on the link could not be found out (DPDK).
    pub unresolved: bool,
    /// The devices that the probes went through (DPDK).
    pub devices: Vec<DeviceInfo>,
}

/// Sends JOINs as worker 255, which no job can have (P22), and waits for the answers.
///
/// # Errors
/// [`WorkerError::Io`] if socket or devices cannot be opened.
pub fn probe(config: &GroupConfig, patience: Duration) -> Result<Probe, WorkerError> {
    let mut io = AnyIo::open(config)?;
    let mut found = ask(&mut io, config, patience, ENOUGH)?;
    found.devices = io.devices();
    found.refused = io.refused().is_some();
    found.unresolved = found.answered == 0 && io.has_unresolved();
    Ok(found)
}

/// Probes through an open interface until `enough` probes are answered. Other packets are dropped meanwhile.
pub(crate) fn ask(
    io: &mut AnyIo,
    config: &GroupConfig,
    patience: Duration,
    enough: u32,
) -> Result<Probe, WorkerError> {
    let mut found = Probe::default();
    let end = io.now() + patience;
    let mut round = 0;
    while io.now() < end && found.answered < enough && found.asked < 4 * enough {
        round += 1;
        found.asked += 1;
        let mut buffer = [0; MAX_PACKET];
        let packet = question(config, round, &mut buffer);
        let sent = io.now();
        io.send_run(config.seat.ps, packet, packet.len())?;
        let due = end.min(sent + PATIENCE);
        let mut answer = None;
        while answer.is_none() && io.now() < due {
            let left = due.saturating_sub(io.now());
            io.wait(left.min(Duration::from_millis(10)))?;
            io.recv_burst(&mut |origin, packet| {
                if let Some(said) = understand(config, round, packet) {
                    if origin.from == config.seat.ps {
                        answer = Some(said);
                    } else {
                        found.strangers = Some(origin.from);
                    }
                }
            })?;
        }
        if let Some(said) = answer {
            let took = io.now().saturating_sub(sent);
            found.best = if found.answered == 0 { took } else { found.best.min(took) };
            if found.answered == 0 {
                found.asked = 1;
            }
            found.answered += 1;
            found.answer = Some(said);
        }
    }
    Ok(found)
}

fn question<'a>(config: &GroupConfig, round: u32, buffer: &'a mut [u8]) -> &'a [u8] {
    let header = Header {
        round: Round(round),
        ..Header::new(Kind::Join, 0, JobId(config.seat.job), WorkerId::NONE, Cookie(config.seat.cookie))
    };
    header.emit_packet(buffer, &Join { definitions: definitions::digest(), ..Join::default() }.to_bytes())
}

/// The answer in a packet, if it answers the probe of this round.
fn understand(config: &GroupConfig, round: u32, packet: &[u8]) -> Option<ProbeAnswer> {
    let (header, payload) = Header::parse(packet).ok()?;
    if header.job != JobId(config.seat.job) || header.round != Round(round) {
        return None;
    }
    match header.kind {
        Kind::Description => {
            let workers = header.num_workers;
            let unusable = match Welcome::read(payload) {
                Ok(welcome) => engine::usable(&welcome).err().map(|error| error.to_string()),
                Err(WelcomeError::Damaged) => return None,
                Err(error) => Some(error.to_string()),
            };
            Some(ProbeAnswer::Job { workers, unusable })
        }
        Kind::Refused => Some(ProbeAnswer::Refused(Refused::parse(payload)?.reason)),
        _ => None,
    }
}
