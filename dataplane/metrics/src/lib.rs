//! Statistics for Prometheus: OpenMetrics text, and a server of it for programs that have none.
//!
//! Programs make the text from what they count anyway, when somebody asks. Labels are the same everywhere: `thc_job` (Prometheus
//! has a `job` of its own), `worker`, `shard`, `event`, `reason`.
#![forbid(unsafe_code)]

mod endpoint;
mod text;

pub use endpoint::{HTTP_TYPE, MetricsServer};
pub use prometheus_client::encoding::DescriptorEncoder;
pub use text::{Labels, counters, gauges, text};
