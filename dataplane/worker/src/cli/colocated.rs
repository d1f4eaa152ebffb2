//! A share of the server beside this worker, on threads of this process.

use std::net::SocketAddr;
use std::time::Duration;
use thc_ps::{JobOptions, Method, Server, ServerConfig, ServerOptions};
use thc_worker::GroupConfig;

/// How long the share stays for workers that have not left yet.
const LINGER: Duration = Duration::from_secs(10);

/// The checked configuration of a worker's share; `None` if there are fewer shares than its number. `at` has
/// the addresses of all shares, one beside each of the first workers; `lane` is the width of their sums in
/// bits and `method` the job's, if not the default.
///
/// # Errors
/// A line that says what is wrong.
pub fn plan(
    group: &GroupConfig,
    at: &[SocketAddr],
    workers: u8,
    (lane, method): (Option<u8>, Option<Method>),
) -> Result<Option<ServerConfig>, String> {
    let share = usize::from(group.worker);
    let options = ServerOptions {
        share: Some(format!("{}/{}", share.min(at.len().saturating_sub(1)), at.len())),
        shares: Some(at.iter().map(ToString::to_string).collect()),
        job: vec![JobOptions {
            job: Some(group.job.into()),
            cookie: Some(u64::from(group.cookie).into()),
            workers: Some(workers.into()),
            lane: lane.map(Into::into),
            method,
            ..JobOptions::default()
        }],
        ..ServerOptions::default()
    };
    let config = options.validate().map_err(|error| format!("colocated: {error}"))?;
    Ok((share < at.len()).then_some(config))
}

/// Waits until all workers have left, or long enough, and stops the share.
pub fn close(server: Server) {
    server.wait_for_leaving(LINGER);
}
