//! Measurements one after the other: hosts, processes, turns.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytesize::ByteSize;
use serde_json::{Value, json};
use thc_config::logs::print_error;
use thc_netns::{Network, ports};
use thc_protocol::wire::Form;
use thc_ps::ServerOptions;

use super::arguments::{AllreduceArgs, Other};
use super::crew::Crew;
use super::part::{Part, WorkerPart};
use super::place::Place;
use super::report::Measured;
use crate::error::{Error, Result};
use crate::units::Link;

/// The other side of `--against gloo`.
const GLOO: &str = include_str!("gloo.py");
/// The shares' and the server's port on their hosts, and gloo's.
const PORT: u16 = 9000;
const MEETING: u16 = 29500;
/// Small tensors are reduced several times in a row, up to so many bytes and so often, and the time is divided.
const ROW: u64 = 4 << 20;
const MOST_CALLS: u64 = 64;
/// The job's seed, so that all places give the same bits.
const SEED: u32 = 7;
/// The largest error of a mean: far beyond what the table costs, far below a mean of something else.
const MOST_ERROR: f64 = 0.1;
/// One of the settings asked for.
struct Setting {
    workers: u8,
    bytes: u64,
    rate: Link,
    place: Place,
}

impl Setting {
    fn name(&self) -> String {
        let size = ByteSize(self.bytes);
        format!("{} workers, {size}, {}, {}", self.workers, self.rate.name(), self.place.name())
    }
}

/// Measures all settings.
pub fn measure(args: &AllreduceArgs) -> Result<Vec<Measured>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
    }
    let mut settings = Vec::new();
    for &rate in &args.rate {
        for &workers in &args.workers {
            for &size in &args.size {
                for &place in &args.place {
                    if place == Place::Colocated && workers < 2 {
                        return Err(Error::one_worker("--place switch"));
                    }
                    settings.push(Setting { workers, bytes: size, rate, place });
                }
            }
        }
    }
    let mut found = Vec::new();
    for setting in &settings {
        print_error(setting.name());
        found.push(one(args, setting, &interrupted)?);
    }
    Ok(found)
}

/// Hosts, or the loopback interface.
struct Site(Option<Network>);

impl Site {
    fn new(setting: &Setting) -> Result<Self> {
        let Some(rate) = setting.rate.0 else { return Ok(Self(None)) };
        let no = |reason| Error::NoNetwork { reason };
        let hosts = setting.workers + u8::from(setting.place != Place::Colocated);
        let network = Network::lan(hosts).map_err(no)?;
        for (n, host) in network.hosts().iter().enumerate() {
            host.assign().map_err(no)?;
            // The last may be the server's.
            if n < usize::from(setting.workers) || setting.place == Place::Server {
                network.shape(n, rate.0).map_err(no)?;
            }
        }
        Ok(Self(Some(network)))
    }

    fn address(&self, host: usize) -> Ipv4Addr {
        self.0.as_ref().map_or(Ipv4Addr::LOCALHOST, |network| network.host(host).address)
    }

    fn command(&self, host: usize, program: &std::path::Path) -> Command {
        self.0.as_ref().map_or_else(|| Command::new(program), |network| network.host(host).command(program))
    }

    /// A port for so many servers in a row, one on each host.
    fn port(&self, servers: u16, usual: u16) -> Result<u16> {
        if self.0.is_some() { Ok(usual) } else { ports::find_free(servers).map_err(Error::Process) }
    }

    /// The addresses of these servers: on the same port of each host, or on ports in a row of the loopback interface.
    fn places(&self, hosts: std::ops::Range<usize>) -> Result<Vec<SocketAddr>> {
        let port = self.port(hosts.len() as u16, PORT)?;
        let step = u16::from(self.0.is_none());
        Ok((0u16..)
            .zip(hosts)
            .map(|(i, host)| SocketAddr::from((self.address(host), port + i * step)))
            .collect())
    }
}

