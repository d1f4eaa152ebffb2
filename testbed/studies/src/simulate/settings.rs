//! The settings of a simulation: as typed ([`Keys`]) and as used ([`Settings`]).

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use serde::Serialize;
use thc_worker::Computed;

use super::error::value_error;
use super::layout::Layout;
use super::recirculation::Chip;
use crate::error::Result;
use crate::units::Rate;

/// A key of a server's job.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
        /// The flags.
        #[derive(Args, Clone, Debug, Default, PartialEq)]
        pub struct Keys {
            $($(#[$note])* pub $key: Option<$kind>,)*
            $($(#[$cost_note])* pub $cost: Option<$cost_kind>,)*
            /// Keys of the server's job, as in thc-ps's file: bits=3,data_slots=2048
            #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = job_pair, help_heading = "Settings")]
            pub job: Vec<(String, JobValue)>,
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
            pub costs: Costs,
            pub job: BTreeMap<String, JobValue>,
        }

        impl Keys {
            /// These, and where they say nothing, the other's.
            #[must_use]
            pub fn or(mut self, other: Self) -> Self {
                $(self.$key = self.$key.or(other.$key);)*
                $(self.$cost = self.$cost.or(other.$cost);)*
                if self.job.is_empty() {
                    self.job = other.job;
                }
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
                    costs: Costs { $($cost: self.$cost.unwrap_or($cost_default),)* },
                    job: self.job.into_iter().collect(),
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
                + of(before.finished, after.finished, self.decompress_ns))
                / f64::from(self.threads),
        )
    }
}

/// The shortest stretch, in which a window is passed several times.
const LEAST: u64 = 1 << 18;

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
            ("pass_latency_ns", self.pass_latency_ns, 1e6),
            ("norm_ns", costs.norm_ns, 1e6),
            ("compress_ns", costs.compress_ns, 1e6),
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
        if !(0.0..=0.5).contains(&self.loss) {
            return wrong("loss", self.loss.to_string(), "give a share from 0 to 0.5");
        }
        for (key, value, range, mend) in [
            ("coordinates", self.coordinates, 1..=u64::from(u32::MAX), "give 1 to 4294967295"),
            ("stretch", self.stretch, LEAST..=1 << 28, "give 262144 to 268435456"),
            ("rounds", self.rounds.into(), 1..=1000, "give 1 to 1000"),
            ("queue", self.queue.into(), 64..=1 << 24, "give 64 to 16777216"),
            ("framing", self.framing.into(), 0..=1000, "give 0 to 1000"),
            ("cores", self.cores.into(), 1..=1024, "give 1 to 1024"),
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
    fn what_makes_no_sense_is_refused() {
        for (keys, key) in [
            (Keys { workers: Some(vec![1]), ..Keys::default() }, "workers"),
            (Keys { workers: Some(vec![1025]), ..Keys::default() }, "workers"),
            (Keys { workers: Some(Vec::new()), ..Keys::default() }, "workers"),
            (Keys { loss: Some(0.6), ..Keys::default() }, "loss"),
            (Keys { loss: Some(f64::NAN), ..Keys::default() }, "loss"),
            (Keys { latency_us: Some(-1.0), ..Keys::default() }, "latency_us"),
            (Keys { coordinates: Some(0), ..Keys::default() }, "coordinates"),
            (Keys { stretch: Some(1000), ..Keys::default() }, "stretch"),
            (Keys { threads: Some(0), ..Keys::default() }, "threads"),
        ] {
            let error = keys.validate().unwrap_err().to_string();
            assert!(error.starts_with(key) && error.lines().count() == 1, "{key}: {error}");
        }
    }
}
