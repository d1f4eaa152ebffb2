//! One page of curves: who wins where.

use super::layout::Layout;
use super::study::{Point, winners};
use crate::charts::{
    Axis, BLUE, Chart, GREEN, GREY, Mark, ORANGE, PURPLE, RED, RGBColor, Scale, Series, Table, short, tile,
};
use crate::error::Result;
use crate::units::Rate;

/// Pixels of one chart.
const SIZE: (u32, u32) = (620, 430);
/// Charts beside each other.
const COLUMNS: u32 = 2;

fn style(layout: Layout) -> (RGBColor, Mark) {
    match layout {
        Layout::Switch => (BLUE, Mark::Circle),
        Layout::Colocated => (GREEN, Mark::Square),
        Layout::Server => (PURPLE, Mark::Diamond),
        Layout::Racks => (RED, Mark::Star),
        Layout::RingFp32 => (GREY, Mark::Hollow),
        Layout::RingInt8 => (ORANGE, Mark::Triangle),
    }
}

fn rates(points: &[Point]) -> Vec<Rate> {
    let mut rates: Vec<Rate> = points.iter().map(|point| point.case.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

/// One chart for each rate.
fn charts(points: &[Point]) -> Result<Vec<String>> {
    let mut layouts: Vec<Layout> = points.iter().map(|point| point.case.layout).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let mut workers: Vec<f64> = points.iter().map(|point| f64::from(point.case.workers)).collect();
    workers.sort_by(f64::total_cmp);
    workers.dedup();
    let ends = (workers.first().copied().unwrap_or(1.0), workers.last().copied().unwrap_or(1.0));
    let chart = |rate: &Rate| {
        let here = || points.iter().filter(|point| point.case.rate == *rate);
        let series = layouts.iter().map(|&layout| {
            let (color, mark) = style(layout);
            let own = here().filter(|point| point.case.layout == layout);
            let mut points: Vec<(f64, f64)> =
                own.map(|point| (f64::from(point.case.workers), point.seconds * 1e3)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { mark: Some(mark), dashed: layout.is_ring(), ..Series::new(layout.name(), color, points) }
        });
        let chart = Chart {
            title: rate.name(),
            subtitle: format!("{} coordinates, ms", points[0].case.coordinates),
            x: Axis {
                label: "workers".to_owned(),
                range: (ends.0 / 1.15, ends.1 * 1.15),
                scale: Scale::Log,
                ticks: workers.clone(),
            },
            y: Axis::log("ms", here().map(|point| point.seconds * 1e3)),
            series: series.filter(|series| !series.points.is_empty()).collect(),
            notes: Vec::new(),
            names: 120,
        };
        chart.svg("simulate", SIZE)
    };
    rates(points).iter().map(chart).collect()
}

/// All charts in one picture.
pub fn svg(points: &[Point]) -> Result<String> {
    Ok(tile(&charts(points)?, COLUMNS, SIZE))
}

/// Milliseconds by rate and workers, a column for each layout.
pub fn table(points: &[Point]) -> Table {
    let mut layouts: Vec<Layout> = points.iter().map(|point| point.case.layout).collect();
    layouts.sort_unstable();
    layouts.dedup();
    let names = layouts.iter().map(|layout| format!("{}, ms", layout.name()));
    let header =
        ["link, workers".to_owned()].into_iter().chain(names).chain(["quickest".to_owned()]).collect();
    let row = |(rate, workers, best): (Rate, u16, Layout)| {
        let cell = |layout: &Layout| {
            let here = |point: &&Point| {
                (point.case.rate, point.case.workers, point.case.layout) == (rate, workers, *layout)
            };
            points.iter().find(here).map_or("–".to_owned(), |point| short(point.seconds * 1e3))
        };
        let name = format!("{}, {workers}", rate.name());
        [name].into_iter().chain(layouts.iter().map(cell)).chain([best.name().to_owned()]).collect()
    };
    Table { header, rows: winners(points).into_iter().map(row).collect() }
}
