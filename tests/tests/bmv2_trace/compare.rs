//! Model against switch: frames, registers, counters.

use super::{PASSES, Readings, WORDS};
use std::collections::BTreeMap;
use thc_protocol::aggregator::{DropReason, Event, Level, Lookup};
use thc_protocol::wire::Kind;
use thc_protocol::{SlotId, TableId, WorkerId};
use thc_tests::traffic::frame;
use thc_tests::traffic::plant::{Frames, OWN, PORTS, Plant};

/// Packets of one pass and of more overtake each other; those of as many passes keep their order.
pub fn frames(seed: u64, segment: usize, plant: &Plant, expected: &Frames, got: &Frames) {
    for port in PORTS {
        let none = Vec::new();
        let (want, have) = (expected.get(&port).unwrap_or(&none), got.get(&port).unwrap_or(&none));
        for passes in [1, PASSES / 2, PASSES] {
            let alike = |frame: &&Vec<u8>| passes_of(frame, &plant.tables) == passes;
            let want: Vec<_> = want.iter().filter(alike).collect();
            let have: Vec<_> = have.iter().filter(alike).collect();
            let place = want.iter().zip(&have).position(|(a, b)| a != b);
            if let Some(at) = place {
                let line = |frames: &[&Vec<u8>]| -> String {
                    frames.iter().skip(at).take(4).map(|frame| format!("\n  {}", hex(frame))).collect()
                };
                panic!(
                    "seed {seed}, segment {segment}, port {port}, from frame {at} (of {passes} passes):\nmodel{}\nswitch{}",
                    line(&want),
                    line(&have)
                );
            }
            assert_eq!(
                want.len(),
                have.len(),
                "seed {seed}, segment {segment}, port {port}: other number of frames"
            );
        }
    }
}

