//! What is simulated: as it is written in a file or in flags ([`Keys`]) and as it is used ([`Settings`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use thc_worker::Computed;

use super::error::SimulateError;
use super::recirculation::Chip;

/// Who adds up, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// THC, the aggregator at the switch's place
    Switch,
    /// THC, a share of the server beside every worker
    Colocated,
    /// THC, one server on a link like the workers'
    Server,
    /// THC, an aggregator in each rack at its switch's place, and a root above them
    Racks,
    /// A ring of f32, as gloo's and NCCL's
    RingFp32,
    /// A ring of int8, which adds up and quantizes again on every hop
    RingInt8,
}

impl Layout {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Colocated => "colocated",
            Self::Server => "server",
            Self::Racks => "racks",
            Self::RingFp32 => "ring-fp32",
            Self::RingInt8 => "ring-int8",
        }
    }

    /// Whether it has room for so many workers, of which `rack` are in a rack at most.
    pub fn takes(self, workers: u16, rack: u16) -> bool {
        match self {
            Self::RingFp32 | Self::RingInt8 => true,
            Self::Racks => (rack + 1..=64 * rack).contains(&workers),
            _ => workers <= 64,
        }
    }

    /// Whether it is a schedule of messages, without THC.
    pub fn is_ring(self) -> bool {
        matches!(self, Self::RingFp32 | Self::RingInt8)
    }
}

/// What aggregates at the switch's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchKind {
    /// A P4 switch: a packet takes passes, copies cost nothing
    P4,
    /// thc-ps on a port without bound
    Software,
}

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// As it is written.
    pub fn name(self) -> String {
        format!("{} Gb/s", self.0 as f64 / 1e9)
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let unit = match &text[end..] {
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => 0.0,
        };
        let bits = text[..end].parse::<f64>().unwrap_or(0.0) * unit;
        if (1e6..=1e13).contains(&bits) {
            return Ok(Self(bits.round() as u64));
        }
        Err("write a rate like 100mbit, 2.5gbit or 25gbit".to_owned())
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}gbit", self.0 as f64 / 1e9))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A key of a server's job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JobValue {
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for JobValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

fn job_pair(text: &str) -> Result<(String, JobValue), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    let value = value.parse().map_or_else(|_| JobValue::Text(value.to_owned()), JobValue::Number);
    Ok((key.to_owned(), value))
}