/// A server's file, or that of a share of one: its number, and the addresses of all.
fn server(setting: &Setting, cookie: u32, at: SocketAddr, share: Option<(usize, &[SocketAddr])>) -> String {
    let mut text = format!("listen = \"{at}\"\n");
    if let Some((share, all)) = share {
        let list: Vec<String> = all.iter().map(|at| format!("\"{at}\"")).collect();
        text += &format!("share = \"{share}/{}\"\nshares = [{}]\n", all.len(), list.join(", "));
    }
    text += &format!("[[job]]\njob = 1\ncookie = {cookie}\nseed = {SEED}\nworkers = {}\n", setting.workers);
    text
}

/// The form of the packets of a server's job.
fn form(server: &str) -> Result<Form> {
    let config = ServerOptions::parse(server).and_then(|options| options.validate());
    let job = config.map_err(Error::failure)?.jobs.into_iter().next();
    let table = job.and_then(|job| job.welcome.tables.iter().next().map(|table| table.form));
    table.ok_or_else(|| Error::failure("the server has no job"))
}

fn one(args: &AllreduceArgs, setting: &Setting, interrupted: &Arc<AtomicBool>) -> Result<Measured> {
    let site = Site::new(setting)?;
    let program = std::env::current_exe().map_err(Error::Process)?;
    let cookie = thc_ps::cookie::random();
    let n = usize::from(setting.workers);
    let calls = (ROW / setting.bytes.max(1)).clamp(1, MOST_CALLS) as u32;
    let coordinates = (setting.bytes / 4) as usize;
    let is_shared = setting.place == Place::Colocated;
    // The shares beside the workers, or the only server on the last host.
    let servers_at = site.places(if is_shared { 0..n } else { n..n + 1 })?;
    let mut servers = Crew::new(interrupted);
    if !is_shared {
        let part = Part { server: Some(server(setting, cookie, servers_at[0], None)), worker: None };
        let mut command = site.command(n, &program);
        servers.start("the server".to_owned(), command.arg("internal-part"), &json!(part))?;
        servers.answers()?;
    }
    let mut workers = Crew::new(interrupted);
    for rank in 0..setting.workers {
        let own = usize::from(rank);
        let share = is_shared.then(|| server(setting, cookie, servers_at[own], Some((own, &servers_at))));
        let (workers_of_job, ps) = (setting.workers, servers_at[0]);
        let worker = WorkerPart { rank, workers: workers_of_job, ps, cookie, coordinates, calls };
        let part = Part { server: share, worker: Some(worker) };
        let mut command = site.command(own, &program);
        workers.start(format!("worker {rank}"), command.arg("internal-part"), &json!(part))?;
    }
    workers.answers()?;
    let mut other = match args.against {
        None => None,
        Some(Other::Gloo) => Some(gloo(&site, setting, calls, "float32", interrupted)?),
        Some(Other::GlooBf16) => Some(gloo(&site, setting, calls, "bfloat16", interrupted)?),
    };
    // One all-reduce alone has the error of one: later ones in a row average means.
    workers.ask("fill")?;
    workers.ask("once")?;
    let nmse = check(setting, &workers.ask("check")?)?;
    if nmse > MOST_ERROR {
        return Err(wrong_mean(setting, nmse));
    }
    let (mut turns, mut against) = (Vec::new(), Vec::new());
    // The first turn makes connections and touches all memory.
    for turn in 0..=args.repeat {
        let took = repetition(&mut workers, &mut servers, calls)?;
        let of_turn = check(setting, &workers.ask("check")?)?;
        if calls == 1 && of_turn > MOST_ERROR {
            return Err(wrong_mean(setting, of_turn));
        }
        if turn > 0 {
            turns.push(Turn { nmse, ..took });
        }
        if let Some(other) = &mut other {
            let took = repetition(other, &mut Crew::new(interrupted), calls)?;
            if turn > 0 {
                against.push(took);
            }
        }
    }
    drop(workers);
    let first = server(setting, cookie, servers_at[0], is_shared.then_some((0, &servers_at)));
    let form = form(&first)?;
    let limit = setting.rate.0.map(|rate| setting.place.limit(setting.workers, form, coordinates, rate.0));
    let Setting { workers, bytes, rate, place } = *setting;
    Ok(Measured::new(workers, bytes, rate, place, &turns, &against, limit))
}

