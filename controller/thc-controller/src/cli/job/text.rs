//! Jobs as text.

use crate::cli::grid::{Grid, short};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use thc_control_proto::v1::{Job, JobPlace, JobSpec};

/// What a job does on a target.
fn state(place: &JobPlace) -> &'static str {
    match (place.connected, place.running) {
        (false, _) => "away",
        (true, true) => "running",
        (true, false) => "waiting",
    }
}

/// How many are here of how many; of a job whose members come and go with the fewest and the most.
pub(super) fn joined(place: &JobPlace, spec: &JobSpec) -> String {
    match spec.min_workers {
        Some(least) => format!("{}/{least}-{}", place.joined.count_ones(), spec.workers),
        None => format!("{}/{}", place.joined.count_ones(), spec.workers),
    }
}

/// Which session of the job it is, where members come and go.
fn epoch(place: &JobPlace, spec: &JobSpec) -> String {
    match spec.min_workers {
        Some(_) if place.running => place.epoch.to_string(),
        _ => "-".to_owned(),
    }
}

/// The session on a target whose members come and go: epoch, n, and whose numbers these are.
pub(super) fn session(place: &JobPlace) -> String {
    let seats: Vec<String> = place.seats.iter().map(u32::to_string).collect();
    let s = if place.members == 1 { "" } else { "s" };
    format!(
        "epoch {}: {} worker{s}, {} in the job, on {}",
        place.epoch,
        place.members,
        seats.join(", "),
        place.target
    )
}

/// What of a job changes at its next boundary.
fn coming(now: &JobSpec, next: &JobSpec) -> String {
    let mut all = Vec::new();
    if (now.min_workers, now.workers) != (next.min_workers, next.workers) {
        all.push(format!("{} to {} workers", next.min_workers.unwrap_or(next.workers), next.workers));
    }
    if parameters(now) != parameters(next) {
        all.push(parameters(next));
    }
    if now.tables != next.tables {
        all.push(format!("{} further tables", next.tables.len()));
    }
    if now.spares != next.spares {
        let spares = if next.spares.is_empty() { "none".to_owned() } else { next.spares.join(", ") };
        all.push(format!("spares {spares}"));
    }
    if all.is_empty() { "as asked for".to_owned() } else { all.join("; ") }
}

/// b, g and p as people write them.
pub(super) fn parameters(spec: &JobSpec) -> String {
    format!(
        "b={} g={} p={}",
        spec.bits.unwrap_or_default(),
        spec.granularity.unwrap_or_default(),
        short(spec.fraction.as_deref().unwrap_or_default())
    )
}

pub(super) fn policy(spec: &JobSpec) -> String {
    let mut text = spec.policy.clone().unwrap_or_default();
    if text == "best-effort" {
        let deadline = Duration::from_millis(spec.deadline_ms.unwrap_or_default().into());
        let _ = write!(text, " after {}", humantime::format_duration(deadline));
    }
    if let Some(quorum) = spec.quorum.filter(|quorum| *quorum < spec.workers) {
        let _ = write!(text, ", {quorum} of {} complete a sum", spec.workers);
    }
    text
}

pub(super) fn listed(jobs: &[Job]) -> String {
    let mut grid = Grid::new(&[
        "JOB",
        ">NUMBER",
        ">TABLE",
        "PARAMETERS",
        "LOSS",
        "TARGET",
        "STATE",
        ">JOINED",
        ">EPOCH",
        ">N",
    ]);
    for job in jobs {
        let spec = job.spec.clone().unwrap_or_default();
        for (nth, place) in job.places.iter().enumerate() {
            let first = |text: String| if nth == 0 { text } else { "\"".to_owned() };
            grid.row([
                first(spec.name.clone()),
                first(spec.number.unwrap_or_default().to_string()),
                first(job.table.to_string()),
                first(parameters(&spec)),
                first(policy(&spec)),
                place.target.clone(),
                state(place).to_owned(),
                joined(place, &spec),
                epoch(place, &spec),
                if place.running { place.members.to_string() } else { "-".to_owned() },
            ]);
        }
    }
    if grid.is_empty() {
        return "no jobs: make one by `thc-controller job create NAME --workers N`\n".to_owned();
    }
    grid.to_string()
}

pub(super) fn described(job: &Job) -> String {
    let spec = job.spec.clone().unwrap_or_default();
    let created = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(job.created));
    let number = spec.number.unwrap_or_default();
    let mut text = format!("job {}, number {number}, made {created}\n", spec.name);
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "  {key:<8} {value}");
    };
    match spec.min_workers {
        None => line("workers", spec.workers.to_string()),
        Some(least) => {
            let time = |ms: Option<u32>| {
                humantime::format_duration(Duration::from_millis(ms.unwrap_or_default().into())).to_string()
            };
            let (gone, gather) = (time(spec.gone_after_ms), time(spec.gather_ms));
            line("workers", format!("{least} to {}", spec.workers));
            line("members", format!("gone after {gone}, the first session waits {gather} for more"));
            for place in job.places.iter().filter(|place| place.running) {
                line("session", session(place));
            }
        }
    }
    line("table", format!("{}: {}", job.table, parameters(&spec)));
    let slots = (spec.data_slots.unwrap_or_default(), spec.norm_slots.unwrap_or_default());
    for (id, table) in job.tables.iter().zip(&spec.tables) {
        let form = format!("{}/{}", table.bits.unwrap_or_default(), table.lane.unwrap_or_default());
        let (g, p) = (table.granularity.unwrap_or_default(), table.fraction.as_deref().unwrap_or_default());
        line("table", format!("{id}: {form} g={g} p={}", short(p)));
    }
    line("block", format!("2^{} coordinates", spec.block.unwrap_or_default()));
    line("slots", format!("{} for gradients, {} for norms", slots.0, slots.1));
    line("loss", policy(&spec));
    match spec.servers.as_slice() {
        [] => {}
        [only] => line("server", only.clone()),
        all => line("servers", format!("{}, a share of the slots each", all.join(", "))),
    }
    if !spec.spares.is_empty() {
        line("spares", spec.spares.join(", "));
    }
    if let Some(next) = &job.next {
        line("next", format!("{}; at the next boundary", coming(&spec, next)));
    }
    if !job.declared.is_empty() {
        line(
            "declared",
            format!("by {}", if job.declared == "file" { "the configuration" } else { "apply" }),
        );
    }
    if !job.pending.is_empty() {
        line("pending", format!("{} when its session is over", job.pending));
    }
    let mut grid = Grid::new(&[
        "TARGET",
        "STATE",
        ">JOINED",
        ">SESSIONS",
        "DATA SLOTS",
        "NORM SLOTS",
        ">GROUP",
        ">CREDIT",
    ]);
    let range = |base: u32, slots: u32| format!("{base}-{}", (base + slots).saturating_sub(1));
    for place in &job.places {
        grid.row([
            place.target.clone(),
            state(place).to_owned(),
            joined(place, &spec),
            place.sessions.to_string(),
            range(place.data_base, slots.0),
            range(place.norm_base, slots.1),
            place.group.to_string(),
            if place.credit == 0 { "-".to_owned() } else { place.credit.to_string() },
        ]);
    }
    text + &grid.to_string()
}
