//! The demo's progress: a bar on a terminal, and elsewhere a line for every tenth of the run.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress of one run on standard error.
pub struct Progress {
    name: &'static str,
    steps: u32,
    bar: Option<ProgressBar>,
    lines: bool,
}

impl Progress {
    /// Starts the display. With `quiet` nothing is shown.
    pub fn new(name: &'static str, steps: u32, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let style = ProgressStyle::with_template(
                "{prefix:>6} {wide_bar} {pos}/{len} steps  {msg}  {elapsed} elapsed, {eta} left",
            );
            let bar = ProgressBar::new(u64::from(steps)).with_prefix(name);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { name, steps, lines: bar.is_none() && !quiet, bar }
    }

    /// Reports that `step`, counted from 0, has ended with this training loss.
    pub fn step(&self, step: u32, loss: f32) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("loss {loss:.3}"));
            bar.set_position(u64::from(step) + 1);
        }
        let tenth = |steps: u32| u64::from(steps) * 10 / u64::from(self.steps.max(1));
        if self.lines && (step == 0 || tenth(step + 1) != tenth(step)) {
            eprintln!("{:>6}  step {:>4} of {}  loss {loss:.3}", self.name, step + 1, self.steps);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
