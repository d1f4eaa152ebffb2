//! The whole demo: both runs, their child processes, and the report.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::ValueEnum;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use thc_config::logs::print_error;
use thc_netns::ports;
use thc_ps::{Method, ServerStats};

use super::curve::final_loss;
use super::event::{Event, Outcome, Server};
use super::memif::Links;
use super::plan::{DemoPlan, WorkerPlan};
use super::processes::{Children, Message};
use super::report::{Report, Run, RunResult};
use super::server::{self, Job, Share};
use super::switch::{self, Site};
use super::text::Text;
use super::{controller, on_host};
use crate::error::{Error, Result};

/// The aggregator that the workers average through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Aggregator {
    /// A parameter server (thc-ps) at sockets of the loopback interface
    Ps,
    /// A parameter server whose job thc-controller creates; shows how to watch the run by diagnosis and metrics
    Controller,
    /// No dedicated server: each worker's process serves a share of the slots, as by default with PyTorch on several hosts
    Shares,
    /// A parameter server over DPDK, with links of shared memory
    Dpdk,
    /// The p4lang project's software switch, with a smaller model, since it takes milliseconds for a packet; needs root
    Bmv2,
    /// The same switch program in this project's interpreter, with nothing to install and no root
    Interpreted,
}

impl Aggregator {
    /// Whether each packet takes milliseconds.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::Bmv2 | Self::Interpreted)
    }
}

/// The options of `thc demo`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The training.
    pub plan: DemoPlan,
    /// The method of compression.
    pub method: Method,
    /// Bit budget b of the compression, if it is not the default.
    pub bits: Option<u8>,
    /// The aggregator.
    pub aggregator: Aggregator,
    /// Share of the packets that the server loses, in each direction.
    pub loss: f64,
    /// Whether workers keep error feedback.
    pub feedback: bool,
    /// Whether only the report is printed, without progress.
    pub quiet: bool,
}

impl Options {
    /// Refuses, before any process starts, what this program cannot run.
    fn check(&self) -> Result<()> {
        let fixed = [("--bits", self.bits.is_some()), ("--no-feedback", !self.feedback)];
        if let Some((flag, _)) = fixed.iter().find(|(_, given)| *given && self.method.fixes_workers()) {
            let text = format!("--method {} fixes what {flag} sets: leave one of them out", self.method);
            return Err(Error::Usage(text));
        }
        match self.aggregator {
            Aggregator::Dpdk if !cfg!(feature = "dpdk") => Err(Error::Usage(
                "this program was built without DPDK; run `make demo AGGREGATOR=dpdk`, or build it with --features dpdk, which \
                 needs libdpdk-dev and libclang-dev (see docs/dpdk.md)"
                    .to_owned(),
            )),
            Aggregator::Controller if !cfg!(feature = "controller") => Err(Error::no_controller()),
            Aggregator::Bmv2 | Aggregator::Interpreted if self.loss > 0.0 => {
                Err(Error::Usage("thc-ps injects losses, and a switch does not: leave --loss out".to_owned()))
            }
            Aggregator::Shares if self.plan.workers < 2 => Err(Error::one_worker("--aggregator ps")),
            _ => Text::read(&self.plan.text).map(|_| ()),
        }
    }

    fn say(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            print_error(text);
        }
    }
}

/// Runs the demo. All child processes have ended when this function returns, also if it fails.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
    }
    let temporary = tempfile::tempdir().map_err(Error::Process)?;
    let (thc, totals) = run_compressed(options, temporary.path(), Arc::clone(&interrupted))?;
    let exact = exact(options, interrupted)?;
    Ok(Report::new(
        &options.plan,
        (options.feedback, options.aggregator == Aggregator::Shares),
        totals,
        thc,
        exact.run,
    ))
}

/// The running aggregator, and how workers reach it.
struct Running {
    /// Servers and controllers, in the order in which they were started.
    children: Vec<usize>,
    address: SocketAddr,
    /// The job's URL at a controller.
    controller: Option<String>,
    share: Option<Share>,
    links: Option<Links>,
    site: Option<Site>,
}

impl Running {
    fn new(address: SocketAddr) -> Self {
        Self { children: Vec::new(), address, controller: None, share: None, links: None, site: None }
    }

