//! Figs. 2, 3 and 5 of the paper as SVG files.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use super::condition::{Step, Study};
use super::report::{Comparison, Outcome, Point};
use crate::error::{Error, Result};

const COLOURS: [RGBColor; 9] = [
    RGBColor(120, 120, 120),
    RGBColor(40, 40, 40),
    RGBColor(30, 120, 200),
    RGBColor(120, 60, 180),
    RGBColor(200, 60, 20),
    RGBColor(20, 150, 60),
    RGBColor(220, 150, 0),
    RGBColor(200, 60, 140),
    RGBColor(90, 180, 190),
];

/// Part of a bar: its name and length.
type Part<'a> = (&'a str, fn(&Outcome) -> f64);
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn plot_error(path: &Path, drawn: Drawn) -> Result<()> {
    drawn.map_err(|reason| Error::Plot { path: path.to_owned(), reason: reason.to_string() })
}

/// Fig. 3: the loss against epochs and against bits; bits to the target, and where the time to it went.
pub fn of_comparison(path: &Path, comparison: &Comparison) -> Result<()> {
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, (1100, 760)).into_drawing_area();
        root.fill(&WHITE)?;
        let parts = root.split_evenly((2, 2));
        let [curves, bits, sums, time] = &parts[..] else { return Ok(()) };
        losses(curves, comparison, "epochs", |point| point.epoch as f64)?;
        losses(bits, comparison, "Gbit pulled and pushed by all workers", |point| point.bits as f64 / 1e9)?;
        let target = comparison.target;
        let to_target = format!("Gbit to a loss of {target}");
        bars(sums, comparison, &to_target, &[("", |o| o.bits_to_target.unwrap_or(0.0) / 1e9)])?;
        // To the end, where the target was not reached, would be no comparison.
        let parts: [Part<'_>; 4] = [
            ("computing", |o| target_bar(o, o.time.computing)),
            ("coding", |o| target_bar(o, o.time.coding)),
            ("waiting for the server", |o| target_bar(o, o.time.waiting)),
            ("epochs' gradients", |o| target_bar(o, o.time.epochs)),
        ];
        bars(time, comparison, &format!("seconds of a quick worker to a loss of {target}"), &parts)?;
        root.present()?;
        Ok(())
    };
    plot_error(path, draw())
}

fn target_bar(outcome: &Outcome, value: f64) -> f64 {
    if outcome.bits_to_target.is_some() { value } else { 0.0 }
}

fn losses(area: &Area<'_>, comparison: &Comparison, label: &str, x: fn(&Point) -> f64) -> Drawn {
    let points = || comparison.outcomes.iter().flat_map(|outcome| &outcome.points);
    let right = points().map(x).fold(1e-9, f64::max);
    let top = points().map(|point| point.loss).fold(0.0, f64::max);
    let bottom = points().map(|point| point.loss).fold(f64::INFINITY, f64::min);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, (bottom * 0.95).log10()..(top * 1.05).log10())?;
    // plotters' own logarithmic axis has no label within a decade.
    chart
        .configure_mesh()
        .x_desc(label)
        .y_desc("loss")
        .y_label_formatter(&|y| format!("{:.2}", 10_f64.powf(*y)))
        .light_line_style(WHITE)
        .draw()?;
    for (outcome, colour) in comparison.outcomes.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(outcome.points.iter().map(|p| (x(p), p.loss.log10())), style))?
            .label(format!("{}, η {}", outcome.name, outcome.rate))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    Ok(())
}

