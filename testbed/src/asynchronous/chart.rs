//! Fig. 3 of the paper: the loss against epochs, and against transmitted bits.

use std::path::Path;

use plotters::prelude::*;

use super::report::{Comparison, Point};
use crate::error::{Error, Result};

const COLOURS: [RGBColor; 8] = [
    RGBColor(120, 120, 120),
    RGBColor(40, 40, 40),
    RGBColor(30, 120, 200),
    RGBColor(120, 60, 180),
    RGBColor(200, 60, 20),
    RGBColor(20, 150, 60),
    RGBColor(220, 150, 0),
    RGBColor(200, 60, 140),
];

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Writes an SVG file.
pub fn draw(path: &Path, comparison: &Comparison) -> Result<()> {
    both(path, comparison).map_err(|reason| Error::Plot { path: path.to_owned(), reason: reason.to_string() })
}

fn both(path: &Path, comparison: &Comparison) -> Drawn {
    let root = SVGBackend::new(path, (1100, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(550);
    one(&left, comparison, "epochs", |point| point.epoch as f64)?;
    one(&right, comparison, "Gbit pulled and pushed by all workers", |point| point.bits as f64 / 1e9)?;
    root.present()?;
    Ok(())
}

fn one(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    comparison: &Comparison,
    label: &str,
    x: fn(&Point) -> f64,
) -> Drawn {
    let points = || comparison.outcomes.iter().flat_map(|outcome| &outcome.points);
    let right = points().map(x).fold(1e-9, f64::max);
    let top = points().map(|point| point.loss).fold(0.0, f64::max);
    let bottom = points().map(|point| point.loss).fold(f64::INFINITY, f64::min);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, (bottom * 0.95..top * 1.05).log_scale())?;
    chart.configure_mesh().x_desc(label).y_desc("loss").light_line_style(WHITE).draw()?;
    for (outcome, colour) in comparison.outcomes.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(outcome.points.iter().map(|p| (x(p), p.loss)), style))?
            .label(outcome.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}