    /// Starts the aggregator and waits until it is ready.
    fn start(options: &Options, job: &Job, folder: &Path, children: &mut Children) -> Result<Self> {
        let start = |children: &mut Children, name: &'static str, arguments: Vec<String>| {
            let mut command = this_program("internal-server")?;
            command.arg(server::find(name)?).args(arguments);
            if matches!(options.aggregator, Aggregator::Ps | Aggregator::Dpdk) {
                job.hand_cookie(&mut command);
            }
            children.start(name.to_owned(), &mut command)
        };
        match options.aggregator {
            Aggregator::Ps => {
                let server = start(children, server::PROGRAM, job.arguments(None, Vec::new()))?;
                Ok(Self { children: vec![server], ..Self::new(hear(children, server::ready)?) })
            }
            Aggregator::Dpdk => {
                let links = Links::new()?;
                options.say(format_args!(
                    "DPDK without a NIC: one net_memif link of shared memory per worker, with its socket in {}",
                    links.folder().display()
                ));
                let arguments = job.arguments(Some(links.listen()), links.server_arguments(job.workers));
                let server = start(children, server::PROGRAM, arguments)?;
                let address = hear(children, server::ready)?;
                Ok(Self { children: vec![server], links: Some(links), ..Self::new(address) })
            }
            Aggregator::Controller => {
                let server = start(children, server::PROGRAM, job.arguments_for_controller())?;
                let (p4runtime, address) = hear(children, server::ready_for_controller())?;
                let arguments =
                    controller::arguments(folder, job, p4runtime, address, Ipv4Addr::LOCALHOST.into())?;
                let controller = start(children, controller::PROGRAM, arguments)?;
                let addresses = hear(children, controller::ready())?;
                options.say(addresses);
                let children = vec![server, controller];
                Ok(Self { children, controller: Some(addresses.url()), ..Self::new(address) })
            }
            Aggregator::Shares => {
                let n = u16::from(job.workers);
                let first = ports::find_free(n).map_err(Error::Process)?;
                let at: Vec<_> =
                    (first..first + n).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect();
                options.say(format_args!(
                    "each worker serves a share of the slots, at {} to {}",
                    at[0],
                    first + n - 1
                ));
                Ok(Self { share: Some(Share { job: *job, at: at.clone() }), ..Self::new(at[0]) })
            }
            Aggregator::Bmv2 => {
                let site = Site::new(job.workers)?;
                let mut command = this_program("internal-server")?;
                command.args(site.arguments(folder)?);
                let running = children.start(switch::PROGRAM.to_owned(), &mut command)?;
                site.wait(|| children.check(running))?;
                let controller = start(children, controller::PROGRAM, site.controller(folder, job)?)?;
                let addresses = hear(children, controller::ready())?;
                options.say(format_args!("BMv2 with a port for each worker, a host of its own\n{addresses}"));
                let children = vec![running, controller];
                Ok(Self { children, site: Some(site), ..Self::new(switch::OWN) })
            }
            Aggregator::Interpreted => {
                let port = ports::find_free(1).map_err(Error::Process)?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let running =
                    start(children, switch::INTERPRETER, switch::interpreter(address, job.workers))?;
                let p4runtime = hear(children, |line| line.strip_prefix("ready ")?.parse().ok())?;
                let arguments = switch::interpreter_controller(folder, job, p4runtime, address)?;
                let controller = start(children, controller::PROGRAM, arguments)?;
                let addresses = hear(children, controller::ready())?;
                options.say(format_args!("the switch program, interpreted, at {address}\n{addresses}"));
                Ok(Self { children: vec![running, controller], ..Self::new(address) })
            }
        }
    }
}

/// Runs the training through THC, with a process per worker.
fn run_compressed(
    options: &Options,
    folder: &Path,
    interrupted: Arc<AtomicBool>,
) -> Result<(RunResult, Option<Server>)> {
    let plan = &options.plan;
    let job = Job {
        workers: plan.workers,
        method: options.method,
        bits: options.bits,
        seed: plan.seed,
        loss: options.loss,
        cookie: rand::random(),
    };
    let mut children = Children::new(interrupted);
    let running = Running::start(options, &job, folder, &mut children)?;
    let mut workers = Vec::new();
    for worker in 0..plan.workers {
        let order = WorkerPlan {
            plan: plan.clone(),
            worker,
            server: running.address,
            share: running.share.clone(),
            controller: running.controller.clone(),
            link: running.links.as_ref().map(|links| links.link(worker)),
            slow: options.aggregator.is_slow(),
            feedback: options.feedback,
            independent: options.method.fixes_workers(),
        };
        let order = serde_json::to_string(&order).map_err(Error::Event)?;
        let mut command = trainer("internal-worker")?;
        job.hand_cookie(&mut command).arg(order);
        if let Some(site) = &running.site {
            command = on_host(site.network().host(worker.into()), &command);
        }
        workers.push(children.start(format!("worker {worker}"), &mut command)?);
    }
    let heard = listen(&mut children, options, "THC", &workers, &running.children)?;
    let mut totals = Vec::new();
    // The parameter server ends last, because it reports the totals.
    for &server in running.children.iter().rev() {
        totals = children.stop(server)?;
    }
    let totals = totals.iter().rev().find_map(|line| serde_json::from_str::<ServerStats>(line).ok());
    let beside = heard.outcomes.iter().filter_map(|outcome| outcome.server).reduce(|mut all, one| {
        all.add(&one);
        all
    });
    let totals = totals.as_ref().map(Server::from_totals).or(beside);
    if totals.is_none() && !options.aggregator.is_slow() {
        let text = "thc-ps ended without reporting its totals (are all programs of the same build?)";
        return Err(Error::Failure(text.to_owned()));
    }
    if let Some((worker, other)) =
        heard.outcomes.iter().enumerate().find(|(_, o)| o.digest != heard.outcomes[0].digest)
    {
        return Err(Error::Failure(format!(
            "worker {worker} ended with the model {}, worker 0 with {}: their averages differed",
            other.digest, heard.outcomes[0].digest
        )));
    }
    Ok((heard, totals))
}

