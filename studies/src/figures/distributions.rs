//! Which gradients would give the paper's published errors of TernGrad and TopK.
//!
//! Both errors depend on magnitudes alone. With s the largest, n copies give TernGrad an expected NMSE of
//! (s·‖x‖₁/‖x‖² − 1)/n, and TopK loses the share of ‖x‖² outside the largest coordinates, whatever n.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma, StandardNormal, StudentT};
use serde_json::json;

use super::measure::Summary;
use super::run::FigurePlan;
use crate::charts::{Axis, Chart, Figure, Mark, PUBLISHED, Picture, RGBColor, Scale, Series, Table, short};
use crate::error::Result;

const NAME: &str = "nmse-distributions";
const WORKERS: f64 = 4.0;
const RATIO: f64 = 0.1;
/// What the paper's section 2.1 says, for (TopK 10 %, TernGrad).
const PUBLISHED_AT: (f64, f64) = (0.46, 6.95);

/// A family of distributions with one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// e^(σ·N(0, 1)).
    LogNormal,
    /// Student's t with ν degrees of freedom.
    Student,
    /// Density e^(−|x|^β): 2 is normal, 1 is Laplace.
    GeneralNormal,
    /// Normal in a share of the coordinates, zero elsewhere.
    Sparse,
}

impl Family {
    const ALL: [Self; 4] = [Self::LogNormal, Self::Student, Self::GeneralNormal, Self::Sparse];

    fn name(self) -> &'static str {
        match self {
            Self::LogNormal => "log-normal, σ",
            Self::Student => "Student's t, ν",
            Self::GeneralNormal => "exp(−|x|^β), β",
            Self::Sparse => "sparse normal, share",
        }
    }

    fn look(self) -> (RGBColor, Mark) {
        match self {
            Self::LogNormal => (RGBColor(200, 30, 30), Mark::Circle),
            Self::Student => (RGBColor(31, 90, 180), Mark::Diamond),
            Self::GeneralNormal => (RGBColor(200, 120, 0), Mark::Triangle),
            Self::Sparse => (RGBColor(130, 60, 170), Mark::Square),
        }
    }

    fn parameters(self, quick: bool) -> &'static [f64] {
        match (self, quick) {
            (Self::LogNormal, true) => &[0.7, 1.0],
            (Self::LogNormal, false) => &[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2],
            (Self::Student, true) => &[4.0],
            (Self::Student, false) => &[3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, 12.0, 20.0],
            (Self::GeneralNormal, true) => &[1.0, 2.0],
            (Self::GeneralNormal, false) => &[0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0],
            (Self::Sparse, true) => &[0.5],
            (Self::Sparse, false) => &[0.15, 0.2, 0.3, 0.5, 0.7, 1.0],
        }
    }

    /// Magnitudes of a vector.
    fn sample(self, parameter: f64, length: usize, random: &mut ChaCha8Rng) -> Vec<f32> {
        let normal = |random: &mut ChaCha8Rng| -> f64 { StandardNormal.sample(random) };
        let mut draw: Box<dyn FnMut() -> f64> = match self {
            Self::LogNormal => Box::new(|| (parameter * normal(random)).exp()),
            Self::Student => {
                let student = StudentT::new(parameter).expect("degrees of freedom are positive");
                Box::new(move || student.sample(random))
            }
            Self::GeneralNormal => {
                let gamma = Gamma::new(1.0 / parameter, 1.0).expect("the shape is positive");
                Box::new(move || gamma.sample(random).powf(1.0 / parameter))
            }
            Self::Sparse => {
                let mut i = 0_usize;
                Box::new(move || {
                    i += 1;
                    let is_zero = (i as f64 * parameter).floor() == ((i - 1) as f64 * parameter).floor();
                    if is_zero { 0.0 } else { normal(random) }
                })
            }
        };
        (0..length).map(|_| draw().abs() as f32).collect()
    }
}

/// Errors of (TopK, TernGrad) for copies of a vector with these magnitudes, and the largest over the
/// root mean square.
fn errors(mut magnitudes: Vec<f32>) -> (f64, f64, f64) {
    let dropped = magnitudes.len() - ((RATIO * magnitudes.len() as f64) as usize).max(1);
    let squares = |x: &[f32]| x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
    let norm = squares(&magnitudes);
    let sum: f64 = magnitudes.iter().map(|v| f64::from(*v)).sum();
    let largest = f64::from(magnitudes.iter().copied().fold(0.0, f32::max));
    let rms = (norm / magnitudes.len() as f64).sqrt();
    magnitudes.select_nth_unstable_by(dropped, f32::total_cmp);
    (squares(&magnitudes[..dropped]) / norm, (largest * sum / norm - 1.0) / WORKERS, largest / rms)
}

