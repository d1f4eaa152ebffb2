//! `--plot`: the times of all-reduces by size, as a picture.

use std::error::Error;
use std::path::Path;

use bytesize::ByteSize;
use plotters::prelude::*;

use super::report::Measured;
use crate::table::short;

const SIZE: (u32, u32) = (800, 500);
const FONT: (&str, u32) = ("sans-serif", 18);

/// A line of the picture: its name, and a time in seconds for each size, if it was measured.
type Line = (&'static str, RGBColor, fn(&Measured) -> Option<f64>);

/// Draws the medians into an SVG file: THC's, and `other`'s where that was measured.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, found: &[Measured], other: &'static str) -> Result<(), Box<dyn Error>> {
    let lines: [Line; 2] =
        [("THC", BLUE, |measured| Some(measured.seconds)), (other, RED, |measured| measured.against_seconds)];
    let workers = found.first().map_or(0, |measured| measured.workers);
    let bytes = |measured: &Measured| measured.bytes as f64;
    let ms = |of: fn(&Measured) -> Option<f64>| {
        let point = move |measured| of(measured).map(|seconds| (bytes(measured), 1e3 * seconds));
        found.iter().filter_map(point).collect::<Vec<_>>()
    };
    let all = || lines.iter().flat_map(|line| ms(line.2));
    let bounds = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        least / 2.0..2.0 * values.into_iter().fold(0.0, f64::max)
    };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("One all-reduce by {workers} workers"), FONT)
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(65)
        .build_cartesian_2d(
            bounds(all().map(|(bytes, _)| bytes).collect()).log_scale().base(4.0),
            bounds(all().map(|(_, ms)| ms).collect()).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes of f32")
        .y_desc("ms")
        .x_label_formatter(&|bytes| ByteSize(*bytes as u64).to_string())
        .y_label_formatter(&|ms| short(*ms))
        .draw()?;
    for (name, colour, of) in lines {
        let points = ms(of);
        if !points.is_empty() {
            let line = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2));
            chart.draw_series(line)?.label(name).legend(legend);
        }
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).border_style(BLACK).background_style(WHITE).draw()?;
    Ok(area.present()?)
}
