//! One simulated job: its hosts, its workers, its aggregators, and the time that its all-reduces take.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use thc_codec::signs::SignKey;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfigError, Shard};
use thc_protocol::session::{JoinEvent, Joiner, Joiners};
use thc_protocol::wire::{Header, Kind, Welcome};
use thc_protocol::{Cookie, WorkerId};
use thc_ps::{JobSetup, ServerOptions};
use thc_support::{SimConfig, SimNet};
use thc_worker::{Computed, Engine, EngineConfig, Rounding};

use super::actor::{Actor, PacketCosts, Party, Port, SimAggregator};
use super::cluster::Cluster;
use super::recirculation::Chip;
use crate::bench::Place;
use crate::error::{Error, Result};
use thc_netns::Rate;

/// Blocks of slots that each colocated share has at least.
const BLOCKS_EACH: u32 = 2;
/// The session's cookie, which no configured one may be.
const SESSION: Cookie = Cookie(0x51B0_51B0);
const CONFIGURED: u32 = 1;
/// Bytes of slots that an aggregator may have.
const MEMORY: usize = 1 << 30;
/// Results that a worker's receive buffer holds: it is no bound here.
const CAPACITY: usize = 1 << 20;
const WORKER_PORT: u16 = 5000;
const SERVER_PORT: u16 = 9000;
/// Coordinates on which the mean is compared with the exact one.
const CHECKED: usize = 4096;

/// Times of one core of an EPYC.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Nanoseconds of a coordinate: its norm, its compression, the mean from its sum.
    pub norm_ns: f64,
    pub compress_ns: f64,
    pub decompress_ns: f64,
    /// A packet at a worker.
    pub send: Duration,
    pub receive: Duration,
    /// A packet at a server, and a copy of its answer.
    pub server_receive: Duration,
    pub server_send: Duration,
    /// Waking up a sleeping receiver.
    pub wake: Duration,
}

impl Costs {
    /// The time of what was computed between two counts.
    pub fn computing_time(&self, before: &Computed, after: &Computed) -> Duration {
        let part = |before: u64, after: u64, ns: f64| (after - before) as f64 * ns;
        let ns = part(before.measured, after.measured, self.norm_ns)
            + part(before.compressed, after.compressed, self.compress_ns)
            + part(before.finished, after.finished, self.decompress_ns);
        Duration::from_secs_f64(ns / 1e9)
    }
}

/// The machines and the network.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub costs: Costs,
    pub seed: u64,
    /// All-reduces in a row.
    pub rounds: usize,
    /// The delay of the network one way, in addition to that of links.
    pub latency: Duration,
    /// Bytes around an IP packet on Ethernet, from preamble to gap.
    pub framing: usize,
    /// Packets that wait for one receiver at most; further ones are lost.
    pub queue: usize,
    /// The switch: its chip, the bits a second of its loopback ports together, their number, and the time of a pass.
    pub chip: Chip,
    pub loopback: f64,
    pub pass_ports: u16,
    pub pass: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let ns = Duration::from_nanos;
        Self {
            costs: Costs {
                norm_ns: 0.12,
                compress_ns: 0.3,
                decompress_ns: 0.27,
                send: ns(120),
                receive: ns(250),
                server_receive: ns(150),
                server_send: ns(150),
                wake: ns(10_000),
            },
            seed: 1,
            rounds: 3,
            latency: ns(5000),
            framing: 38,
            queue: 1 << 16,
            chip: Chip::Tofino2,
            loopback: 3.2e12,
            pass_ports: 4,
            pass: ns(700),
        }
    }
}

/// A job to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Case {
    pub layout: Place,
    pub workers: u16,
    /// The rate of each link.
    pub rate: Rate,
    pub slots: u32,
    /// The share of the packets that are lost.
    pub loss: f64,
    /// Coordinates of the tensor.
    pub coordinates: u32,
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Took {
    /// Seconds of each all-reduce, from when the last worker began to when the last had the mean.
    pub rounds: Vec<f64>,
    /// Packets that the network lost.
    pub lost: u64,
    /// Packets that workers sent again.
    pub repeated: u64,
    /// Times that workers waited for as long as they wait at least.
    pub timeouts: u64,
    /// Packets that aggregators dropped.
    pub dropped: u64,
    /// The NMSE of the last mean, on a few thousand coordinates. Every round adds its error.
    pub nmse: f64,
}

