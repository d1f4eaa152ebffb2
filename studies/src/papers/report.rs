//! One page, and one document in Markdown, of what the registry says and what was measured.

use std::fmt::Write as _;

use plotters::style::RGBColor;
use serde_json::json;

use super::entry::{Entry, Paper, Status};
use super::runner::{Found, Measured};
use super::schemes::Named;
use super::training::Outcome;
use crate::error::Result;
use crate::figures::chart::{Axis, Mark, Scale};
use crate::figures::dots::{DotPlot, Kind, Row};
use crate::figures::figure::{Figure, Picture, Table};
use crate::figures::measure::Summary;

/// What is chosen of the registry, with what was measured for it.
pub struct Report<'a> {
    pub papers: Vec<(Paper, Vec<&'a Entry>)>,
    pub measured: Measured,
    pub command: String,
    pub seeds: u64,
}

/// How a column of a table is made of an outcome.
type Column = (&'static str, fn(&Outcome) -> f64);

const COLUMNS: [Column; 5] = [
    ("held-out loss", |o| o.loss),
    ("held-out accuracy, %", |o| 100.0 * o.accuracy),
    ("accuracy in training, %", |o| 100.0 * o.training_accuracy),
    ("bits up", |o| o.bits_up),
    ("bits down", |o| o.bits_down),
];

/// Mean and spread of a column.
fn summary(found: &Found, column: fn(&Outcome) -> f64) -> Summary {
    Summary::summarize(&found.outcomes.iter().map(column).collect::<Vec<f64>>())
}

/// "1.23 ± 0.04", the spread being the standard deviation over seeds.
fn cell(summary: &Summary, digits: usize) -> String {
    let deviation = summary.standard_error.map_or(0.0, |error| error * (summary.trials as f64).sqrt());
    if deviation < 0.5 * 0.1_f64.powi(digits as i32) {
        return format!("{:.digits$}", summary.mean);
    }
    format!("{:.digits$} ± {deviation:.digits$}", summary.mean)
}

/// The exact means of as many workers, which others are compared with.
fn baseline<'a>(found: &Found, all: &'a [Found]) -> &'a Found {
    let exact = |other: &&Found| other.run.scheme == Named::Exact && other.run.workers == found.run.workers;
    all.iter().find(exact).unwrap_or(&all[0])
}

fn table(found: &[Found]) -> Table {
    let mut header = vec!["training".to_owned()];
    header.extend(COLUMNS.iter().map(|(title, _)| (*title).to_owned()));
    header.insert(3, "beside exact means, %".to_owned());
    let rows = found.iter().map(|each| {
        let mut row = vec![each.run.label()];
        row.extend(
            COLUMNS
                .iter()
                .enumerate()
                .map(|(i, (_, column))| cell(&summary(each, *column), if i == 0 { 3 } else { 1 })),
        );
        let of = |found: &Found| summary(found, COLUMNS[1].1).mean;
        let difference = of(each) - of(baseline(each, found));
        row.insert(3, format!("{difference:+.1}"));
        row
    });
    let rows = rows.collect();
    Table { header, rows }
}

fn picture(name: &str, title: &str, found: &[Found]) -> Result<Picture> {
    let losses = |found: &Found| summary(found, COLUMNS[0].1);
    let values = found.iter().flat_map(|each| [losses(each).min, losses(each).max]);
    let kind = |name: &str, mark, color| Kind { name: name.to_owned(), mark, color };
    let plot = DotPlot {
        title: title.to_owned(),
        subtitle: "held-out loss in nats per character; less is better".to_owned(),
        axis: axis("loss", values),
        kinds: vec![
            kind("mean of the seeds", Mark::Circle, RGBColor(200, 30, 30)),
            kind("the least", Mark::Triangle, RGBColor(150, 150, 150)),
            kind("the largest", Mark::Square, RGBColor(150, 150, 150)),
        ],
        rows: found
            .iter()
            .map(|each| {
                let (loss, up) = (losses(each), summary(each, COLUMNS[3].1).mean);
                let down = summary(each, COLUMNS[4].1).mean;
                Row {
                    name: shortened(&each.run.label()),
                    detail: format!("{} workers, {up:.1} bits up, {down:.1} down", each.run.workers),
                    values: vec![Some(loss.mean), Some(loss.min), Some(loss.max)],
                }
            })
            .collect(),
    };
    Ok(Picture { name: name.to_owned(), svg: plot.svg(name, 900)? })
}

/// An even axis that holds `values`, with a tick at each tenth or twentieth.
fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let step = if high - low > 1.0 {
        0.2
    } else if high - low > 0.3 {
        0.1
    } else {
        0.05
    };
    let [first, last] = [(low / step).floor(), (high / step).ceil()];
    let ticks = (first as i64..=last as i64).map(|tick| tick as f64 * step).collect();
    Axis { label: label.to_owned(), range: (first * step, last * step), scale: Scale::Linear, ticks }
}

/// A label that fits beside a dot plot: without the number of workers, which stands below it.
fn shortened(label: &str) -> String {
    let parts: Vec<&str> = label.split(", ").filter(|part| !part.ends_with(" workers")).collect();
    let text = parts
        .join(", ")
        .replace("without synchronization", "not synchronized")
        .replace("with synchronization", "synchronized");
    text.replace("uniform THC", "UTHC")
        .replace("THC, g = 20, p = 1/512", "THC")
        .replace("THC, g = 36, p = 1/32", "THC")
}

