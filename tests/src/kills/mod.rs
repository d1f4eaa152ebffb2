//! A run whose server, workers and controller are ended by SIGKILL again and again, at random moments, and started anew,
//! over a network that loses packets (`make kills`).
//!
//! Workers reduce the same tensors over and over with error feedback. Whoever is left when a worker has restarted begins
//! the run again with it (`--rejoin`), as training does from a checkpoint. So the mean of the k-th all-reduce is known from
//! an undisturbed run, and each that anybody finishes must be that one, bit for bit.

mod figure;
mod site;

use crate::followed::Step;
use fastrand::Rng;
use site::Site;
use std::time::{Duration, Instant};

pub use figure::figures;

/// The longest that the next all-reduce, or the end of the run, may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often processes are looked at.
const TICK: Duration = Duration::from_millis(2);
/// The longest pause between a recovery and the next kill.
const PAUSE: Duration = Duration::from_millis(1000);
/// One kill in so many is followed by another before the run has recovered.
const OVERLAP: u8 = 4;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The parameter server.
    Server,
    /// One of the workers.
    Worker,
    /// The controller.
    Controller,
}

/// How much.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often each party is killed.
    pub kills: usize,
    /// Whether there is a controller.
    pub controller: bool,
    /// n.
    pub workers: u8,
    /// Coordinates of an all-reduce.
    pub coordinates: usize,
    /// All-reduces of a run.
    pub repeat: usize,
    /// Share of the packets that each worker loses in each direction.
    pub loss: f64,
    /// Of all random moments.
    pub seed: u64,
    /// Whether to tell of each kill on stderr.
    pub tell: bool,
}

/// How a kill was got over.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Who was killed.
    pub party: Party,
    /// From the kill to the next all-reduce that was finished with the new process there.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Kills in all.
    pub kills: usize,
    /// Those that another one did not follow too soon.
    pub recoveries: Vec<Recovery>,
    /// All-reduces that were compared with those of the undisturbed run, over all workers.
    pub compared: usize,
    /// Time of an all-reduce when nobody is killed.
    pub undisturbed: Duration,
    /// Over what it ran.
    pub network: String,
}

/// Workers, and what they have finished.
struct Run<'a> {
    site: &'a mut Site,
    workers: Vec<crate::followed::Followed>,
    /// The last step of each since it was started.
    last: Vec<Option<Step>>,
    /// Steps in order, of the undisturbed run.
    reference: &'a [Step],
    compared: usize,
    /// Whether workers that are done begin a further run.
    again: bool,
    done: Vec<bool>,
}

