//! One job of a setting: its hosts, its workers, its aggregators, and what they took.

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
use thc_transport::Peer;
use thc_worker::{Engine, EngineConfig};

use super::actor::{PacketCosts, Party, SimAggregator};
use super::cluster::Cluster;
use super::cores::Cores;
use super::error::{job_error, too_many_workers};
use super::layout::Layout;
use super::port::Port;
use super::ring::Ring;
use super::settings::{Settings, nanos};
use crate::error::{Error, Result};
use crate::units::Rate;

/// Lanes of 8 bits hold the sums of so many workers, by the default table.
const NARROW: u16 = 17;
/// Data slots of a server, and blocks of them that each share has at least.
const SLOTS: u32 = 1024;
const BLOCKS_EACH: u32 = 2;
const RACK_SLOTS: u32 = 512;
/// The session's cookie, which no configured one may be.
const SESSION: Cookie = Cookie(0x51B0_51B0);
const CONFIGURED: u32 = 1;
/// Bytes of slots that an aggregator may have.
const MEMORY: usize = 1 << 30;
/// Results that a worker's receive buffer holds: it is no bound here.
const CAPACITY: usize = 1 << 20;
const WORKER_PORT: u16 = 5000;
const SERVER_PORT: u16 = 9000;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Who adds up.
    pub layout: Layout,
    /// n.
    pub workers: u16,
    /// The rate of each link.
    pub rate: Rate,
    /// Coordinates of the tensor.
    pub coordinates: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Took {
    /// Seconds of an all-reduce, from when the last worker began to when the last had the mean: of each round.
    pub rounds: Vec<f64>,
    /// Packets on the network, in all rounds.
    pub packets: u64,
    /// Packets that the network lost.
    pub lost: u64,
    /// Packets sent again by workers.
    pub repeated: u64,
    /// Times that workers waited for as long as they wait at least.
    pub timeouts: u64,
    /// Packets that aggregators dropped.
    pub dropped: u64,
    /// Events of the simulation.
    pub events: u64,
    /// The NMSE of the last mean, on a few thousand coordinates: every round adds its error. `None` for a ring.
    pub nmse: Option<f64>,
}

impl Took {
    /// The mean of all rounds but the first, in which windows open and round trips are learned; or that one.
    pub fn seconds(&self) -> f64 {
        let rest = if self.rounds.len() > 1 { &self.rounds[1..] } else { &self.rounds[..] };
        rest.iter().sum::<f64>() / rest.len().max(1) as f64
    }
}

/// Coordinates on which the mean is compared with the exact one.
const CHECKED: usize = 4096;

/// A worker's tensor: numbers in (−1, 1).
fn tensor(worker: u16, coordinates: usize) -> impl Iterator<Item = f32> {
    let signs = SignKey { job_seed: 0x5130, call: worker.into(), partition: 0 }.signs();
    (0..coordinates as u64).map(move |index| (signs.word(index) >> 40) as f32 / (1 << 23) as f32 - 1.0)
}

/// Where a host is.
fn address(host: u16) -> Ipv4Addr {
    let [high, low] = host.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low)
}

/// What a server's file would say: `own` are its own keys, `members` the job's that say who is in it.
fn job_setup(settings: &Settings, case: &Case, own: &str, members: &str) -> Result<JobSetup> {
    let refuse = |reason: String| job_error(case.workers, reason);
    let mut text = format!("shards = 1\n{own}[[job]]\njob = 1\ncookie = {CONFIGURED}\n{members}");
    if case.workers > NARROW && !settings.job.contains_key("lane") {
        text += "lane = 16\n";
    }
    if !settings.job.contains_key("data_slots") {
        let slots = match case.layout {
            // thc-ps has up to twice as many: every share, and there are as many as workers, would have memory for all.
            Layout::Colocated => SLOTS.max(BLOCKS_EACH * u32::from(Shard::BLOCK) * u32::from(case.workers)),
            // Of a thousand workers each has what it sent.
            Layout::Racks => RACK_SLOTS,
            _ => SLOTS,
        };
        text += &format!("data_slots = {slots}\n");
    }
    for (key, value) in &settings.job {
        text += &format!("{key} = {value}\n");
    }
    let options = ServerOptions::parse(&text).map_err(|error| refuse(error.to_string()))?;
    let mut config = options.validate().map_err(|error| refuse(error.to_string()))?;
    config.give_credit(settings.queue as usize);
    config.jobs.into_iter().next().ok_or_else(|| refuse("there is none".to_owned()))
}

