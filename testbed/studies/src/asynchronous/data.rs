//! Sparse data of the shape of real-sim and rcv1, and the digits that scikit-learn ships.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use thc_demo::error::{Error, Result};

/// Rows of a sparse matrix with a label of ±1 each.
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    /// d.
    pub columns: usize,
    /// Where each row begins; one more than rows.
    pub starts: Vec<u32>,
    /// The position of each entry.
    pub positions: Vec<u32>,
    /// The value of each entry.
    pub values: Vec<f32>,
    /// ±1 for each row.
    pub labels: Vec<f32>,
}

/// The shape of a data set: rows, columns, entries of a row on average.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub entries: f64,
}

/// As the LIBSVM collection has them.
pub const REAL_SIM: Shape = Shape { rows: 72_309, columns: 20_958, entries: 51.3 };
pub const RCV1: Shape = Shape { rows: 20_242, columns: 47_236, entries: 74.1 };

impl Shape {
    /// With this share of rows and columns.
    pub fn with_scale(self, scale: f64) -> Self {
        let part = |n: usize| ((n as f64 * scale) as usize).max(50);
        Self { rows: part(self.rows), columns: part(self.columns), ..self }
    }
}

impl Sparse {
    /// Rows like those of text of two classes, equally frequent: column j is in a row with a chance that falls as 1/j, two
    /// columns in five prefer one class and are replaced by others four times in five in rows of the other one; entries are
    /// term frequencies weighted by rarity, rows have length 1, and one label in 50 is wrong. So a plane gets 19 rows in
    /// 20 right, and the loss falls below 0.3, as with the real data.
    pub fn generate(shape: Shape, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // ±1 for columns that prefer a class.
        let preferred: Vec<f32> = (0..shape.columns)
            .map(|_| match random.random_range(0..5) {
                0 => 1.0,
                1 => -1.0,
                _ => 0.0,
            })
            .collect();
        let mut data = Self {
            columns: shape.columns,
            starts: vec![0],
            positions: Vec::new(),
            values: Vec::new(),
            labels: Vec::new(),
        };
        let mut row: Vec<(u32, f32)> = Vec::new();
        let span = (shape.columns as f64).ln();
        let draw = |random: &mut ChaCha8Rng| {
            let column = (random.random::<f64>() * span).exp() as usize;
            column.min(shape.columns - 1) as u32
        };
        for _ in 0..shape.rows {
            row.clear();
            let class: f32 = if random.random() { 1.0 } else { -1.0 };
            // Doubles are merged: more are drawn than stay, by about a tenth.
            let wanted = (shape.entries * (0.5 + random.random::<f64>())).max(1.0) as usize;
            let wanted = wanted.min(shape.columns / 4);
            while row.len() < wanted {
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
                if row.len() * 10 >= wanted * 8 {
                    break;
                }
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

    /// Positions and values of a row.
    pub fn row(&self, i: usize) -> (&[u32], &[f32]) {
        let range = self.starts[i] as usize..self.starts[i + 1] as usize;
        (&self.positions[range.clone()], &self.values[range])
    }
}

/// Images of 8 × 8 and which digit each shows.
#[derive(Debug, Clone)]
pub struct Digits {
    /// 64 for each image, 0 to 1.
    pub pixels: Vec<f32>,
    pub labels: Vec<u8>,
}

/// What scikit-learn's module writes: 64 pixels of 0 to 16 and the label, a byte each.
const DUMP: &str = "import sys\nfrom sklearn.datasets import load_digits\nd = load_digits()\n\
                    sys.stdout.buffer.write(b''.join(bytes(int(v) for v in row) + bytes([int(t)]) \
                    for row, t in zip(d.data, d.target)))";

fn no_digits(reason: &str) -> Error {
    Error::Failure(format!("no digits: {reason} (install scikit-learn: apt-get install python3-sklearn)"))
}

impl Digits {
    /// From the installed scikit-learn, by whichever Python has it, into a file that workers read.
    pub fn dump(folder: &std::path::Path) -> Result<PathBuf> {
        let mut reason = "python3 was not found".to_owned();
        for python in ["python3", "/usr/bin/python3"] {
            let output =
                Command::new(python).args(["-c", DUMP]).stdin(Stdio::null()).stderr(Stdio::piped()).output();
            match output {
                Ok(output) if output.status.success() => {
                    let path = folder.join("digits");
                    std::fs::write(&path, output.stdout)
                        .map_err(|source| Error::File { path: path.clone(), source })?;
                    return Ok(path);
                }
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    text.lines().last().unwrap_or("it failed").clone_into(&mut reason);
                }
                Err(_) => {}
            }
        }
        Err(no_digits(&reason))
    }

    /// What [`Self::dump`] wrote.
    pub fn read(path: &std::path::Path) -> Result<Self> {
        let file = |source| Error::File { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(file)?;
        let rows = bytes.chunks_exact(65);
        if !rows.remainder().is_empty() || rows.len() == 0 || rows.clone().any(|row| row[64] > 9) {
            return Err(no_digits("what python3 wrote is not the data set"));
        }
        let pixels = rows.clone().flat_map(|row| row[..64].iter().map(|v| f32::from(*v) / 16.0)).collect();
        Ok(Self { pixels, labels: rows.map(|row| row[64]).collect() })
    }

    /// Images of which each is its class's stroke with noise: where a test needs no real ones.
    #[cfg(test)]
    pub fn generate(count: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let classes: Vec<f32> = (0..640).map(|_| random.random()).collect();
        let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
        let pixels = labels
            .iter()
            .flat_map(|label| classes[64 * usize::from(*label)..][..64].to_vec())
            .map(|v| (v + 0.3 * (random.random::<f32>() - 0.5)).clamp(0.0, 1.0))
            .collect();
        Self { pixels, labels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_rows_have_the_shape() {
        let shape = RCV1.with_scale(0.02);
        let data = Sparse::generate(shape, 1);
        assert_eq!(data, Sparse::generate(shape, 1));
        assert_eq!((data.labels.len(), data.columns), (shape.rows, shape.columns));
        let entries = data.positions.len() as f64 / shape.rows as f64;
        assert!((entries / shape.entries - 1.0).abs() < 0.2, "{entries} entries in a row");
        for i in 0..shape.rows {
            let (positions, values) = data.row(i);
            assert!(positions.windows(2).all(|w| w[0] < w[1]));
            assert!(positions.iter().all(|p| (*p as usize) < data.columns));
            assert!((values.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-4);
        }
        let positive = data.labels.iter().filter(|l| **l > 0.0).count();
        assert!(positive > shape.rows / 4 && positive < shape.rows * 3 / 4);
    }
}
