//! Measurements one after the other: hosts, processes, turns.

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use thc_netns::{Network, ports};

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
/// Lanes of 8 bits hold the sums of so many workers.
const NARROW: u8 = 17;
/// What a mean may be off: far beyond what the table costs, far below a mean of something else.
const MOST_ERROR: f64 = 0.1;
/// Keys of a server's job; others are the server's.
const JOB_KEYS: [&str; 12] = [
    "bits",
    "granularity",
    "fraction",
    "table",
    "lane",
    "down",
    "data_slots",
    "norm_slots",
    "block",
    "policy",
    "deadline",
    "seed",
];

/// One of the settings asked for.
struct Setting {
    workers: u8,
    bytes: u64,
    rate: Link,
    place: Place,
    jobs: u16,
    /// How many, of place racks.
    racks: u8,
}

impl Setting {
    /// Workers of each rack.
    fn sizes(&self) -> Vec<u8> {
        let (racks, all) = (u16::from(self.racks), u16::from(self.workers));
        (0..racks).map(|rack| (all * (rack + 1) / racks - all * rack / racks) as u8).collect()
    }

    fn name(&self) -> String {
        let size = bytes(self.bytes);
        let jobs = if self.jobs > 1 { format!("{} jobs of ", self.jobs) } else { String::new() };
        format!("{jobs}{} workers, {size}, {}, {}", self.workers, self.rate.name(), self.place.name())
    }
}

/// Bytes in words.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
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
                    let racks = args.racks;
                    if place == Place::Racks && workers < racks {
                        return Err(Error::Usage(format!(
                            "{workers} workers are fewer than {racks} racks: use --racks {workers} or fewer"
                        )));
                    }
                    for &jobs in &args.jobs {
                        settings.push(Setting { workers, bytes: size, rate, place, jobs, racks });
                    }
                }
            }
        }
    }
    let bar = progress(settings.len() as u64 * u64::from(args.repeat + 1));
    let mut found = Vec::new();
    for setting in &settings {
        bar.set_message(setting.name());
        let measured = one(args, setting, &interrupted, &bar)?;
        bar.suspend(|| eprintln!("{}", measured.line()));
        found.push(measured);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn progress(turns: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} turns, {eta} left: {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(turns).with_style(style)
}

/// Hosts, or the loopback interface.
struct Site(Option<Network>);

impl Site {
    fn new(setting: &Setting) -> Result<Self> {
        let Some(rate) = setting.rate.0 else { return Ok(Self(None)) };
        let no = |reason| Error::NoNetwork { reason };
        let hosts = setting.workers + setting.place.hosts(setting.racks);
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

    /// Where these servers are: on the same port of each host, or on ports in a row of the loopback interface.
    fn places(&self, hosts: std::ops::Range<usize>) -> Result<Vec<SocketAddr>> {
        let port = self.port(hosts.len() as u16, PORT)?;
        let step = u16::from(self.0.is_none());
        Ok((0u16..)
            .zip(hosts)
            .map(|(i, host)| SocketAddr::from((self.address(host), port + i * step)))
            .collect())
    }
}

/// What a server is.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// The only one, or the root of racks.
    Top,
    /// A share, and where all are.
    Share(usize, &'a [SocketAddr]),
    /// A rack, and where its root is.
    Rack(usize, SocketAddr),
}

/// A server's file.
fn server(args: &AllreduceArgs, setting: &Setting, cookie: u32, at: SocketAddr, role: Role<'_>) -> String {
    let mut own = format!("listen = \"{at}\"\n");
    match role {
        Role::Top => {}
        Role::Share(share, all) => {
            let list: Vec<String> = all.iter().map(|at| format!("\"{at}\"")).collect();
            own += &format!("share = \"{share}/{}\"\nshares = [{}]\n", all.len(), list.join(", "));
        }
        Role::Rack(rack, root) => own += &format!("rack = {rack}\nroot = \"{root}\"\n"),
    }
    let mut job = format!("cookie = {cookie}\nworkers = {}\n", setting.workers);
    if setting.place == Place::Racks {
        job += &format!("racks = {:?}\n", setting.sizes());
    }
    if setting.workers > NARROW && !args.server.iter().any(|(key, _)| key == "lane") {
        job += "lane = 16\n";
    }
    for (key, value) in &args.server {
        let quoted = if value.parse::<f64>().is_ok() { value.clone() } else { format!("\"{value}\"") };
        let to = if JOB_KEYS.contains(&key.as_str()) { &mut job } else { &mut own };
        *to += &format!("{key} = {quoted}\n");
    }
    own + &(1..=setting.jobs).map(|number| format!("[[job]]\njob = {number}\n{job}")).collect::<String>()
}

fn one(
    args: &AllreduceArgs,
    setting: &Setting,
    interrupted: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<Measured> {
    let site = Site::new(setting)?;
    let program = std::env::current_exe().map_err(Error::Process)?;
    let cookie = thc_ps::cookie::random();
    let n = usize::from(setting.workers);
    let calls = (ROW / setting.bytes.max(1)).clamp(1, MOST_CALLS) as u32;
    let coordinates = (setting.bytes / 4) as usize;
    let shares = match setting.place {
        Place::Colocated => site.places(0..n)?,
        Place::Switch | Place::Server | Place::Racks => Vec::new(),
    };
    // The only server or the root, and racks.
    let own_hosts = site.places(n..n + usize::from(setting.place.hosts(setting.racks)))?;
    let mut servers = Crew::new(Arc::clone(interrupted));
    for (place, &at) in own_hosts.iter().enumerate() {
        let (name, role) = match place {
            0 => ("the server".to_owned(), Role::Top),
            rack => (format!("rack {}", rack - 1), Role::Rack(rack - 1, own_hosts[0])),
        };
        let part = Part { server: Some(server(args, setting, cookie, at, role)), worker: None };
        let mut command = site.command(n + place, &program);
        command.arg("bench-part");
        servers.start(name, &mut command, &json!(part))?;
    }
    servers.answers()?;
    let Some(top) = own_hosts.first().or(shares.first()).copied() else {
        return Err(Error::one_worker("--place switch"));
    };
    // Where each worker joins, and its number there.
    let joins: Vec<(SocketAddr, u8)> = match setting.place {
        Place::Racks => {
            let racks = own_hosts[1..].iter().zip(setting.sizes());
            racks.flat_map(|(&rack, size)| (0..size).map(move |number| (rack, number))).collect()
        }
        _ => (0..setting.workers).map(|number| (top, number)).collect(),
    };
    let mut workers = Crew::new(Arc::clone(interrupted));
    let all = (1..=setting.jobs)
        .flat_map(|job| (0..setting.workers).zip(&joins).map(move |(rank, at)| (job, rank, *at)));
    for (job, rank, (ps, number)) in all {
        let own = usize::from(rank);
        // Those of the first job have the shares.
        let at = shares.get(own).filter(|_| job == 1);
        let share = at.map(|at| server(args, setting, cookie, *at, Role::Share(own, &shares)));
        let worker = WorkerPart {
            job,
            number,
            rank,
            workers: setting.workers,
            ps,
            cookie,
            coordinates,
            calls,
            threads: args.threads,
        };
        let part = Part { server: share, worker: Some(worker) };
        let mut command = site.command(own, &program);
        command.arg("bench-part");
        let name = if setting.jobs > 1 { format!(" of job {job}") } else { String::new() };
        workers.start(format!("worker {rank}{name}"), &mut command, &json!(part))?;
    }
    workers.answers()?;
    let mut other = match args.against {
        None => None,
        Some(Other::Gloo) => Some(gloo(&site, setting, calls, interrupted)?),
    };
    let (mut turns, mut against) = (Vec::new(), Vec::new());
    // The first turn makes connections and touches all memory.
    for turn in 0..=args.repeat {
        let took = repetition(&mut workers, &mut servers, calls)?;
        let nmse = check(setting, &workers.ask("check")?, calls)?;
        if turn > 0 {
            turns.push(Turn { nmse, ..took });
        }
        if let Some(other) = &mut other {
            let took = repetition(other, &mut Crew::new(Arc::clone(interrupted)), calls)?;
            if turn > 0 {
                against.push(took);
            }
        }
        bar.inc(1);
    }
    drop(workers);
    let all = coordinates * usize::from(setting.jobs);
    let limit = setting.rate.0.map(|rate| setting.place.limit(setting.workers, all, rate.0));
    let measured =
        Measured::new(setting.workers, setting.bytes, setting.rate, setting.place, &turns, &against, limit);
    Ok(Measured { jobs: setting.jobs, ..measured })
}

/// What a repetition took, for each all-reduce.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// From when the last began to when the last had the mean.
    pub seconds: f64,
    /// Processor time of all processes.
    pub cpu: f64,
    /// Packets sent again.
    pub again: f64,
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
            nmse: 0.0,
        }
    }
}

