//! Figs. 2, 3 and 5 of the paper as SVG documents.

use super::condition::{Step, Study};
use super::report::{Comparison, Outcome, Point};
use thc_charts::{Axis, COLOURS, Chart, DotPlot, Kind, Mark, Row, Series, tile};
use thc_demo::error::Result;

/// Part of a method's row: its name and value.
type Part<'a> = (&'a str, fn(&Outcome) -> f64);

/// Fig. 3: the loss against epochs and against bits; bits to the target, and where the time to it went.
pub fn draw_comparison(comparison: &Comparison) -> Result<String> {
    let target = comparison.target;
    let bits = dots(
        comparison,
        format!("Gbit to a loss of {target}"),
        &[("all workers", |o| o.bits_to_target.unwrap_or(0.0) / 1e9)],
    );
    let time = dots(
        comparison,
        format!("seconds of a quick worker to a loss of {target}"),
        &[
            ("all", |o| o.seconds_to_target.unwrap_or(0.0)),
            ("computing", |o| o.time.computing),
            ("coding", |o| o.time.coding),
            ("waiting for the server", |o| o.time.waiting),
            ("epochs' gradients", |o| o.time.epochs),
        ],
    );
    let size = (700, bits.height().max(400));
    let by_epochs = losses(comparison, "epochs", |point| point.epoch as f64);
    let by_bits =
        losses(comparison, "Gbit pulled and pushed by all workers", |point| point.bits as f64 / 1e9);
    let charts = [
        by_epochs.svg("epochs", size)?,
        by_bits.svg("bits", size)?,
        bits.svg("target", size.0)?,
        time.svg("time", size.0)?,
    ];
    Ok(tile(&charts, 2, size))
}

fn losses(comparison: &Comparison, label: &str, x: fn(&Point) -> f64) -> Chart {
    let line = |(outcome, color): (&Outcome, _)| {
        let points = outcome.points.iter().map(|point| (x(point), point.loss)).collect();
        Series::new(format!("{}, η {}", outcome.name, outcome.rate), color, points)
    };
    let series: Vec<Series> = comparison.outcomes.iter().zip(COLOURS.into_iter().cycle()).map(line).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    Chart {
        title: format!("Loss by {label}"),
        subtitle: String::new(),
        x: Axis::linear(label, points().map(|point| point.0)),
        y: Axis::log("loss (log scale)", points().map(|point| point.1)),
        series,
        notes: Vec::new(),
        names: 190,
    }
}

/// A row for each method that reached the target: to the end of the others would be no comparison.
fn dots(comparison: &Comparison, title: String, parts: &[Part<'_>]) -> DotPlot {
    let reached = || comparison.outcomes.iter().filter(|outcome| outcome.bits_to_target.is_some());
    let values = reached().flat_map(|outcome| parts.iter().map(move |(_, value)| value(outcome)));
    let marks = [Mark::Circle, Mark::Triangle, Mark::Square, Mark::Diamond, Mark::Hollow];
    let kinds = parts.iter().zip(marks).zip(COLOURS);
    DotPlot {
        title,
        subtitle: String::new(),
        axis: Axis::log("log scale", values),
        kinds: kinds
            .map(|(((name, _), mark), color)| Kind { name: (*name).to_owned(), mark, color })
            .collect(),
        rows: comparison
            .outcomes
            .iter()
            .map(|outcome| Row {
                name: outcome.name.to_owned(),
                detail: format!("η {}", outcome.rate),
                values: parts
                    .iter()
                    .map(|(_, value)| outcome.bits_to_target.map(|_| value(outcome)))
                    .collect(),
            })
            .collect(),
    }
}

/// Figs. 2 and 5, and the right half of Table 1.
pub fn draw_study(study: &Study) -> Result<String> {
    let epoch = |step: &Step| step.epoch as f64 + step.step as f64 / study.pushes as f64;
    let needed = |which: usize| study.needed.iter().map(|s| (epoch(s), s.mu[which])).collect();
    let accuracy = study.accuracy.iter().map(|s| (epoch(s), s.error)).collect();
    let rows = || study.table.iter();
    let ours = rows().filter_map(|row| Some((f64::from(row.mu), row.bits? as f64))).collect();
    let theirs = rows().map(|row| (f64::from(row.mu), row.published)).collect();
    let charts = [
        lines("epochs", "the least μ for condition (2)", [("8 bits", needed(0)), ("4 bits", needed(1))]),
        lines("epochs", "E‖Q(x) − x‖², μ = 0.6", [("", accuracy)]),
        lines("μ", "bits to a loss of 0.5", [("ours", ours), ("the paper's, MNIST", theirs)]),
    ];
    let size = (560, 400);
    let charts: Vec<String> = charts.iter().map(|chart| chart.svg("mu", size)).collect::<Result<_>>()?;
    Ok(tile(&charts, 3, size))
}

/// Curves over a logarithmic axis; what is not above zero has no place on it.
fn lines<const N: usize>(across: &str, up: &str, curves: [(&str, Vec<(f64, f64)>); N]) -> Chart {
    let curves = curves.into_iter().zip(COLOURS);
    let series: Vec<Series> =
        curves.map(|((name, points), color)| Series::new(name, color, points)).collect();
    let points = || series.iter().flat_map(|series| &series.points).filter(|point| point.1 > 0.0);
    let axis = if across == "μ" {
        Axis::log("μ", points().map(|p| p.0))
    } else {
        Axis::linear(across, points().map(|p| p.0))
    };
    Chart {
        title: up.to_owned(),
        subtitle: String::new(),
        x: axis,
        y: Axis::log("log scale", points().map(|point| point.1)),
        series,
        notes: Vec::new(),
        names: 150,
    }
}
