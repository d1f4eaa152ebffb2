//! PowerSGD, which sends a matrix of low rank instead of the gradient.

use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};
use thc_codec::CodecError;
use thc_codec::rounding::Rounding;

/// PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019) with error feedback and warm start.
///
/// The tensor, gradient plus error feedback, becomes a matrix M with about as many rows as columns, row
/// after row, padded with zeros (the paper uses the shape of each layer, which often has more structure).
/// A round is one step of power iteration: P = M·Q is averaged over workers and made orthonormal, then
/// Q = Mᵀ·P is averaged. The estimate is P·Qᵀ, and the next round begins with this Q. Both averages are
/// sums of floats, so the server needs no decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerSgd {
    /// The rank r, at least 1.
    pub rank: usize,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    dimension: usize,
    rows: usize,
    columns: usize,
    rank: usize,
}

impl PowerSgd {
    fn shape(&self, dimension: usize) -> Result<Shape> {
        let rows = (dimension as f64).sqrt().ceil().max(1.0) as usize;
        let columns = dimension.div_ceil(rows);
        if self.rank == 0 || self.rank > rows.min(columns) {
            let (what, value) = ("the rank of PowerSGD", self.rank as f64);
            return Err(CodecError::Parameter {
                what,
                value,
                allowed: "1 to the rows and columns of the matrix",
            });
        }
        Ok(Shape { dimension, rows, columns, rank: self.rank })
    }
}

impl Scheme for PowerSgd {
    fn name(&self) -> String {
        format!("PowerSGD rank {}", self.rank)
    }

    fn source(&self) -> &'static str {
        "Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019"
    }

    fn properties(&self) -> Properties {
        Properties { unbiased: false, homomorphic: true, error_feedback: true, recompressed: false }
    }

    fn bits(&self, dimension: usize, _: u32) -> Result<Bits> {
        let shape = self.shape(dimension)?;
        let bits = 32 * (shape.rank * (shape.rows + shape.columns)) as u64;
        Ok(Bits { up: bits, down: bits })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        let shape = self.shape(participant.dimension)?;
        // Any start of full rank that is the same for all workers will do. This one is uniform on [-0.5, 0.5).
        let random = Rounding::new(participant.shared_seed, 0, 0);
        let q = (0..shape.columns * shape.rank).map(|i| random.uniform(i as u64) - 0.5).collect();
        Ok(Box::new(PowerWorker { shape, p: Vec::new(), q, feedback: vec![0.0; participant.dimension] }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(PowerServer { shape: self.shape(participant.dimension)? }))
    }
}

impl Shape {
    /// M·`q`, rows × rank, row after row, as is `q`.
    fn times(&self, m: &[f32], q: &[f32]) -> Vec<f32> {
        let mut p = vec![0.0; self.rows * self.rank];
        for (row, p) in m.chunks(self.columns).zip(p.chunks_mut(self.rank)) {
            for (m, q) in row.iter().zip(q.chunks(self.rank)) {
                p.iter_mut().zip(q).for_each(|(p, q)| *p += m * q);
            }
        }
        p
    }

    /// Mᵀ·`p`, columns × rank.
    fn transposed_times(&self, m: &[f32], p: &[f32]) -> Vec<f32> {
        let mut q = vec![0.0; self.columns * self.rank];
        for (row, p) in m.chunks(self.columns).zip(p.chunks(self.rank)) {
            for (m, q) in row.iter().zip(q.chunks_mut(self.rank)) {
                q.iter_mut().zip(p).for_each(|(q, p)| *q += m * p);
            }
        }
        q
    }

    /// The first coordinates of P·Qᵀ.
    fn product(&self, p: &[f32], q: &[f32]) -> Vec<f32> {
        let mut m = Vec::with_capacity(self.rows * self.columns);
        for p in p.chunks(self.rank) {
            m.extend(q.chunks(self.rank).map(|q| p.iter().zip(q).map(|(p, q)| p * q).sum::<f32>()));
        }
        m.truncate(self.dimension);
        m
    }

    /// Makes the columns of `p` orthonormal (by Gram-Schmidt, twice for accuracy). A column that depends
    /// on earlier ones becomes zero.
    fn orthonormalise(&self, p: &mut [f32]) {
        for column in 0..self.rank {
            let length = |p: &[f32]| {
                p.iter().skip(column).step_by(self.rank).map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
            };
            let before = length(p);
            for other in (0..column).chain(0..column) {
                let rows = p.chunks(self.rank);
                let dot: f64 = rows.map(|row| f64::from(row[column]) * f64::from(row[other])).sum();
                for row in p.chunks_mut(self.rank) {
                    row[column] -= (dot * f64::from(row[other])) as f32;
                }
            }
            let after = length(p);
            let scale = if after > 1e-5 * before { 1.0 / after } else { 0.0 };
            for row in p.chunks_mut(self.rank) {
                row[column] = (f64::from(row[column]) * scale) as f32;
            }
        }
    }
}

struct PowerWorker {
    shape: Shape,
    p: Vec<f32>,
    q: Vec<f32>,
    feedback: Vec<f32>,
}

