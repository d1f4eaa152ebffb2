//! The keys `min_workers`, `max_workers`, `gone_after` and `gather`: a job whose members come and go (P42).

use std::sync::Arc;
use std::time::Duration;

use thc_protocol::MAX_WORKERS;
use thc_protocol::aggregator::JobConfig;
use thc_protocol::session::Sizes;
use thc_protocol::wire::{Members, Table, Tables, Welcome};
use thc_values::Interval;

use crate::error::{ConfigError, Section};
use crate::job::JobOptions;
use crate::number::number;
use crate::tables::{Known, TableOptions};

/// The default time of silence after which a member is gone.
const DEFAULT_GONE_AFTER: Duration = Duration::from_secs(3);
/// The default time for which the first session waits for more workers.
const DEFAULT_GATHER: Duration = Duration::from_secs(1);

/// What a job whose members come and go says of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub least: u8,
    pub most: u8,
    gone_after: Duration,
    gather: Duration,
}

impl JobOptions {
    /// The numbers of workers that sessions may have; `None` for a job of one number.
    pub(crate) fn range(&self, section: Section) -> Result<Option<Range>, ConfigError> {
        let all = 1..=MAX_WORKERS as u64;
        let (least, most) = match (self.workers, self.min_workers, self.max_workers) {
            (_, None, None) => {
                for (key, given) in [("gone_after", self.gone_after), ("gather", self.gather)] {
                    if let Some(Interval(time)) = given {
                        let value = Interval(time).to_string();
                        let mend =
                            "only a job whose members come and go has it: give min_workers and max_workers"
                                .to_owned();
                        return Err(ConfigError::Value { section, key, value, mend });
                    }
                }
                return Ok(None);
            }
            (Some(workers), _, _) => {
                let mend = "give workers, or min_workers and max_workers, not both".to_owned();
                return Err(ConfigError::Value { section, key: "workers", value: workers.to_string(), mend });
            }
            (None, least, Some(most)) => (least.unwrap_or(1), most),
            (None, Some(_), None) => {
                let mend = "say how many workers a session has at most, 1 to 64";
                return Err(ConfigError::Missing { section, key: "max_workers", mend });
            }
        };
        let most = number(section, "max_workers", Some(most), 0, all.clone())? as u8;
        let least = number(section, "min_workers", Some(least), 0, all)? as u8;
        if least > most {
            let mend = format!("that is more than max_workers, {most}: give at most that");
            return Err(ConfigError::Value { section, key: "min_workers", value: least.to_string(), mend });
        }
        let time = |key, given: Option<Interval>, default| {
            let time = given.map_or(default, |Interval(time)| time);
            if time < Duration::from_millis(100) || time > Duration::from_secs(3600) {
                let (value, mend) = (Interval(time).to_string(), "use 100ms to 1h".to_owned());
                return Err(ConfigError::Value { section, key, value, mend });
            }
            Ok(time)
        };
        let gone_after = time("gone_after", self.gone_after, DEFAULT_GONE_AFTER)?;
        let gather = time("gather", self.gather, DEFAULT_GATHER)?;
        if let Some(quorum) = self.quorum.filter(|_| least < most) {
            let mend = "where members come and go all must be in every sum, leave quorum out".to_owned();
            return Err(ConfigError::Value { section, key: "quorum", value: quorum.to_string(), mend });
        }
        Ok((least < most).then_some(Range { least, most, gone_after, gather }))
    }
}

impl Range {
    /// Sessions of all sizes, given the largest: each has its own first table, in the same form.
    pub fn sizes(
        self,
        (config, welcome): (&JobConfig, &Welcome),
        first: &TableOptions,
        known: &mut Known,
    ) -> Result<Arc<Sizes>, ConfigError> {
        let (job, usual) = (config.job.0, welcome.tables.first());
        let lane = Some(u64::from(usual.form.lane().bits()));
        let rest: Vec<Table> = welcome.tables.iter().skip(1).copied().collect();
        let mut shapes = Vec::with_capacity(usize::from(self.most - self.least) + 1);
        for workers in (self.least..=self.most).rev() {
            let options = TableOptions { lane, table: None, ..first.clone() };
            let table = options.table_for(job, workers, &rest, usual, known)?;
            let mut tables = rest.clone();
            tables.insert(0, table);
            let config = JobConfig {
                workers,
                quorum: workers,
                tables: tables.iter().map(|table| table.id).collect(),
                ..config.clone()
            };
            let (min_workers, max_workers) = (self.least, self.most);
            let members = Some(Members { spares: welcome.spares(), ..Members::default() });
            let tables = Tables::new(&tables)?;
            shapes.push((
                config,
                Welcome { quorum: workers, tables, min_workers, max_workers, members, ..*welcome },
            ));
        }
        shapes.reverse();
        Ok(Arc::new(Sizes { shapes, gone_after: self.gone_after, gather: self.gather }))
    }
}