impl Took {
    /// The mean of all rounds but the first, or that of a single one.
    pub fn seconds(&self) -> f64 {
        let rounds = &self.rounds[usize::from(self.rounds.len() > 1)..];
        rounds.iter().sum::<f64>() / rounds.len() as f64
    }
}

/// A worker's tensor: numbers in (−1, 1).
fn tensor(worker: u16, coordinates: usize) -> impl Iterator<Item = f32> {
    let signs = SignKey { job_seed: 0x5130, call: worker.into(), partition: 0 }.signs();
    (0..coordinates as u64).map(move |index| (signs.word(index) >> 40) as f32 / (1 << 23) as f32 - 1.0)
}

fn address(host: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, host as u8)
}

fn worker_at(rank: u16) -> SocketAddr {
    SocketAddr::from((address(rank), WORKER_PORT))
}

fn server_at(host: u16) -> SocketAddr {
    SocketAddr::from((address(host), SERVER_PORT))
}

/// The job as a server's file describes it.
fn job_setup(settings: &Settings, case: &Case) -> Result<JobSetup> {
    let refuse = |reason: String| Error::Usage(format!("no such job for {} workers: {reason}", case.workers));
    let n = case.workers;
    let (mut text, mut slots) = ("shards = 1\n".to_owned(), case.slots);
    if case.layout == Place::Colocated {
        let places: Vec<String> = (0..n).map(|host| format!("\"{}\"", server_at(host))).collect();
        text += &format!("share = \"0/{n}\"\nshares = [{}]\n", places.join(", "));
        slots = slots.max(BLOCKS_EACH * u32::from(Shard::BLOCK) * u32::from(n));
    }
    text += &format!("[[job]]\njob = 1\ncookie = {CONFIGURED}\nworkers = {n}\ndata_slots = {slots}\n");
    let options = ServerOptions::parse(&text).map_err(|error| refuse(error.to_string()))?;
    let mut config = options.validate().map_err(|error| refuse(error.to_string()))?;
    config.give_credit(settings.queue);
    config.jobs.into_iter().next().ok_or_else(|| refuse("there is none".to_owned()))
}

/// A worker that has been let in everywhere, as P22 to P24 would.
fn welcome_joiner(welcome: &Welcome, setup: &JobSetup, worker: u16, workers: u16) -> Option<Joiners> {
    let (nonce, number) = (u64::from(worker) + 1, WorkerId(worker as u8));
    let joiner = Joiner::new(setup.config.job, number, Cookie(CONFIGURED), nonce, 0, Duration::ZERO);
    let mut joiners = Joiners::new(joiner);
    let header = Header::new(Kind::Welcome, workers as u8, setup.config.job, number, SESSION);
    let body = Welcome { nonce, ..*welcome }.to_bytes();
    let mut packet = vec![0; thc_protocol::wire::HEADER_LEN + body.len()];
    let packet = header.emit_packet(&mut packet, &body);
    let servers = usize::from(welcome.shares.servers());
    let last = (0..servers).filter_map(|share| joiners.handle(Duration::ZERO, share, packet)).last();
    matches!(last, Some(JoinEvent::Welcome(..))).then_some(joiners)
}

/// Simulates a case, packet by packet.
///
/// # Errors
/// A setting that makes no job, or a failure of a worker.
pub fn simulate(settings: &Settings, case: &Case) -> Result<Took> {
    let net = SimNet::new(SimConfig {
        seed: settings.seed,
        latency: settings.latency,
        loss: case.loss,
        framing: settings.framing,
        queue_packets: settings.queue,
        checksums: false,
        ..SimConfig::default()
    });
    let n = case.workers;
    (0..n).for_each(|host| net.set_host(address(host), Some(case.rate.0)));
    net.set_host(address(n), (case.layout == Place::Server).then_some(case.rate.0));
    let setup = job_setup(settings, case)?;
    let mut cluster = Cluster::new(net.clone(), settings.costs.wake);
    let hosts = if case.layout == Place::Colocated { 0..n } else { n..n + 1 };
    for rank in 0..n {
        cluster.add(Actor::Party(Box::new(party(settings, case, &setup, &net, rank, hosts.start)?)));
    }
    for host in hosts {
        aggregators(settings, case, &setup, &net, host)?.into_iter().for_each(|one| cluster.add(one));
    }
    cluster.run()?;
    evaluate(settings, case, &cluster, &net)
}