/// Runs the training with exact averaging, in one process.
fn exact(options: &Options, interrupted: Arc<AtomicBool>) -> Result<RunResult> {
    let mut children = Children::new(interrupted);
    let order = serde_json::to_string(&options.plan).map_err(Error::Event)?;
    let mut command = trainer("internal-exact")?;
    command.arg(order);
    let only = children.start("the exact run".to_owned(), &mut command)?;
    listen(&mut children, options, "exact", &[only], &[])
}

/// Waits until a child writes a line in which `find` finds something. Meanwhile no child may end.
pub fn hear<T>(children: &mut Children, mut find: impl FnMut(&str) -> Option<T>) -> Result<T> {
    loop {
        match children.message()? {
            (_, Message::Line(line)) => {
                if let Some(found) = find(&line) {
                    return Ok(found);
                }
            }
            (from, Message::Closed) => return Err(children.ended(from)),
        }
    }
}

/// A command that starts this program again with a hidden subcommand. Its process ends when this one does.
pub fn this_program(subcommand: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().map_err(Error::Process)?);
    command.arg(subcommand).arg("--parent").arg(std::process::id().to_string());
    Ok(command)
}

/// A command that starts a training child.
fn trainer(subcommand: &str) -> Result<Command> {
    let mut command = this_program(subcommand)?;
    // Each process computes matrix products on one thread, because the processes together use all cores.
    command.env("RAYON_NUM_THREADS", "1");
    // Every tensor operation allocates its result. Above its thresholds glibc gets and returns
    // that memory by system calls and page faults, which took half of a worker's processor time.
    for threshold in ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"] {
        command.env(threshold, (1u32 << 30).to_string());
    }
    Ok(command)
}

/// Reads events until each of `trainers` has reported its outcome and ended. A line for every tenth of the steps shows progress.
fn listen(
    children: &mut Children,
    options: &Options,
    name: &str,
    trainers: &[usize],
    servers: &[usize],
) -> Result<RunResult> {
    let steps = options.plan.steps;
    let tenth = |step: u32| u64::from(step) * 10 / u64::from(steps);
    let mut parameters = 0;
    let mut sums = vec![(0.0f64, 0usize); steps as usize];
    let mut errors = Vec::new();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; trainers.len()];
    let mut started = None;
    let mut seconds = 0.0;
    while outcomes.iter().any(Option::is_none) {
        let (from, message) = children.message()?;
        let trainer = trainers.iter().position(|&trainer| trainer == from);
        let (trainer, line) = match (trainer, message) {
            (Some(trainer), Message::Line(line)) => (trainer, line),
            (Some(trainer), Message::Closed) if outcomes[trainer].is_none() => {
                return Err(children.ended(from));
            }
            (None, Message::Closed) if servers.contains(&from) => return Err(children.ended(from)),
            _ => continue,
        };
        match Event::parse(&line)? {
            Event::Ready { parameters: count } => {
                parameters = count;
                started.get_or_insert_with(Instant::now);
            }
            Event::Step { step, loss } => {
                let Some(sum) = sums.get_mut(step as usize) else { continue };
                *sum = (sum.0 + f64::from(loss), sum.1 + 1);
                if sum.1 == trainers.len() {
                    if step == 0 || tenth(step + 1) != tenth(step) {
                        let loss = sum.0 / sum.1 as f64;
                        options
                            .say(format_args!("{name:>6}  step {:>4} of {steps}  loss {loss:.3}", step + 1));
                    }
                    seconds = started.map_or(0.0, |start| start.elapsed().as_secs_f64());
                }
            }
            Event::Sample(sample) => errors.push(sample),
            Event::Done(outcome) => outcomes[trainer] = Some(outcome),
        }
    }
    for &trainer in trainers {
        children.finish(trainer)?;
    }
    let losses: Vec<f32> = sums.iter().map(|&(sum, count)| (sum / count as f64) as f32).collect();
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let held_out = outcomes.iter().map(|o| f64::from(o.held_out)).sum::<f64>() / outcomes.len() as f64;
    Ok(RunResult {
        parameters,
        run: Run { final_loss: final_loss(&losses), losses, held_out_loss: held_out as f32, seconds },
        errors,
        outcomes,
    })
}
