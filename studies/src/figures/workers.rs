//! The error of all schemes against the number of workers.

use serde_json::{Value, json};

use super::catalogue::{self, Entry};
use super::gradients::Source;
use super::measure::{Measured, Setting, measure};
use super::run::FigurePlan;
use crate::charts::{Axis, Chart, Figure, Picture, Scale, Series, Table, short};
use crate::error::Result;
use thc_demo::distribution::Distribution;
use thc_demo::nmse::Vectors;

const NAME: &str = "nmse-workers";

/// One picture: the same source, more and more workers.
struct Panel {
    /// Key in the numbers and part of the picture's file name.
    key: &'static str,
    title: &'static str,
    subtitle: String,
    workers: Vec<u32>,
    trials: u32,
    /// By number of workers, then scheme.
    measured: Vec<Vec<Option<Measured>>>,
}

fn panels(plan: &FigurePlan) -> Result<Vec<Panel>> {
    let all_numbers: &[u32] = if plan.quick { &[1, 4, 16] } else { &[1, 2, 4, 8, 16, 32, 64] };
    let dimension = plan.dimension / 4;
    let trials = plan.trials(4);
    let drawn = Source::Drawn { distribution: Distribution::Lognormal, dimension, seed: plan.seed };
    let panel = |key, title, subtitle, source: &Source, workers: Vec<u32>, vectors| -> Result<Panel> {
        let settings: Vec<Setting> =
            workers.iter().map(|workers| Setting { workers: *workers, vectors, rounds: 1 }).collect();
        let measured = measure(source, &settings, trials, plan.seed, (&plan.progress, title))?;
        Ok(Panel { key, title, subtitle, workers, trials: source.trials(trials), measured })
    };
    let subtitle = format!("log-normal vectors of {dimension} coordinates, {trials} trials; dashed: biased");
    let mut panels = vec![
        panel(
            "copies",
            "Error by number of workers, all with the same vector",
            subtitle.clone(),
            &drawn,
            all_numbers.to_vec(),
            Vectors::Copies,
        )?,
        panel(
            "independent",
            "Error by number of workers, each with its own vector",
            subtitle,
            &drawn,
            all_numbers.to_vec(),
            Vectors::Independent,
        )?,
    ];
    if let Some(saved) = &plan.saved {
        let source = Source::Saved(saved.clone());
        let subtitle = format!(
            "gradients of a training, {} coordinates, {} steps; dashed: biased",
            source.dimension(),
            source.trials(trials)
        );
        panels.push(panel(
            "saved_copies",
            "Error by number of workers, copies of a saved gradient",
            subtitle.clone(),
            &source,
            all_numbers.to_vec(),
            Vectors::Copies,
        )?);
        let own = all_numbers.iter().copied().filter(|n| *n as usize <= saved.workers()).collect();
        panels.push(panel(
            "saved",
            "Error by number of workers, saved gradients of each",
            subtitle,
            &source,
            own,
            Vectors::Independent,
        )?);
    }
    Ok(panels)
}

impl Panel {
    fn nmse(&self, at: usize, scheme: usize) -> Option<f64> {
        self.measured[at][scheme].map(|m| m.nmse.mean)
    }

    fn picture(&self, entries: &[Entry]) -> Result<Picture> {
        let largest = self.workers.last().copied().unwrap_or(1);
        let mut series = Vec::new();
        // The first entries are ours: draw them last, on top.
        for (i, entry) in entries.iter().enumerate().skip(1).rev() {
            let point = |(at, n): (usize, &u32)| Some((f64::from(*n), self.nmse(at, i)?));
            let points = self.workers.iter().enumerate().filter_map(point).collect();
            let (mark, dashed) = (Some(entry.mark), !entry.scheme.properties().unbiased);
            series.push(Series { mark, dashed, ..Series::new(entry.label, entry.color, points) });
        }
        let values = series.iter().flat_map(|s| &s.points).map(|(_, nmse)| *nmse);
        let chart = Chart {
            title: self.title.to_owned(),
            subtitle: self.subtitle.clone(),
            x: Axis {
                label: "workers n (log scale)".to_owned(),
                range: (0.9, f64::from(largest) * 1.1),
                scale: Scale::Log,
                ticks: self.workers.iter().copied().map(f64::from).collect(),
            },
            y: Axis::log("NMSE (log scale)", values),
            series,
            notes: Vec::new(),
            names: 226,
        };
        let name = format!("{NAME}-{}", self.key.replace('_', "-"));
        Ok(Picture { svg: chart.svg(&name, (940, 600))?, name })
    }

