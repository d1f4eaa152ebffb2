//! The processes of a run: a server, its controller if there is one, and workers, each on a host of its own.

use super::Plan;
use crate::followed::Followed;
use crate::ready::Ready;
use crate::{COOKIE, Host, Network, command, free_port};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The longest that the controller may take to have written the job.
const PATIENCE: Duration = crate::HANG;
/// The job's name.
const JOB: &str = "train";

/// Processes and where they are.
pub(super) struct Site {
    plan: Plan,
    /// Without one, all of them are on the loopback: why.
    network: Result<Network, String>,
    /// What workers are told of where to join.
    ps: String,
    pub server: Ready,
    pub controller: Option<Ready>,
    /// What the controller keeps.
    _folder: tempfile::TempDir,
}

impl Site {
    pub fn start(plan: Plan) -> Result<Site, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let network = Network::star(plan.workers + 2);
        if let Ok(network) = &network {
            network.hosts().iter().try_for_each(Host::assign)?;
        }
        let hosts = network.as_ref().ok();
        let at = |place: usize, usual: u16, free: fn() -> u16| match hosts {
            Some(network) => SocketAddr::from((network.host(place).address, usual)),
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, free())),
        };
        let listen = at(0, 9000, free_port);
        let mut server = command(hosts.map(|network| network.host(0)), "thc-ps");
        server.args(["--listen", &listen.to_string()]);
        if !plan.controller {
            let n = plan.workers.to_string();
            server.args(["--job", "1", "--workers", &n, "--cookie", COOKIE]);
            let server = Ready::start(server);
            return Ok(Site {
                plan,
                ps: listen.to_string(),
                network,
                server,
                controller: None,
                _folder: folder,
            });
        }
        let p4runtime = at(0, 9559, free_port);
        server.args(["--p4runtime", &p4runtime.to_string()]);
        let server = Ready::start(server);
        let asked = at(1, 9700, free_port);
        let config = folder.path().join("controller.toml");
        let text = format!(
            "[controller]\nlisten = \"{asked}\"\nstate = \"{}\"\n[[target]]\nname = \"ps1\"\naddress = \"http://{p4runtime}\"\n\
             election_id = 1\nip = \"{}\"\nudp_port = {}\n",
            folder.path().join("state").display(),
            listen.ip(),
            listen.port(),
        );
        std::fs::write(&config, text).map_err(|error| error.to_string())?;
        let mut controller = command(hosts.map(|network| network.host(1)), "thc-controller");
        controller.args(["run", "--config", &config.display().to_string()]);
        let controller = Some(Ready::start(controller));
        let site =
            Site { plan, ps: format!("thc://{asked}/{JOB}"), network, server, controller, _folder: folder };
        site.create_job(asked)?;
        Ok(site)
    }

    fn create_job(&self, controller: SocketAddr) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let host = self.network.as_ref().ok().map(|network| network.host(1));
            let mut create = command(host, "thc-controller");
            create.args(["job", "create", JOB, "--workers", &self.plan.workers.to_string()]);
            let end = create.args(["--controller", &controller.to_string()]).output();
            let end = end.map_err(|error| error.to_string())?;
            if end.status.success() {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("no job: {}", String::from_utf8_lossy(&end.stderr)));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Over what it runs, for people.
    pub fn network(&self) -> String {
        match &self.network {
            Ok(_) => "network namespaces".to_owned(),
            Err(reason) => format!("loopback ({reason})"),
        }
    }

    /// Starts a worker.
    pub fn worker(&self, number: u8) -> Followed {
        let Plan { coordinates, repeat, loss, seed, .. } = self.plan;
        let mut flags = vec![
            format!("--ps={}", self.ps),
            format!("--worker={number}"),
            format!("--coordinates={coordinates}"),
            format!("--repeat={repeat}"),
            format!("--inject=loss={loss}"),
            format!("--inject-seed={}", seed.wrapping_add(number.into())),
            "--error-feedback".to_owned(),
            "--rejoin".to_owned(),
        ];
        if !self.plan.controller {
            flags.push(format!("--cookie={COOKIE}"));
        }
        let host = self.network.as_ref().ok().map(|network| network.host(usize::from(number) + 2));
        Followed::start(host, &flags)
    }

    /// What server and controller wrote last.
    pub fn log(&self) -> String {
        let tail = |name: &str, log: String| {
            let lines: Vec<&str> = log.lines().collect();
            format!("{name}:\n{}\n", lines[lines.len().saturating_sub(30)..].join("\n"))
        };
        let controller = self.controller.as_ref().map(|controller| tail("controller", controller.log()));
        tail("server", self.server.log()) + &controller.unwrap_or_default()
    }
}
