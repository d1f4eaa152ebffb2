//! Sparse rows like those of text of two classes, and the logistic loss on them.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rows of a sparse matrix with a label of ±1 each.
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    /// d.
    pub columns: usize,
    /// The beginning of each row, and the end of the last one.
    starts: Vec<u32>,
    /// The position of each entry.
    positions: Vec<u32>,
    /// The value of each entry.
    values: Vec<f32>,
    /// ±1 for each row.
    pub labels: Vec<f32>,
}

impl Sparse {
    /// Makes rows with about `entries` entries each. Column j is in a row with a chance that falls as 1/j. Two columns in five prefer
    /// one class, and are replaced by others four times in five in rows of the other one. Entries are term frequencies weighted by
    /// rarity, rows have length 1, and one label in 50 is wrong. So a plane gets 19 rows in 20 right, and the loss falls below 0.3, as
    /// with the real data.
    pub fn generate(rows: usize, columns: usize, entries: f64, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // ±1 for columns that prefer a class.
        let preferred: Vec<f32> = (0..columns)
            .map(|_| match random.random_range(0..5) {
                0 => 1.0,
                1 => -1.0,
                _ => 0.0,
            })
            .collect();
        let (starts, positions, values, labels) = (vec![0], Vec::new(), Vec::new(), Vec::new());
        let mut data = Self { columns, starts, positions, values, labels };
        let mut row: Vec<(u32, f32)> = Vec::new();
        let span = (columns as f64).ln();
        let draw = |random: &mut ChaCha8Rng| {
            let column = (random.random::<f64>() * span).exp() as usize;
            column.min(columns - 1) as u32
        };
        for _ in 0..rows {
            row.clear();
            let class: f32 = if random.random() { 1.0 } else { -1.0 };
            let wanted = (entries * (0.5 + random.random::<f64>())).max(1.0) as usize;
            let wanted = wanted.min(columns / 4);
            // Doubles are merged, so more entries are drawn until a row has four fifths of those that it should have.
            while row.len() * 10 < wanted * 8 {
                while row.len() < wanted {
                    let mut column = draw(&mut random);
                    if preferred[column as usize] * class < 0.0 && random.random_range(0..5) > 0 {
                        column = draw(&mut random);
                    }
                    row.push((column, 1.0));
                }
                row.sort_unstable_by_key(|entry| entry.0);
                row.dedup_by(|b, a| {
                    a.0 == b.0 && {
                        a.1 += b.1;
                        true
                    }
                });
            }
            for (column, value) in &mut row {
                *value = (1.0 + value.ln()) * (1.0 + 0.1 * f32::ln(1.0 + *column as f32));
            }
            let length = row.iter().map(|(_, v)| v * v).sum::<f32>().sqrt();
            for (column, value) in &row {
                data.positions.push(*column);
                data.values.push(value / length);
            }
            data.starts.push(data.positions.len() as u32);
            data.labels.push(if random.random_range(0..50) == 0 { -class } else { class });
        }
        data
    }

    /// Adds the gradients of rows to `out`, and returns the sum of their losses.
    pub fn accumulate(&self, rows: impl Iterator<Item = usize>, x: &[f32], out: &mut [f32]) -> f64 {
        let mut loss = 0.0;
        for i in rows {
            let range = self.starts[i] as usize..self.starts[i + 1] as usize;
            let (positions, values) = (&self.positions[range.clone()], &self.values[range]);
            let inner: f32 = positions.iter().zip(values).map(|(j, a)| a * x[*j as usize]).sum();
            let margin = f64::from(inner * self.labels[i]);
            // −y·σ(−margin)
            let factor = -self.labels[i] * (1.0 / (1.0 + margin.exp())) as f32;
            for (j, a) in positions.iter().zip(values) {
                out[*j as usize] += factor * a;
            }
            loss += (-margin).exp().ln_1p();
        }
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_rows_have_the_shape() {
        let data = Sparse::generate(404, 944, 74.1, 1);
        assert_eq!(data, Sparse::generate(404, 944, 74.1, 1));
        let entries = data.positions.len() as f64 / data.labels.len() as f64;
        assert!((entries / 74.1 - 1.0).abs() < 0.2, "{entries} entries in a row");
        for (i, ends) in data.starts.windows(2).enumerate() {
            let range = ends[0] as usize..ends[1] as usize;
            let (positions, values) = (&data.positions[range.clone()], &data.values[range]);
            assert!(positions.windows(2).all(|w| w[0] < w[1]), "row {i}");
            assert!(positions.iter().all(|p| (*p as usize) < data.columns));
            assert!((values.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-4);
        }
        let positive = data.labels.iter().filter(|l| **l > 0.0).count();
        assert!(positive > data.labels.len() / 4 && positive < data.labels.len() * 3 / 4);
    }

    /// Gradients against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_losses() {
        let data = Sparse::generate(700, 200, 50.0, 3);
        let x: Vec<f32> = (0..data.columns).map(|i| 0.1 * (i as f32).sin()).collect();
        let mut gradient = vec![0.0; x.len()];
        data.accumulate(0..20, &x, &mut gradient);
        for (i, got) in gradient.iter().enumerate() {
            let at = |step: f32| {
                let mut moved = x.clone();
                moved[i] += step;
                data.accumulate(0..20, &moved, &mut vec![0.0; x.len()])
            };
            let expected = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!(
                (f64::from(*got) - expected).abs() < 0.05 * expected.abs() + 1e-3,
                "{got} for {expected}"
            );
        }
    }
}