/// Names what has a label.
fn legend<'a, X: Ranged, Y: Ranged>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    at: SeriesLabelPosition,
) -> Drawn {
    let mut labels = chart.configure_series_labels();
    labels.position(at).background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

/// A bar for each method, of parts one after the other.
fn bars(area: &Area<'_>, comparison: &Comparison, label: &str, parts: &[Part<'_>]) -> Drawn {
    let outcomes = &comparison.outcomes;
    let length = |outcome: &Outcome| parts.iter().map(|(_, of)| of(outcome)).sum::<f64>();
    let right = outcomes.iter().map(length).fold(1e-9, f64::max);
    let count = outcomes.len();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(120)
        .build_cartesian_2d(0.0..right * 1.02, (0..count).into_segmented())?;
    chart
        .configure_mesh()
        .x_desc(label)
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(count)
        .y_label_formatter(&|segment: &SegmentValue<usize>| match segment {
            // The first on top.
            SegmentValue::CenterOf(i) | SegmentValue::Exact(i) if *i < count => {
                outcomes[count - 1 - i].name.to_owned()
            }
            _ => String::new(),
        })
        .draw()?;
    for (k, (name, of)) in parts.iter().enumerate() {
        let colour = COLOURS[(k + 2) % COLOURS.len()];
        let drawn = chart.draw_series(outcomes.iter().rev().enumerate().map(|(i, outcome)| {
            let before: f64 = parts[..k].iter().map(|(_, of)| of(outcome)).sum();
            let corners =
                [(before, SegmentValue::Exact(i)), (before + of(outcome), SegmentValue::Exact(i + 1))];
            let mut bar = Rectangle::new(corners, colour.filled());
            bar.set_margin(5, 5, 0, 0);
            bar
        }))?;
        if !name.is_empty() {
            drawn
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
    }
    if parts.len() > 1 {
        legend(&mut chart, SeriesLabelPosition::LowerRight)?;
    }
    Ok(())
}

/// Figs. 2 and 5, and the right half of Table 1.
pub fn of_study(path: &Path, study: &Study) -> Result<()> {
    let draw = || -> Drawn {
        let root = SVGBackend::new(path, (1300, 400)).into_drawing_area();
        root.fill(&WHITE)?;
        let areas = root.split_evenly((1, 3));
        let [needed, accuracy, table] = &areas[..] else { return Ok(()) };
        let at = |step: &Step| step.epoch as f64 + step.step as f64 / study.pushes as f64;
        let needed_by = |which: usize| study.needed.iter().map(|s| (at(s), s.mu[which])).collect();
        let curves = [("8 bits", needed_by(0)), ("4 bits", needed_by(1))];
        lines(needed, "epochs", "the least μ for condition (2)", &curves)?;
        let error = study.accuracy.iter().map(|s| (at(s), s.error)).collect();
        lines(accuracy, "epochs", "E‖Q(x) − x‖², μ = 0.6", &[("", error)])?;
        let rows = || study.table.iter();
        let ours = rows().filter_map(|row| Some((f64::from(row.mu).log10(), row.bits? as f64))).collect();
        let theirs = rows().map(|row| (f64::from(row.mu).log10(), row.published)).collect();
        let curves = [("ours", ours), ("the paper's, MNIST", theirs)];
        lines(table, "log₁₀ μ", "bits to a loss of 0.5", &curves)?;
        root.present()?;
        Ok(())
    };
    plot_error(path, draw())
}

/// Curves over a logarithmic axis; what is not above zero has no place on it.
fn lines(area: &Area<'_>, across: &str, up: &str, curves: &[(&str, Vec<(f64, f64)>)]) -> Drawn {
    let points = || curves.iter().flat_map(|(_, points)| points).filter(|(_, y)| *y > 0.0);
    let (left, right) =
        points().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (x, _)| (a.min(*x), b.max(*x)));
    let (bottom, top) = points().fold((f64::INFINITY, 0.0_f64), |(a, b), (_, y)| (a.min(*y), b.max(*y)));
    if points().next().is_none() {
        return Ok(());
    }
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right, (bottom * 0.7..top * 1.4).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(across)
        .y_desc(up)
        .light_line_style(WHITE)
        .y_label_formatter(&|y| format!("{y:.0e}"))
        .draw()?;
    for ((name, points), colour) in curves.iter().zip([COLOURS[4], COLOURS[2]]) {
        let style = colour.stroke_width(2);
        let points = points.iter().copied().filter(|(_, y)| *y > 0.0);
        let drawn = chart.draw_series(LineSeries::new(points, style))?;
        if !name.is_empty() {
            drawn.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
    }
    if curves.iter().any(|(name, _)| !name.is_empty()) {
        legend(&mut chart, SeriesLabelPosition::LowerRight)?;
    }
    Ok(())
}
