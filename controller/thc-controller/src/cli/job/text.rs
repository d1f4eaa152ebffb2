//! Jobs as text.

use crate::cli::grid::{Grid, short};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use thc_control_proto::v1::{Job, JobPlace};
use thc_controller::JobSection;
use thc_job::{Fraction, Interval, PolicyName};

/// What a job does on a target.
fn state(place: &JobPlace) -> &'static str {
    match (place.connected, place.running) {
        (false, _) => "away",
        (true, true) => "running",
        (true, false) => "waiting",
    }
}

/// How many members of how many are here; for a job whose members come and go with the fewest and the most.
pub(super) fn joined_text(place: &JobPlace, section: &JobSection) -> String {
    match section.min_workers() {
        Some(least) => format!("{}/{least}-{}", place.joined.count_ones(), section.workers()),
        None => format!("{}/{}", place.joined.count_ones(), section.workers()),
    }
}

/// Which session of the job it is, where members come and go.
fn epoch(place: &JobPlace, section: &JobSection) -> String {
    match section.min_workers() {
        Some(_) if place.running => place.epoch.to_string(),
        _ => "-".to_owned(),
    }
}

/// The session on a target, if its members come and go: epoch, n, and the members' numbers.
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
fn next_changes(now: &JobSection, next: &JobSection) -> String {
    let mut all = Vec::new();
    let workers = |section: &JobSection| (section.min_workers(), section.workers());
    if workers(now) != workers(next) {
        all.push(format!("{} to {} workers", next.min_workers().unwrap_or(next.workers()), next.workers()));
    }
    if parameters(now) != parameters(next) {
        all.push(parameters(next));
    }
    if now.options.tables != next.options.tables {
        all.push(format!("{} further tables", next.options.tables.as_ref().map_or(0, Vec::len)));
    }
    if now.spares() != next.spares() {
        let spares = if next.spares().is_empty() { "none".to_owned() } else { next.spares().join(", ") };
        all.push(format!("spares {spares}"));
    }
    if all.is_empty() { "as asked for".to_owned() } else { all.join("; ") }
}

/// p as people write it.
fn fraction(fraction: Option<Fraction>) -> String {
    short(&fraction.map(|fraction| fraction.to_string()).unwrap_or_default())
}

/// b, g and p as people write them.
pub(super) fn parameters(section: &JobSection) -> String {
    let options = &section.options;
    format!(
        "b={} g={} p={}",
        options.bits.unwrap_or_default(),
        options.granularity.unwrap_or_default(),
        fraction(options.fraction)
    )
}

pub(super) fn policy(section: &JobSection) -> String {
    let mut text = section.policy().to_string();
    if let (PolicyName::BestEffort, Some(deadline)) = (section.policy(), section.options.deadline) {
        let _ = write!(text, " after {deadline}");
    }
    let (quorum, workers) = (section.quorum(), section.workers());
    if quorum < workers {
        let _ = write!(text, ", {quorum} of {workers} complete a sum");
    }
    text
}

pub(super) fn list_text(jobs: &[Job]) -> String {
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
        let section = JobSection::from_job(job);
        for (nth, place) in job.places.iter().enumerate() {
            let first = |text: String| if nth == 0 { text } else { "\"".to_owned() };
            grid.row([
                first(section.name().to_owned()),
                first(section.options.job.unwrap_or_default().to_string()),
                first(job.table.to_string()),
                first(parameters(&section)),
                first(policy(&section)),
                place.target.clone(),
                state(place).to_owned(),
                joined_text(place, &section),
                epoch(place, &section),
                if place.running { place.members.to_string() } else { "-".to_owned() },
            ]);
        }
    }
    if grid.is_empty() {
        return "no jobs: make one by `thc-controller job create NAME --workers N`\n".to_owned();
    }
    grid.to_string()
}

pub(super) fn description(job: &Job) -> String {
    let section = JobSection::from_job(job);
    let options = &section.options;
    let created = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(job.created));
    let number = options.job.unwrap_or_default();
    let mut text = format!("job {}, number {number}, made {created}\n", section.name());
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "  {key:<8} {value}");
    };
    match section.min_workers() {
        None => line("workers", section.workers().to_string()),
        Some(least) => {
            let time = |time: Option<Interval>| time.map(|time| time.to_string()).unwrap_or_default();
            let (gone, gather) = (time(options.gone_after), time(options.gather));
            line("workers", format!("{least} to {}", section.workers()));
            line("members", format!("gone after {gone}, the first session waits {gather} for more"));
            for place in job.places.iter().filter(|place| place.running) {
                line("session", session(place));
            }
        }
    }
    line("table", format!("{}: {}", job.table, parameters(&section)));
    let slots = (options.data_slots.unwrap_or_default(), options.norm_slots.unwrap_or_default());
    for (id, table) in job.tables.iter().zip(options.tables.iter().flatten()) {
        let form = format!("{}/{}", table.bits.unwrap_or_default(), table.lane.unwrap_or_default());
        let chosen = table.granularity.map(|g| format!(" g={g} p={}", fraction(table.fraction)));
        line("table", format!("{id}: {form}{}", chosen.unwrap_or_default()));
    }
    line("block", format!("2^{} coordinates", options.block.unwrap_or_default()));
    line("slots", format!("{} for gradients, {} for norms", slots.0, slots.1));
    line("loss", policy(&section));
    match section.servers.as_slice() {
        [] => {}
        [only] => line("server", only.clone()),
        all => line("servers", format!("{}, a share of the slots each", all.join(", "))),
    }
    if !section.spares().is_empty() {
        line("spares", section.spares().join(", "));
    }
    if let Some(next) = JobSection::next(job) {
        line("next", format!("{}; at the next boundary", next_changes(&section, &next)));
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
    let range = |base: u32, slots: u64| format!("{base}-{}", (u64::from(base) + slots).saturating_sub(1));
    for place in &job.places {
        grid.row([
            place.target.clone(),
            state(place).to_owned(),
            joined_text(place, &section),
            place.sessions.to_string(),
            range(place.data_base, slots.0),
            range(place.norm_base, slots.1),
            place.group.to_string(),
            if place.credit == 0 { "-".to_owned() } else { place.credit.to_string() },
        ]);
    }
    text + &grid.to_string()
}