/// An aggregator: a server, a share of one, a switch, a rack, a root.
struct Aggregating {
    at: SocketAddr,
    /// For a rack, its end of the link to the root, and where the root is.
    up: Option<(SocketAddr, SocketAddr)>,
    setup: JobSetup,
    /// Who sends to it: workers, or racks.
    members: Vec<Peer>,
    /// Whether it is a P4 switch, and the cores of which host it has if not.
    is_p4: bool,
    host: u16,
}

/// A job's aggregators, and how many workers each first one has: the aggregator of a worker is where it joins.
struct Plan {
    aggregators: Vec<Aggregating>,
    /// Workers of each aggregator that workers join.
    groups: Vec<u16>,
}

fn worker_at(rank: u16) -> Peer {
    SocketAddr::from((address(rank), WORKER_PORT))
}

/// Where servers are, their links, and what they are told.
fn plan(settings: &Settings, case: &Case, cluster: &Cluster) -> Result<Plan> {
    let n = case.workers;
    let server = |host: u16| SocketAddr::from((address(host), SERVER_PORT));
    let all: Vec<Peer> = (0..n).map(worker_at).collect();
    let workers = format!("workers = {n}\n");
    let one = |at, own: &str, is_p4, host| -> Result<Aggregating> {
        let setup = job_setup(settings, case, own, &workers)?;
        Ok(Aggregating { at, up: None, setup, members: all.clone(), is_p4, host })
    };
    match case.layout {
        Layout::Colocated => {
            let places: Vec<String> = (0..n).map(|host| format!("\"{}\"", server(host))).collect();
            let own = format!("share = \"0/{n}\"\nshares = [{}]\n", places.join(", "));
            let first = one(server(0), &own, false, 0)?;
            let share = |host| Aggregating {
                at: server(host),
                up: None,
                setup: first.setup.clone(),
                members: all.clone(),
                is_p4: false,
                host,
            };
            let aggregators = (0..n).map(share).collect();
            Ok(Plan { aggregators, groups: vec![n] })
        }
        Layout::Racks => racks(settings, case, cluster),
        layout => {
            let rate = (layout == Layout::Server).then_some(case.rate.0);
            cluster.host(address(n), rate);
            let is_p4 = layout == Layout::Switch;
            Ok(Plan { aggregators: vec![one(server(n), "", is_p4, n)?], groups: vec![n] })
        }
    }
}

