//! The configuration of THC's programs. Each module but [`file`] and [`values`] is a feature.
//!
//! * [`file`]: files in TOML, and errors that name the line;
//! * [`values`]: times, sizes, fractions and secrets, as users write them in files and as flags;
//! * [`job`]: the keys of a job, their defaults, and the checked job that they become;
//! * [`server`]: the options of a parameter server, and its checked configuration;
//! * [`logs`]: events on stderr, as text or as JSON, and with them [`help`], the form of `-h` and `--help`;
//! * [`metrics`]: OpenMetrics text, and the endpoint that serves it;
//! * [`tls`]: certificates, and the connections of services.
#![forbid(unsafe_code)]

pub mod file;
#[cfg(feature = "logs")]
pub mod help;
#[cfg(feature = "job")]
pub mod job;
#[cfg(feature = "logs")]
pub mod logs;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "tls")]
pub mod tls;
pub mod values;
