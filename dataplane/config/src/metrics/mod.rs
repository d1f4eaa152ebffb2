//! Statistics for Prometheus: OpenMetrics text, and a server that provides it for programs that have no HTTP server.
//!
//! Programs write the text from their counters when a client asks for it. All programs use the same labels: `thc_job`
//! (since Prometheus sets a label `job` itself), `worker`, `shard`, `event` and `reason`.

mod endpoint;
mod text;

pub use endpoint::{HTTP_TYPE, MetricsServer};
pub use prometheus_client::encoding::DescriptorEncoder;
pub use text::{Labels, counters, gauges, text};
