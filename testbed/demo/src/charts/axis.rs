//! The axes of pictures.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithms.
    Log,
}

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What and in which unit.
    pub label: String,
    /// Ends.
    pub range: (f64, f64),
    /// Spread.
    pub scale: Scale,
    /// Where numbers stand.
    pub ticks: Vec<f64>,
}

/// The least and the largest of the values that are finite, if there is one.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).map(|v| (v, v)).reduce(|(a, b), (v, _)| (a.min(v), b.max(v)))
}

impl Axis {
    /// A logarithmic axis that holds `values` (positive ones), from decade to decade or a part of one.
    pub fn log(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            bounds(values.filter(|v| *v > 0.0)).map_or((0.1, 10.0), |(a, b)| (a / 1.25, b * 1.25));
        let decades = high.log10() - low.log10();
        let steps: &[f64] = match decades {
            d if d > 3.5 => &[1.0],
            d if d > 0.7 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        };
        let ticks = (low.log10().floor() as i32..=high.log10().ceil() as i32)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|tick| (low..=high).contains(tick))
            .collect();
        Self { label: label.to_owned(), range: (low, high), scale: Scale::Log, ticks }
    }

    /// An even axis that holds `values`, with a tick at about each tenth of it.
    pub fn linear(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        let least = (high - low).max(0.1) / 10.0;
        let decade = 10_f64.powf(least.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade).into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(least);
        let [first, last] = [(low / step).floor(), (high / step).ceil()];
        let ticks = (first as i64..=last as i64).map(|tick| tick as f64 * step).collect();
        Self { label: label.to_owned(), range: (first * step, last * step), scale: Scale::Linear, ticks }
    }

    /// Where a value lies, 0 and 1 at the ends.
    fn place(&self, value: f64) -> f64 {
        let scaled = |v: f64| if self.scale == Scale::Log { v.log10() } else { v };
        let [low, high, value] = [self.range.0, self.range.1, value].map(scaled);
        (value - low) / (high - low)
    }

    /// Whether a value lies between the ends.
    pub fn shows(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.place(value))
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.place(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        format!("{}", (value * 1e9).round() / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::log("", [0.004, 30.0].into_iter());
        assert_eq!(axis.ticks, [0.01, 0.1, 1.0, 10.0]);
        let texts: Vec<String> = axis.ticks.iter().map(Axis::format).collect();
        assert_eq!(texts, ["0.01", "0.1", "1", "10"]);
        let narrow = Axis::log("", [0.04, 0.6].into_iter());
        let texts: Vec<String> = narrow.ticks.iter().map(Axis::format).collect();
        assert_eq!(texts, ["0.05", "0.1", "0.2", "0.5"]);
        assert_eq!(Axis::log("", [0.35, 0.7].into_iter()).ticks.len(), 6);
        assert_eq!(Axis::log("", std::iter::empty()).ticks.len(), 7);
        assert_eq!(Axis::linear("", [0.0, 47.0].into_iter()).ticks.last(), Some(&50.0));
        assert_eq!(Axis::linear("", std::iter::empty()).range, (0.0, 1.0));
    }
}