impl Report<'_> {
    /// The page's figures: all entries, with tables and pictures where something was measured. A study that two entries share is shown at the
    /// first of them.
    pub fn figures(&self) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        let mut shown = Vec::new();
        for (paper, entries) in &self.papers {
            for entry in entries {
                let title = format!("{}, {}: {}", paper.name, entry.name(), entry.title);
                let mut figure = Figure {
                    name: anchor(paper, entry),
                    title,
                    text: self.paragraphs(entry),
                    pictures: Vec::new(),
                    table: Table::default(),
                    numbers: json!({}),
                };
                if let Some(study) = entry.study().filter(|study| !shown.contains(study)) {
                    let found = &self.measured[study.name];
                    figure.pictures.push(picture(study.name, entry.title, found)?);
                    figure.table = table(found);
                    let numbers = found
                        .iter()
                        .map(|each| json!({ "run": each.run.label(), "outcomes": each.outcomes }));
                    figure.numbers = json!({ "study": study.name, "runs": numbers.collect::<Vec<_>>() });
                    shown.push(study);
                }
                figures.push(figure);
            }
        }
        Ok(figures)
    }

    fn paragraphs(&self, entry: &Entry) -> Vec<String> {
        let mut text = vec![match entry.status {
            Status::Drawing => "It explains, and measures nothing.".to_owned(),
            Status::NotRun(why) => format!("Not run: {why}."),
            Status::Scaled { how, .. } => {
                format!("Scaled down: {how}. {} seeds; ± is the standard deviation over them.", self.seeds)
            }
            Status::Elsewhere { how, .. } => format!("Scaled down: {how}."),
        }];
        if !entry.published.is_empty() {
            text.push(format!("Published: {}.", entry.published));
        }
        if let Status::Elsewhere { command, ours, page, .. } = entry.status {
            text.push(format!("Ours: {ours} ({command}; docs/{page})."));
        }
        if !entry.difference.is_empty() {
            text.push(format!("Differences: {}.", entry.difference));
        }
        text
    }

    /// How many entries are in each state.
    fn counts(&self) -> String {
        let all: Vec<&&Entry> = self.papers.iter().flat_map(|(_, entries)| entries).collect();
        let count = |state: &str| all.iter().filter(|entry| entry.state() == state).count();
        let states = [
            ("scaled down", "scaled down"),
            ("not run", "not run"),
            ("explains, measures nothing", "that explain and measure nothing"),
        ]
        .map(|(state, words)| format!("{} {words}", count(state)));
        format!("{} tables and figures: {}", all.len(), states.join(", "))
    }

    /// The document, whose pictures lie in the folder `pictures` beside it.
    pub fn markdown(&self, figures: &[Figure], pictures: &str) -> String {
        let mut text = format!(
            "# The papers' evaluations\n\n<!-- Made by {}; edit studies/src/papers instead. -->\n\n\
             `thc papers` lists every table and figure of the five papers that this project implements, with what the paper found, what this code \
             gives, and why the two differ. {}.\n\nNone is rerun in full: no GPU, no data set that needs a download and no network of the papers is at hand. \
             “Scaled down” says what is smaller. What `thc papers` measures itself is training by many workers in one process, with real messages of \
             each scheme: {} seeds, ± is the standard deviation over them, and accuracy is that of guessing the next character of a text. \
             A scheme has the same parameters in all figures; THC's g and p are those that \
             the paper gives for each of its sections.\n\n```sh\n{}\n```\n",
            self.command,
            self.counts(),
            self.seeds,
            self.command
        );
        let mut figures = figures.iter();
        for (paper, entries) in &self.papers {
            let _ = writeln!(
                text,
                "\n## {}\n\n{}.\n\n| | what it shows | here |\n|-|-|-|",
                paper.name, paper.title
            );
            for entry in entries {
                let _ = writeln!(
                    text,
                    "| [{}](#{}) | {} | {} |",
                    entry.name(),
                    anchor(paper, entry),
                    entry.title,
                    entry.state()
                );
            }
            for entry in entries {
                let Some(figure) = figures.next() else { break };
                if matches!(entry.status, Status::Drawing) {
                    continue;
                }
                let _ = writeln!(
                    text,
                    "\n<a id=\"{}\"></a>\n\n### {} {}: {}",
                    figure.name,
                    paper.name,
                    entry.name(),
                    entry.title
                );
                for paragraph in &figure.text {
                    let _ = writeln!(text, "\n{paragraph}");
                }
                for picture in &figure.pictures {
                    let _ = writeln!(text, "\n![{}]({pictures}/{}.svg)", entry.title, picture.name);
                }
                if !figure.table.rows.is_empty() {
                    let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
                    let rule = vec!["-"; figure.table.header.len()].join("|");
                    let _ = writeln!(text, "\n{}\n|{rule}|", row(&figure.table.header));
                    figure.table.rows.iter().for_each(|cells| {
                        let _ = writeln!(text, "{}", row(cells));
                    });
                }
            }
        }
        text
    }
}

/// Its place on the page: "thc-figure-2a".
fn anchor(paper: &Paper, entry: &Entry) -> String {
    format!("{}-{}", paper.name, entry.name().to_lowercase().replace(' ', "-"))
}