/// What one distribution gave.
struct Point {
    family: Family,
    parameter: f64,
    top_k: Summary,
    tern_grad: Summary,
    largest_over_rms: Summary,
}

/// Makes the figure.
pub fn figure(plan: &FigurePlan) -> Result<Figure> {
    let trials = plan.trials(8);
    let cases: Vec<(Family, f64)> = Family::ALL
        .into_iter()
        .flat_map(|family| family.parameters(plan.quick).iter().map(move |parameter| (family, *parameter)))
        .collect();
    let points = plan.progress.parallel("distributions", cases.len(), |i| {
        let (family, parameter) = cases[i];
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
        random.set_stream(i as u64);
        let found: Vec<(f64, f64, f64)> =
            (0..trials).map(|_| errors(family.sample(parameter, plan.dimension, &mut random))).collect();
        let summary = |part: fn(&(f64, f64, f64)) -> f64| {
            Summary::summarize(&found.iter().map(part).collect::<Vec<_>>())
        };
        let (top_k, tern_grad) = (summary(|e| e.0), summary(|e| e.1));
        Ok(Point { family, parameter, top_k, tern_grad, largest_over_rms: summary(|e| e.2) })
    })?;
    let saved: Vec<(u32, (f64, f64, f64))> = plan
        .saved
        .iter()
        .flat_map(|saved| saved.first())
        .map(|(step, gradient)| (step, errors(gradient.iter().map(|v| v.abs()).collect())))
        .collect();

    let numbers = json!({
        "figure": NAME,
        "workers": WORKERS,
        "ratio": RATIO,
        "dimension": plan.dimension,
        "trials": trials,
        "seed": plan.seed,
        "published": { "top_k": PUBLISHED_AT.0, "tern_grad": PUBLISHED_AT.1 },
        "points": points.iter().map(|p| json!({
            "family": p.family.name(),
            "parameter": p.parameter,
            "top_k": p.top_k,
            "tern_grad": p.tern_grad,
            "largest_over_rms": p.largest_over_rms,
        })).collect::<Vec<_>>(),
        "saved": saved.iter().map(|(step, (top_k, tern_grad, largest))| json!({
            "step": step, "top_k": top_k, "tern_grad": tern_grad, "largest_over_rms": largest,
        })).collect::<Vec<_>>(),
    });
    Ok(Figure {
        name: NAME.to_owned(),
        title: "Which gradients give the published errors of TernGrad and TopK?".to_owned(),
        text: text(&points, &saved),
        pictures: vec![picture(plan, trials, &points, &saved)?],
        table: table(&points),
        numbers,
    })
}

fn picture(
    plan: &FigurePlan,
    trials: u32,
    points: &[Point],
    saved: &[(u32, (f64, f64, f64))],
) -> Result<Picture> {
    let mut series = Vec::new();
    let mut notes = Vec::new();
    for family in Family::ALL {
        let (color, mark) = family.look();
        let own = || points.iter().filter(|p| p.family == family);
        for p in own() {
            let ends = [p.tern_grad.min, p.tern_grad.max].map(|end| (p.top_k.mean, end));
            series.push(Series::new("", color, ends.to_vec()));
            notes.push((p.top_k.mean, p.tern_grad.mean, format!("{}", p.parameter)));
        }
        let line = own().map(|p| (p.top_k.mean, p.tern_grad.mean)).collect();
        series.push(Series { mark: Some(mark), ..Series::new(family.name(), color, line) });
    }
    if !saved.is_empty() {
        let at = saved.iter().map(|(_, (top_k, tern_grad, _))| (*top_k, *tern_grad)).collect();
        series.push(Series::dots("steps of a training", RGBColor(20, 130, 60), Mark::Hollow, at));
    }
    series.push(Series::dots("published (paper)", PUBLISHED, Mark::Star, vec![PUBLISHED_AT]));
    let chart = Chart {
        title: "Errors of TernGrad and TopK for different gradients".to_owned(),
        subtitle: format!(
            "4 copies of a vector of {} coordinates; mean of {trials} vectors, vertical lines: least to largest",
            plan.dimension
        ),
        x: Axis {
            label: "NMSE of TopK 10 %".to_owned(),
            range: (0.0, 0.7),
            scale: Scale::Linear,
            ticks: (0..=7).map(|t| f64::from(t) / 10.0).collect(),
        },
        y: Axis::log(
            "NMSE of TernGrad, 4 workers (log scale)",
            series.iter().flat_map(|s| &s.points).map(|(_, y)| *y),
        ),
        notes,
        series,
        names: 200,
    };
    Ok(Picture { name: NAME.to_owned(), svg: chart.svg(NAME, (940, 580))? })
}

