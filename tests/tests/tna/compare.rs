//! What a chip holds and has counted, against the model.

use super::{Case, Site};
use thc_protocol::aggregator::{DropReason, Event};
use thc_protocol::wire::{Kind, RESULT_LEN};
use thc_protocol::{SlotId, WorkerId};
use thc_tests::traffic::plant::{PlacedJob, Plant};

/// The number of norms in `passes`.
const NORM_PASS: u8 = 255;
/// Bytes of a pass's words, by chip.
fn words(case: Case) -> usize {
    if case.name == "tofino" { 16 } else { 32 }
}

/// A cell as the model would have it: epoch, round, workers, whether it is complete, words.
struct Cell {
    epoch: u32,
    round: u32,
    seen: u64,
    complete: bool,
    words: Vec<u32>,
}

fn cell(site: &Site, case: Case, port: u16, at: usize, words: usize) -> Cell {
    let read = |register: &str| site.chip.cell(&format!("Egress.{register}"), port, at);
    let one = |register: &str| read(register).unwrap()[0] as u32;
    let pair = |register: &str| read(register).unwrap();
    let both = |[low, high]: [u64; 2]| high << 32 | low;
    if case.name == "tofino" {
        Cell {
            epoch: one("cells.epochs"),
            round: one("cells.rounds"),
            seen: both([pair("cells.low")[0], pair("cells.high")[0]]),
            complete: one("cells.missing") == 0,
            words: (0..words).map(|word| one(&format!("words.lanes{word}"))).collect(),
        }
    } else {
        let [round, epoch] = pair("cells.rounds");
        Cell {
            epoch: epoch as u32,
            round: round as u32,
            seen: both(pair("cells.seen")),
            complete: pair("cells.missing")[0] == 0,
            words: (0..words)
                .map(|word| pair(&format!("words.lanes{}", word & !1))[word & 1] as u32)
                .collect(),
        }
    }
}

/// The passes of a slot's round: those of its table, which the first cell's tag says.
fn passes(plant: &Plant, site: &Site, case: Case, job: &PlacedJob, slot: u32) -> usize {
    let rows = site.target.program.cells(&site.target.ports.pass_ports);
    let &(_, port, first) = rows.iter().find(|row| row.0 == 0).unwrap();
    let tag = site.chip.cell("Egress.cells.tags", port, (first + job.data_base + slot) as usize).unwrap()[0];
    let [kind, table] = (tag as u16).to_be_bytes();
    let table = plant.tables.get(&table).and_then(|table| job.config.level.lookup(table));
    match table {
        Some(table) if kind == Kind::Result as u8 => table.form.result_len() / (4 * words(case)),
        _ => RESULT_LEN / (4 * words(case)),
    }
}

/// Every slot that is not empty: round, workers, whether it is complete, and what it holds.
pub fn registers(plant: &Plant, site: &Site, case: Case) -> Result<usize, String> {
    let rows = site.target.program.cells(&site.target.ports.pass_ports);
    let mut compared = 0;
    let mut check = |job: &PlacedJob, kind: Kind, slot: u32, pass: u8| -> Result<(), String> {
        let view = plant.model.slot(job.config.job, kind, SlotId(slot as u16)).unwrap();
        let &(_, port, first) = rows.iter().find(|row| row.0 == pass).unwrap();
        let (base, count) =
            if kind == Kind::Norm { (job.norm_base, 4) } else { (job.data_base, words(case)) };
        let cell = cell(site, case, port, (first + base + slot) as usize, count);
        let is_empty = cell.epoch != job.epoch;
        // Of a NORM the tag is elsewhere.
        let start = if kind == Kind::Norm { 4 } else { usize::from(pass) * count * 4 };
        let actual: Vec<u8> = cell.words.iter().flat_map(|word| word.to_be_bytes()).collect();
        // A late worker joins those of a cell here (docs/switch.md).
        let seen = if view.complete { cell.seen & view.seen } else { cell.seen };
        let same = if view.seen == 0 {
            is_empty
        } else {
            let state = (cell.round, seen, cell.complete);
            !is_empty
                && state == (view.round.0, view.seen, view.complete)
                && actual == view.values[start..][..actual.len()]
        };
        compared += usize::from(view.seen != 0);
        let mark = |at: usize| site.chip.cell("Egress.cells.marks", port, at).unwrap()[0] != 0;
        let has_mark = pass == 0 && view.seen != 0;
        let same = same && (!has_mark || mark((first + base + slot) as usize) == view.mark);
        let place = format!("job {}, {kind:?}, slot {slot}, pass {pass}", job.config.job);
        if same {
            Ok(())
        } else {
            Err(format!(
                "{case:?}, {place}: round {}, seen {:#x}, {actual:02x?}; model {view:02x?}",
                cell.round, cell.seen
            ))
        }
    };
    for job in &plant.jobs {
        for slot in 0..job.config.data_slots {
            for pass in 0..passes(plant, site, case, job, slot) {
                check(job, Kind::Data, slot, pass as u8)?;
            }
        }
        for slot in 0..job.config.norm_slots {
            check(job, Kind::Norm, slot, NORM_PASS)?;
        }
    }
    Ok(compared)
}

