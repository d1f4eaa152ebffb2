//! Where the vectors of an experiment come from: a distribution, or files that the demo saved.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use thc_demo::demo::gradient_file;
use thc_demo::distribution::Distribution;
use thc_demo::nmse::Vectors;

/// Gradients of several steps of a training.
#[derive(Clone, Debug)]
pub struct Saved {
    /// Steps in ascending order, each with the gradients of workers 0, 1, ..
    steps: Vec<(u32, Vec<Vec<f32>>)>,
}

/// Vectors for experiments.
#[derive(Clone, Debug)]
pub enum Source {
    /// New ones for every trial.
    Drawn {
        /// What coordinates are drawn from.
        distribution: Distribution,
        /// Coordinates of a vector.
        dimension: usize,
        /// Seed of all vectors.
        seed: u64,
    },
    /// A step of a training for every trial.
    Saved(Saved),
}

/// (step, worker) if `name` is that of a worker's own gradient.
fn parse(name: &str) -> Option<(u32, u8)> {
    let (step, worker) = name.strip_prefix("step-")?.strip_suffix(".npy")?.split_once("-worker-")?;
    Some((step.parse().ok()?, worker.parse().ok()?))
}

impl Saved {
    /// Reads the workers' own gradients that `thc demo --save-gradients` wrote into `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        let failed = |source| Error::File { path: folder.to_owned(), source };
        let mut found: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some((step, worker)) = name.to_str().and_then(parse) {
                found.entry(step).or_default().push(worker);
            }
        }
        let mut steps = Vec::new();
        for (step, mut workers) in found {
            workers.sort_unstable();
            let read = |worker: &u8| {
                let path = gradient_file::worker_path(folder, step, *worker);
                let gradient = gradient_file::read(&path)?;
                let finite = gradient.iter().all(|v| v.is_finite());
                if finite && gradient.iter().any(|v| *v != 0.0) {
                    Ok(gradient)
                } else {
                    let path = path.display();
                    Err(Error::Failure(format!("the gradient {path} is zero everywhere or not finite")))
                }
            };
            steps.push((step, workers.iter().map(read).collect::<Result<Vec<_>>>()?));
        }
        let mut all = steps.iter().flat_map(|(_, workers)| workers).map(Vec::len);
        let Some(length) = all.next() else {
            let path = folder.display();
            return Err(Error::Failure(format!(
                "{path} has no saved gradients; make some with: thc demo --save-gradients {path}"
            )));
        };
        if all.any(|other| other != length) {
            let path = folder.display();
            return Err(Error::Failure(format!(
                "the gradients in {path} have different lengths; keep those of one training in a folder"
            )));
        }
        Ok(Self { steps })
    }

    /// The steps.
    pub fn steps(&self) -> Vec<u32> {
        self.steps.iter().map(|(step, _)| *step).collect()
    }

    /// How many workers' gradients every step has.
    pub fn workers(&self) -> usize {
        self.steps.iter().map(|(_, workers)| workers.len()).min().unwrap_or_default()
    }

    /// The gradient of the first worker in each step.
    pub fn first(&self) -> impl Iterator<Item = (u32, &[f32])> {
        self.steps.iter().map(|(step, workers)| (*step, workers[0].as_slice()))
    }
}

impl Source {
    /// Coordinates of a vector.
    pub fn dimension(&self) -> usize {
        match self {
            Self::Drawn { dimension, .. } => *dimension,
            Self::Saved(saved) => saved.steps[0].1[0].len(),
        }
    }

    /// How many trials there are: as many as `wanted`, or one for each saved step.
    pub fn trials(&self, wanted: u32) -> u32 {
        match self {
            Self::Drawn { .. } => wanted,
            Self::Saved(saved) => saved.steps.len() as u32,
        }
    }

    /// The distinct vectors of a trial: one for copies, else one per worker. The first vectors are the same
    /// for every number of workers. Saved gradients of a training that had fewer workers are used again
    /// from the beginning.
    pub fn vectors(&self, trial: u32, workers: u32, vectors: Vectors) -> Vec<Vec<f32>> {
        let count = if vectors == Vectors::Copies { 1 } else { workers as usize };
        match self {
            Self::Drawn { distribution, dimension, seed } => (0..count as u64)
                .map(|worker| distribution.sample(*dimension, *seed, u64::from(trial) << 8 | worker))
                .collect(),
            Self::Saved(saved) => {
                let (_, own) = &saved.steps[trial as usize % saved.steps.len()];
                own.iter().cycle().take(count).cloned().collect()
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn saved_gradients_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let refused = |path: &Path| Saved::read(path).map(|_| ()).unwrap_err().to_string();
        assert!(refused(path).contains("no saved gradients"));
        for step in [0, 12] {
            for worker in [1, 0, 10] {
                let gradient = [f32::from(worker) + 0.5, step as f32];
                gradient_file::write(&gradient_file::worker_path(path, step, worker), &gradient).unwrap();
            }
            gradient_file::write(&gradient_file::applied_path(path, step), &[9.0; 3]).unwrap();
        }
        std::fs::write(path.join("step-x-worker-0.npy"), "").unwrap();
        let saved = Saved::read(path).unwrap();
        assert_eq!((saved.steps(), saved.workers()), (vec![0, 12], 3));
        assert_eq!(saved.first().last().unwrap(), (12, &[0.5, 12.0][..]));
        let source = Source::Saved(saved);
        assert_eq!((source.dimension(), source.trials(5), source.trials(1)), (2, 2, 2));
        assert_eq!(source.vectors(1, 2, Vectors::Independent), [[0.5, 12.0], [1.5, 12.0]]);
        assert_eq!(source.vectors(1, 2, Vectors::Copies), [[0.5, 12.0]]);

        gradient_file::write(&gradient_file::worker_path(path, 13, 0), &[1.0; 3]).unwrap();
        assert!(refused(path).contains("different lengths"));
        gradient_file::write(&gradient_file::worker_path(path, 13, 0), &[0.0, f32::NAN]).unwrap();
        assert!(refused(path).contains("zero everywhere or not finite"));
        assert!(matches!(Saved::read(&path.join("none")), Err(Error::File { .. })));
    }
}