fn table(points: &[Point]) -> Table {
    let header = ["gradients", "TopK 10 %", "TernGrad", "TernGrad from", "to", "largest / rms"];
    let row = |p: &Point| {
        vec![
            format!("{} = {}", p.family.name(), p.parameter),
            short(p.top_k.mean),
            short(p.tern_grad.mean),
            short(p.tern_grad.min),
            short(p.tern_grad.max),
            format!("{:.0}", p.largest_over_rms.mean),
        ]
    };
    let mut rows: Vec<Vec<String>> = points.iter().map(row).collect();
    let published = ["published", "0.46", "6.95", "–", "–", "–"];
    rows.push(published.map(str::to_owned).to_vec());
    Table::new(&header, rows)
}

fn text(points: &[Point], saved: &[(u32, (f64, f64, f64))]) -> Vec<String> {
    let find = |family, parameter| points.iter().find(|p| p.family == family && p.parameter == parameter);
    let mut text = vec![
        "The paper gives two numbers for four workers and does not say for which gradients. Both follow from the \
         magnitudes of the coordinates: TernGrad's from the largest one and the mean, TopK's from how much of the \
         norm the largest tenth holds. So each kind of gradient is a point here, and each family of distributions a \
         line. Signs do not matter, and for copies neither does the number of workers to TopK."
            .to_owned(),
    ];
    if let (Some(one), Some(less)) = (find(Family::LogNormal, 1.0), find(Family::LogNormal, 0.7)) {
        text.push(format!(
            "Log-normal vectors with σ = 1, the paper's own model of gradients (its appendix D.4), give TernGrad {} \
             ({} to {}) against 6.95, and TopK {} against 0.46; σ = 0.7 gives {} and {}. So at a length of 2^20, one \
             partition, the first agrees with the published TernGrad alone, the second with the published TopK alone.",
            short(one.tern_grad.mean),
            short(one.tern_grad.min),
            short(one.tern_grad.max),
            short(one.top_k.mean),
            short(less.tern_grad.mean),
            short(less.top_k.mean)
        ));
    }
    let distance = |p: &Point| {
        (p.tern_grad.mean / PUBLISHED_AT.1).ln().powi(2) + (p.top_k.mean / PUBLISHED_AT.0).ln().powi(2)
    };
    if let Some(p) = points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))) {
        text.push(format!(
            "Closest to both at once comes {} = {}: TopK {}, TernGrad {} ({} to {}). Sparsity alone cannot explain \
             TernGrad's value: zeros leave its error where it is, as the nearly level line of sparse normal vectors shows.",
            p.family.name(),
            p.parameter,
            short(p.top_k.mean),
            short(p.tern_grad.mean),
            short(p.tern_grad.min),
            short(p.tern_grad.max)
        ));
    }
    text.push(
        "So the published pair fits gradients with moderately heavy tails, whose largest coordinate is about 40 times \
         the root mean square, as real ones may be; or it comes from two different set-ups. Two numbers cannot tell. \
         No parameter of the other figures was chosen to match them."
            .to_owned(),
    );
    if let (Some((first, a)), Some((last, b))) = (saved.first(), saved.last()) {
        text.push(format!(
            "The saved gradients are of a whole small model as one tensor, with layers of very different scale: TopK {} and \
             TernGrad {} in step {first}, TopK {} and TernGrad {} in step {last}.",
            short(a.0),
            short(a.1),
            short(b.0),
            short(b.1)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_hand() {
        // Ten coordinates: TopK keeps one of them.
        let mut x = vec![1.0; 9];
        x.push(3.0);
        let (top_k, tern_grad, largest) = errors(x);
        assert!((top_k - 0.5).abs() < 1e-12);
        assert!((tern_grad - (3.0 * 12.0 / 18.0 - 1.0) / 4.0).abs() < 1e-12);
        assert!((largest - 3.0 / 1.8_f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn families_are_what_they_say() {
        let sample =
            |family: Family, parameter| family.sample(parameter, 1 << 16, &mut ChaCha8Rng::seed_from_u64(5));
        let top_k = |family, parameter| errors(sample(family, parameter)).0;
        // For e^(σN): the share of e^(2σN) below the quantile 1.2816 is Φ(1.2816 − 2σ).
        assert!((top_k(Family::LogNormal, 1.0) - 0.236).abs() < 0.02);
        // Normal: 1 − 2(zφ(z) + Q(z)) at z = 1.645.
        assert!((top_k(Family::GeneralNormal, 2.0) - 0.561).abs() < 0.01);
        // Laplace: 1 − 0.1·(q² + 2q + 2)/2 at q = ln 10.
        assert!((top_k(Family::GeneralNormal, 1.0) - 0.405).abs() < 0.01);
        assert!((top_k(Family::Student, 1000.0) - 0.561).abs() < 0.02);
        let zeros = sample(Family::Sparse, 0.2).iter().filter(|v| **v == 0.0).count();
        assert!(zeros.abs_diff((1 << 16) * 4 / 5) <= 1, "{zeros}");
    }
}
