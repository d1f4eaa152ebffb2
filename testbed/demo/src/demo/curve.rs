//! Loss curves as a line of text.

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

#[cfg(test)]
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
}
