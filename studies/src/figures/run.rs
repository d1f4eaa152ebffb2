//! Which figures are made, and where they go.

use std::fmt;
use std::path::PathBuf;

use super::gradients::Saved;
use super::{comparison, distributions, granularity, workers};
use crate::charts::{Figure, html, write};
use crate::error::{Error, Result};
use crate::progress::Progress;

const TITLE: &str = "THC in Rust: figures";
const ABOUT: &str = "Errors of compressed all-reduces: THC and what others do. “The paper” is THC: Tensor Homomorphic \
                     Compression (NSDI 2024).";

/// What to measure.
pub struct FigurePlan {
    /// Repetitions; `None`: as many as each figure needs.
    pub trials: Option<u32>,
    /// Seed of everything random.
    pub seed: u64,
    /// Coordinates of a vector where the figure does not say otherwise.
    pub dimension: usize,
    /// Gradients of a training, to measure besides drawn ones.
    pub saved: Option<Saved>,
    /// Fewer points: a test of the machinery, not of the schemes.
    pub quick: bool,
    /// Shows how far it is.
    pub progress: Progress,
}

impl FigurePlan {
    /// Repetitions where `usual` are enough.
    pub fn trials(&self, usual: u32) -> u32 {
        self.trials.unwrap_or(if self.quick { 2 } else { usual })
    }
}

/// What was made.
pub struct Made {
    /// All figures.
    pub figures: Vec<Figure>,
    /// All files, the page last if there is one.
    pub files: Vec<PathBuf>,
}

/// The figures about the error of the mean.
pub fn nmse(plan: &FigurePlan) -> Result<Vec<Figure>> {
    Ok(vec![
        comparison::figure(plan)?,
        distributions::figure(plan)?,
        workers::figure(plan)?,
        granularity::figure(plan)?,
    ])
}

/// Makes the figures and writes them into `folder`, which is made if need be; `command` tells how to make
/// them again, and `page` whether to put all into one page.
pub fn run(plan: &FigurePlan, folder: PathBuf, command: &str, with_page: bool) -> Result<Made> {
    std::fs::create_dir_all(&folder).map_err(|source| Error::File { path: folder.clone(), source })?;
    let mut figures = nmse(plan)?;
    let mut files = Vec::new();
    for figure in &mut figures {
        if let Some(numbers) = figure.numbers.as_object_mut() {
            numbers.insert("command".to_owned(), command.into());
            numbers.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        }
        files.extend(figure.save(&folder)?);
    }
    if with_page {
        files.push(write(folder.join("index.html"), &html(TITLE, ABOUT, &figures, command))?);
    }
    Ok(Made { figures, files })
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in &self.figures {
            writeln!(f, "{}\n\n{}", figure.title, figure.table.to_text())?;
        }
        write!(f, "Files:")?;
        self.files.iter().try_for_each(|path| write!(f, "\n  {}", path.display()))
    }
}