/// All counters. P7.12 and P7.13 are events here; and who was late once is in `seen` then, so that he is a duplicate when he comes again.
pub fn counters(plant: &Plant, site: &Site, malformed: u64) -> Result<(), String> {
    let same = |counter: &str, index: usize, packets: u64, bytes: Option<u64>, label: &str| {
        let got = site.chip.counter_value(counter, index);
        if got.0 == packets && bytes.is_none_or(|bytes| got.1 == bytes) {
            return Ok(());
        }
        Err(format!("{counter}, {label}: {got:?}, not {packets} and {bytes:?} bytes"))
    };
    for job in &plant.jobs {
        let counters = plant.model.job_counters(job.config.job).unwrap();
        let index = usize::from(job.index);
        for worker in 0..=64u8 {
            let c = counters.worker(WorkerId(if worker == 64 { 255 } else { worker }));
            let label = format!("job {}, worker {worker}", job.config.job);
            let place = index << 7 | usize::from(worker);
            let bytes = plant.bytes.get(&(job.config.job.0, worker)).copied().unwrap_or(0);
            same("Ingress.packets", place, c.packets, Some(bytes), &label)?;
            let mut events: Vec<u64> = Event::ALL.iter().map(|&event| c.events[event as usize]).collect();
            events.extend([DropReason::Round, DropReason::Mixed].map(|reason| c.drops[reason as usize]));
            let got: Vec<u64> =
                (0..8).map(|event| site.chip.counter_value("Egress.events", place << 3 | event).0).collect();
            let (late, again) = (Event::Late as usize, Event::Duplicate as usize);
            let moved = events[late].saturating_sub(got[late]);
            events[late] -= moved;
            events[again] += moved;
            if got != events {
                return Err(format!("events, {label}: {got:?}, not {events:?}"));
            }
            for reason in DropReason::ALL {
                let of_cell = matches!(reason, DropReason::Round | DropReason::Mixed);
                let drops = if of_cell { 0 } else { c.drops[reason as usize] };
                let label = format!("{label}, {}", reason.name());
                same("Ingress.drops", place << 4 | reason as usize, drops, None, &label)?;
            }
        }
        for (answer, value) in [counters.results, counters.resent, counters.nudges].into_iter().enumerate() {
            same(
                "Ingress.answers",
                index << 2 | answer,
                value,
                None,
                &format!("job {}, {answer}", job.config.job),
            )?;
        }
    }
    for (reason, &drops) in plant.model.counters().drops.iter().enumerate().take(4) {
        same("Ingress.carrier", reason, drops, None, &format!("reason {reason} without a job"))?;
    }
    // Frames that end before their headers do never get there: the chip's parser drops them.
    same("Ingress.carrier", 13, malformed - site.chip.short.0, None, "malformed")?;
    same("Ingress.carrier", 14, 0, None, "lost between passes")
}
