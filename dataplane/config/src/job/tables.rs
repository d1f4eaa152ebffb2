//! The lookup tables of a job, as they are written and as WELCOME carries them.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::values::Fraction;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thc_codec::CodecError;
use thc_codec::table::{LookupTable, MAX_GRANULARITY, choose, choose_fraction};
use thc_protocol::aggregator::{Lookup, Racks};
use thc_protocol::wire::{Form, MAX_TABLES, Table};
use thc_protocol::{Lane, TableId};

use crate::job::error::{ConfigError, Section};
use crate::job::merge::set;
use crate::job::number::number;
use crate::job::place::ServerPlace;

const DEFAULT_BITS: u64 = 4;
/// Ids of tables have a byte, and 0 is RAW's (P1).
const MAX_TABLE: u64 = 255;

/// A lookup table of a job, beside its first, whose keys are the job's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableOptions {
    /// Its number.
    pub table_id: Option<u64>,
    /// Its values, of a table that is not solved for.
    pub table: Option<Vec<u64>>,
    /// b: 1 to 4, or 8.
    pub bits: Option<u64>,
    /// g.
    pub granularity: Option<u64>,
    /// p.
    pub fraction: Option<Fraction>,
    /// Bits per sum.
    pub lane: Option<u64>,
}

impl FromStr for TableOptions {
    type Err = String;

    /// `bits=2` or `bits=2,lane=4,granularity=5,fraction=1/32,table_id=7`.
    fn from_str(text: &str) -> Result<TableOptions, String> {
        let mut table = TableOptions::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not a key with a value: write it like bits=2,lane=8"))?;
            if key.trim() == "table" {
                return Err(
                    "table: write a table's values into a file; the number of a table is table_id".to_owned()
                );
            }
            let value = value.trim();
            let value = value.parse::<u64>().map_or_else(|_| Value::from(value), Value::from);
            set(&mut table, key.trim(), value)?;
        }
        Ok(table)
    }
}

/// The tables of all jobs so far: a number means the same table in each.
pub type KnownTables = BTreeMap<u8, (u16, Lookup)>;

impl TableOptions {
    /// The job's tables, `self` first. Missing numbers follow from the job's number and from the other tables.
    pub fn job_tables(
        &self,
        more: &[TableOptions],
        job: u16,
        workers: u16,
        racks: Option<&Racks>,
        place: &ServerPlace,
        known: &mut KnownTables,
    ) -> Result<Vec<Table>, ConfigError> {
        let section = Section::Job(job);
        if more.len() >= MAX_TABLES {
            let mend = format!("a job has at most {MAX_TABLES} tables, its first included");
            return Err(section.wrong("tables", format!("a list of {}", more.len()), mend));
        }
        let mut tables: Vec<Table> = Vec::with_capacity(1 + more.len());
        for options in [self].into_iter().chain(more) {
            let mut table = options.solve(job, workers, racks)?;
            if place.may_be_switch {
                // Every aggregator has the usual form: fewer bits of the first table travel in it as they are.
                if place.rack.is_none() && tables.is_empty() {
                    let lane = table.form.lane();
                    table.form = Form::new(Form::USUAL.width(), lane).unwrap_or_default();
                }
            } else if place.is_share() && options.lane.is_none() {
                // Links bound the results of shares, so these pack their sums. A single server may use the loopback.
                table.form = narrowest(&table, workers);
            }
            let lookup = Lookup::from(&table);
            let given = options.table_id.or((tables.is_empty()).then(|| default_table(job)));
            let free = |id: &u64| {
                let id = *id as u8;
                let other = known.get(&id).is_some_and(|(_, held)| *held != lookup);
                let explicit = |options: &TableOptions| options.table_id == Some(id.into());
                !other && !tables.iter().any(|table| table.id.0 == id) && !more.iter().any(explicit)
            };
            let id = given.or_else(|| (1..=MAX_TABLE).rev().find(free)).unwrap_or(0);
            let id = number(section, "table_id", Some(id), 0, 1..=MAX_TABLE)? as u8;
            if tables.iter().any(|table| table.id.0 == id) {
                let mend = "two of its tables have this number, give each its own from 1 to 255";
                return Err(section.wrong("table_id", id, mend));
            }
            match known.insert(id, (job, lookup)) {
                Some((first, held)) if held != lookup => {
                    return Err(section.wrong(
                        "table_id",
                        id,
                        format!("job {first} has a different table of this number, give one of the jobs another table_id, 1 to 255"),
                    ));
                }
                _ => tables.push(Table { id: TableId(id), ..table }),
            }
        }
        Ok(tables)
    }

