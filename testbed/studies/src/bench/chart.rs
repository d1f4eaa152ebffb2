//! Times of all-reduces as a picture: by size, or by workers where there is one size.

use super::report::Measured;
use super::run::bytes;
use crate::charts::{Axis, COLOURS, Chart, GREY, Mark, Series};
use crate::error::Result;
use crate::units::{Link, Rate};

/// The picture's text.
pub fn draw(found: &[Measured]) -> Result<String> {
    let sizes: std::collections::BTreeSet<u64> = found.iter().map(|measured| measured.bytes).collect();
    let by_size = sizes.len() > 1;
    let x = |measured: &Measured| {
        if by_size { measured.bytes as f64 / f64::from(1 << 20) } else { f64::from(measured.workers) }
    };
    let mut names: Vec<String> = Vec::new();
    found.iter().map(|measured| name(measured, by_size)).for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    let mut series = Vec::new();
    for (index, own) in names.iter().enumerate() {
        let color = COLOURS[index % COLOURS.len()];
        let line = |label: &str, color, dashed, mark, seconds: &dyn Fn(&Measured) -> Option<f64>| {
            let of_it = found.iter().filter(|measured| name(measured, by_size) == *own);
            let points = of_it.filter_map(|measured| Some((x(measured), seconds(measured)? * 1e3))).collect();
            Series { mark, dashed, ..Series::new(label, color, points) }
        };
        series.push(line("", color, true, None, &|measured| measured.limit_seconds));
        let other = format!("gloo, {own}");
        series.push(line(&other, GREY, false, Some(Mark::Hollow), &|measured| measured.against_seconds));
        series.push(line(own, color, false, Some(Mark::Circle), &|measured| Some(measured.seconds)));
    }
    series.retain(|series| !series.points.is_empty());
    let all = || series.iter().flat_map(|series| &series.points);
    let label = if by_size { "MiB of f32" } else { "workers" };
    let chart = Chart {
        title: "One all-reduce".to_owned(),
        subtitle: "medians; dashed: in which the bytes can cross the busiest link".to_owned(),
        x: Axis::log(label, all().map(|point| point.0)),
        y: Axis::log("ms", all().map(|point| point.1)),
        series: series.clone(),
        notes: Vec::new(),
        names: 260,
    };
    chart.svg("allreduce", (980, 520))
}

/// What is the same along a line.
fn name(measured: &Measured, by_size: bool) -> String {
    let rest = if by_size { format!("{} workers", measured.workers) } else { bytes(measured.bytes) };
    format!("{}, {rest}, {}", measured.place.name(), Link(measured.rate.map(Rate)).name())
}
