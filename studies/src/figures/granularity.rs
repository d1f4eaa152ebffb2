//! THC's error against granularity and bit budget: the paper's Fig. 15.

use serde_json::json;

use super::run::FigurePlan;
use crate::charts::{Axis, Chart, Figure, Mark, Picture, RGBColor, Scale, Series, Table, short};
use crate::error::Result;
use thc_demo::distribution::Distribution;
use thc_demo::nmse::{Experiment, Findings, Vectors};

const WORKERS: u8 = 10;
const LARGEST: u16 = 60;
const FRACTION: f64 = 1.0 / 1024.0;
const NAME: &str = "nmse-granularity";

/// The bit budgets with their colours.
const BUDGETS: [(u8, RGBColor, Mark); 3] = [
    (2, RGBColor(31, 90, 180), Mark::Circle),
    (3, RGBColor(255, 127, 14), Mark::Diamond),
    (4, RGBColor(20, 130, 60), Mark::Triangle),
];

/// Granularities that are measured: all where the error moves much, then every other one.
fn granularities(bits: u8, quick: bool) -> Vec<u16> {
    let least = (1 << bits) - 1;
    let wanted = |g: &u16| {
        if quick { *g == least || g.is_multiple_of(15) } else { *g < least + 12 || g.is_multiple_of(2) }
    };
    (least..=LARGEST).filter(wanted).collect()
}

/// Makes the figure.
pub fn figure(plan: &FigurePlan) -> Result<Figure> {
    let trials = plan.trials(20);
    // Theory is for long vectors: few coordinates are truncated of short ones.
    let dimension = (plan.dimension / 16).max(1 << 14);
    let experiments: Vec<Experiment> = BUDGETS
        .iter()
        .flat_map(|(bits, ..)| granularities(*bits, plan.quick).into_iter().map(|g| (*bits, g)))
        .map(|(bits, granularity)| Experiment {
            bits,
            granularity,
            fraction: FRACTION,
            workers: WORKERS,
            dimension,
            distribution: Distribution::Lognormal,
            vectors: Vectors::Copies,
            trials,
            block: 20,
            seed: plan.seed,
        })
        .collect();
    let found = plan.progress.parallel("granularity", experiments.len(), |i| experiments[i].run())?;

    let own = |bits: u8| found.iter().filter(move |f| f.experiment.bits == bits);
    let mut series = Vec::new();
    for (bits, color, mark) in BUDGETS {
        let at = |f: &Findings, value: f64| (f64::from(f.experiment.granularity), value);
        let theory = own(bits).map(|f| at(f, f.theory)).collect();
        series.push(Series { dashed: true, ..Series::new("", color, theory) });
        let measured = own(bits).map(|f| at(f, f.nmse)).collect();
        series.push(Series::dots(format!("b = {bits}"), color, mark, measured));
    }
    let chart = Chart {
        title: "Error of THC by granularity and bit budget".to_owned(),
        subtitle: format!(
            "{WORKERS} workers, copies of a log-normal vector of {dimension} coordinates, p = 1/1024, {trials} \
             trials; dashed: theory"
        ),
        x: Axis {
            label: "granularity g".to_owned(),
            range: (0.0, f64::from(LARGEST) + 1.0),
            scale: Scale::Linear,
            ticks: (0..=6).map(|t| f64::from(t) * 10.0).collect(),
        },
        y: Axis::log("NMSE (log scale)", found.iter().flat_map(|f| [f.nmse, f.theory])),
        series,
        notes: Vec::new(),
        names: 90,
    };
    let numbers = json!({
        "figure": NAME,
        "paper": "Fig. 15",
        "workers": WORKERS,
        "fraction": FRACTION,
        "dimension": dimension,
        "trials": trials,
        "seed": plan.seed,
        "points": &found,
    });
    Ok(Figure {
        name: NAME.to_owned(),
        title: "Error of THC by granularity and bit budget (the paper's Fig. 15)".to_owned(),
        text: text(&found),
        pictures: vec![Picture { name: NAME.to_owned(), svg: chart.svg(NAME, (860, 520))? }],
        table: table(&found),
        numbers,
    })
}

/// The least error of a bit budget, and its granularity.
fn best(found: &[Findings], bits: u8) -> Option<(f64, u16)> {
    found
        .iter()
        .filter(|f| f.experiment.bits == bits)
        .map(|f| (f.nmse, f.experiment.granularity))
        .min_by(|a, b| a.0.total_cmp(&b.0))
}

fn table(found: &[Findings]) -> Table {
    let header = ["b, g", "NMSE", "standard error", "theory", "off by", "bits of a sum"];
    let shown = |f: &&Findings| {
        let g = f.experiment.granularity;
        g == (1 << f.experiment.bits) - 1
            || g.is_multiple_of(10)
            || best(found, f.experiment.bits).is_some_and(|(_, at)| at == g)
    };
    let row = |f: &Findings| {
        vec![
            format!("b = {}, g = {}", f.experiment.bits, f.experiment.granularity),
            short(f.nmse),
            f.standard_error.map_or_else(|| "–".to_owned(), |e| format!("{e:.1e}")),
            short(f.theory),
            format!("{:+.2} %", 100.0 * (f.nmse / f.theory - 1.0)),
            f.lane.to_string(),
        ]
    };
    Table::new(&header, found.iter().filter(shown).map(row))
}

fn text(found: &[Findings]) -> Vec<String> {
    let mut text = vec![
        "Each point is THC with the optimal table for its bit budget b and granularity g, through the codec and the \
         aggregator model with real packets. With copies, theory says quantization error / n + truncation error."
            .to_owned(),
    ];
    if let (Some(two), Some(three), Some(four)) = (best(found, 2), best(found, 3), best(found, 4)) {
        text.push(format!(
            "The paper has three curves, “almost an order of magnitude” from one bit budget to the next, and errors that fall \
             slowly with granularity. Here the best points are {} (b = 2, g = {}), {} (b = 3, g = {}) and {} (b = 4, g = \
             {}): factors of {:.1} and {:.1}. Errors do not fall with every step of g: what matters is also how well \
             g cells divide among the indices, so curves are jagged, most where g is small. The paper gives no numbers for this \
             figure and not the length of its vectors.",
            short(two.0),
            two.1,
            short(three.0),
            three.1,
            short(four.0),
            four.1,
            two.0 / three.0,
            three.0 / four.0
        ));
    }
    let off = found.iter().map(|f| (f.nmse / f.theory - 1.0).abs()).fold(0.0, f64::max);
    text.push(format!("The largest deviation from theory is {:.1} %.", 100.0 * off));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granularities_begin_at_the_least_and_end_at_the_largest() {
        for quick in [false, true] {
            for bits in 2..=4 {
                let all = granularities(bits, quick);
                assert_eq!((all.first(), all.last()), (Some(&((1 << bits) - 1)), Some(&60)));
                assert!(all.windows(2).all(|w| w[0] < w[1]) && all.contains(&30));
            }
        }
        assert!(granularities(2, true).len() < 8);
    }
}
