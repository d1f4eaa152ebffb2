//! Loss curves as a line of text and as an SVG file.

use std::path::Path;

use crate::charts::{Axis, Chart, GREY, RED, Series};
use crate::error::{Error, Result};

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The mean of the last twentieth of a run's losses (at least one step).
pub fn final_loss(losses: &[f32]) -> f32 {
    let tail = &losses[losses.len() - losses.len().div_ceil(20)..];
    mean(tail)
}

fn mean(values: &[f32]) -> f32 {
    (values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64) as f32
}

/// Averages `losses` over at most `points` equal stretches. Returns the last step of each stretch,
/// counted from 1, and its mean.
pub fn thin(losses: &[f32], points: usize) -> Vec<(usize, f32)> {
    let points = points.min(losses.len());
    (0..points)
        .map(|i| (i * losses.len() / points, (i + 1) * losses.len() / points))
        .map(|(from, to)| (to, mean(&losses[from..to])))
        .collect()
}

/// Draws the curve with one character per stretch. Curves with the same `range` have the same scale.
pub(crate) fn sparkline(losses: &[f32], width: usize, range: (f32, f32)) -> String {
    let (low, high) = range;
    let height = |loss: f32| {
        let part = if high > low { (loss - low) / (high - low) } else { 0.0 };
        ((part * 7.0).round().clamp(0.0, 7.0)) as usize
    };
    thin(losses, width).iter().map(|&(_, loss)| BLOCKS[height(loss)]).collect()
}

/// The lowest and the highest point of several curves, averaged to `width` points.
pub fn range(curves: &[&[f32]], width: usize) -> (f32, f32) {
    curves
        .iter()
        .flat_map(|losses| thin(losses, width))
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), (_, loss)| (low.min(loss), high.max(loss)))
}

/// Draws the two runs' curves into an SVG file.
pub fn plot(path: &Path, thc: &[f32], exact: &[f32]) -> Result<()> {
    let series = [("exact mean", GREY, exact), ("THC", RED, thc)].map(|(name, color, losses)| {
        let points = thin(losses, 200).into_iter().map(|(step, loss)| (step as f64, f64::from(loss)));
        Series::new(name, color, points.collect())
    });
    let points = || series.iter().flat_map(|series| &series.points);
    let chart = Chart {
        title: "Training loss".to_owned(),
        subtitle: "The mean of all workers".to_owned(),
        x: Axis::linear("step", points().map(|(step, _)| *step).chain([0.0])),
        y: Axis::linear("nats per character", points().map(|(_, loss)| *loss).chain([0.0])),
        series: series.to_vec(),
        notes: Vec::new(),
        names: 130,
    };
    let svg = chart.svg("loss", (800, 480))?;
    std::fs::write(path, svg)
        .map_err(|source| Error::Plot { path: path.to_owned(), reason: source.to_string() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_and_means() {
        let losses: Vec<f32> = (0..100).map(|i| i as f32).collect();
        assert_eq!(thin(&losses, 4), [(25, 12.0), (50, 37.0), (75, 62.0), (100, 87.0)]);
        assert_eq!(thin(&losses[..3], 10), [(1, 0.0), (2, 1.0), (3, 2.0)]);
        assert_eq!(final_loss(&losses), 97.0);
        assert_eq!(final_loss(&losses[..1]), 0.0);
    }

    #[test]
    fn a_falling_curve_falls() {
        let losses: Vec<f32> = (0..80).map(|i| 4.0 - i as f32 * 0.04).collect();
        let line = sparkline(&losses, 8, range(&[&losses], 8));
        assert_eq!(line, "█▇▆▅▄▃▂▁");
    }

    #[test]
    fn the_plot_is_an_svg_with_both_curves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loss.svg");
        plot(&path, &[4.0, 3.0, 2.0], &[4.0, 2.9, 1.9]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("exact mean") && svg.contains("THC"));
        assert!(svg.matches("<polyline").count() >= 2);
        let missing = folder.path().join("no/such/folder/loss.svg");
        assert!(matches!(plot(&missing, &[1.0], &[1.0]), Err(Error::Plot { .. })));
    }
}
