//! Measures the trainings of studies and makes tables, with several seeds, on all cores or fewer, and keeps each in a
//! file, so that a run that was ended goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::entry::Part;
use super::gradients::Gradients;
use super::sheet::{Line, Make, Sheet};
use super::training::{Outcome, Run, Scale};
use crate::charts::write;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// A training or a table as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept<T> {
    scale: Scale,
    run: String,
    seed: u64,
    outcome: T,
}

/// The outcomes of a study: of each of its trainings, one for each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub run: Run,
    pub outcomes: Vec<Outcome>,
}

/// What was measured, by names of studies and of sheets.
#[derive(Debug, Default, PartialEq)]
pub struct Measured {
    pub studies: BTreeMap<&'static str, Vec<Found>>,
    /// One table for each seed; a single one of a sheet that is not random.
    pub sheets: BTreeMap<&'static str, Vec<Vec<Line>>>,
}

/// How a run of `thc papers` measures.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// Trainings of each kind.
    pub seeds: u64,
    /// Sheets as small as they can be.
    pub quick: bool,
    /// What sheets of gradients are made of; they are left out where there are none.
    pub gradients: Option<&'a Gradients>,
    /// How much is done at the same time.
    pub jobs: usize,
    /// Nothing on standard error.
    pub quiet: bool,
}

/// One piece of work.
enum Job {
    Training { study: &'static str, number: usize, run: Run, seed: u64 },
    Sheet { sheet: Sheet, seed: u64 },
}

/// What came of it.
enum Made {
    Training(Outcome),
    Sheet(Vec<Line>),
}

impl Job {
    /// Replicas, or steps of all workers: what takes the longest is begun first, so that the last does not run alone.
    fn weight(&self) -> u64 {
        match self {
            Self::Training { run, .. } => {
                u64::from(run.workers) * u64::from(run.course.length + run.course.warm)
            }
            Self::Sheet { .. } => u64::MAX,
        }
    }