/// The protocol's header and the first bytes of the payload.
fn hex(frame: &[u8]) -> String {
    let end = frame.len().min(frame::CARRIER + 40);
    frame[frame::CARRIER.min(end)..end].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Slots: round, seen, complete and values of every slot that is not empty.
pub fn registers(seed: u64, plant: &Plant, switch: &impl Readings) -> usize {
    let names = |stage: &str, registers: &[&str]| -> Vec<String> {
        registers.iter().map(|register| format!("SwitchIngress.{stage}.{register}")).collect()
    };
    let states = ["state.epochs", "state.rounds", "state.seen", "state.counts"];
    let mut asked = names("data", &states);
    asked.extend((0..WORDS).map(|word| format!("SwitchIngress.data.lanes{word}")));
    asked.extend(names("data", &["heads", "marks"]));
    let data = switch.registers(&asked);
    let mut asked = names("norm", &states);
    asked.extend(names("norm", &["tags", "values", "lengths", "calls", "keys"]));
    let norm = switch.registers(&asked);
    let mut compared = 0;
    for job in &plant.jobs {
        let epoch = u64::from(job.epoch);
        let state = |cells: &[Vec<u64>], cell: usize| {
            let seen = if cells[0][cell] == epoch { cells[2][cell] } else { 0 };
            let complete = seen != 0 && cells[3][cell] >= u64::from(job.config.quorum);
            if seen != 0 {
                assert_eq!(u64::from(seen.count_ones()), cells[3][cell], "count is the number in seen");
            }
            (if seen == 0 { 0 } else { cells[1][cell] }, seen, complete)
        };
        for slot in 0..job.config.data_slots {
            let view = plant.model.slot(job.config.job, Kind::Data, SlotId(slot as u16)).unwrap();
            let of_ps = plant.ps.slot(job.config.job, Kind::Data, SlotId(slot as u16)).unwrap();
            assert_eq!(of_ps, view, "seed {seed}, job {}, data slot {slot} of thc-ps", job.config.job);
            let round = if view.seen == 0 { 0 } else { u64::from(view.round.0) };
            let first = (job.data_base + slot) as usize * PASSES;
            let mark = data[5 + WORDS][(job.data_base + slot) as usize] == 1;
            assert!(
                view.seen == 0 || mark == view.mark,
                "seed {seed}, job {}, data slot {slot}: mark",
                job.config.job
            );
            // Kind and table of the slot's round, which sums have shown to be those of the model.
            let [kind, table] = (data[4 + WORDS][first] as u16).to_be_bytes();
            let kind = Kind::from_byte(kind).unwrap_or(Kind::Data);
            for pass in 0..passes(kind, TableId(table), &plant.tables, job.config.level) {
                let cell = first + pass;
                let place = format!("seed {seed}, job {}, data slot {slot}, pass {pass}", job.config.job);
                assert_eq!(state(&data, cell), (round, view.seen, view.complete), "{place}");
                if view.seen == 0 {
                    continue;
                }
                let words: Vec<u8> =
                    (0..WORDS).flat_map(|word| (data[4 + word][cell] as u32).to_be_bytes()).collect();
                assert_eq!(words, &view.values[pass * WORDS * 4..][..WORDS * 4], "{place}");
                compared += 1;
            }
        }
        for slot in 0..job.config.norm_slots {
            let view = plant.model.slot(job.config.job, Kind::Norm, SlotId(slot as u16)).unwrap();
            let of_ps = plant.ps.slot(job.config.job, Kind::Norm, SlotId(slot as u16)).unwrap();
            assert_eq!(of_ps, view, "seed {seed}, job {}, norm slot {slot} of thc-ps", job.config.job);
            let round = if view.seen == 0 { 0 } else { u64::from(view.round.0) };
            let cell = (job.norm_base + slot) as usize;
            let place = format!("seed {seed}, job {}, norm slot {slot}", job.config.job);
            assert_eq!(state(&norm, cell), (round, view.seen, view.complete), "{place}");
            if view.seen != 0 {
                let words: Vec<u8> =
                    (4..9).flat_map(|field| (norm[field][cell] as u32).to_be_bytes()).collect();
                assert_eq!(words, view.values, "{place}");
                compared += 1;
            }
        }
    }
    compared
}

pub fn counters(seed: u64, plant: &Plant, switch: &impl Readings, malformed: u64) {
    let mut cells = Vec::new();
    let mut expected = Vec::new();
    let mut labels = Vec::new();
    let mut ask = |name: &'static str, index: usize, packets: u64, bytes: Option<u64>, label: String| {
        cells.push((name, index));
        expected.push((packets, bytes));
        labels.push(label);
    };
    for job in &plant.jobs {
        let counters = plant.model.job_counters(job.config.job).unwrap();
        assert_eq!(plant.ps.job_counters(job.config.job), Some(counters), "seed {seed}: counters of thc-ps");
        let index = usize::from(job.index);
        for worker in 0..=64u8 {
            // The model has no more than 64 members' counters and one for the rest.
            let c = counters.worker(WorkerId(if worker == 64 { 255 } else { worker }));
            let label = format!("job {}, worker {worker}", job.config.job);
            let place = index << 7 | usize::from(worker);
            let bytes = plant.bytes.get(&(job.config.job.0, worker)).copied().unwrap_or(0);
            ask("packets", place, c.packets, Some(bytes), label.clone());
            if c.packets == 0 {
                continue;
            }
            for event in Event::ALL {
                let events = c.events[event as usize];
                ask(
                    "events",
                    place << 3 | event as usize,
                    events,
                    None,
                    format!("{label}, {}", event.name()),
                );
            }
            for reason in DropReason::ALL {
                let drops = c.drops[reason as usize];
                ask(
                    "drops",
                    place << 4 | reason as usize,
                    drops,
                    None,
                    format!("{label}, {}", reason.name()),
                );
            }
        }
        for (answer, value) in [counters.results, counters.resent, counters.nudges].into_iter().enumerate() {
            ask(
                "answers",
                index << 2 | answer,
                value,
                None,
                format!("job {}, answer {answer}", job.config.job),
            );
        }
    }
    assert_eq!(plant.ps.counters(), plant.model.counters(), "seed {seed}: counters of thc-ps");
    for (reason, &drops) in plant.model.counters().drops.iter().enumerate() {
        ask("carrier", reason, drops, None, format!("reason {reason} without a job"));
    }
    ask("carrier", 13, malformed, None, "malformed".to_owned());
    ask("carrier", 14, 0, None, "lost between passes".to_owned());
    for ((got, want), label) in switch.counters(&cells).iter().zip(expected).zip(labels) {
        assert_eq!(got.0, want.0, "seed {seed}: packets, {label}");
        if let Some(bytes) = want.1 {
            assert_eq!(got.1, bytes, "seed {seed}: bytes, {label}");
        }
    }
}

/// The passes that a packet takes, each for 128 bytes of sums.
pub fn passes(kind: Kind, table: TableId, tables: &BTreeMap<u8, Lookup>, level: Level) -> usize {
    let table = tables.get(&table.0).and_then(|table| level.lookup(table));
    match table {
        Some(table) if kind == Kind::Data => table.form.result_len() / (4 * WORDS),
        _ => PASSES,
    }
}

/// How many passes a frame went through before it was sent.
fn passes_of(sent: &[u8], tables: &BTreeMap<u8, Lookup>) -> usize {
    if sent[12..14] != [8, 0] || sent[26..30] != frame::bytes_of(OWN) {
        return 1;
    }
    let about = match sent.get(frame::CARRIER + 1) {
        Some(0x12) => Kind::Data,
        Some(0x13) => Kind::Raw,
        Some(0x16) if sent[frame::CARRIER + 20] != 1 => Kind::from_byte(sent[frame::CARRIER + 20]).unwrap(),
        _ => return 1,
    };
    passes(about, TableId(sent[frame::CARRIER + 7]), tables, Level::Only)
}