    fn numbers(&self, entries: &[Entry]) -> Value {
        let scheme = |(i, entry): (usize, &Entry)| {
            let point = |(at, n): (usize, &u32)| json!({ "workers": n, "measured": self.measured[at][i] });
            json!({
                "label": entry.label,
                "source": entry.scheme.source(),
                "unbiased": entry.scheme.properties().unbiased,
                "points": self.workers.iter().enumerate().map(point).collect::<Vec<_>>(),
            })
        };
        json!({
            "trials": self.trials,
            "schemes": entries.iter().enumerate().map(scheme).collect::<Vec<_>>(),
        })
    }
}

/// Makes the figure.
pub fn figure(plan: &FigurePlan) -> Result<Figure> {
    let panels = panels(plan)?;
    let entries = catalogue::entries(1, 1.0)?;
    let mut numbers = json!({
        "figure": NAME,
        "distribution": "lognormal",
        "dimension": plan.dimension / 4,
        "saved_steps": plan.saved.as_ref().map(|saved| saved.steps()),
        "seed": plan.seed,
    });
    for panel in &panels {
        numbers[panel.key] = panel.numbers(&entries);
    }
    Ok(Figure {
        name: NAME.to_owned(),
        title: "Error by number of workers".to_owned(),
        text: text(&panels, &entries),
        pictures: panels.iter().map(|panel| panel.picture(&entries)).collect::<Result<_>>()?,
        table: table(&panels, &entries),
        numbers,
    })
}

fn table(panels: &[Panel], entries: &[Entry]) -> Table {
    let mut header = vec!["scheme".to_owned()];
    for panel in panels {
        let ends = [panel.workers.first(), panel.workers.last()];
        header.extend(ends.iter().flatten().map(|n| format!("{}, n = {n}", panel.key.replace('_', " "))));
    }
    let row = |(i, entry): (usize, &Entry)| {
        let mut cells = vec![entry.label.to_owned()];
        for panel in panels {
            for at in [0, panel.workers.len() - 1] {
                cells.push(panel.nmse(at, i).map_or_else(|| "–".to_owned(), short));
            }
        }
        cells
    };
    Table { header, rows: entries.iter().enumerate().skip(1).map(row).collect() }
}

fn text(panels: &[Panel], entries: &[Entry]) -> Vec<String> {
    let mut text = vec![
        "Lines of unbiased schemes are solid, those of biased ones dashed. With copies, an error that comes from \
         independent coins falls as 1/n; what a scheme drops on purpose stays, because every worker drops the same. \
         THC in between has both: rounding falls, truncation (p = 1/32) stays, so for many workers a table that truncates \
         less is better. “Table chosen for n” takes the best granularity and fraction for each n, with 8-bit sums up to \
         17 workers and 16-bit sums beyond, which is where its line drops."
            .to_owned(),
        "With a vector of its own for each worker the error is relative to the norm of their mean, which gets smaller \
         than each of them. Servers that compress again add an error that no number of workers averages out: QSGD's \
         second quantization, or what the second TopK drops. DGC lies on TopK: in one round they are the same."
            .to_owned(),
    ];
    // By how much an error falls from the first to the last number of workers.
    let falls = |panel: &Panel, label: &str| {
        let i = entries.iter().position(|entry| entry.label == label)?;
        Some(panel.nmse(0, i)? / panel.nmse(panel.workers.len() - 1, i)?)
    };
    if let [copies, own, ..] = panels
        && let (Some(thc), Some(chosen), Some(top), Some(top_own)) = (
            falls(copies, catalogue::THC),
            falls(copies, catalogue::CHOSEN),
            falls(copies, "TopK 10 %"),
            falls(own, "TopK 10 %"),
        )
    {
        text.push(format!(
            "From {} to {} workers with copies, THC's error falls {thc:.1} times with the fixed table and {chosen:.0} \
             times with chosen ones; TopK's stays ({top:.3} times), and with different vectors it grows {:.1} times. \
             Section 8.4 of the paper finds the same order in training accuracy: THC gains with the number of \
             workers, and TopK loses.",
            copies.workers[0],
            copies.workers[copies.workers.len() - 1],
            1.0 / top_own
        ));
    }
    text
}
