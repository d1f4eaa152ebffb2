//! `thc testbed`: hosts with links of a rate, a running aggregator, and a command on every host, or a shell.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thc_config::logs::print_error;
use thc_netns::{Network, Rate};
use thc_ps::Method;

use crate::demo::processes::{Children, Message};
use crate::demo::run::{Aggregator, hear, this_program};
use crate::demo::server::{self, Job};
use crate::demo::switch::{self, Site};
use crate::demo::{controller, on_host};
use crate::error::{Error, Result};

/// The port of servers on their hosts.
const PORT: u16 = 9000;

/// The hosts and the aggregator to make.
pub struct Testbed {
    pub workers: u8,
    pub aggregator: Aggregator,
    /// The rate of each worker's link, each way.
    pub rate: Rate,
    pub method: Method,
    /// The command for `sh` on every host. `None` opens a shell on the first one.
    pub command: Option<String>,
}

/// The hosts, on a bridge or on the ports of a switch.
enum Hosts {
    Lan(Network),
    Switch(Site),
}

impl Hosts {
    fn network(&self) -> &Network {
        match self {
            Self::Lan(network) => network,
            Self::Switch(site) => site.network(),
        }
    }
}

impl Testbed {
    /// Makes all of it and runs the command. Hosts and processes are gone when this function returns.
    pub fn run(&self) -> Result<()> {
        let no = |reason| Error::NoNetwork { reason };
        let n = usize::from(self.workers);
        let hosts = match self.aggregator {
            Aggregator::Bmv2 => Hosts::Switch(Site::new(self.workers)?),
            Aggregator::Ps | Aggregator::Shares => {
                let network = Network::lan(self.workers + 1).map_err(no)?;
                network.hosts().iter().try_for_each(|host| host.assign()).map_err(no)?;
                Hosts::Lan(network)
            }
            Aggregator::Controller | Aggregator::Dpdk | Aggregator::Interpreted => {
                return Err(Error::Usage("a testbed has the aggregator ps, shares or bmv2".to_owned()));
            }
        };
        (0..n).try_for_each(|host| hosts.network().shape(host, self.rate.0)).map_err(no)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
        }
        let folder = tempfile::tempdir().map_err(Error::Process)?;
        let Testbed { workers, method, .. } = *self;
        let job = Job { workers, method, bits: None, seed: 1, loss: 0.0, cookie: rand::random() };
        let mut servers = Children::new(Arc::clone(&interrupted));
        let join = self.start(&hosts, &job, folder.path(), &mut servers)?;
        let on = |worker: u8, command: &mut Command| {
            command.env("THC_PS", &join).env("THC_WORKER", worker.to_string());
            command.env("THC_METHOD", method.to_string());
            // A controller gives the cookie to the workers itself.
            if !join.starts_with("thc://") {
                job.hand_cookie(command);
            }
            on_host(hosts.network().host(worker.into()), command)
        };
        let Some(command) = &self.command else {
            for host in &hosts.network().hosts()[..n] {
                let enter = host.command(Path::new("sh"));
                let words: Vec<_> = enter.get_args().map(|word| word.to_string_lossy()).collect();
                print_error(format_args!("{}: ip {}", host.address, words.join(" ")));
            }
            print_error(format_args!("a shell on the first host, with THC_PS={join}"));
            on(0, &mut Command::new("sh")).status().map_err(Error::Process)?;
            return Ok(());
        };
        let mut commands = Children::new(interrupted).without_stall();
        for worker in 0..self.workers {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("exec 2>&1; {command}"));
            commands.start(format!("the command on host {worker}"), &mut on(worker, &mut shell))?;
        }
        let mut open = n;
        while open > 0 {
            match commands.message()? {
                (host, Message::Line(line)) => {
                    writeln!(std::io::stdout(), "{host}: {line}").map_err(Error::Output)?;
                }
                (host, Message::Closed) => {
                    commands.finish(host)?;
                    open -= 1;
                }
            }
        }
        Ok(())
    }

    /// Starts servers and controllers, and returns where workers join.
    fn start(&self, hosts: &Hosts, job: &Job, folder: &Path, children: &mut Children) -> Result<String> {
        let program = |name: &'static str, arguments: Vec<String>| {
            let mut command = this_program("internal-server")?;
            command.arg(server::find(name)?).args(arguments);
            Ok::<_, Error>(command)
        };
        match hosts {
            Hosts::Switch(site) => {
                let mut command = this_program("internal-server")?;
                command.args(site.arguments(folder)?);
                let running = children.start(switch::PROGRAM.to_owned(), &mut command)?;
                site.wait(|| children.check(running))?;
                let mut command = program(controller::PROGRAM, site.controller(folder, job)?)?;
                children.start(controller::PROGRAM.to_owned(), &mut command)?;
                hear(children, controller::ready())?;
                Ok(switch::OWN.to_string())
            }
            Hosts::Lan(network) if self.aggregator == Aggregator::Shares => {
                let at = |host: usize| SocketAddr::from((network.host(host).address, PORT));
                let n = usize::from(self.workers);
                let all: Vec<String> = (0..n).map(|host| at(host).to_string()).collect();
                for host in 0..n {
                    let mut arguments = job.arguments(Some(at(host)), Vec::new());
                    arguments.extend(["--share".to_owned(), format!("{host}/{n}")]);
                    arguments.extend(["--shares".to_owned(), all.join(",")]);
                    let mut command = program(server::PROGRAM, arguments)?;
                    let mut command = on_host(network.host(host), job.hand_cookie(&mut command));
                    children.start(format!("the share on host {host}"), &mut command)?;
                    hear(children, server::ready)?;
                }
                Ok(all[0].clone())
            }
            Hosts::Lan(network) => {
                let host = network.host(self.workers.into());
                let (own, port) = (IpAddr::from(host.address), PORT);
                let mut arguments = vec!["--json".to_owned(), "--listen".to_owned(), format!("{own}:{port}")];
                arguments.extend(["--p4runtime".to_owned(), "127.0.0.1:0".to_owned()]);
                let mut command = on_host(host, &program(server::PROGRAM, arguments)?);
                children.start(server::PROGRAM.to_owned(), &mut command)?;
                let (p4runtime, address) = hear(children, server::ready_for_controller())?;
                let arguments = controller::arguments(folder, job, p4runtime, address, own)?;
                let mut command = on_host(host, &program(controller::PROGRAM, arguments)?);
                children.start(controller::PROGRAM.to_owned(), &mut command)?;
                let addresses = hear(children, controller::ready())?;
                print_error(format_args!("on {own}: {addresses}"));
                Ok(addresses.url())
            }
        }
    }
}
