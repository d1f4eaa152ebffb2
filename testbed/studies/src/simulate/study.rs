//! Many cases, and tensors that are too long to be simulated packet by packet.

use serde::Serialize;

use super::error::too_many_workers;
use super::job::{Case, Took, simulate};
use super::layout::Layout;
use super::settings::Settings;
use crate::error::Result;
use crate::progress::Progress;
use crate::table::{Table, short};
use crate::units::Rate;

/// What is a multiple of all blocks that are usual, and of the cores' pieces of work.
const GRAIN: u64 = 1 << 16;
/// Of two windows of colocated shares each has so many, with a block of slots in each window.
const SHARE: u64 = GRAIN;
/// The shortest stretch of many workers: in less, windows only open (P41), and what half of it takes tells nothing of the rest.
const LEAST: u64 = 1 << 20;

/// What an all-reduce takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// What was simulated.
    #[serde(flatten)]
    pub case: Case,
    /// Seconds of one all-reduce of the whole tensor.
    pub seconds: f64,
    /// Coordinates that were simulated packet by packet.
    pub simulated: u64,
    /// The times of that simulation.
    #[serde(flatten)]
    pub took: Took,
}

/// Coordinates that are simulated packet by packet: fewer for more workers than an aggregator takes, so that memory and time do not
/// grow with them; more where the window of many shares would be most of it.
fn stretch(settings: &Settings, case: &Case) -> u64 {
    let all = settings.stretch.next_multiple_of(2 * GRAIN);
    match case.layout {
        Layout::Colocated => all.max(SHARE * u64::from(case.workers)),
        _ => (all * 64 / u64::from(case.workers.max(64))).next_multiple_of(2 * GRAIN).max(LEAST.min(all)),
    }
}

/// Simulates a case; of a tensor longer than a stretch, that stretch and half of it, and adds for the rest what the second half
/// took more.
///
/// # Errors
/// As [`simulate`].
pub fn point(settings: &Settings, case: Case) -> Result<Point> {
    if case.layout.is_ring() || case.coordinates <= stretch(settings, &case) {
        let took = simulate(settings, &case)?;
        return Ok(Point { case, seconds: took.seconds(), simulated: case.coordinates, took });
    }
    let stretch = stretch(settings, &case);
    let half = simulate(settings, &Case { coordinates: stretch / 2, ..case })?;
    let took = simulate(settings, &Case { coordinates: stretch, ..case })?;
    let more = (took.seconds() - half.seconds()) / (stretch / 2) as f64;
    let seconds = took.seconds() + more * (case.coordinates - stretch) as f64;
    Ok(Point { case, seconds, simulated: stretch, took })
}

/// All cases of the settings, by rate, workers, layout; those that a layout has no room for are left out.
pub fn cases(settings: &Settings) -> Vec<Case> {
    let mut cases = Vec::new();
    for &rate in &settings.rate {
        for &workers in &settings.workers {
            for &layout in &settings.layout {
                if layout.takes(workers, settings.rack) {
                    cases.push(Case { layout, workers, rate, coordinates: settings.coordinates });
                }
            }
        }
    }
    cases
}

/// Simulates all cases.
///
/// # Errors
/// Nothing to simulate, or what stands in the way of a case.
pub fn run(settings: &Settings, progress: &Progress) -> Result<Vec<Point>> {
    let cases = cases(settings);
    if cases.is_empty() {
        let (workers, layout) = (settings.workers[0], settings.layout[0]);
        return Err(too_many_workers(workers, layout));
    }
    // The longest first, so that no core waits for one at the end.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse((cases[at].layout.is_ring(), cases[at].workers)));
    order.sort_by_key(|&at| cases[at].layout.is_ring());
    let points =
        progress.parallel("simulating", cases.len(), |number| point(settings, cases[order[number]]))?;
    let mut sorted: Vec<(usize, Point)> = order.into_iter().zip(points).collect();
    sorted.sort_by_key(|(at, _)| *at);
    Ok(sorted.into_iter().map(|(_, point)| point).collect())
}