impl<'a> Run<'a> {
    fn start(site: &'a mut Site, reference: &'a [Step], again: bool) -> Run<'a> {
        let n = site.plan().workers;
        let workers = (0..n).map(|number| site.worker(number)).collect();
        Run {
            site,
            workers,
            last: vec![None; n.into()],
            reference,
            compared: 0,
            again,
            done: vec![false; n.into()],
        }
    }

    /// Looks at every worker once; `f` gets what they have finished.
    fn look(&mut self, mut f: impl FnMut(usize, &Step)) -> Result<(), String> {
        for number in 0..self.workers.len() {
            let status = self.workers[number].exit_status();
            for step in self.workers[number].steps() {
                let expected = self.reference.get(step.number);
                if expected.is_some_and(|expected| expected.checksum != step.checksum) {
                    return Err(format!("worker {number}: the mean of all-reduce {} is wrong", step.number));
                }
                self.compared += usize::from(expected.is_some());
                f(number, &step);
                self.last[number] = Some(step);
            }
            match status {
                Some(status) if !status.success() => {
                    let errors = self.workers[number].errors();
                    return Err(format!("worker {number} has ended with {status}: {errors}"));
                }
                Some(_) if self.again => self.restart(number),
                Some(_) => self.done[number] = true,
                None => {}
            }
        }
        Ok(())
    }

    fn restart(&mut self, number: usize) {
        self.last[number] = None;
        self.workers[number] = self.site.worker(number as u8);
    }

    /// Kills; returns when that was, and which worker's next all-reduces count, from when on.
    fn kill(&mut self, party: Party, rng: &mut Rng) -> Awaited {
        let killed = Instant::now();
        let n = self.workers.len();
        let (workers, since) = match party {
            Party::Server => {
                self.site.server.kill_and_restart();
                ((0..n).collect(), Instant::now())
            }
            Party::Controller => {
                if let Some(controller) = &mut self.site.controller {
                    controller.kill_and_restart();
                }
                ((0..n).collect(), Instant::now())
            }
            Party::Worker => {
                let number = rng.usize(..n);
                self.workers[number].kill();
                self.restart(number);
                // It takes all of them.
                (vec![number], killed)
            }
        };
        Awaited { party, killed, workers, since }
    }

    /// Waits until those awaited have finished an all-reduce.
    fn recover(&mut self, mut awaited: Awaited) -> Result<Recovery, String> {
        let mut recovered = awaited.killed;
        while !awaited.workers.is_empty() {
            let Awaited { workers, since, .. } = &mut awaited;
            self.look(|number, step| {
                if step.at > *since
                    && let Some(place) = workers.iter().position(|&worker| worker == number)
                {
                    workers.swap_remove(place);
                    recovered = recovered.max(step.at);
                }
            })?;
            if awaited.killed.elapsed() > PATIENCE {
                let whom = awaited.workers;
                return Err(format!(
                    "workers {whom:?} have finished nothing in {} s after a kill of the {:?}",
                    PATIENCE.as_secs(),
                    awaited.party
                ));
            }
            std::thread::sleep(TICK);
        }
        Ok(Recovery { party: awaited.party, time: recovered - awaited.killed })
    }

    fn pause(&mut self, time: Duration) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < time {
            self.look(|_, _| {})?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Waits until all workers are done with the run.
    fn finish(&mut self) -> Result<(), String> {
        self.again = false;
        let mut moved = Instant::now();
        while self.done.contains(&false) {
            let mut any = false;
            self.look(|_, _| any = true)?;
            if any {
                moved = Instant::now();
            }
            if moved.elapsed() > PATIENCE {
                return Err(format!("the run stands still: {:?} are done", self.done));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}

/// Who must finish an all-reduce before a kill is got over, and since when.
#[derive(Debug)]
struct Awaited {
    party: Party,
    killed: Instant,
    workers: Vec<usize>,
    since: Instant,
}

/// Runs the plan.
///
/// # Errors
/// What went wrong, with what everybody said.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let mut site = Site::start(*plan)?;
    let outcome = run_disturbed(plan, &mut site);
    outcome.map_err(|error| format!("{error}\n{}", site.log()))
}

fn run_disturbed(plan: &Plan, site: &mut Site) -> Result<Outcome, String> {
    let (reference, undisturbed) = run_undisturbed(site)?;
    let parties = [Party::Server, Party::Worker, Party::Controller];
    let parties = &parties[..if plan.controller { 3 } else { 2 }];
    let mut order: Vec<Party> = parties.iter().flat_map(|&party| vec![party; plan.kills]).collect();
    let mut rng = Rng::with_seed(plan.seed);
    rng.shuffle(&mut order);
    let network = site.network();
    let mut run = Run::start(site, &reference, true);
    // The session begins.
    let all = (0..usize::from(plan.workers)).collect();
    run.recover(Awaited {
        party: Party::Worker,
        killed: Instant::now(),
        workers: all,
        since: Instant::now(),
    })?;
    let mut recoveries = Vec::new();
    let mut overtaken = false;
    for (place, &party) in order.iter().enumerate() {
        run.pause(PAUSE.mul_f64(rng.f64()))?;
        let awaited = run.kill(party, &mut rng);
        let too_soon = place + 1 < order.len() && rng.u8(..OVERLAP) == 0;
        if too_soon {
            run.pause(PAUSE.mul_f64(rng.f64() / 3.0))?;
        } else {
            let recovery = run.recover(awaited)?;
            if !overtaken {
                recoveries.push(recovery);
            }
            if plan.tell {
                let together = if overtaken { ", after the one before it" } else { "" };
                let seconds = recovery.time.as_secs_f64();
                eprintln!("kill {} of {}: {party:?}, {seconds:.3} s{together}", place + 1, order.len());
            }
        }
        overtaken = too_soon;
    }
    run.finish()?;
    let compared = run.compared;
    drop(run);
    Ok(Outcome { kills: order.len(), recoveries, compared, undisturbed, network })
}

/// The all-reduces of a run in which nobody is killed, which all workers agree on, and the time that one takes.
fn run_undisturbed(site: &mut Site) -> Result<(Vec<Step>, Duration), String> {
    let mut run = Run::start(site, &[], false);
    let mut steps: Vec<Vec<Step>> = vec![Vec::new(); run.workers.len()];
    let mut looked = Instant::now();
    run.again = false;
    while run.done.contains(&false) {
        run.look(|number, step| {
            steps[number].push(step.clone());
            looked = Instant::now();
        })?;
        if looked.elapsed() > PATIENCE {
            return Err("the undisturbed run stands still".to_owned());
        }
        std::thread::sleep(TICK);
    }
    run.look(|number, step| steps[number].push(step.clone()))?;
    let bits = |steps: &[Step]| steps.iter().map(|s| (s.number, s.checksum.clone())).collect::<Vec<_>>();
    if steps.iter().any(|other| bits(other) != bits(&steps[0])) {
        return Err("the workers of the undisturbed run have different means".to_owned());
    }
    let steps = steps.swap_remove(0);
    let whole = steps.last().zip(steps.first()).map_or(Duration::ZERO, |(b, a)| b.at - a.at);
    let each = whole / u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1);
    Ok((steps, each))
}