/// All workers have the same mean, and it is one. Returns its error.
fn check(setting: &Setting, answers: &[Value], calls: u32) -> Result<f64> {
    let differ = |of_job: &[Value]| of_job.iter().any(|answer| answer["checksum"] != of_job[0]["checksum"]);
    if answers.chunks(setting.workers.into()).any(differ) {
        return Err(Error::Failure(format!("{}: the workers have different means", setting.name())));
    }
    // Of several in a row, the later ones are means of means.
    let error = answers.iter().map(|answer| number(answer, "nmse")).fold(0.0, f64::max);
    if calls == 1 && error > MOST_ERROR {
        return Err(Error::Failure(format!("{}: the mean is wrong, its NMSE is {error}", setting.name())));
    }
    Ok(error)
}

fn gloo(site: &Site, setting: &Setting, calls: u32, interrupted: &Arc<AtomicBool>) -> Result<Crew> {
    let python =
        std::env::var_os("THC_PYTHON").map_or_else(|| PathBuf::from("/usr/bin/python3"), PathBuf::from);
    let mut crew = Crew::new(Arc::clone(interrupted));
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
    fn sizes_in_words() {
        assert_eq!([4, 65_536, 3 << 20, 1 << 30].map(bytes), ["4 B", "64 KiB", "3 MiB", "1 GiB"]);
    }

    #[test]
    fn a_turn_lasts_from_the_last_beginning_to_the_last_end() {
        let answers = [
            json!({ "began": 1_000, "ended": 9_000, "again": 2 }),
            json!({ "began": 3_000, "ended": 8_000, "again": 0 }),
        ];
        let turn = Turn::evaluate(&answers, 2, 4.0);
        assert!((turn.seconds - 3e-6).abs() < 1e-12 && (turn.cpu - 2.0).abs() < 1e-12);
        assert!((turn.again - 1.0).abs() < 1e-12);
    }
}
