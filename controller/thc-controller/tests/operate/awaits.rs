//! Whatever a controller waits for fails once, each time another thing: its jobs add up after that.

use crate::aggregator;
use crate::controller::{Controller, has_jobs, run, target};
use crate::unreliable::{Fault, Unreliable};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use thc_worker::{Group, GroupConfig, Timeouts};

/// Everything that may go wrong.
const FAULTS: [Fault; 4] = [Fault::Lost, Fault::Unanswered, Fault::Silent, Fault::Happening];
/// Coordinates of a call.
const COORDINATES: usize = 5000;
/// Above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// After which a worker that has joined in vain asks anew.
const JOINING: Duration = Duration::from_secs(10);

fn wait_until<T>(what: &str, mut so: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match so() {
            Ok(done) => return done,
            Err(why) => assert!(began.elapsed() < PATIENCE, "{what}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asks until it is done as asked, or was done already.
fn ask(at: SocketAddr, args: &[&str], done: &str) {
    wait_until(&args.join(" "), || {
        let ended = run(args, &[("THC_CONTROLLER", &at.to_string())]);
        let is_done = ended.code == Some(0) || (!done.is_empty() && ended.err.contains(done));
        if is_done { Ok(()) } else { Err(ended.err) }
    });
}

/// Joins as a rank of a job, whatever one try says.
fn join_group(at: SocketAddr, job: &str, rank: u8) -> Group {
    wait_until("joining", || {
        let url = format!("thc://{at}/{job}");
        let mut asked = thc_worker::Controller::new(url.parse().unwrap());
        asked.rank = Some(rank);
        let timeouts = Timeouts { join: JOINING, ..Timeouts::default() };
        let config = GroupConfig { controller: Some(asked), timeouts, ..GroupConfig::default() };
        Group::join(config).map_err(|error| error.to_string())
    })
}

/// Both do something at the same time.
fn run_both<T: Send>(work: impl Fn(u8) -> T + Sync) -> [T; 2] {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        [work(0), other.join().unwrap()]
    })
}

/// Both get the same mean, which is that of what they put in.
fn adds_up(groups: &[Group; 2]) {
    let means = run_both(|rank| {
        let own = if rank == 0 { 1.0 } else { 3.0 };
        let mut data: Vec<f32> = (0..COORDINATES).map(|place| own * (place % 7) as f32).collect();
        groups[usize::from(rank)].allreduce(&mut data).unwrap();
        data
    });
    assert_eq!(means[0], means[1]);
    let (mut off, mut all) = (0.0, 0.0);
    for (place, mean) in means[0].iter().enumerate() {
        let wanted = 2.0 * (place % 7) as f32;
        (off, all) = (off + (mean - wanted).powi(2), all + wanted.powi(2));
    }
    assert!(off < 0.02 * all, "{off} of {all}");
}

/// The life of two jobs under a controller and the one after it, with this going wrong at that step: all steps that there were.
fn life(fault: Option<(usize, Fault)>) -> Vec<&'static str> {
    let server = aggregator::start();
    let way = Unreliable::relay_to(server.p4runtime().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    if let Some((at, fault)) = fault {
        let away = folder.path().join("away");
        let from = kept.clone();
        way.set(at, fault, move || hide(&from, &away));
    }
    let config = target("ps1", &way.address.to_string(), server.local().port()) + "patience = \"500ms\"\n";
    let state = kept.join("jobs.state");
    let first = Controller::start_with(&config, &state);
    let small = ["--data-slots", "64", "--norm-slots", "16"];
    let make =
        |at, job| ask(at, &[&["job", "create", job, "--workers", "2"][..], &small].concat(), "already");
    make(first.listen, "train");
    let groups = run_both(|rank| join_group(first.listen, "train", rank));
    adds_up(&groups);
    // It is killed and started anew, and the session goes on.
    drop(first);
    let rest = start_when_state_is_there(&config, &state);
    wait_until("its targets", || has_jobs(rest.listen).then_some(()).ok_or_else(|| rest.log()));
    adds_up(&groups);
    // A job that comes and one that goes, in the middle of it, and workers that come anew.
    make(rest.listen, "more");
    drop(groups);
    let groups = run_both(|rank| join_group(rest.listen, "train", rank));
    adds_up(&groups);
    drop(groups);
    ask(rest.listen, &["job", "delete", "train", "--yes"], "no job \"train\"");
    let groups = run_both(|rank| join_group(rest.listen, "more", rank));
    adds_up(&groups);
    // What is there is what should be there.
    wait_until("rows", || {
        let tables = ["jobs", "members", "addresses", "job_tables", "lookup"];
        let there = tables.map(|table| (table, aggregator::count_rows(&server, table)));
        let wanted = [("jobs", 1), ("members", 2), ("addresses", 2), ("job_tables", 1), ("lookup", 1)];
        if there == wanted { Ok(()) } else { Err(format!("{there:?}\n{}", rest.log())) }
    });
    adds_up(&groups);
    way.steps()
}

/// A controller that starts while its folder is away would begin without jobs.
fn start_when_state_is_there(config: &str, state: &Path) -> Controller {
    wait_until("the folder", || state.exists().then_some(()).ok_or_else(|| "away".to_owned()));
    Controller::start_with(config, state)
}

/// The folder with the jobs cannot be reached for a moment.
fn hide(folder: &Path, away: &Path) {
    std::fs::rename(folder, away).unwrap();
    let (folder, away) = (folder.to_owned(), away.to_owned());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::fs::rename(&away, &folder).unwrap();
    });
}

/// Lives in which each step goes wrong, so many at a time: `of` says how.
fn lives(of: impl Fn(usize) -> Vec<Fault>) {
    let steps = life(None);
    let mut all: Vec<(usize, Fault)> =
        (0..steps.len()).flat_map(|step| of(step).into_iter().map(move |fault| (step, fault))).collect();
    println!("{} steps, {} lives: {}", steps.len(), all.len(), steps.join(", "));
    all.reverse();
    let all = Mutex::new(all);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((step, fault)) = all.lock().unwrap().pop() else { return };
                    let began = Instant::now();
                    let ended = std::panic::catch_unwind(|| life(Some((step, fault))));
                    println!("{step} {fault:?}: {:?}", began.elapsed());
                    assert!(ended.is_ok(), "step {step} ({}) {fault:?}", steps.get(step).unwrap_or(&"none"));
                }
            });
        }
    });
}

/// Each step once, and each of the faults in turn.
#[test]
fn every_await_fails_once_and_jobs_add_up() {
    lives(|step| if step % 4 == 0 { vec![FAULTS[step / 4 % FAULTS.len()]] } else { Vec::new() });
}

/// Each step in each way: minutes.
#[test]
#[ignore = "takes minutes: make awaits"]
fn every_await_fails_in_every_way_and_jobs_add_up() {
    lives(|_| FAULTS.to_vec());
}
