//! The whole demo: both runs, their child processes, and the report.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use thc_netns::ports;
use thc_ps::ServerStats;
use thc_transport::IoName;

use super::controller;
use super::curve::{final_loss, plot};
use super::error_sample::ErrorSample;
use super::event::{Event, Outcome, Server};
use super::memif::Links;
use super::plan::{DemoPlan, WorkerPlan};
use super::processes::{Children, Message};
use super::progress::Progress;
use super::report::Report;
use super::run_result::{Run, RunResult};
use super::server::{self, Job, Share};
use super::switch::{self, Site};
use super::text::Text;
use crate::error::{Error, Result};

/// The options of `thc demo`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The training.
    pub plan: DemoPlan,
    /// Bit budget b of the compression.
    pub bits: u8,
    /// What carries the packets.
    pub io: IoName,
    /// Share of the packets that the server loses, in each direction.
    pub loss: f64,
    /// Whether workers keep error feedback.
    pub feedback: bool,
    /// Whether a controller creates the job.
    pub controller: bool,
    /// Whether each worker's process serves a share of the slots.
    pub colocated: bool,
    /// Whether the aggregator is the switch BMv2.
    pub switch: bool,
    /// The file for the plot of the loss curves.
    pub plot: Option<PathBuf>,
    /// Whether only the report is printed, without progress.
    pub quiet: bool,
}

/// Runs the demo. All child processes have ended when this function returns, also if it fails.
pub fn run(options: &Options) -> Result<Report> {
    // A wrong text, an unusable plot file or a missing backend must fail before any process starts.
    if options.io == IoName::Dpdk && !cfg!(feature = "dpdk") {
        let text = "this program was built without DPDK; run `make demo IO=dpdk`, or build it with --features dpdk, which needs \
                    libdpdk-dev and libclang-dev (see docs/dpdk.md)";
        return Err(Error::Usage(text.to_owned()));
    }
    let past = match options.io {
        IoName::Udp => None,
        IoName::Dpdk => Some("--io dpdk"),
    };
    if let (true, Some(option)) = (options.controller, past) {
        return Err(Error::Usage(format!("--controller needs sockets of this machine: leave {option} out")));
    }
    if options.switch {
        let others = [
            (options.controller, "--controller: a switch has one in any case"),
            (past.is_some(), past.unwrap_or_default()),
            (options.loss > 0.0, "--loss, which thc-ps injects"),
        ];
        if let Some((_, option)) = others.into_iter().find(|(given, _)| *given) {
            return Err(Error::Usage(format!("--switch does not go with {option}; leave one of them out")));
        }
    }
    if options.colocated {
        let others = [
            (options.switch, "--switch"),
            (options.controller, "--controller"),
            (past.is_some(), past.unwrap_or_default()),
        ];
        if let Some((_, option)) = others.into_iter().find(|(given, _)| *given) {
            return Err(Error::Usage(format!(
                "--colocated does not go with {option}; leave one of them out"
            )));
        }
        if options.plan.workers < 2 {
            return Err(Error::one_worker("without --colocated"));
        }
    }
    Text::read(&options.plan.text)?;
    if let Some(path) = &options.plot {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|source| Error::Plot { path: path.clone(), reason: source.to_string() })?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
    }
    let temporary = tempfile::tempdir().map_err(Error::Process)?;
    let (thc, totals) = run_compressed(options, temporary.path(), Arc::clone(&interrupted))?;
    let exact = exact(options, interrupted)?;
    if let Some(path) = &options.plot {
        plot(path, &thc.run.losses, &exact.run.losses)?;
    }
    Ok(Report::new(&options.plan, options.feedback, totals, thc, exact.run))
}

/// The addresses of the shares, one beside each worker of this machine.
fn shares(job: &Job) -> Result<Share> {
    let first = ports::find_free(job.workers.into()).map_err(Error::Process)?;
    let at = (first..).take(job.workers.into()).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    Ok(Share { job: *job, at: at.collect() })
}

