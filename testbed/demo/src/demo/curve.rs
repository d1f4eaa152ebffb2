//! Loss curves as a line of text and as an SVG file.

use std::path::Path;

use plotters::backend::SVGBackend;
use plotters::chart::ChartBuilder;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{PathElement, Text};
use plotters::style::{IntoFont, RGBColor, TRANSPARENT, WHITE};

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

const RED: RGBColor = RGBColor(200, 60, 20);
const GREY: RGBColor = RGBColor(120, 120, 120);

/// A name, its colour, and points: step and loss.
type Curve<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// Draws the two runs' curves into an SVG file.
pub fn plot(path: &Path, thc: &[f32], exact: &[f32]) -> Result<()> {
    let failed = |reason: String| Error::Plot { path: path.to_owned(), reason };
    let curves = [("exact mean", GREY, exact), ("THC", RED, thc)].map(|(name, color, losses)| {
        let points = thin(losses, 200).into_iter().map(|(step, loss)| (step as f64, f64::from(loss)));
        (name, color, points.filter(|(_, loss)| loss.is_finite()).collect())
    });
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, (800, 480)), &curves)
        .map_err(|reason| failed(reason.to_string()))?;
    std::fs::write(path, svg).map_err(|source| failed(source.to_string()))
}

fn draw(
    backend: SVGBackend<'_>,
    curves: &[Curve<'_>],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || curves.iter().flat_map(|(.., points)| points);
    let steps = points().map(|(step, _)| *step).fold(1.0, f64::max);
    let loss = points().map(|(_, loss)| *loss).fold(0.1, f64::max);
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Training loss, the mean of all workers", ("sans-serif", 19))
        .margin(14)
        .margin_right(100)
        .x_label_area_size(48)
        .y_label_area_size(74)
        .build_cartesian_2d(0.0..steps, 0.0..loss)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("step")
        .y_desc("nats per character")
        .draw()?;
    // The curves end close to each other: the first name is above its end, the second below.
    for ((name, color, points), height) in curves.iter().zip([-18, 2]) {
        chart.draw_series([PathElement::new(points.clone(), *color)])?;
        if let Some(last) = points.last() {
            let (x, y) = chart.backend_coord(last);
            let style = ("sans-serif", 14).into_font().color(color);
            root.draw(&Text::new(*name, (x + 8, y + height), style))?;
        }
    }
    root.present()?;
    Ok(())
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
