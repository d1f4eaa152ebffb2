//! Measures the trainings of studies, with several seeds, on all cores, and keeps each in a file, so that a run that was ended goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::study::Study;
use super::training::{Outcome, Run, Scale};
use crate::error::{Error, Result};
use crate::figures::figure::write;
use crate::figures::progress::Progress;

/// A training as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    scale: Scale,
    run: String,
    seed: u64,
    outcome: Outcome,
}

/// The outcomes of a study: of each of its trainings, one for each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub run: Run,
    pub outcomes: Vec<Outcome>,
}

/// By the study's name.
pub type Measured = BTreeMap<&'static str, Vec<Found>>;

/// Trains all that these studies want, with seeds 1 to `seeds`, but for what `folder` has already.
pub fn measure(studies: &[Study], scale: &Scale, seeds: u64, folder: &Path, quiet: bool) -> Result<Measured> {
    std::fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    let mut jobs = Vec::new();
    for study in studies {
        for (number, run) in (study.runs)().into_iter().enumerate() {
            jobs.extend((1..=seeds).map(|seed| (study.name, number, run, seed)));
        }
    }
    // Long ones first, so that the last do not run alone.
    jobs.sort_by_key(|(name, number, run, seed)| (std::cmp::Reverse(run.workers), *name, *number, *seed));
    let threads = available_parallelism().map_or(1, usize::from).div_ceil(jobs.len().max(1));
    let (began, done) = (Instant::now(), AtomicUsize::new(0));
    // Where there is no bar, a line in a while says how far it is.
    let lines = !quiet && !std::io::IsTerminal::is_terminal(&std::io::stderr());
    let outcomes = Progress::new(quiet).parallel("trainings", jobs.len(), |job| {
        let (name, number, run, seed) = jobs[job];
        let path = folder.join(format!("{name}-{number}-{seed}.json"));
        let outcome = match kept(&path, scale, &run, seed) {
            Some(outcome) => outcome,
            None => {
                let outcome = run.train(scale, seed, threads)?;
                let kept = Kept { scale: scale.clone(), run: identity(&run), seed, outcome };
                let text = serde_json::to_string_pretty(&kept).map_err(Error::Event)?;
                write(path, &text)?;
                // As a later run will read it, to the last bit.
                serde_json::from_str::<Kept>(&text).map_err(Error::Event)?.outcome
            }
        };
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if lines && done.is_multiple_of(jobs.len().div_ceil(20)) {
            let each = began.elapsed().as_secs_f64() / done as f64;
            eprintln!(
                "{done} of {} trainings, at most {:.0} s more",
                jobs.len(),
                each * (jobs.len() - done) as f64
            );
        }
        Ok(outcome)
    })?;
    let mut measured = Measured::new();
    for study in studies {
        let runs = (study.runs)();
        let mut found: Vec<Found> = runs.into_iter().map(|run| Found { run, outcomes: Vec::new() }).collect();
        for ((name, number, _, _), outcome) in jobs.iter().zip(&outcomes) {
            if *name == study.name {
                found[*number].outcomes.push(*outcome);
            }
        }
        measured.insert(study.name, found);
    }
    Ok(measured)
}

/// All that makes a training another one, but for its scale and seed.
fn identity(run: &Run) -> String {
    format!("{run:?}, version {}", env!("CARGO_PKG_VERSION"))
}

/// What a file has, if it is of this very training.
fn kept(path: &PathBuf, scale: &Scale, run: &Run, seed: u64) -> Option<Outcome> {
    let kept: Kept = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    (kept.scale == *scale && kept.run == identity(run) && kept.seed == seed).then_some(kept.outcome)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::study::UNIFORM;
    use super::*;

    #[test]
    fn what_is_kept_is_not_trained_again_unless_the_scale_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "one two three four five six seven; ".repeat(80)).unwrap();
        let scale = Scale { text, steps: 2, batch: 2, hidden: 16, held_out: 40 };
        let out = folder.path().join("out");
        let first = measure(&[UNIFORM], &scale, 2, &out, true).unwrap();
        assert_eq!(first[UNIFORM.name].len(), 6);
        assert!(first[UNIFORM.name].iter().all(|found| found.outcomes.len() == 2));
        // Another outcome in a file is taken as it is.
        let path = out.join(format!("{}-0-1.json", UNIFORM.name));
        let mut kept: Kept = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        kept.outcome.loss = 77.0;
        std::fs::write(&path, serde_json::to_string(&kept).unwrap()).unwrap();
        let second = measure(&[UNIFORM], &scale, 2, &out, true).unwrap();
        assert_eq!(second[UNIFORM.name][0].outcomes[0].loss, 77.0);
        assert_eq!(second[UNIFORM.name][1..], first[UNIFORM.name][1..]);
        let other = Scale { steps: 3, ..scale };
        let third = measure(&[UNIFORM], &other, 1, &out, true).unwrap();
        assert!(third[UNIFORM.name][0].outcomes[0].loss < 77.0);
    }
}
