//! The P4Runtime service: a controller writes jobs into this server as it does into a switch.
//!
//! It runs on a separate thread, and packet threads only get its commands. docs/p4runtime.md describes what
//! is served, and what the switch program's tables mean here.

mod arbitration;
mod clients;
mod counters;
mod device;
mod entries;
mod listener;
mod pipeline;
mod read;
mod refusal;
mod service;
mod stream;
mod write;

#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use device::Device;
pub use listener::Listener;
pub use service::Service;
