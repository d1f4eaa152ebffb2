//! One language of jobs: the keys of a job as they are written ([`JobOptions`]), the checks that they go through, whoever
//! configures the job, and what they become ([`JobSetup`]). All defaults of jobs are here. Servers, which have jobs, and
//! controllers, which hand them out, use it alike; it opens nothing and knows no sockets.

pub mod cookie;
pub mod credit;
mod error;
mod fixed;
mod keywords;
mod merge;
mod method;
mod number;
mod options;
mod own_table;
mod place;
mod rack_size;
mod racks;
mod setup;
mod tables;

pub use error::{ConfigError, Section};
pub use keywords::{Keyword, KeywordKind};
pub use merge::{merge, set};
pub use method::{Method, MethodValues};
pub use number::number;
pub use options::{JobOptions, PolicyName};
pub use place::{ServerPlace, rack_number, root_address, share_addresses};
pub use rack_size::RackSize;
pub use setup::{DEFAULT_DEADLINE, JobSetup, validate_jobs};
pub use tables::{KnownTables, TableOptions, wire_table};

#[cfg(test)]
mod tests;