/// The quickest layout of each rate and number of workers, and by which factor the others are slower.
fn winners(points: &[Point]) -> Vec<(Rate, u16, Layout)> {
    let mut found: Vec<(Rate, u16, Layout)> = Vec::new();
    for point in points {
        let key = (point.case.rate, point.case.workers);
        if found.iter().any(|(rate, workers, _)| (*rate, *workers) == key) {
            continue;
        }
        let same = points.iter().filter(|other| (other.case.rate, other.case.workers) == key);
        if let Some(best) = same.min_by(|a, b| a.seconds.total_cmp(&b.seconds)) {
            found.push((key.0, key.1, best.case.layout));
        }
    }
    found
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::settings::Keys;
    use super::*;
    use crate::simulate::recirculation::Chip;

    fn settings(keys: Keys) -> Settings {
        Keys { rounds: Some(1), ..keys }.validate().unwrap()
    }

    /// What is scaled up from a stretch is what the whole tensor takes, whether links, a server or computing are what bounds.
    #[test]
    fn a_stretch_scales_to_the_whole() {
        for (layout, workers, gbit, norm_ns) in [
            (Layout::Colocated, 4, 1, 0.1),
            (Layout::Colocated, 8, 25, 0.1),
            (Layout::Switch, 4, 10, 0.1),
            (Layout::Switch, 8, 25, 2.0),
            (Layout::Server, 4, 25, 0.1),
        ] {
            let case = Case { layout, workers, rate: Rate(gbit * 1_000_000_000), coordinates: 8 << 20 };
            let keys = |stretch| Keys { stretch: Some(stretch), norm_ns: Some(norm_ns), ..Keys::default() };
            let whole = point(&settings(keys(8 << 20)), case).unwrap();
            let scaled = point(&settings(keys(2 << 20)), case).unwrap();
            assert_eq!((whole.simulated, scaled.simulated), (8 << 20, 2 << 20));
            let ratio = scaled.seconds / whole.seconds;
            assert!((0.95..1.05).contains(&ratio), "{case:?}: {ratio}");
        }
    }

    fn free() -> Keys {
        Keys {
            norm_ns: Some(0.0),
            compress_ns: Some(0.0),
            decompress_ns: Some(0.0),
            send_ns: Some(0.0),
            receive_ns: Some(0.0),
            server_receive_ns: Some(0.0),
            server_send_ns: Some(0.0),
            wake_us: Some(0.0),
            latency_us: Some(1.0),
            loopback: Some(Rate(10_000_000_000_000)),
            framing: Some(0),
            ..Keys::default()
        }
    }

    /// Where nothing else costs and links are quick, an all-reduce takes what its bytes take on the fullest loopback port.
    #[test]
    fn loopback_ports_are_what_bounds_behind_quick_links() {
        for (chip, workers) in [(Chip::Tofino, 4), (Chip::Tofino2, 4), (Chip::Tofino2, 16)] {
            let keys = Keys { chip: Some(chip), loopback: Some(Rate(100_000_000_000)), ..free() };
            let case =
                Case { layout: Layout::Switch, workers, rate: Rate(400_000_000_000), coordinates: 2 << 20 };
            let bytes = u32::from(workers) * chip.data_bytes() + chip.result_bytes();
            let limit = f64::from(bytes) * 8.0 * 2048.0 * chip.unevenness(workers, 4) / 100e9;
            let more = point(&settings(keys), case).unwrap().seconds / limit;
            assert!((0.99..1.3).contains(&more), "{case:?}: {more} of {limit}");
        }
    }

    /// Where computing and packets cost nothing, an all-reduce takes what its bytes take on the busiest link, and little more.
    #[test]
    fn links_are_what_bounds_where_nothing_else_costs() {
        let settings = settings(free());
        for (layout, place) in [
            (Layout::Switch, crate::bench::Place::Switch),
            (Layout::Colocated, crate::bench::Place::Colocated),
            (Layout::Server, crate::bench::Place::Server),
        ] {
            for workers in [2, 4, 8] {
                let case = Case { layout, workers, rate: Rate(1_000_000_000), coordinates: 2 << 20 };
                let limit = place.limit(workers as u8, 2 << 20, 1_000_000_000);
                let more = point(&settings, case).unwrap().seconds / limit;
                assert!((0.99..1.15).contains(&more), "{case:?}: {more} of {limit}");
            }
        }
    }

    /// Racks under a root end with the bits of one aggregator, so with its error; rings and racks take more than that has room for.
    #[test]
    fn racks_have_the_sums_of_one_aggregator() {
        let settings = settings(Keys { rack: Some(3), stretch: Some(1 << 18), ..Keys::default() });
        let case = |layout| Case { layout, workers: 7, rate: Rate(10_000_000_000), coordinates: 100_000 };
        let [one, racks] =
            [Layout::Switch, Layout::Racks].map(|layout| point(&settings, case(layout)).unwrap());
        assert_eq!((one.took.nmse, one.took.dropped), (racks.took.nmse, racks.took.dropped));
        assert!(one.took.nmse.is_some_and(|nmse| nmse > 0.0));
        let many = |layout: Layout, workers| layout.takes(workers, 3);
        assert!(!many(Layout::Switch, 65) && many(Layout::Racks, 192) && !many(Layout::Racks, 193));
        assert!(!many(Layout::Racks, 3) && many(Layout::RingInt8, 1024));
        let long = |layout, workers| {
            let settings = Keys::default().validate().unwrap();
            stretch(&settings, &Case { workers, ..case(layout) })
        };
        assert_eq!([64, 128, 1024].map(|n| long(Layout::Racks, n)), [2 << 20, 1 << 20, 1 << 20]);
        assert_eq!([4, 64].map(|n| long(Layout::Colocated, n)), [2 << 20, 4 << 20]);
    }

    #[test]
    fn the_quickest_wins() {
        let keys = Keys {
            workers: Some(vec![2, 8]),
            rate: Some(vec![Rate(1_000_000_000)]),
            layout: Some(vec![Layout::RingFp32, Layout::RingInt8]),
            ..Keys::default()
        };
        let points = run(&settings(keys), &Progress::new(true)).unwrap();
        assert_eq!(points.len(), 4);
        let won = winners(&points);
        assert!(won.len() == 2 && won.iter().all(|(.., layout)| *layout == Layout::RingInt8), "{won:?}");
    }
}
