//! One page, and one document in Markdown, of what the registry says and what was measured.

use std::fmt::Write as _;

use serde_json::json;

use super::entry::{Entry, Paper, Part, Status};
use super::gradients::SCRIPT;
use super::runner::{Found, Measured};
use super::schemes::Named;
use super::sheet::{Line, Sheet};
use super::training::{Cut, Outcome};
use crate::charts::{Axis, DotPlot, Figure, Kind, Mark, Picture, RGBColor, Row, Table};
use crate::error::Result;
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

/// The exact means of as many workers on the same course, which others are compared with.
fn baseline<'a>(found: &Found, all: &'a [Found]) -> &'a Found {
    let exact = |other: &&Found| {
        let (one, two) = (&other.run, &found.run);
        one.scheme == Named::Exact
            && matches!(one.cut, Cut::Whole | Cut::Packets)
            && one.workers == two.workers
            && one.course.optimizer == two.course.optimizer
            && (one.course.warm, one.course.length) == (two.course.warm, two.course.length)
    };
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
        axis: Axis::linear("loss", values),
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
                let (name, rest) = split_label(&each.run.label());
                let bits = format!("{} workers, {up:.1} bits up, {down:.1} down", each.run.workers);
                Row {
                    name,
                    detail: if rest.is_empty() { bits } else { rest },
                    values: vec![Some(loss.mean), Some(loss.min), Some(loss.max)],
                }
            })
            .collect(),
    };
    Ok(Picture { name: name.to_owned(), svg: plot.svg(name, 900)? })
}

/// A cell of a sheet over all seeds.
fn over_seeds(all: &[Vec<Line>], row: usize, column: usize) -> Option<Summary> {
    let values: Vec<f64> = all
        .iter()
        .filter_map(|lines| *lines.get(row)?.values.get(column)?)
        .filter(|v| v.is_finite())
        .collect();
    (!values.is_empty()).then(|| Summary::summarize(&values))
}

fn sheet_table(sheet: &Sheet, all: &[Vec<Line>]) -> Table {
    let titles = std::iter::once("").chain(sheet.columns.iter().copied());
    let rows = all[0].iter().enumerate().map(|(row, line)| {
        let cells = (0..sheet.columns.len()).map(|column| {
            over_seeds(all, row, column).map_or(String::new(), |found| cell(&found, sheet.digits))
        });
        std::iter::once(line.label.clone()).chain(cells).collect()
    });
    Table { header: titles.map(str::to_owned).collect(), rows: rows.collect() }
}

const MARKS: [(Mark, RGBColor); 7] = [
    (Mark::Circle, RGBColor(200, 30, 30)),
    (Mark::Triangle, RGBColor(20, 90, 180)),
    (Mark::Square, RGBColor(20, 120, 50)),
    (Mark::Diamond, RGBColor(200, 130, 0)),
    (Mark::Triangle, RGBColor(120, 60, 150)),
    (Mark::Square, RGBColor(0, 140, 140)),
    (Mark::Diamond, RGBColor(110, 80, 40)),
];

/// What is published is hollow.
fn sheet_picture(sheet: &Sheet, title: &str, all: &[Vec<Line>]) -> Result<Option<Picture>> {
    if sheet.drawn.is_empty() {
        return Ok(None);
    }
    let mean = |row: usize, column: usize| over_seeds(all, row, column).map(|found| found.mean);
    let rows = all[0].len();
    let values = (0..rows).flat_map(|row| sheet.drawn.iter().filter_map(move |column| mean(row, *column)));
    let kinds = sheet.drawn.iter().zip(MARKS).map(|(column, (mark, color))| {
        let name = sheet.columns[*column].to_owned();
        let published = name.contains("published") || name.contains("theorem");
        Kind { name, mark: if published { Mark::Hollow } else { mark }, color }
    });
    let plot = DotPlot {
        title: title.to_owned(),
        subtitle: sheet.axis.to_owned(),
        axis: Axis::linear(sheet.axis, values),
        kinds: kinds.collect(),
        rows: (0..rows)
            .map(|row| {
                // What is behind a comma goes below.
                let (name, detail) = all[0][row].label.split_once(", ").unwrap_or((&all[0][row].label, ""));
                let values = sheet.drawn.iter().map(|column| mean(row, *column)).collect();
                Row { name: name.to_owned(), detail: detail.to_owned(), values }
            })
            .collect(),
    };
    Ok(Some(Picture { name: sheet.name.to_owned(), svg: plot.svg(sheet.name, 900)? }))
}

