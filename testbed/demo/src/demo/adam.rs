//! The optimizer Adam (Kingma and Ba, 2015), without weight decay.

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.99;
const EPSILON: f32 = 1e-8;

/// The running moments of a gradient.
pub struct Adam {
    /// The step size.
    pub rate: f64,
    means: Vec<f32>,
    squares: Vec<f32>,
    steps: i32,
}

impl Adam {
    /// The optimizer of so many parameters.
    pub fn new(parameters: usize, rate: f64) -> Self {
        Self { rate, means: vec![0.0; parameters], squares: vec![0.0; parameters], steps: 0 }
    }

    /// Moves `parameters` one step along `gradient`.
    ///
    /// # Panics
    ///
    /// If either has another length than [`Adam::new`] was told.
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        assert!(parameters.len() == self.means.len() && gradient.len() == self.means.len());
        self.steps += 1;
        // Both moments begin at zero; these make up for it.
        let rate = (self.rate / (1.0 - BETA1.powi(self.steps))) as f32;
        let scale = (1.0 / (1.0 - BETA2.powi(self.steps))) as f32;
        let (beta1, beta2) = (BETA1 as f32, BETA2 as f32);
        let moments = self.means.iter_mut().zip(&mut self.squares);
        for ((parameter, &g), (mean, square)) in parameters.iter_mut().zip(gradient).zip(moments) {
            *mean = beta1 * *mean + (1.0 - beta1) * g;
            *square = beta2 * *square + (1.0 - beta2) * g * g;
            *parameter -= rate * *mean / ((*square * scale).sqrt() + EPSILON);
        }
    }
}