    fn make(&self, scale: &Scale, folder: &Path, manner: &Manner<'_>, threads: usize) -> Result<Made> {
        match self {
            Self::Training { study, number, run, seed } => {
                let path = folder.join(format!("{study}-{number}-{seed}.json"));
                let identity = identity(run);
                let make = || run.train(scale, *seed, threads);
                Ok(Made::Training(kept_or_made(path, scale, identity, *seed, make)?))
            }
            Self::Sheet { sheet, seed } => {
                let path = folder.join(format!("{}-{seed}.json", sheet.name));
                let quick = manner.quick;
                let mut identity =
                    format!("{}, {:?}, quick: {quick}, {}", sheet.name, sheet.columns, version());
                let lines = match (sheet.make, manner.gradients) {
                    (Make::Computed(make), _) => {
                        kept_or_made(path, scale, identity, *seed, || make(quick, *seed))
                    }
                    (Make::Measured(make), Some(gradients)) => {
                        identity.push_str(&gradients.identity);
                        kept_or_made(path, scale, identity, *seed, || make(gradients, *seed))
                    }
                    (Make::Measured(_), None) => Ok(Vec::new()),
                };
                Ok(Made::Sheet(lines?))
            }
        }
    }
}

/// Does all that these parts want, with seeds from 1 on, but for what `folder` has already.
pub fn measure(parts: &[Part], scale: &Scale, manner: &Manner<'_>, folder: &Path) -> Result<Measured> {
    std::fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    let mut jobs = Vec::new();
    for part in parts {
        match part {
            Part::Study(study) => {
                for (number, run) in (study.runs)().into_iter().enumerate() {
                    let study = study.name;
                    jobs.extend((1..=manner.seeds).map(|seed| Job::Training { study, number, run, seed }));
                }
            }
            Part::Sheet(sheet) if sheet.needs_gradients() && manner.gradients.is_none() => {}
            Part::Sheet(sheet) => {
                let seeds = if sheet.random { manner.seeds } else { 1 };
                jobs.extend((1..=seeds).map(|seed| Job::Sheet { sheet: *sheet, seed }));
            }
        }
    }
    // Of a study and a number seeds stay in their order, which is that of the outcomes.
    jobs.sort_by_key(|job| std::cmp::Reverse(job.weight()));
    let threads = manner.jobs.div_ceil(jobs.len().max(1));
    let (began, done) = (Instant::now(), AtomicUsize::new(0));
    // Where there is no bar, a line in a while says how far it is.
    let lines = !manner.quiet && !std::io::IsTerminal::is_terminal(&std::io::stderr());
    let made =
        Progress::new(manner.quiet).with_threads(manner.jobs).parallel("trainings", jobs.len(), |job| {
            let made = jobs[job].make(scale, folder, manner, threads)?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if lines && done.is_multiple_of(jobs.len().div_ceil(20)) {
                let each = began.elapsed().as_secs_f64() / done as f64;
                eprintln!(
                    "{done} of {} trainings, at most {:.0} s more",
                    jobs.len(),
                    each * (jobs.len() - done) as f64
                );
            }
            Ok(made)
        })?;
    let mut measured = Measured::default();
    for part in parts {
        if let Part::Study(study) = part {
            let found = (study.runs)().into_iter().map(|run| Found { run, outcomes: Vec::new() });
            measured.studies.insert(study.name, found.collect());
        }
    }
    for (job, made) in jobs.iter().zip(made) {
        match (job, made) {
            (Job::Training { study, number, .. }, Made::Training(outcome)) => {
                if let Some(found) = measured.studies.get_mut(study) {
                    found[*number].outcomes.push(outcome);
                }
            }
            (Job::Sheet { sheet, .. }, Made::Sheet(lines)) => {
                measured.sheets.entry(sheet.name).or_default().push(lines);
            }
            _ => {}
        }
    }
    Ok(measured)
}

fn version() -> String {
    format!("version {}", env!("CARGO_PKG_VERSION"))
}

/// All that makes a training another one, but for its scale and seed.
fn identity(run: &Run) -> String {
    format!("{run:?}, {}", version())
}

/// What a file has, if it is of this very training or table; otherwise it is made and kept.
fn kept_or_made<T: Serialize + DeserializeOwned>(
    path: PathBuf,
    scale: &Scale,
    run: String,
    seed: u64,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let read = std::fs::read_to_string(&path).ok();
    let kept = read.and_then(|text| serde_json::from_str::<Kept<T>>(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.scale == *scale && kept.run == run && kept.seed == seed) {
        return Ok(kept.outcome);
    }
    let kept = Kept { scale: scale.clone(), run, seed, outcome: make()? };
    let text = serde_json::to_string_pretty(&kept).map_err(Error::Event)?;
    write(path, &text)?;
    // As a later run will read it, to the last bit.
    Ok(serde_json::from_str::<Kept<T>>(&text).map_err(Error::Event)?.outcome)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::study::UNIFORM;
    use super::super::thc_speed::TABLES;
    use super::*;

    #[test]
    fn what_is_kept_is_not_trained_again_unless_the_scale_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "one two three four five six seven; ".repeat(80)).unwrap();
        let scale = Scale { text, steps: 2, batch: 2, hidden: 16, held_out: 40 };
        let out = folder.path().join("out");
        let manner = |seeds| Manner { seeds, quick: true, gradients: None, jobs: 2, quiet: true };
        let parts = [Part::Study(UNIFORM), Part::Sheet(TABLES)];
        let first = measure(&parts, &scale, &manner(2), &out).unwrap();
        assert_eq!(first.studies[UNIFORM.name].len(), (UNIFORM.runs)().len());
        assert!(first.studies[UNIFORM.name].iter().all(|found| found.outcomes.len() == 2));
        assert_eq!(first.sheets[TABLES.name].len(), 1);
        // Another outcome in a file is taken as it is.
        let path = out.join(format!("{}-0-1.json", UNIFORM.name));
        let mut kept: Kept<Outcome> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        kept.outcome.loss = 77.0;
        std::fs::write(&path, serde_json::to_string(&kept).unwrap()).unwrap();
        let second = measure(&parts, &scale, &Manner { jobs: 1, ..manner(2) }, &out).unwrap();
        assert_eq!(second.studies[UNIFORM.name][0].outcomes[0].loss, 77.0);
        assert_eq!(second.studies[UNIFORM.name][1..], first.studies[UNIFORM.name][1..]);
        assert_eq!(second.sheets, first.sheets);
        let other = Scale { steps: 3, ..scale };
        let third = measure(&parts[..1], &other, &manner(1), &out).unwrap();
        assert!(third.studies[UNIFORM.name][0].outcomes[0].loss < 77.0);
    }
}