/// The shards of the aggregator on a host.
fn aggregators(
    settings: &Settings,
    case: &Case,
    setup: &JobSetup,
    net: &SimNet,
    host: u16,
) -> Result<Vec<Actor>> {
    let refuse = |error: JobConfigError| Error::failure(error);
    let Settings { costs, chip, .. } = settings;
    let rate = settings.loopback / chip.unevenness(case.workers, settings.pass_ports);
    let occupied = |bytes: u32| Duration::from_secs_f64(f64::from(bytes) * 8.0 / rate);
    let costs = match case.layout {
        // Packets of all forms take as many passes.
        Place::Switch => PacketCosts {
            receive: occupied(chip.data_bytes()),
            complete: occupied(chip.result_bytes()),
            send: Duration::ZERO,
            delay: settings.pass * (chip.passes() + chip.result_passes()),
        },
        Place::Colocated | Place::Server => PacketCosts {
            receive: costs.server_receive,
            complete: Duration::ZERO,
            send: costs.server_send,
            delay: Duration::ZERO,
        },
    };
    let mut config = setup.config.clone();
    config.cookie = SESSION;
    let mut actors = Vec::new();
    for (port, shard) in Shard::split(setup.welcome.shards).enumerate() {
        let mut aggregator = Aggregator::new(shard, MEMORY);
        for table in setup.welcome.tables.iter() {
            aggregator.install_table(table.id, table.into()).map_err(refuse)?;
        }
        aggregator.install_job(config.clone()).map_err(refuse)?;
        for rank in 0..case.workers {
            let member = Endpoint::udp(worker_at(rank));
            aggregator.set_member(config.job, WorkerId(rank as u8), member).map_err(refuse)?;
        }
        let io = net.endpoint(SocketAddr::from((address(host), SERVER_PORT + port as u16)));
        actors.push(Actor::Aggregator(Box::new(SimAggregator { io, aggregator, costs, dropped: 0 })));
    }
    Ok(actors)
}

fn party(
    settings: &Settings,
    case: &Case,
    setup: &JobSetup,
    net: &SimNet,
    rank: u16,
    server: u16,
) -> Result<Party> {
    // A switch has no buffer that packets wait in.
    let credit = if case.layout == Place::Switch { 0 } else { setup.welcome.credit };
    let welcome = Welcome { session: SESSION, credit, ..setup.welcome };
    let unwelcome = || Error::failure("the simulated worker was not let in");
    let joiners = welcome_joiner(&welcome, setup, rank, case.workers).ok_or_else(unwelcome)?;
    let config = EngineConfig {
        ps: server_at(server),
        job: setup.config.job,
        worker: WorkerId(rank as u8),
        timeout: Duration::from_secs(600),
        patience: Duration::ZERO,
        min_rto: Duration::from_millis(20),
        rounding: Rounding::Seed(settings.seed.wrapping_add(rank.into())),
        threads: 1,
    };
    let port = Port::new(net.endpoint(worker_at(rank)), settings.costs);
    let engine = Engine::new(port, config, joiners, &welcome, CAPACITY);
    let data = tensor(rank, case.coordinates as usize).collect();
    Ok(Party::new(engine.map_err(Error::failure)?, data, settings.costs, settings.rounds))
}