/// Racks of so many workers, the last maybe smaller, and their root.
fn racks(settings: &Settings, case: &Case, cluster: &Cluster) -> Result<Plan> {
    let (n, rack) = (case.workers, settings.rack);
    let count = n.div_ceil(rack);
    let groups: Vec<u16> = (0..count).map(|number| rack.min(n - number * rack)).collect();
    let sizes: Vec<String> = groups.iter().map(u16::to_string).collect();
    let members = format!("racks = [{}]\n", sizes.join(", "));
    // A rack's host towards its workers, and the one towards the root.
    let (down, up) = (|number: u16| n + 2 * number, |number: u16| n + 2 * number + 1);
    let root_host = n + 2 * count;
    let root = SocketAddr::from((address(root_host), SERVER_PORT));
    let mut aggregators = Vec::new();
    for number in 0..count {
        cluster.host(address(down(number)), None);
        cluster.host(address(up(number)), Some(case.rate.0));
        let at = SocketAddr::from((address(down(number)), SERVER_PORT));
        let own = format!("listen = \"{at}\"\nrack = {number}\nroot = \"{root}\"\n");
        let first = number * rack;
        aggregators.push(Aggregating {
            at,
            up: Some((SocketAddr::from((address(up(number)), SERVER_PORT)), root)),
            setup: job_setup(settings, case, &own, &members)?,
            members: (first..first + groups[usize::from(number)]).map(worker_at).collect(),
            is_p4: true,
            host: down(number),
        });
    }
    cluster.host(address(root_host), None);
    aggregators.push(Aggregating {
        at: root,
        up: None,
        setup: job_setup(settings, case, &format!("listen = \"{root}\"\n"), &members)?,
        members: (0..count).map(|number| SocketAddr::from((address(up(number)), SERVER_PORT))).collect(),
        is_p4: true,
        host: root_host,
    });
    Ok(Plan { aggregators, groups })
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

/// Simulates a case, all of its tensor packet by packet.
///
/// # Errors
/// A setting that makes no job, or a failure of a worker.
pub fn simulate(settings: &Settings, case: &Case) -> Result<Took> {
    if case.layout.is_ring() {
        return Ok(ring(settings, case));
    }
    if !case.layout.takes(case.workers, settings.rack) {
        return Err(too_many_workers(case.workers, case.layout));
    }
    let net = SimNet::new(SimConfig {
        seed: settings.seed,
        latency: nanos(settings.latency_us * 1e3),
        loss: settings.loss,
        framing: settings.framing as usize,
        queue_packets: settings.queue as usize,
        checksums: false,
        ..SimConfig::default()
    });
    let n = case.workers;
    let mut cluster = Cluster::new(net.clone(), nanos(settings.costs.wake_us * 1e3));
    (0..n).for_each(|host| cluster.host(address(host), Some(case.rate.0)));
    let plan = plan(settings, case, &cluster)?;
    let own: Vec<usize> = (0..n).map(|_| cluster.cores(settings.cores.into())).collect();
    let mut parties = Vec::new();
    let mut first = 0;
    for (aggregator, &size) in plan.aggregators.iter().zip(&plan.groups) {
        parties.extend(group(settings, case, aggregator, &net, first, size)?);
        first += size;
    }
    for aggregator in &plan.aggregators {
        let cores = match own.get(usize::from(aggregator.host)) {
            // One thing after the other in a pipe.
            _ if aggregator.is_p4 => cluster.cores(1),
            Some(own) => *own,
            None => cluster.cores(settings.cores.into()),
        };
        for aggregator in aggregators(settings, case, aggregator, &net)? {
            cluster.add_aggregator(aggregator, cores);
        }
    }
    for (party, cores) in parties.into_iter().zip(own) {
        cluster.add_party(party, cores);
    }
    cluster.run()?;
    report(settings, case, &cluster)
}

/// An aggregator's shards.
fn aggregators(
    settings: &Settings,
    case: &Case,
    aggregating: &Aggregating,
    net: &SimNet,
) -> Result<Vec<SimAggregator>> {
    let Aggregating { at: base, up, setup, members, is_p4, .. } = aggregating;
    let refuse = |error: JobConfigError| job_error(case.workers, error);
    let costs = &settings.costs;
    // Packets of other forms take as many passes, and are taken for as long.
    let chip = settings.chip;
    let rate = settings.loopback.0 as f64 / chip.unevenness(members.len() as u16, settings.pass_ports);
    let occupied = |bytes: u32| Duration::from_secs_f64(f64::from(bytes) * 8.0 / rate);
    let packet_costs = match is_p4 {
        true => PacketCosts {
            receive: occupied(chip.data_bytes()),
            complete: occupied(chip.result_bytes()),
            send: Duration::ZERO,
            delay: nanos(settings.pass_latency_ns * f64::from(chip.passes() + chip.result_passes())),
        },
        false => PacketCosts {
            receive: nanos(costs.server_receive_ns),
            complete: Duration::ZERO,
            send: nanos(costs.server_send_ns),
            delay: Duration::ZERO,
        },
    };
    let mut config = setup.config.clone();
    config.cookie = SESSION;
    let mut aggregators = Vec::new();
    for (port, shard) in Shard::split(setup.welcome.shards).enumerate() {
        let mut aggregator = Aggregator::new(shard, MEMORY);
        for table in setup.welcome.tables.iter() {
            aggregator.install_table(table.id, table.into()).map_err(refuse)?;
        }
        aggregator.install_job(config.clone()).map_err(refuse)?;
        for (number, &member) in (0u8..).zip(members) {
            aggregator.set_member(config.job, WorkerId(number), Endpoint::udp(member)).map_err(refuse)?;
        }
        let at = SocketAddr::from((base.ip(), base.port() + port as u16));
        let up = up.map(|(end, root)| (net.endpoint(end), root));
        aggregators.push(SimAggregator::new(net.endpoint(at), up, aggregator, packet_costs));
    }
    Ok(aggregators)
}

/// The workers that join an aggregator, the first of which has this rank.
fn group(
    settings: &Settings,
    case: &Case,
    aggregator: &Aggregating,
    net: &SimNet,
    first: u16,
    size: u16,
) -> Result<Vec<Party>> {
    let setup = &aggregator.setup;
    // A switch has no buffer that packets wait in.
    let credit = if aggregator.is_p4 { 0 } else { setup.welcome.credit };
    let welcome = Welcome { session: SESSION, credit, ..setup.welcome };
    let costs = settings.costs;
    let mut parties = Vec::new();
    for number in 0..size {
        let rank = first + number;
        let port = Port::new(net.endpoint(worker_at(rank)), nanos(costs.send_ns), nanos(costs.receive_ns));
        let unwelcome = || job_error(case.workers, "its WELCOME is none");
        let joiners = welcome_joiner(&welcome, setup, number, size).ok_or_else(unwelcome)?;
        let config = EngineConfig {
            ps: aggregator.at,
            job: setup.config.job,
            worker: WorkerId(number as u8),
            timeout: Duration::from_secs(600),
            patience: Duration::ZERO,
            min_rto: Duration::from_millis(20),
            seed: Some(settings.seed.wrapping_add(rank.into())),
            threads: 1,
        };
        let engine = Engine::new(port, config, joiners, &welcome, size as u8, CAPACITY);
        let engine = engine.map_err(Error::failure)?;
        let data = tensor(rank, case.coordinates as usize).collect();
        parties.push(Party::new(engine, data, costs, settings.rounds as usize));
    }
    Ok(parties)
}

fn report(settings: &Settings, case: &Case, cluster: &Cluster) -> Result<Took> {
    let parties: Vec<&Party> = cluster.parties().collect();
    let latest =
        |of: &dyn Fn(&Party) -> Duration| parties.iter().map(|party| of(party)).max().unwrap_or_default();
    let rounds = (0..settings.rounds as usize).map(|round| {
        let (began, ended) = (latest(&|party| party.began[round]), latest(&|party| party.ended[round]));
        ended.saturating_sub(began).as_secs_f64()
    });
    let first = parties[0].data();
    let same = |party: &Party| first.iter().zip(party.data()).all(|(a, b)| a.to_bits() == b.to_bits());
    if is_exact(settings) && !parties.iter().all(|party| same(party)) {
        return Err(Error::Failure(
            "the simulated workers have different means: this is a fault of the program".to_owned(),
        ));
    }
    let mut exact = vec![0.0; CHECKED.min(first.len())];
    for worker in 0..case.workers {
        let tensor = tensor(worker, exact.len());
        exact.iter_mut().zip(tensor).for_each(|(sum, x)| *sum += f64::from(x) / f64::from(case.workers));
    }
    let error: f64 = exact.iter().zip(first).map(|(mean, got)| (f64::from(*got) - mean).powi(2)).sum();
    let norm: f64 = exact.iter().map(|mean| mean * mean).sum();
    Ok(Took {
        rounds: rounds.collect(),
        packets: cluster.packets(),
        lost: cluster.lost_packets(),
        repeated: parties.iter().map(|party| party.repetitions()).sum(),
        timeouts: parties.iter().map(|party| party.timeouts()).sum(),
        dropped: cluster.dropped_packets(),
        events: cluster.events(),
        nmse: (norm > 0.0).then_some(error / norm),
    })
}

/// Whether all workers must have the same bits: all loss policies but `best-effort` and a quorum below n promise that.
fn is_exact(settings: &Settings) -> bool {
    !settings.job.contains_key("quorum") && !settings.job.contains_key("policy")
}

/// The schedule of a ring's messages on the same links and cores.
fn ring(settings: &Settings, case: &Case) -> Took {
    let costs = &settings.costs;
    let int8 = case.layout == Layout::RingInt8;
    let n = usize::from(case.workers);
    let threads = f64::from(costs.threads);
    let ring = Ring {
        workers: n,
        coordinates: case.coordinates,
        // A scale for each 2048 coordinates, as PCCL and others have it.
        bytes: if int8 { 1.0 + 4.0 / 2048.0 } else { 4.0 },
        rate: case.rate.0 as f64,
        framing: settings.framing.into(),
        latency: nanos(settings.latency_us * 1e3),
        wake: nanos(costs.wake_us * 1e3),
        byte_ns: costs.tcp_byte_ns,
        add_ns: if int8 { costs.requantize_ns } else { costs.add_ns } / threads,
        take_ns: if int8 { costs.add_ns / threads } else { 0.0 },
    };
    let mut begins: Vec<Duration> = vec![Duration::ZERO; n];
    let mut cores = vec![Cores::new(settings.cores.into()); n];
    let mut rounds = Vec::new();
    for _ in 0..settings.rounds {
        let last = begins.iter().max().copied().unwrap_or_default();
        begins = ring.ends(&begins, &mut cores, |rank| rank);
        let end = begins.iter().max().copied().unwrap_or_default();
        rounds.push(end.saturating_sub(last).as_secs_f64());
    }
    let messages = (rounds.len() * n * 2 * (n - 1)) as u64;
    Took {
        rounds,
        packets: messages,
        lost: 0,
        repeated: 0,
        timeouts: 0,
        dropped: 0,
        events: messages,
        nmse: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::settings::Keys;
    use super::*;

    /// P41: what workers may have outstanding fits the receive buffer that a server has by default, 16 MiB of which hold so many
    /// packets as the kernel accounts them.
    #[test]
    fn no_receive_buffer_overflows_however_many_workers() {
        let queue = (16 << 20) / 4 * 3 / 2304;
        let settings = Keys { queue: Some(queue), rounds: Some(2), ..Keys::default() }.validate().unwrap();
        for workers in [4, 64] {
            let rate = Rate(100_000_000_000);
            let case = Case { layout: Layout::Server, workers, rate, coordinates: 1 << 18 };
            assert_eq!(simulate(&settings, &case).unwrap().lost, 0, "{workers} workers");
        }
    }
}
