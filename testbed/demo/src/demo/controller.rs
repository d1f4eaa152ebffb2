//! The demo's controller, which creates the job in the parameter server and gives the workers the server's address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::server::Job;
use crate::error::{Error, Result};

/// Name of the controller's program.
pub const PROGRAM: &str = "thc-controller";
/// The job's name at the controller.
pub const JOB: &str = "demo";
/// The number of slots that a server has without a controller.
const SLOTS: u32 = 1024;

/// The addresses of a running controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The address for commands and workers.
    pub listen: SocketAddr,
    /// The address of the metrics.
    pub metrics: SocketAddr,
}

impl Addresses {
    /// The address at which workers join.
    pub fn url(&self) -> String {
        format!("thc://{}/{JOB}", self.listen)
    }
}

/// Text that tells users how to watch the run.
impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Addresses { listen, metrics } = self;
        writeln!(f, "watch it: thc-controller --controller {listen} diagnose {JOB}")?;
        write!(f, "  metrics for Prometheus: http://{metrics}/metrics")
    }
}

/// Writes the configuration of a controller at `own` for one parameter server and the job, and returns its arguments.
pub fn arguments(
    folder: &Path,
    job: &Job,
    p4runtime: SocketAddr,
    server: SocketAddr,
    own: IpAddr,
) -> Result<Vec<String>> {
    let path = folder.join("thc-controller.toml");
    let text = format!(
        "[[target]]\nname = \"ps\"\naddress = \"{p4runtime}\"\nip = \"{}\"\nudp_port = {}\n\
         [[job]]\nname = \"{JOB}\"\njob = {}\nworkers = {}\n{}seed = \"{:#x}\"\ndata_slots = {SLOTS}\n",
        server.ip(),
        server.port(),
        super::server::JOB,
        job.workers,
        job.keys(),
        job.seed,
    );
    std::fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
    let file = path.display().to_string();
    let own = SocketAddr::from((own, 0)).to_string();
    let words = ["run", "--config", &file, "--state", "none", "--listen", &own, "--http", &own];
    Ok(words.map(str::to_owned).to_vec())
}

/// Reads a controller's output line by line until the controller is ready.
pub fn ready() -> impl FnMut(&str) -> Option<Addresses> {
    let mut metrics = None;
    move |line| {
        if let Some(url) = line.strip_prefix("metrics http://") {
            metrics = url.trim_end_matches("/metrics").parse().ok();
        }
        Some(Addresses { listen: line.strip_prefix("ready ")?.parse().ok()?, metrics: metrics? })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_ps::Method;

    #[test]
    fn it_says_how_to_look() {
        let mut ready = ready();
        assert_eq!(ready("metrics http://127.0.0.1:81/metrics"), None);
        let found = ready("ready 127.0.0.1:82").unwrap();
        assert_eq!(found.url(), "thc://127.0.0.1:82/demo");
        let text = found.to_string();
        for has in ["http://127.0.0.1:81/metrics", "--controller 127.0.0.1:82 diagnose demo"] {
            assert!(text.contains(has), "{text}");
        }
    }

    #[test]
    fn the_configuration_is_for_this_job() {
        let folder = tempfile::tempdir().unwrap();
        let job =
            Job { workers: 4, method: Method::Default, bits: Some(3), seed: u64::MAX, loss: 0.0, cookie: 7 };
        let at: SocketAddr = "127.0.0.1:5".parse().unwrap();
        let words = arguments(folder.path(), &job, "127.0.0.1:4".parse().unwrap(), at, at.ip()).unwrap();
        let text = std::fs::read_to_string(&words[2]).unwrap();
        for has in
            ["address = \"127.0.0.1:4\"", "udp_port = 5", "workers = 4", "bits = 3", "\"0xffffffffffffffff\""]
        {
            assert!(text.contains(has), "{text}");
        }
    }
}