/// Runs the training through THC, with a parameter server, possibly a controller, and a process per worker; or with
/// workers that serve a share of the slots each.
fn run_compressed(
    options: &Options,
    folder: &Path,
    interrupted: Arc<AtomicBool>,
) -> Result<(RunResult, Option<Server>)> {
    let plan = &options.plan;
    if options.controller && !cfg!(feature = "controller") {
        return Err(Error::NoController);
    }
    let site = options.switch.then(|| Site::new(plan.workers)).transpose()?;
    let its_controller =
        (options.controller || options.switch).then(|| server::find(controller::PROGRAM)).transpose()?;
    let links = (options.io == IoName::Dpdk).then(Links::new).transpose()?;
    if let (Some(links), false) = (&links, options.quiet) {
        let folder = links.folder().display();
        eprintln!(
            "DPDK without a NIC: one net_memif link of shared memory per worker, with its socket in {folder}"
        );
    }
    let job = Job {
        workers: plan.workers,
        bits: options.bits,
        seed: plan.seed,
        loss: options.loss,
        cookie: rand::random(),
    };
    let share = options.colocated.then(|| shares(&job)).transpose()?;
    let mut children = Children::new(interrupted);
    let mut command = this_program("demo-server")?;
    let mut servers = Vec::new();
    let (address, asked) = match (its_controller, &site) {
        _ if share.is_some() => {
            let at = share.iter().flat_map(|share| &share.at).copied().next();
            let at = at.ok_or_else(|| Error::one_worker("without --colocated"))?;
            if !options.quiet {
                let last = at.port() + u16::from(plan.workers) - 1;
                eprintln!("each worker serves a share of the slots, at {at} to {last}");
            }
            (at, None)
        }
        (Some(program), Some(site)) => {
            command.args(site.arguments(folder)?);
            let running = children.start(switch::PROGRAM.to_owned(), &mut command)?;
            site.wait(|| children.check(running))?;
            servers.push(running);
            let mut command = this_program("demo-server")?;
            command.arg(program).args(site.controller(folder, &job)?);
            servers.push(children.start(controller::PROGRAM.to_owned(), &mut command)?);
            let addresses = hear(&mut children, controller::ready())?;
            if !options.quiet {
                eprintln!("BMv2 with a port for each worker, a host of its own\n{addresses}");
            }
            (site.address(), None)
        }
        (None, _) => {
            command.arg(server::find(server::PROGRAM)?);
            let (listen, carrier) = match &links {
                Some(links) => (Some(links.listen()), links.server_arguments(plan.workers)),
                None => (None, Vec::new()),
            };
            job.hand_cookie(&mut command).args(job.arguments(listen, carrier));
            servers.push(children.start(server::PROGRAM.to_owned(), &mut command)?);
            (hear(&mut children, server::ready)?, None)
        }
        (Some(program), None) => {
            command.arg(server::find(server::PROGRAM)?).args(job.arguments_for_controller());
            servers.push(children.start(server::PROGRAM.to_owned(), &mut command)?);
            let (p4runtime, address) = hear(&mut children, server::ready_for_controller())?;
            let mut command = this_program("demo-server")?;
            command.arg(program).args(controller::arguments(folder, &job, p4runtime, address)?);
            servers.push(children.start(controller::PROGRAM.to_owned(), &mut command)?);
            let addresses = hear(&mut children, controller::ready())?;
            if !options.quiet {
                eprintln!("{addresses}");
            }
            (address, Some(addresses.url()))
        }
    };
    let mut workers = Vec::new();
    for worker in 0..plan.workers {
        let order = WorkerPlan {
            plan: plan.clone(),
            worker,
            server: address,
            share: share.clone(),
            controller: asked.clone(),
            link: links.as_ref().map(|links| links.link(worker)),
            slow: site.is_some(),
            feedback: options.feedback,
            samples: folder.to_owned(),
        };
        let order = serde_json::to_string(&order).map_err(Error::Event)?;
        let mut command = trainer("demo-worker")?;
        job.hand_cookie(&mut command).arg(order);
        if let Some(site) = &site {
            command = site.on_host(worker, &command);
        }
        workers.push(children.start(format!("worker {worker}"), &mut command)?);
    }
    let progress = Progress::new("THC", plan.steps, options.quiet);
    let heard = listen(&mut children, plan, &workers, &servers, &progress, Some(folder))?;
    let mut totals = Vec::new();
    // The parameter server ends last, because it reports the totals.
    for &server in servers.iter().rev() {
        totals = children.stop(server)?;
    }
    let totals = totals.iter().rev().find_map(|line| serde_json::from_str::<ServerStats>(line).ok());
    let beside = heard.outcomes.iter().filter_map(|outcome| outcome.server).reduce(|mut all, one| {
        all.add(&one);
        all
    });
    let totals = totals.as_ref().map(Server::from_totals).or(beside);
    if totals.is_none() && site.is_none() {
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
    let mut command = trainer("demo-exact")?;
    command.arg(order);
    let only = children.start("the exact run".to_owned(), &mut command)?;
    let progress = Progress::new("exact", options.plan.steps, options.quiet);
    listen(&mut children, &options.plan, &[only], &[], &progress, None)
}

/// Waits until a child writes a line in which `find` finds something. Meanwhile no child may end.
fn hear<T>(children: &mut Children, mut find: impl FnMut(&str) -> Option<T>) -> Result<T> {
    loop {
        match children.message()? {
            (_, Message::Line(line)) => {
                if let Some(found) = find(&line) {
                    return Ok(found);
                }
            }
            (from, Message::Closed) => {
                children.finish(from)?;
                return Err(Error::Silent { name: children.name(from).to_owned() });
            }
        }
    }
}

/// A command that starts this program again with a hidden subcommand. Its process ends when this one does.
fn this_program(subcommand: &str) -> Result<Command> {
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

/// Reads events until each of `trainers` has reported its outcome and ended. `sampled` is the folder of their gradients.
fn listen(
    children: &mut Children,
    plan: &DemoPlan,
    trainers: &[usize],
    servers: &[usize],
    progress: &Progress,
    sampled: Option<&Path>,
) -> Result<RunResult> {
    let steps = plan.steps as usize;
    let mut parameters = 0;
    let mut sums = vec![(0.0f64, 0usize); steps];
    let mut samples = vec![0usize; steps];
    let mut errors = Vec::new();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; trainers.len()];
    let mut started = None;
    let mut seconds = 0.0;
    while outcomes.iter().any(Option::is_none) {
        let (from, message) = children.message()?;
        let Some(trainer) = trainers.iter().position(|&trainer| trainer == from) else {
            if matches!(message, Message::Closed) && servers.contains(&from) {
                children.finish(from)?;
                return Err(Error::Silent { name: children.name(from).to_owned() });
            }
            continue;
        };
        let line = match message {
            Message::Line(line) => line,
            Message::Closed if outcomes[trainer].is_some() => continue,
            Message::Closed => {
                children.finish(from)?;
                return Err(Error::Silent { name: children.name(from).to_owned() });
            }
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
                    progress.step(step, (sum.0 / sum.1 as f64) as f32);
                    seconds = started.map_or(0.0, |start| start.elapsed().as_secs_f64());
                }
            }
            Event::Sample { step } => {
                let Some(count) = samples.get_mut(step as usize) else { continue };
                *count += 1;
                if let (true, Some(folder)) = (*count == trainers.len(), sampled) {
                    errors.push(ErrorSample::measure(folder, step, plan.workers)?);
                }
            }
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
