//! The command line of `thc papers`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::costs;
use super::entry::{Kind, Paper, Part};
use super::gradients::Gradients;
use super::registry::PAPERS;
use super::report::Report;
use super::runner::{Manner, measure};
use super::training::Scale;
use crate::charts::{Figure, html, write};
use crate::error::{Error, Result};

/// `thc papers`
#[derive(Args)]
#[command(
    after_help = "The folder keeps what was measured, in a file for each training; the same command goes on where it was \
                        interrupted, and\na seed gives the same numbers on any number of cores. index.html and papers.md there have all results.\n\n\
                        Examples:\n  \
                        thc papers                              all five papers, 3 seeds, into ./papers\n  \
                        thc papers --paper thc --figure 10      one figure\n  \
                        thc papers --list                       all tables and figures, and their outcomes\n  \
                        thc papers --jobs 1                     on one core, beside other work\n  \
                        thc papers --quick                      a few steps each: only to see that it works"
)]
pub struct PapersArgs {
    /// One paper: thc, lgreco, slimgc, aqgb, double-quantization; or together: rows that are in none of them
    #[arg(long)]
    paper: Option<String>,
    /// One figure of it
    #[arg(long, value_name = "N", requires = "paper")]
    figure: Option<u8>,
    /// One table of it
    #[arg(long, value_name = "N", requires = "paper", conflicts_with = "figure")]
    table: Option<u8>,
    /// One claim of its text
    #[arg(long, value_name = "N", requires = "paper", conflicts_with_all = ["figure", "table"])]
    claim: Option<u8>,
    /// Print the list, and measure nothing
    #[arg(long)]
    list: bool,
    /// Time compression on a core of this machine, print it beside the costs with which figures are computed, and
    /// measure nothing else
    #[arg(long, conflicts_with = "list")]
    costs: bool,
    /// Folder for the files, made if need be
    #[arg(short, long, value_name = "DIR", default_value = "papers")]
    out: PathBuf,
    /// Trainings of each kind, with seeds from 1 on
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Optimizer steps of a training
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Rows of a worker's batch
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Width of the model's hidden layers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=4096))]
    hidden: u32,
    /// The text to learn
    #[arg(long, value_name = "FILE", default_value = "/usr/share/common-licenses/GPL-3")]
    text: PathBuf,
    /// Folder with gradients of real architectures to measure as well; python/bench/gradients.py makes one
    #[arg(long, value_name = "DIR")]
    gradients: Option<PathBuf>,
    /// Trainings at the same time, which change no number [default: one on each core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Few steps of a small model, one seed
    #[arg(long)]
    quick: bool,
}

impl PapersArgs {
    fn scale(&self) -> Scale {
        let text = self.text.clone();
        if self.quick {
            return Scale { text, steps: 3, batch: 2, hidden: 8, held_out: 64 };
        }
        Scale {
            text,
            steps: self.steps,
            batch: self.batch as usize,
            hidden: self.hidden as usize,
            held_out: 2048,
        }
    }

    /// The command that makes the same again.
    fn command(&self) -> String {
        let mut command = "thc papers".to_owned();
        if self.quick {
            command.push_str(" --quick");
        }
        for (flag, value) in [
            ("paper", self.paper.clone()),
            ("figure", self.figure.map(|n| n.to_string())),
            ("table", self.table.map(|n| n.to_string())),
            ("claim", self.claim.map(|n| n.to_string())),
        ] {
            if let Some(value) = value {
                command.push_str(&format!(" --{flag} {value}"));
            }
        }
        for (flag, value, usual) in [
            ("seeds", self.seeds, 3),
            ("steps", self.steps.into(), 200),
            ("batch", self.batch.into(), 8),
            ("hidden", self.hidden.into(), 64),
        ] {
            if value != usual && !self.quick {
                command.push_str(&format!(" --{flag} {value}"));
            }
        }
        if self.gradients.is_some() {
            command.push_str(" --gradients DIR");
        }
        command
    }

    /// Measures what was asked for and writes page and document.
    pub fn run(self) -> Result<()> {
        let mut out = std::io::stdout();
        if self.costs {
            return write!(out, "{}", costs::table()?.to_text()).map_err(Error::Output);
        }
        let wanted = |kind, number| match (self.figure, self.table, self.claim) {
            (Some(figure), ..) => kind == Kind::Figure && number == figure,
            (_, Some(table), _) => kind == Kind::Table && number == table,
            (.., Some(claim)) => kind == Kind::Claim && number == claim,
            _ => true,
        };
        let mut papers = Vec::new();
        for (paper, entries) in PAPERS {
            if self.paper.as_deref().is_none_or(|name| name == paper.name) {
                let entries: Vec<_> =
                    entries.iter().filter(|entry| wanted(entry.kind, entry.number)).collect();
                papers.push((paper, entries));
            }
        }
        if papers.iter().all(|(_, entries)| entries.is_empty()) {
            let names = PAPERS.map(|(paper, _)| {
                let Paper { name, figures, tables, claims, .. } = paper;
                format!("{name} ({figures} figures, {tables} tables, {claims} claims)")
            });
            return Err(Error::Usage(format!(
                "there is no such paper, figure, table or claim: {}",
                names.join(", ")
            )));
        }
        if self.list {
            return list(&papers).map_err(Error::Output);
        }
        let mut parts: Vec<Part> = Vec::new();
        for part in papers.iter().flat_map(|(_, entries)| entries.iter().flat_map(|entry| entry.parts())) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        let seeds = if self.quick { 1 } else { self.seeds };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.map_or(cores, usize::from);
        let gradients = self.gradients.as_deref().map(Gradients::open).transpose()?;
        let manner = Manner { seeds, quick: self.quick, gradients: gradients.as_ref(), jobs, quiet: false };
        let measured = measure(&parts, &self.scale(), &manner, &self.out.join("trainings"))?;
        let report = Report { papers, measured, command: self.command(), seeds };
        let figures = report.figures()?;
        let all: Vec<Figure> = figures.iter().flatten().cloned().collect();
        for picture in all.iter().flat_map(|figure| &figure.pictures) {
            write(self.out.join(format!("{}.svg", picture.name)), &picture.svg)?;
        }
        let page =
            html("The papers' evaluations", "Every table and figure of five papers.", &all, &self.command());
        let files = [
            write(self.out.join("papers.md"), &report.markdown(&figures, "papers"))?,
            write(self.out.join("index.html"), &page)?,
        ];
        for figure in all.iter().filter(|figure| !figure.table.rows.is_empty()) {
            writeln!(out, "{}\n\n{}", figure.title, figure.table.to_text()).map_err(Error::Output)?;
        }
        files.iter().try_for_each(|file| writeln!(out, "{}", file.display())).map_err(Error::Output)
    }
}

fn list(papers: &[(Paper, Vec<&super::entry::Entry>)]) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for (paper, entries) in papers {
        writeln!(out, "{}: {}", paper.name, paper.title)?;
        for entry in entries {
            writeln!(out, "  {:<10} {:<27} {}", entry.name(), entry.state(), entry.title)?;
        }
    }
    Ok(())
}