fn wrong_mean(setting: &Setting, nmse: f64) -> Error {
    Error::Failure(format!("{}: the mean is wrong, its NMSE is {nmse}", setting.name()))
}

/// The cost of a repetition, for each all-reduce.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// From when the last began to when the last had the mean.
    pub seconds: f64,
    /// Processor time of all processes.
    pub cpu: f64,
    /// Packets sent again.
    pub again: f64,
    /// Bytes that a worker sent and received, from the IP header on, in the mean of all.
    pub bytes: f64,
    /// The NMSE of the means.
    pub nmse: f64,
}

/// One repetition by a crew and its servers. Nobody does anything else before all have ended: what they do to check their means would
/// slow down those that still reduce on the same cores, and is no part of the all-reduce.
fn repetition(crew: &mut Crew, servers: &mut Crew, calls: u32) -> Result<Turn> {
    crew.ask("fill")?;
    let before = cpu(crew)? + cpu(servers)?;
    let answers = crew.ask("go")?;
    let used = cpu(crew)? + cpu(servers)? - before;
    Ok(Turn::evaluate(&answers, calls, used))
}

/// CPU seconds of all processes of a crew so far.
fn cpu(crew: &mut Crew) -> Result<f64> {
    Ok(crew.ask("cpu")?.iter().map(|answer| number(answer, "cpu")).sum())
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or(0.0)
}

impl Turn {
    fn evaluate(answers: &[Value], calls: u32, cpu: f64) -> Self {
        let latest = |key: &str| answers.iter().filter_map(|answer| answer[key].as_u64()).max().unwrap_or(0);
        let sum = |key: &str| answers.iter().map(|answer| number(answer, key)).sum::<f64>();
        let calls = f64::from(calls);
        Self {
            seconds: latest("ended").saturating_sub(latest("began")) as f64 / 1e9 / calls,
            cpu: cpu / calls,
            again: sum("again") / calls,
            bytes: sum("bytes") / calls / answers.len() as f64,
            nmse: 0.0,
        }
    }
}

/// All workers have the same mean, and it is one. Returns its error.
fn check(setting: &Setting, answers: &[Value]) -> Result<f64> {
    if answers.iter().any(|answer| answer["checksum"] != answers[0]["checksum"]) {
        return Err(Error::Failure(format!("{}: the workers have different means", setting.name())));
    }
    Ok(answers.iter().map(|answer| number(answer, "nmse")).fold(0.0, f64::max))
}

/// The Python that has torch.
pub fn python() -> PathBuf {
    std::env::var_os("THC_PYTHON").unwrap_or_else(|| "python3".into()).into()
}

fn gloo(
    site: &Site,
    setting: &Setting,
    calls: u32,
    dtype: &str,
    interrupted: &Arc<AtomicBool>,
) -> Result<Crew> {
    let python = python();
    let mut crew = Crew::new(interrupted);
    let port = site.port(1, MEETING)?;
    for rank in 0..setting.workers {
        let environment = json!({
            "MASTER_ADDR": site.address(0).to_string(),
            "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": if site.0.is_some() { "eth0" } else { "lo" },
            "WORLD_SIZE": setting.workers,
            "RANK": rank,
        });
        let order = json!({
            "environment": environment,
            "coordinates": setting.bytes / 4,
            "calls": calls,
            "dtype": dtype,
        });
        let mut command = site.command(rank.into(), &python);
        command.args(["-c", GLOO]).env("OMP_NUM_THREADS", "1");
        crew.start(format!("gloo's rank {rank}"), &mut command, &order)?;
    }
    crew.answers()?;
    Ok(crew)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_lasts_from_the_last_beginning_to_the_last_end() {
        let answers = [
            json!({ "began": 1_000, "ended": 9_000, "again": 2, "bytes": 8 }),
            json!({ "began": 3_000, "ended": 8_000, "again": 0, "bytes": 4 }),
        ];
        let turn = Turn::evaluate(&answers, 2, 4.0);
        assert!((turn.seconds - 3e-6).abs() < 1e-12 && (turn.cpu - 2.0).abs() < 1e-12);
        assert!((turn.again - 1.0).abs() < 1e-12 && (turn.bytes - 3.0).abs() < 1e-12);
    }
}