/// Characters of a name beside a dot plot.
const LETTERS: usize = 30;

/// A label in two pieces that fit beside a dot plot, the second below the first; without the number of workers.
fn split_label(label: &str) -> (String, String) {
    let text = label
        .replace("without synchronization", "not synchronized")
        .replace("with synchronization", "synchronized")
        .replace("uniform THC", "UTHC")
        .replace("THC, g = 20, p = 1/512", "THC")
        .replace("THC, g = 36, p = 1/32", "THC")
        .replace("THC, g = 30, p = 1/32", "THC")
        .replace("exact below", "exact <")
        .replace("of steps refined", "refined");
    let (mut name, mut rest) = (String::new(), String::new());
    for part in text.split(", ").filter(|part| !part.ends_with(" workers")) {
        let fits = rest.is_empty() && name.chars().count() + part.chars().count() <= LETTERS;
        let piece = if fits || name.is_empty() { &mut name } else { &mut rest };
        if !piece.is_empty() {
            piece.push_str(", ");
        }
        piece.push_str(part);
    }
    (name, rest)
}

impl Report<'_> {
    /// The page's figures, those of each entry: the first with its text, one more for each further part. What two entries share is
    /// shown at the first of them.
    pub fn figures(&self) -> Result<Vec<Vec<Figure>>> {
        let mut all = Vec::new();
        let mut shown = Vec::new();
        for (paper, entries) in &self.papers {
            for entry in entries {
                let mut figures = vec![Figure {
                    name: anchor(paper, entry),
                    title: format!("{}, {}: {}", paper.name, entry.name(), entry.title),
                    text: self.paragraphs(entry),
                    pictures: Vec::new(),
                    table: Table::default(),
                    numbers: json!({}),
                }];
                for part in entry.parts() {
                    if shown.contains(&part.name()) {
                        continue;
                    }
                    shown.push(part.name());
                    let (pictures, table, numbers) = self.part(entry, part)?;
                    match figures.last_mut() {
                        Some(first) if first.table.rows.is_empty() => {
                            (first.pictures, first.table, first.numbers) = (pictures, table, numbers);
                        }
                        _ => figures.push(Figure {
                            name: part.name().to_owned(),
                            title: format!("{}, {}: {}", paper.name, entry.name(), part.title()),
                            text: Vec::new(),
                            pictures,
                            table,
                            numbers,
                        }),
                    }
                }
                all.push(figures);
            }
        }
        Ok(all)
    }

    /// Pictures, table and numbers of a part.
    fn part(&self, entry: &Entry, part: Part) -> Result<(Vec<Picture>, Table, serde_json::Value)> {
        match part {
            Part::Study(study) => {
                let found = &self.measured.studies[study.name];
                let runs =
                    found.iter().map(|each| json!({ "run": each.run.label(), "outcomes": each.outcomes }));
                let numbers = json!({ "study": study.name, "runs": runs.collect::<Vec<_>>() });
                Ok((vec![picture(study.name, entry.title, found)?], table(found), numbers))
            }
            Part::Sheet(sheet) => {
                let Some(all) = self.measured.sheets.get(sheet.name) else {
                    return Ok((Vec::new(), Table::default(), json!({})));
                };
                let pictures = sheet_picture(&sheet, entry.title, all)?.into_iter().collect();
                let numbers = json!({ "sheet": sheet.name, "columns": sheet.columns, "seeds": all });
                Ok((pictures, sheet_table(&sheet, all), numbers))
            }
        }
    }

    fn paragraphs(&self, entry: &Entry) -> Vec<String> {
        let mut text = vec![match entry.status {
            Status::Drawing => "It explains, and measures nothing.".to_owned(),
            Status::Scaled { how, .. } => {
                format!("Scaled down: {how}. {} seeds; ± is the standard deviation over them.", self.seeds)
            }
            Status::Computed { how, sheet } => {
                let state = if sheet.needs_gradients() { "Scaled down" } else { "Computed" };
                let spread = format!(" {} seeds; ± is the standard deviation over them.", self.seeds);
                format!("{state}: {how}.{}", if sheet.random { &spread } else { "" })
            }
            Status::Elsewhere { how, .. } => format!("Scaled down: {how}."),
        }];
        let lacks = |part: &Part| {
            matches!(part, Part::Sheet(sheet) if sheet.needs_gradients())
                && !self.measured.sheets.contains_key(part.name())
        };
        if entry.parts().iter().any(lacks) {
            text.push(format!(
                "The table of gradients is not in this run: {SCRIPT} makes them, thc papers --gradients DIR measures them."
            ));
        }
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
            ("computed", "computed"),
            ("explains, measures nothing", "that explain and measure nothing"),
        ]
        .map(|(state, words)| format!("{} {words}", count(state)));
        format!("{} entries: {}", all.len(), states.join(", "))
    }

    /// The document, whose pictures lie in the folder `pictures` beside it.
    pub fn markdown(&self, figures: &[Vec<Figure>], pictures: &str) -> String {
        let mut text = format!(
            "# The papers' evaluations\n\n<!-- Made by {}; edit studies/src/papers instead. -->\n\n\
             `thc papers` lists every table and figure of the five papers that this project implements, with the paper's result, \
             the result of this code, and the reasons for differences. {}.\n\n\
             No entry is rerun in full, because that would need GPUs, data sets to download and the networks of the papers. \
             “Scaled down” says what is smaller than in the paper. “Computed” is arithmetic or a simulation with the layers of \
             the real models. `thc papers` itself measures trainings by many workers in one process, which exchange real messages of each \
             scheme. Its trainings have {} seeds, ± is the standard deviation over them, and accuracy is that of predicting the next \
             character of a text. {SCRIPT} computes gradients of real architectures. A scheme has the same parameters in all figures, \
             except those that a figure varies or chooses for equal bits. THC's g and p are those that the paper gives for each of its \
             sections.\n\n```sh\n{}\n```\n",
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
                let name = match entry.status {
                    // It has no section.
                    Status::Drawing => entry.name(),
                    _ => format!("[{}](#{})", entry.name(), anchor(paper, entry)),
                };
                let _ = writeln!(text, "| {name} | {} | {} |", entry.title, entry.state());
            }
            for entry in entries {
                let Some(figures) = figures.next() else { break };
                if matches!(entry.status, Status::Drawing) {
                    continue;
                }
                let name = anchor(paper, entry);
                let _ = writeln!(
                    text,
                    "\n<a id=\"{name}\"></a>\n\n### {} {}: {}",
                    paper.name,
                    entry.name(),
                    entry.title
                );
                for figure in figures {
                    write_figure(&mut text, figure, entry.title, pictures);
                }
            }
        }
        text
    }
}

/// Text, pictures and table of a figure in Markdown.
fn write_figure(text: &mut String, figure: &Figure, title: &str, pictures: &str) {
    for paragraph in &figure.text {
        let _ = writeln!(text, "\n{paragraph}");
    }
    for picture in &figure.pictures {
        let _ = writeln!(text, "\n![{title}]({pictures}/{}.svg)", picture.name);
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

/// Its place on the page: "thc-figure-2a".
fn anchor(paper: &Paper, entry: &Entry) -> String {
    format!("{}-{}", paper.name, entry.name().to_lowercase().replace(' ', "-"))
}