fn evaluate(settings: &Settings, case: &Case, cluster: &Cluster, net: &SimNet) -> Result<Took> {
    let (mut parties, mut dropped) = (Vec::new(), 0);
    for actor in cluster.actors() {
        match actor {
            Actor::Party(party) => parties.push(party),
            Actor::Aggregator(aggregator) => dropped += aggregator.dropped,
        }
    }
    let latest =
        |of: &dyn Fn(&Party) -> Duration| parties.iter().map(|party| of(party)).max().unwrap_or_default();
    let rounds = (0..settings.rounds).map(|round| {
        let (began, ended) = (latest(&|party| party.began[round]), latest(&|party| party.ended[round]));
        ended.saturating_sub(began).as_secs_f64()
    });
    let first = &parties[0].data;
    let same = |party: &Party| first.iter().zip(&party.data).all(|(a, b)| a.to_bits() == b.to_bits());
    if !parties.iter().all(|party| same(party)) {
        return Err(Error::failure(
            "the simulated workers have different means: this is a fault of the program",
        ));
    }
    let mut exact = vec![0.0; CHECKED.min(first.len())];
    for worker in 0..case.workers {
        let tensor = tensor(worker, exact.len());
        exact.iter_mut().zip(tensor).for_each(|(sum, x)| *sum += f64::from(x) / f64::from(case.workers));
    }
    let error: f64 = exact.iter().zip(first).map(|(mean, got)| (f64::from(*got) - mean).powi(2)).sum();
    let norm: f64 = exact.iter().map(|mean| mean * mean).sum();
    let stats = net.stats();
    Ok(Took {
        rounds: rounds.collect(),
        lost: stats.lost + stats.overflowed,
        repeated: parties.iter().map(|party| party.repetitions().0).sum(),
        timeouts: parties.iter().map(|party| party.repetitions().1).sum(),
        dropped,
        nmse: error / norm,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn case(layout: Place, workers: u16, gbit: u64) -> Case {
        let rate = Rate(gbit * 1_000_000_000);
        Case { layout, workers, rate, slots: 1024, loss: 0.0, coordinates: 1 << 20 }
    }

    /// P41: the packets that workers may have outstanding fit the receive buffer that a server has by default, 16 MiB of which hold
    /// so many packets as the kernel accounts them.
    #[test]
    fn no_receive_buffer_overflows_however_many_workers() {
        let settings = Settings { queue: (16 << 20) / 4 * 3 / 2304, ..Settings::default() };
        for workers in [4, 64] {
            let case = Case { coordinates: 1 << 18, ..case(Place::Server, workers, 100) };
            assert_eq!(simulate(&settings, &case).unwrap().lost, 0, "{workers} workers");
        }
    }

    fn free() -> Settings {
        let zero = Duration::ZERO;
        let costs = Costs {
            norm_ns: 0.0,
            compress_ns: 0.0,
            decompress_ns: 0.0,
            send: zero,
            receive: zero,
            server_receive: zero,
            server_send: zero,
            wake: zero,
        };
        let latency = Duration::from_micros(1);
        Settings { costs, latency, loopback: 1e13, framing: 0, ..Settings::default() }
    }

    /// Where nothing else costs and links are quick, an all-reduce takes what its bytes take on the fullest loopback port.
    #[test]
    fn loopback_ports_are_what_bounds_behind_quick_links() {
        for (chip, workers) in [(Chip::Tofino, 4), (Chip::Tofino2, 4), (Chip::Tofino2, 16)] {
            let settings = Settings { chip, loopback: 100e9, ..free() };
            let case = case(Place::Switch, workers, 400);
            let bytes = u32::from(workers) * chip.data_bytes() + chip.result_bytes();
            let limit = f64::from(bytes) * 8.0 * 1024.0 * chip.unevenness(workers, 4) / 100e9;
            let more = simulate(&settings, &case).unwrap().seconds() / limit;
            assert!((0.99..1.3).contains(&more), "{case:?}: {more} of {limit}");
        }
    }

    /// Where computing and packets cost nothing, an all-reduce takes what its bytes take on the busiest link, and little more.
    #[test]
    fn links_are_what_bounds_where_nothing_else_costs() {
        for place in [Place::Switch, Place::Colocated, Place::Server] {
            // Many shares have few slots each, which costs more than their bytes.
            let most = if place == Place::Colocated { 8 } else { 20 };
            for workers in [2, 4, most] {
                let case = Case { coordinates: 2 << 20, ..case(place, workers, 1) };
                let settings = Settings { rounds: 1, ..free() };
                let tables = job_setup(&settings, &case).unwrap().welcome.tables;
                let form = tables.iter().next().unwrap().form;
                let limit = place.limit(workers as u8, form, 2 << 20, 1_000_000_000);
                let took = simulate(&settings, &case).unwrap();
                let more = took.seconds() / limit;
                assert!((0.99..1.15).contains(&more), "{case:?}: {more} of {limit}");
                assert_eq!(took.dropped, 0);
            }
        }
    }
}