impl PowerWorker {
    fn solve_q(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let mut q = result.floats(self.shape.columns * self.shape.rank)?;
        q.iter_mut().for_each(|v| *v /= count as f32);
        Ok(q)
    }
}

impl WorkerSide for PowerWorker {
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let m = with_feedback(gradient, &self.feedback)?;
        Ok(Message::from_floats(&self.shape.times(&m, &self.q)))
    }

    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message> {
        let mut m = with_feedback(gradient, &self.feedback)?;
        self.p = agreed.floats(self.shape.rows * self.shape.rank)?;
        self.shape.orthonormalise(&mut self.p);
        let q = self.shape.transposed_times(&m, &self.p);
        for (m, sent) in m.iter_mut().zip(self.shape.product(&self.p, &q)) {
            *m -= sent;
        }
        self.feedback = m;
        Ok(Message::from_floats(&q))
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        Ok(self.shape.product(&self.p, &self.solve_q(result, count)?))
    }

    fn learn(&mut self, result: &Message, count: u32) -> Result<()> {
        let q = self.solve_q(result, count)?;
        // If all gradients are zero, Q keeps its value, since a zero Q would stay zero for ever.
        if q.iter().any(|v| *v != 0.0) {
            self.q = q;
        }
        Ok(())
    }

    fn feedback(&self) -> Option<&[f32]> {
        Some(&self.feedback)
    }
}

struct PowerServer {
    shape: Shape,
}

fn sum(messages: &[Message], count: usize) -> Result<Message> {
    let mut sum = vec![0.0_f32; count];
    for message in messages {
        sum.iter_mut().zip(message.floats(count)?).for_each(|(s, v)| *s += v);
    }
    Ok(Message::from_floats(&sum))
}

impl ServerSide for PowerServer {
    /// The sum of all P, which has the same columns as their mean after it is made orthonormal.
    fn agree(&mut self, announcements: &[Message]) -> Result<Message> {
        sum(announcements, self.shape.rows * self.shape.rank)
    }

    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        sum(messages, self.shape.columns * self.shape.rank)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;

    #[test]
    fn sizes_by_hand() {
        // 1000 coordinates: 32 rows of 32 columns.
        let bits = 32 * 2 * (32 + 32);
        assert_eq!(PowerSgd { rank: 2 }.bits(1000, 4).unwrap(), Bits { up: bits, down: bits });
        assert!(PowerSgd { rank: 0 }.bits(1000, 4).is_err());
        assert!(PowerSgd { rank: 33 }.bits(1000, 4).is_err());
    }

    #[test]
    fn a_matrix_of_low_rank_is_kept() {
        // 30 rows, 30 columns, rank 2.
        let at = |i: usize, j: usize| (i as f32).sin() * (j as f32 + 1.0) + (i as f32).cos();
        let x: Vec<f32> = (0..900).map(|k| at(k / 30, k % 30)).collect();
        let mut group = SchemeGroup::new(&PowerSgd { rank: 2 }, 900, 3, 1).unwrap();
        let mean = group.allreduce(&[&x[..]; 3]).unwrap().mean;
        for (x, m) in x.iter().zip(&mean) {
            assert!((x - m).abs() < 1e-3, "{x} {m}");
        }
        // A rank above that of the matrix changes nothing, and zeros cause no error.
        let mut group = SchemeGroup::new(&PowerSgd { rank: 4 }, 900, 1, 1).unwrap();
        assert_eq!(group.allreduce(&[&[0.0; 900]]).unwrap().mean, [0.0; 900]);
        let mean = group.allreduce(&[&x]).unwrap().mean;
        assert!(x.iter().zip(&mean).all(|(x, m)| (x - m).abs() < 1e-3));
    }

    #[test]
    fn warm_start_improves_the_subspace() {
        // The same matrix in every round, without the effect of error feedback, which is subtracted.
        let x: Vec<f32> = (0..1024).map(|k| ((k * k) as f32 * 0.01).sin() + (k % 32) as f32 * 0.1).collect();
        let scheme = PowerSgd { rank: 1 };
        let mut worker = scheme.worker(Participant::worker(1024, 1, 0, 5)).unwrap();
        let mut server = scheme.server(Participant::server(1024, 1, 5)).unwrap();
        let mut errors = Vec::new();
        for _ in 0..6 {
            let lost: Vec<f32> = worker.feedback().unwrap().to_vec();
            let gradient: Vec<f32> = x.iter().zip(lost).map(|(x, e)| x - e).collect();
            let announced = worker.announce(&gradient).unwrap();
            let agreed = server.agree(&[announced]).unwrap();
            let message = worker.compress(&gradient, &agreed).unwrap();
            let result = server.aggregate(&[message]).unwrap();
            let mean = worker.decompress(&result, 1).unwrap();
            worker.learn(&result, 1).unwrap();
            errors.push(x.iter().zip(mean).map(|(x, m)| f64::from(x - m).powi(2)).sum::<f64>());
        }
        assert!(errors.windows(2).all(|w| w[1] <= w[0] * (1.0 + 1e-6)), "{errors:?}");
        assert!(errors[5] < errors[0], "{errors:?}");
    }
}
