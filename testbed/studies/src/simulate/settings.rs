//! What is simulated: as it is written in a file or in flags ([`Keys`]) and as it is used ([`Settings`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use serde::{Deserialize, Serialize};
use thc_worker::Computed;

use super::error::value_error;
use super::layout::{Layout, SwitchKind};
use super::recirculation::Chip;
use crate::error::{Error, Result};
use crate::units::Rate;

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

fn job_pair(text: &str) -> std::result::Result<(String, JobValue), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    let value = value.parse().map_or_else(|_| JobValue::Text(value.to_owned()), JobValue::Number);
    Ok((key.to_owned(), value))
}

macro_rules! keys {
    (
        settings { $($(#[$note:meta])* $key:ident: $kind:ty = $default:expr,)* }
        costs { $($(#[$cost_note:meta])* $cost:ident: $cost_kind:ty = $cost_default:expr,)* }
    ) => {
        /// The keys of a file of settings, each also a flag.
        #[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct Keys {
            $($(#[$note])* #[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$kind>,)*
            /// What the link between a rack and its root carries, each way [default: as a host's]
            #[arg(long, value_name = "RATE", help_heading = "Settings")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub uplink: Option<Rate>,
            $($(#[$cost_note])* #[serde(skip_serializing_if = "Option::is_none")] pub $cost: Option<$cost_kind>,)*
            /// Keys of the server's job, as in thc-ps's file: bits=3,data_slots=2048
            #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = job_pair, help_heading = "Settings")]
            #[serde(default, skip)]
            pub job: Vec<(String, JobValue)>,
            /// The same in a file: a table `[job_keys]`
            #[arg(skip)]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub job_keys: Option<BTreeMap<String, JobValue>>,
        }

        /// What things cost a core.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
        pub struct Costs {
            $(pub $cost: $cost_kind,)*
        }

        /// Checked settings.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct Settings {
            $(pub $key: $kind,)*
            pub uplink: Option<Rate>,
            pub costs: Costs,
            pub job: BTreeMap<String, JobValue>,
        }

        impl Keys {
            /// These, and where they say nothing, the other's.
            #[must_use]
            pub fn or(mut self, other: Self) -> Self {
                $(self.$key = self.$key.or(other.$key);)*
                $(self.$cost = self.$cost.or(other.$cost);)*
                self.uplink = self.uplink.or(other.uplink);
                let mut job = other.job_keys.unwrap_or_default();
                job.extend(other.job);
                job.extend(self.job_keys.take().unwrap_or_default());
                job.extend(std::mem::take(&mut self.job));
                self.job_keys = (!job.is_empty()).then_some(job);
                self
            }

            /// Checked, with defaults.
            ///
            /// # Errors
            /// A value is out of its range.
            #[allow(clippy::unnecessary_lazy_evaluations, reason = "some defaults are lists")]
            pub fn validate(self) -> Result<Settings> {
                let settings = Settings {
                    $($key: self.$key.unwrap_or_else(|| $default),)*
                    uplink: self.uplink,
                    costs: Costs { $($cost: self.$cost.unwrap_or($cost_default),)* },
                    job: self.job_keys.unwrap_or_default().into_iter().chain(self.job).collect(),
                };
                settings.validate()
            }
        }
    };
}

keys! {
    settings {
        /// Where sums are added; several layouts are simulated one after the other, as are several of all lists below
        /// [default: all]
        #[arg(long, value_enum, value_name = "LAYOUT,…", value_delimiter = ',', help_heading = "Settings")]
        layout: Vec<Layout> = Layout::value_variants().to_vec(),
        /// Workers, each on a host of its own [default: 2,4,8,16,32,64,256,1024]
        #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', help_heading = "Settings")]
        workers: Vec<u16> = vec![2, 4, 8, 16, 32, 64, 256, 1024],
        /// What a host's link carries, each way [default: 1gbit,10gbit,25gbit,100gbit]
        #[arg(long, value_name = "RATE,…", value_delimiter = ',', help_heading = "Settings")]
        rate: Vec<Rate> = [1, 10, 25, 100].map(|g| Rate(g * 1_000_000_000)).to_vec(),
        /// Coordinates of the tensor, f32 [default: 16777216]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        coordinates: u64 = 16 << 20,
        /// Most coordinates that are simulated packet by packet; for a longer tensor, the time grows as it did from
        /// half of this number to all of it [default: 2097152]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        stretch: u64 = 2 << 20,
        /// All-reduces in a row; of several, the mean of all but the first counts [default: 1]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        rounds: u32 = 1,
        /// Seed of everything random [default: 1]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        seed: u64 = 1,
        /// Delay of the network one way, in addition to what links take [default: 5]
        #[arg(long, value_name = "MICROSECONDS", help_heading = "Settings")]
        latency_us: f64 = 5.0,
        /// Share of the packets that are lost [default: 0]
        #[arg(long, value_name = "SHARE", help_heading = "Settings")]
        loss: f64 = 0.0,
        /// Most packets that wait for one receiver; more are lost [default: 65536]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        queue: u32 = 1 << 16,
        /// Bytes around an IP packet on a wire: 38 on Ethernet, from preamble to gap [default: 38]
        #[arg(long, value_name = "BYTES", help_heading = "Settings")]
        framing: u32 = 38,
        /// Cores of a host [default: 4]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        cores: u16 = 4,
        /// Cores that all hosts share, as namespaces of one machine do; 0: each has its own [default: 0]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        shared_cores: u16 = 0,
        /// Computing before each all-reduce, such as a backward pass [default: 0]
        #[arg(long, value_name = "MILLISECONDS", help_heading = "Settings")]
        compute_ms: f64 = 0.0,
        /// Share of that time by which it varies, up or down, uniformly [default: 0]
        #[arg(long, value_name = "SHARE", help_heading = "Settings")]
        compute_spread: f64 = 0.0,
        /// Share of these computations that are slow [default: 0]
        #[arg(long, value_name = "SHARE", help_heading = "Settings")]
        stragglers: f64 = 0.0,
        /// How many times longer slow computations take [default: 2]
        #[arg(long, value_name = "FACTOR", help_heading = "Settings")]
        slowdown: f64 = 2.0,
        /// Whether workers keep error feedback [default: false]
        #[arg(long, value_name = "BOOL", help_heading = "Settings")]
        feedback: bool = false,
        /// What is at the switch's place [default: p4]
        #[arg(long, value_enum, value_name = "KIND", help_heading = "Settings")]
        switch: SwitchKind = SwitchKind::P4,
        /// What a root of racks is [default: p4]
        #[arg(long, value_enum, value_name = "KIND", help_heading = "Settings")]
        root: SwitchKind = SwitchKind::P4,
        /// Workers of a rack [default: 32]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        rack: u16 = 32,
        /// The chip of a P4 switch, which says how many passes a packet takes and how long it is in each [default: tofino2]
        #[arg(long, value_enum, value_name = "CHIP", help_heading = "Settings")]
        chip: Chip = Chip::Tofino2,
        /// What its loopback ports carry together, each way [default: 3200gbit]
        #[arg(long, value_name = "RATE", help_heading = "Settings")]
        loopback: Rate = Rate(3_200_000_000_000),
        /// How many loopback ports there are: the fullest is the bound [default: 4]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        pass_ports: u16 = 4,
        /// How long a pass takes for the packet itself [default: 700]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Settings")]
        pass_latency_ns: f64 = 700.0,
    }
    costs {
        /// Threads that compute in a worker: computing is this many times faster [default: 1]
        #[arg(long, value_name = "NUMBER", help_heading = "Settings")]
        threads: u16 = 1,
        /// Norm of a coordinate [default: 0.12]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        norm_ns: f64 = 0.12,
        /// Compressing a coordinate [default: 0.3]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        compress_ns: f64 = 0.3,
        /// Extra for a coordinate whose residual goes to error feedback [default: 0.3]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        feedback_ns: f64 = 0.3,
        /// Turning a coordinate's sum into its mean [default: 0.27]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        decompress_ns: f64 = 0.27,
        /// Sending a packet, at a worker [default: 120]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        send_ns: f64 = 120.0,
        /// Receiving a packet, at a worker [default: 250]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        receive_ns: f64 = 250.0,
        /// Receiving, checking and adding a packet, at a server [default: 150]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        server_receive_ns: f64 = 150.0,
        /// Sending a copy of a RESULT, at a server [default: 150]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        server_send_ns: f64 = 150.0,
        /// Waking up a sleeping receiver of a packet [default: 10]
        #[arg(long, value_name = "MICROSECONDS", help_heading = "Costs, of one core")]
        wake_us: f64 = 10.0,
        /// Sending a byte of a ring by TCP, and receiving one [default: 0.2]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        tcp_byte_ns: f64 = 0.2,
        /// Adding a coordinate, in a ring of f32 [default: 0.25]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        add_ns: f64 = 0.25,
        /// Unpacking, adding and quantizing a coordinate, in a ring of int8 [default: 0.5]
        #[arg(long, value_name = "NANOSECONDS", help_heading = "Costs, of one core")]
        requantize_ns: f64 = 0.5,
    }
}

/// Nanoseconds.
pub fn nanos(ns: f64) -> Duration {
    Duration::from_secs_f64(ns / 1e9)
}

impl Costs {
    /// What was computed between two looks.
    pub fn computing_time(&self, before: &Computed, after: &Computed) -> Duration {
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

/// The shortest stretch, in which a window is passed several times.
const LEAST: u64 = 1 << 18;

impl Keys {
    /// Reads the settings of a file.
    ///
    /// # Errors
    /// It cannot be read, or has a key or value that is none.
    pub fn read(path: &Path) -> Result<Self> {
        let file = |source| Error::File { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(file)?;
        toml::from_str(&text).map_err(|error| {
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::Usage(format!("{}: {reason} (thc simulate --help names the keys)", path.display()))
        })
    }
}

impl Settings {
    /// These, if they make sense.
    pub fn validate(self) -> Result<Self> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<()> {
        let wrong = |key, value: String, remedy| Err(value_error(key, value, remedy));
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
}