macro_rules! keys {
    ($($(#[$note:meta])* $key:ident: $kind:ty,)*) => {
        /// The keys of a file of settings, each also a flag.
        #[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct Keys {
            $($(#[$note])* #[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$kind>,)*
            /// Keys of the server's job, as in thc-ps's file: bits=3,data_slots=2048
            #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = job_pair, help_heading = "Settings")]
            #[serde(default, skip)]
            pub job: Vec<(String, JobValue)>,
            /// The same in a file: a table `[job_keys]`
            #[arg(skip)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub job_keys: Option<BTreeMap<String, JobValue>>,
        }

        impl Keys {
            /// These, and where they say nothing, the other's.
            #[must_use]
            pub fn or(mut self, other: Self) -> Self {
                $(self.$key = self.$key.or(other.$key);)*
                let mut job = other.job_keys.unwrap_or_default();
                job.extend(other.job);
                job.extend(self.job_keys.take().unwrap_or_default());
                job.extend(std::mem::take(&mut self.job));
                self.job_keys = (!job.is_empty()).then_some(job);
                self
            }
        }
    };
}

keys! {
    /// Who adds up; several are simulated one after the other, as are several of all that take a list [default: all]
    #[arg(long, value_enum, value_name = "LAYOUT,…", value_delimiter = ',', help_heading = "Settings")]
    layout: Vec<Layout>,
    /// Workers, each on a host of its own [default: 2,4,8,16,32,64,256,1024]
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', help_heading = "Settings")]
    workers: Vec<u16>,
    /// What a host's link carries, each way [default: 1gbit,10gbit,25gbit,100gbit]
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', help_heading = "Settings")]
    rate: Vec<Rate>,
    /// Coordinates of the tensor, f32 [default: 16777216]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    coordinates: u64,
    /// Coordinates that are simulated packet by packet at most; of a longer tensor, time grows by as much for each more as it did
    /// from half of that to all of it [default: 2097152]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    stretch: u64,
    /// All-reduces one after the other; of several the mean of all but the first counts [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    rounds: u32,
    /// Seed of everything random [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    seed: u64,
    /// One way through the network, beside what links take [default: 5]
    #[arg(long, value_name = "MICROSECONDS", help_heading = "Settings")]
    latency_us: f64,
    /// Share of the packets that are lost [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Settings")]
    loss: f64,
    /// Packets that wait for one receiver at most; more are lost [default: 65536]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    queue: u32,
    /// Bytes around an IP packet on a wire: 38 on Ethernet, from preamble to gap [default: 38]
    #[arg(long, value_name = "BYTES", help_heading = "Settings")]
    framing: u32,
    /// Cores of a host [default: 4]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    cores: u16,
    /// Cores that all hosts share, as namespaces of one machine do; 0: each has its own [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    shared_cores: u16,
    /// Threads that compute in a worker: computing goes so many times faster [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    threads: u16,
    /// Computing before each all-reduce, such as a backward pass [default: 0]
    #[arg(long, value_name = "MILLISECONDS", help_heading = "Settings")]
    compute_ms: f64,
    /// By which part of it that varies, up or down, uniformly [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Settings")]
    compute_spread: f64,
    /// Share of all turns to compute that are slow [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Settings")]
    stragglers: f64,
    /// How many times longer those take [default: 2]
    #[arg(long, value_name = "FACTOR", help_heading = "Settings")]
    slowdown: f64,
    /// Whether workers keep error feedback [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Settings")]
    feedback: bool,
    /// What is at the switch's place [default: p4]
    #[arg(long, value_enum, value_name = "KIND", help_heading = "Settings")]
    switch: SwitchKind,
    /// What a root of racks is [default: p4]
    #[arg(long, value_enum, value_name = "KIND", help_heading = "Settings")]
    root: SwitchKind,
    /// Workers of a rack [default: 32]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    rack: u16,
    /// What the link between a rack and its root carries, each way [default: as a host's]
    #[arg(long, value_name = "RATE", help_heading = "Settings")]
    uplink: Rate,
    /// The chip of a P4 switch, which says how many passes a packet takes and how long it is in each [default: tofino2]
    #[arg(long, value_enum, value_name = "CHIP", help_heading = "Settings")]
    chip: Chip,
    /// What its loopback ports carry together, each way [default: 3200gbit]
    #[arg(long, value_name = "RATE", help_heading = "Settings")]
    loopback: Rate,
    /// How many loopback ports that are: the fullest is the bound [default: 4]
    #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
    pass_ports: u16,
    /// How long a pass takes for the packet itself [default: 700]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Settings")]
    pass_latency_ns: f64,
    /// A coordinate's norm [default: 0.12]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    norm_ns: f64,
    /// To compress a coordinate [default: 0.3]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    compress_ns: f64,
    /// More for one whose residual goes to error feedback [default: 0.3]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    feedback_ns: f64,
    /// To make a coordinate's mean of its sum [default: 0.27]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    decompress_ns: f64,
    /// A packet that a worker sends [default: 120]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    send_ns: f64,
    /// A packet that a worker receives [default: 250]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    receive_ns: f64,
    /// A packet that a server receives, checks and adds [default: 150]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    server_receive_ns: f64,
    /// A copy of a RESULT that a server sends [default: 150]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    server_send_ns: f64,
    /// From a packet's arrival to when somebody who sleeps runs [default: 10]
    #[arg(long, value_name = "MICROSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    wake_us: f64,
    /// A byte that a ring sends by TCP, and one that it receives [default: 0.2]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    tcp_byte_ns: f64,
    /// A coordinate that a ring of f32 adds up [default: 0.25]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    add_ns: f64,
    /// A coordinate that a ring of int8 takes apart, adds up and quantizes again [default: 0.5]
    #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core; `thc simulate calibrate` measures them")]
    requantize_ns: f64,
}

/// What things cost a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Nanoseconds of a coordinate: its norm, its index, its residual, its mean; on all threads together.
    pub norm_ns: f64,
    pub compress_ns: f64,
    pub feedback_ns: f64,
    pub decompress_ns: f64,
    /// Nanoseconds of a packet, by a worker.
    pub send_ns: f64,
    pub receive_ns: f64,
    /// By a server.
    pub server_receive_ns: f64,
    pub server_send_ns: f64,
    /// Microseconds from sleep to work.
    pub wake_us: f64,
    /// Of a ring.
    pub tcp_byte_ns: f64,
    pub add_ns: f64,
    pub requantize_ns: f64,
    /// How many threads compute.
    pub threads: u16,
}

/// Nanoseconds.
pub fn nanos(ns: f64) -> Duration {
    Duration::from_secs_f64(ns / 1e9)
}

impl Costs {
    /// What was computed between two looks.
    pub fn elapsed(&self, before: &Computed, after: &Computed) -> Duration {
        let of = |before: u64, after: u64, ns: f64| (after - before) as f64 * ns;
        nanos(
            (of(before.measured, after.measured, self.norm_ns)
                + of(before.compressed, after.compressed, self.compress_ns)
                + of(before.fed_back, after.fed_back, self.feedback_ns)
                + of(before.finished, after.finished, self.decompress_ns))
                / f64::from(self.threads),
        )
    }
}

/// Checked settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    pub layout: Vec<Layout>,
    pub workers: Vec<u16>,
    pub rate: Vec<Rate>,
    pub coordinates: u64,
    pub stretch: u64,
    pub rounds: u32,
    pub seed: u64,
    pub latency_us: f64,
    pub loss: f64,
    pub queue: u32,
    pub framing: u32,
    pub cores: u16,
    pub shared_cores: u16,
    pub compute_ms: f64,
    pub compute_spread: f64,
    pub stragglers: f64,
    pub slowdown: f64,
    pub feedback: bool,
    pub switch: SwitchKind,
    pub root: SwitchKind,
    pub rack: u16,
    pub uplink: Option<Rate>,
    pub chip: Chip,
    pub loopback: Rate,
    pub pass_ports: u16,
    pub pass_latency_ns: f64,
    pub costs: Costs,
    pub job: BTreeMap<String, JobValue>,
}

/// The shortest stretch, in which a window is passed several times.
const LEAST: u64 = 1 << 18;

impl Keys {
    /// Those of a file.
    ///
    /// # Errors
    /// It cannot be read, or has a key or value that is none.
    pub fn read(path: &Path) -> Result<Self, SimulateError> {
        let file = |source| SimulateError::File { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(file)?;
        toml::from_str(&text).map_err(|error| {
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            SimulateError::Settings { path: path.to_owned(), reason }
        })
    }

    /// Checked, with defaults.
    ///
    /// # Errors
    /// A value is out of its range.
    pub fn validate(self) -> Result<Settings, SimulateError> {
        let settings = Settings {
            layout: self.layout.unwrap_or_else(|| Layout::value_variants().to_vec()),
            workers: self.workers.unwrap_or_else(|| vec![2, 4, 8, 16, 32, 64, 256, 1024]),
            rate: self.rate.unwrap_or_else(|| [1, 10, 25, 100].map(|g| Rate(g * 1_000_000_000)).to_vec()),
            coordinates: self.coordinates.unwrap_or(16 << 20),
            stretch: self.stretch.unwrap_or(2 << 20),
            rounds: self.rounds.unwrap_or(1),
            seed: self.seed.unwrap_or(1),
            latency_us: self.latency_us.unwrap_or(5.0),
            loss: self.loss.unwrap_or(0.0),
            queue: self.queue.unwrap_or(1 << 16),
            framing: self.framing.unwrap_or(38),
            cores: self.cores.unwrap_or(4),
            shared_cores: self.shared_cores.unwrap_or(0),
            compute_ms: self.compute_ms.unwrap_or(0.0),
            compute_spread: self.compute_spread.unwrap_or(0.0),
            stragglers: self.stragglers.unwrap_or(0.0),
            slowdown: self.slowdown.unwrap_or(2.0),
            feedback: self.feedback.unwrap_or(false),
            switch: self.switch.unwrap_or(SwitchKind::P4),
            chip: self.chip.unwrap_or(Chip::Tofino2),
            loopback: self.loopback.unwrap_or(Rate(3_200_000_000_000)),
            pass_ports: self.pass_ports.unwrap_or(4),
            root: self.root.unwrap_or(SwitchKind::P4),
            rack: self.rack.unwrap_or(32),
            uplink: self.uplink,
            pass_latency_ns: self.pass_latency_ns.unwrap_or(700.0),
            costs: Costs {
                norm_ns: self.norm_ns.unwrap_or(0.12),
                compress_ns: self.compress_ns.unwrap_or(0.3),
                feedback_ns: self.feedback_ns.unwrap_or(0.3),
                decompress_ns: self.decompress_ns.unwrap_or(0.27),
                send_ns: self.send_ns.unwrap_or(120.0),
                receive_ns: self.receive_ns.unwrap_or(250.0),
                server_receive_ns: self.server_receive_ns.unwrap_or(150.0),
                server_send_ns: self.server_send_ns.unwrap_or(150.0),
                wake_us: self.wake_us.unwrap_or(10.0),
                tcp_byte_ns: self.tcp_byte_ns.unwrap_or(0.2),
                add_ns: self.add_ns.unwrap_or(0.25),
                requantize_ns: self.requantize_ns.unwrap_or(0.5),
                threads: self.threads.unwrap_or(1),
            },
            job: self.job_keys.unwrap_or_default().into_iter().chain(self.job).collect(),
        };
        settings.check()?;
        Ok(settings)
    }
}

impl Settings {
    /// These, if they make sense.
    pub fn checked(self) -> Result<Self, SimulateError> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), SimulateError> {
        let wrong = |key, value: String, mend| Err(SimulateError::Value { key, value, mend });
        let costs = &self.costs;
        for (key, value, most) in [
            ("latency_us", self.latency_us, 1e6),
            ("compute_ms", self.compute_ms, 1e5),
            ("pass_latency_ns", self.pass_latency_ns, 1e6),
            ("norm_ns", costs.norm_ns, 1e6),
            ("compress_ns", costs.compress_ns, 1e6),
            ("feedback_ns", costs.feedback_ns, 1e6),
            ("decompress_ns", costs.decompress_ns, 1e6),
            ("send_ns", costs.send_ns, 1e6),
            ("receive_ns", costs.receive_ns, 1e6),
            ("server_receive_ns", costs.server_receive_ns, 1e6),
            ("server_send_ns", costs.server_send_ns, 1e6),
            ("wake_us", costs.wake_us, 1e6),
            ("tcp_byte_ns", costs.tcp_byte_ns, 1e6),
            ("add_ns", costs.add_ns, 1e6),
            ("requantize_ns", costs.requantize_ns, 1e6),
        ] {
            if !(0.0..=most).contains(&value) {
                return wrong(
                    key,
                    value.to_string(),
                    "give a number from 0 up, at most a millisecond's or a second's worth",
                );
            }
        }
        for (key, value, most) in [
            ("loss", self.loss, 0.5),
            ("compute_spread", self.compute_spread, 1.0),
            ("stragglers", self.stragglers, 1.0),
        ] {
            if !(0.0..=most).contains(&value) {
                return wrong(key, value.to_string(), "give a share: 0 to 1, of losses to 0.5");
            }
        }
        if !(1.0..=1e4).contains(&self.slowdown) {
            return wrong("slowdown", self.slowdown.to_string(), "give a factor from 1 to 10000");
        }
        for (key, value, range, mend) in [
            ("coordinates", self.coordinates, 1..=u64::from(u32::MAX), "give 1 to 4294967295"),
            ("stretch", self.stretch, LEAST..=1 << 28, "give 262144 to 268435456"),
            ("rounds", self.rounds.into(), 1..=1000, "give 1 to 1000"),
            ("queue", self.queue.into(), 64..=1 << 24, "give 64 to 16777216"),
            ("framing", self.framing.into(), 0..=1000, "give 0 to 1000"),
            ("cores", self.cores.into(), 1..=1024, "give 1 to 1024"),
            ("shared_cores", self.shared_cores.into(), 0..=4096, "give 0 to 4096"),
            ("threads", costs.threads.into(), 1..=1024, "give 1 to 1024"),
            ("rack", self.rack.into(), 1..=64, "give 1 to 64"),
            ("pass_ports", self.pass_ports.into(), 1..=256, "give 1 to 256"),
        ] {
            if !range.contains(&value) {
                return wrong(key, value.to_string(), mend);
            }
        }
        if let Some(workers) = self.workers.iter().find(|n| !(2..=1024).contains(*n)) {
            return wrong("workers", workers.to_string(), "give 2 to 1024");
        }
        for (key, empty) in [
            ("layout", self.layout.is_empty()),
            ("workers", self.workers.is_empty()),
            ("rate", self.rate.is_empty()),
        ] {
            if empty {
                return wrong(key, "empty".to_owned(), "name at least one");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_before_the_file_and_both_before_defaults() {
        let file: Keys =
            toml::from_str("workers = [4]\nlatency_us = 7\n[job_keys]\nbits = 3\nblock = 13\n").unwrap();
        let flags = Keys {
            workers: Some(vec![8, 16]),
            job: vec![job_pair("bits=2").unwrap(), job_pair("policy=reliable").unwrap()],
            ..Keys::default()
        };
        let settings = flags.or(file).validate().unwrap();
        assert_eq!((settings.workers, settings.latency_us, settings.rounds), (vec![8, 16], 7.0, 1));
        let job: Vec<String> = settings.job.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        assert_eq!(job, ["bits = 2", "block = 13", "policy = \"reliable\""]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(toml::from_str::<Keys>("worker = [4]").is_err());
        assert!(toml::from_str::<Keys>("rate = [\"fast\"]").is_err());
        for (text, key) in [
            ("workers = [1]", "workers"),
            ("workers = [1025]", "workers"),
            ("workers = []", "workers"),
            ("loss = 0.6", "loss"),
            ("loss = nan", "loss"),
            ("latency_us = -1", "latency_us"),
            ("slowdown = 0.5", "slowdown"),
            ("coordinates = 0", "coordinates"),
            ("stretch = 1000", "stretch"),
            ("threads = 0", "threads"),
        ] {
            let keys: Keys = toml::from_str(text).unwrap();
            let error = keys.validate().unwrap_err().to_string();
            assert!(error.starts_with(key) && error.lines().count() == 1, "{text}: {error}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!("2.5gbit".parse(), Ok(Rate(2_500_000_000)));
        for wrong in ["", "1", "0gbit", "1kbit", "gbit", "-1gbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
