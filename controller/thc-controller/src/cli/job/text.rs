//! Jobs as text.

use crate::cli::grid::{Grid, short};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use thc_config::{job::PolicyName, values::Fraction};
use thc_control_proto::v1::{Job, JobPlace};
use thc_controller::JobSection;

/// The state of a job on a target.
fn state(place: &JobPlace) -> &'static str {
    match (place.connected, place.running) {
        (false, _) => "away",
        (true, true) => "running",
        (true, false) => "waiting",
    }
}

/// Joined members of all members.
pub(super) fn joined_text(place: &JobPlace, section: &JobSection) -> String {
    format!("{}/{}", place.joined.count_ones(), section.workers())
}

/// p as a fraction, or with few digits.
fn fraction(fraction: Option<Fraction>) -> String {
    short(&fraction.map(|fraction| fraction.to_string()).unwrap_or_default())
}

/// b, g and p.
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
    let mut grid =
        Grid::new(&["JOB", ">NUMBER", ">TABLE", "PARAMETERS", "LOSS", "TARGET", "STATE", ">JOINED", ">N"]);
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
                if place.running { place.members.to_string() } else { "-".to_owned() },
            ]);
        }
    }
    if grid.is_empty() {
        return "no jobs: create one with `thc-controller job create NAME --workers N`\n".to_owned();
    }
    grid.to_string()
}

pub(super) fn description(job: &Job) -> String {
    let section = JobSection::from_job(job);
    let options = &section.options;
    let created = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(job.created));
    let number = options.job.unwrap_or_default();
    let mut text = format!("job {}, number {number}, created {created}\n", section.name());
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "  {key:<8} {value}");
    };
    line("workers", section.workers().to_string());
    line("table", format!("{}: {}", job.table, parameters(&section)));
    let slots = (options.data_slots.unwrap_or_default(), options.norm_slots.unwrap_or_default());
    for (id, table) in job.tables.iter().zip(options.tables.iter().flatten()) {
        let form = format!("{}/{}", table.bits.unwrap_or_default(), table.lane.unwrap_or_default());
        let chosen = table.granularity.map(|g| format!(" g={g} p={}", fraction(table.fraction)));
        line("table", format!("{id}: {form}{}", chosen.unwrap_or_default()));
    }
    if let Some(values) = &options.table {
        line("values", format!("{values:?}"));
    }
    if let Some(nmse) = options.expected_nmse() {
        line("error", format!("expected NMSE {nmse:.2e}"));
    }
    line("block", format!("2^{} coordinates", options.block.unwrap_or_default()));
    line("slots", format!("{} for gradients, {} for norms", slots.0, slots.1));
    line("loss", policy(&section));
    match section.servers.as_slice() {
        [] => {}
        all => line("servers", format!("{}, a share of the slots each", all.join(", "))),
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
