//! Quadratic problems: convex and smooth, with everything that theory speaks of at hand.

/// A quadratic problem: f_i(x) = ½ Σ_j a_ij (x_j − c_ij)². Every f_i is L-smooth with L = max a.
pub struct Quadratic {
    pub a: Vec<Vec<f32>>,
    pub c: Vec<Vec<f32>>,
}

impl Quadratic {
    pub fn new(samples: usize, coordinates: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut vectors = |low: f32, high: f32| {
            let one = |random: &mut fastrand::Rng| low + (high - low) * random.f32();
            (0..samples)
                .map(|_| (0..coordinates).map(|_| one(&mut random)).collect())
                .collect::<Vec<Vec<f32>>>()
        };
        Self { a: vectors(0.1, 1.0), c: vectors(-1.0, 1.0) }
    }

    pub fn gradient(&self, i: usize, x: &[f32]) -> Vec<f32> {
        x.iter().zip(&self.a[i]).zip(&self.c[i]).map(|((x, a), c)| a * (x - c)).collect()
    }

    pub fn full(&self, x: &[f32]) -> Vec<f32> {
        let n = self.a.len() as f32;
        let mut sum = vec![0.0; x.len()];
        for i in 0..self.a.len() {
            sum.iter_mut().zip(self.gradient(i, x)).for_each(|(sum, g)| *sum += g / n);
        }
        sum
    }
}

pub fn minus(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

pub fn square(x: &[f32]) -> f64 {
    x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum()
}