    /// The table of these keys, or the best for so many workers; without a number.
    pub(super) fn solve(&self, job: u16, workers: u16, racks: Option<&Racks>) -> Result<Table, ConfigError> {
        let section = Section::Job(job);
        let own = self.own_values(section)?;
        let given = own.as_ref().map_or(self.bits.unwrap_or(DEFAULT_BITS), |own| own.len().ilog2().into());
        let narrow = u64::from(workers) * ((1 << given.min(8)) - 1) <= 255;
        let default = if given == 8 || !narrow { 16 } else { 8 };
        let lane = self.lane.unwrap_or(default);
        let bits = match given {
            1..=4 | 8 => given as u8,
            _ => return Err(section.wrong("bits", given, "indices have 1, 2, 3, 4 or 8 bits")),
        };
        let sums = u8::try_from(lane).ok().filter(|lane| (4..=16).contains(lane));
        let sums = sums.ok_or_else(|| section.wrong("lane", lane, "use 4 to 16"))?;
        let form = Form::with_sums(bits, sums)
            .ok_or_else(|| section.wrong("lane", lane, "bits = 8 needs lane = 16, or 9 to 15"))?;
        if racks.is_some() && (form.lane() == Lane::Bits4 || form.is_packed()) {
            return Err(section.wrong("lane", lane, "racks need lanes of 8 or 16 bits"));
        }
        Ok(wire_table(form, &self.lookup(job, workers, racks, bits, form, own.as_deref())?))
    }

    fn lookup(
        &self,
        job: u16,
        workers: u16,
        racks: Option<&Racks>,
        bits: u8,
        form: Form,
        own: Option<&[u8]>,
    ) -> Result<LookupTable, ConfigError> {
        let section = Section::Job(job);
        let missing =
            |key| section.missing(key, "give granularity and fraction, or neither to have both chosen");
        let failed = |cause| section.conflict(format!("no lookup table: {cause}"));
        if let Some(values) = own {
            let granularity = values.last().map_or(0, |&last| u16::from(last));
            check_sum(job, workers, granularity, (1 << bits) - 1, form)?;
            let table = match self.fraction {
                Some(Fraction(fraction)) => LookupTable::from_values(values, fraction),
                None => choose_fraction(values, u32::from(workers)).map(|choice| choice.table),
            };
            return table.map_err(failed);
        }
        let (granularity, Fraction(fraction)) = match (self.granularity, self.fraction) {
            (Some(granularity), Some(fraction)) => (granularity, fraction),
            (Some(_), None) => return Err(missing("fraction")),
            (None, Some(_)) => return Err(missing("granularity")),
            (None, None) => {
                // Sums of racks in 8 bits, where that leaves a table at all (P34).
                let narrow = racks.filter(|_| form.lane() == Lane::Bits16).and_then(|racks| {
                    let most = u32::from(racks.largest).max((255 * u32::from(workers)).div_ceil(65535));
                    choose(bits, 8, most).ok().filter(|_| bits < 8)
                });
                if let Some(choice) = narrow {
                    return Ok(choice.table);
                }
                return choose(bits, form.sums(), u32::from(workers)).map(|choice| choice.table).map_err(
                    |cause| match cause {
                        CodecError::LaneTooNarrow { .. } => {
                            let (lane, wider) = (form.sums(), wider(form));
                            section.conflict(format!(
                                "the sums of {workers} workers with bits = {bits} do not fit lanes of {lane} bits: \
                                 use {wider}, fewer bits or fewer workers"
                            ))
                        }
                        cause => failed(cause),
                    },
                );
            }
        };
        let least = (1u64 << bits) - 1;
        let granularity =
            number(section, "granularity", Some(granularity), 0, least..=u64::from(MAX_GRANULARITY))? as u16;
        check_sum(job, workers, granularity, least, form)?;
        LookupTable::solve(bits, granularity, fraction).map_err(failed)
    }
}

/// The next wider lane, as a key.
fn wider(form: Form) -> &'static str {
    if form.sums() < 8 { "lane = 8" } else { "lane = 16" }
}

/// Checks that the sums of all workers fit the lane (P6). `least` is the smallest granularity of a table of these bits.
fn check_sum(job: u16, workers: u16, granularity: u16, least: u64, form: Form) -> Result<(), ConfigError> {
    let (sum, max) = (u32::from(granularity) * u32::from(workers), form.max_sum());
    if sum <= max {
        return Ok(());
    }
    let (fits, wider) = (u64::from(max) / u64::from(workers), wider(form));
    let mend = if fits >= least {
        format!("use a granularity of at most {fits}, or {wider}")
    } else {
        format!("use {wider}, or fewer bits with a smaller granularity")
    };
    let bits = form.sums();
    Err(Section::Job(job).conflict(format!(
        "workers × granularity = {workers} × {granularity} = {sum} does not fit lanes of {bits} bits, which hold {max}: {mend}"
    )))
}

/// The form with the fewest bits for sums that leaves the lanes as they are (P44).
fn narrowest(table: &Table, workers: u16) -> Form {
    let least = match table.form.lane() {
        Lane::Bits4 => return table.form,
        Lane::Bits8 => 5,
        Lane::Bits16 => 9,
    };
    let sum = u32::from(workers) * u32::from(table.granularity);
    let sums = ((32 - sum.leading_zeros()) as u8).max(least);
    Form::with_sums(table.form.width(), sums).unwrap_or(table.form)
}

/// Default id of a job's first table. It follows from the job's number alone, so it stays the same when a
/// server restarts with other jobs.
fn default_table(job: u16) -> u64 {
    (u64::from(job) + MAX_TABLE - 1) % MAX_TABLE + 1
}

/// A lookup table in the form of WELCOME, still without a number, for packets of this form.
pub fn wire_table(form: Form, table: &LookupTable) -> Table {
    Table {
        id: TableId(0),
        bits: table.bits(),
        form,
        granularity: table.granularity(),
        fraction: table.fraction(),
        t_p: table.t_p(),
        values: table.values16(),
    }
}
