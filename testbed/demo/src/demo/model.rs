//! The model that the demo trains: a character-level language model after Bengio et al. (2003) with
//! a residual layer. Embeddings of a context of characters are concatenated, and two layers predict
//! the next character. Without recurrence each layer is one matrix product, and there are so few
//! operations that this file also has their derivatives.

use ndarray::{Array2, ArrayView2, Axis, Zip};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Uniform};

use super::adam::Adam;
use super::text::Batch;

/// Sizes of the model, equal on every worker.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of different characters.
    pub vocabulary: usize,
    /// The number of characters before the one to predict.
    pub context: usize,
    /// The number of coordinates of an embedded character.
    pub embedding: usize,
    /// Width of the two hidden layers.
    pub hidden: usize,
}

/// The usual width of the hidden layers.
pub const WIDE: usize = 480;
/// A width for about 45,000 parameters, for an aggregator that needs milliseconds per packet.
pub const NARROW: usize = 64;

impl Shape {
    /// The demo's model for a vocabulary: about half a million parameters with the width [`WIDE`].
    pub fn demo(vocabulary: usize, hidden: usize) -> Self {
        Self { vocabulary, context: 16, embedding: 32, hidden }
    }
}

/// The model with its optimizer.
pub struct Model {
    shape: Shape,
    /// Embedding, weights of the three layers, then their biases.
    parameters: Vec<f32>,
    optimizer: Adam,
}

/// A loss (nats per character) with the gradients of all parameters.
pub struct Gradient {
    /// Mean cross entropy of the batch in nats.
    pub loss: f32,
    /// All parameters' gradients, one after the other.
    pub coordinates: Vec<f32>,
}

/// The parameters, or their gradients, as matrices.
struct Parts<T> {
    embedding: T,
    weights: [T; 3],
    biases: [T; 3],
}

/// The outputs of the layers for a batch, with an example in each row.
struct Activations {
    input: Array2<f32>,
    first: Array2<f32>,
    second: Array2<f32>,
    /// The sum of both layers, from which the prediction is made.
    sum: Array2<f32>,
    /// Probabilities of the next character.
    probabilities: Array2<f32>,
    /// Mean cross entropy in nats.
    loss: f32,
}

impl Shape {
    /// Rows and columns of each part, in the order of the parameters.
    fn parts(&self) -> [(usize, usize); 7] {
        let Self { vocabulary, context, embedding, hidden } = *self;
        [
            (vocabulary, embedding),
            (context * embedding, hidden),
            (hidden, hidden),
            (hidden, vocabulary),
            (1, hidden),
            (1, hidden),
            (1, vocabulary),
        ]
    }

    fn cut<'a>(&self, mut vector: &'a [f32]) -> Parts<ArrayView2<'a, f32>> {
        let [embedding, w1, w2, w3, b1, b2, b3] = self.parts().map(|(rows, columns)| {
            let (own, rest) = vector.split_at(rows * columns);
            vector = rest;
            ArrayView2::from_shape((rows, columns), own).expect("as many as rows and columns")
        });
        Parts { embedding, weights: [w1, w2, w3], biases: [b1, b2, b3] }
    }
}

impl Model {
    /// Creates a model whose initial parameters depend only on `shape` and `seed`.
    pub fn new(shape: Shape, seed: u64, learning_rate: f64) -> Self {
        let Shape { context, embedding, hidden, .. } = shape;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // Bounds of uniform distributions that keep the variance through a ReLU.
        let kaiming = |inputs: usize| (6.0 / inputs as f64).sqrt();
        let bounds = [1.0, kaiming(context * embedding), 0.5 * kaiming(hidden), 0.1 * kaiming(hidden)];
        let sizes = shape.parts().map(|(rows, columns)| rows * columns);
        let mut parameters = Vec::with_capacity(sizes.iter().sum());
        for (size, bound) in sizes.iter().zip(bounds) {
            let uniform = Uniform::new_inclusive(-bound, bound).expect("a finite positive bound");
            parameters.extend((0..*size).map(|_| uniform.sample(&mut random) as f32));
        }
        parameters.resize(sizes.iter().sum(), 0.0);
        let optimizer = Adam::new(parameters.len(), learning_rate);
        Self { shape, parameters, optimizer }
    }

    /// The number of parameters, which is the number of coordinates of a gradient.
    pub fn coordinates(&self) -> usize {
        self.parameters.len()
    }

    fn forward(&self, batch: &Batch) -> Activations {
        let rows = batch.targets.len();
        let Parts { embedding, weights: [w1, w2, w3], biases: [b1, b2, b3] } =
            self.shape.cut(&self.parameters);
        let mut input = Vec::with_capacity(rows * w1.nrows());
        for &character in &batch.contexts {
            input.extend(embedding.row(character as usize));
        }
        let input = Array2::from_shape_vec((rows, w1.nrows()), input).expect("a context for each target");
        let relu = |x: f32| x.max(0.0);
        let first = (input.dot(&w1) + b1).mapv_into(relu);
        let second = (first.dot(&w2) + b2).mapv_into(relu);
        let sum = &first + &second;
        let mut probabilities = sum.dot(&w3) + b3;
        let mut loss = 0.0;
        for (mut scores, &target) in probabilities.outer_iter_mut().zip(&batch.targets) {
            let top = scores.fold(f32::MIN, |a, &b| a.max(b));
            let of_target = scores[target as usize];
            scores.mapv_inplace(|score| (score - top).exp());
            let total = scores.sum();
            scores /= total;
            loss += f64::from(total.ln() + top - of_target);
        }
        let loss = (loss / rows as f64) as f32;
        Activations { input, first, second, sum, probabilities, loss }
    }

    /// Mean cross entropy of `batch` in nats per character.
    pub fn loss(&self, batch: &Batch) -> f32 {
        self.forward(batch).loss
    }

    /// Computes the loss and the gradient of `batch` at the current parameters.
    pub fn gradient(&self, batch: &Batch) -> Gradient {
        let Activations { input, first, second, sum, mut probabilities, loss } = self.forward(batch);
        let Parts { embedding, weights: [w1, w2, w3], .. } = self.shape.cut(&self.parameters);
        for (mut row, &target) in probabilities.outer_iter_mut().zip(&batch.targets) {
            row[target as usize] -= 1.0;
        }
        let behind_output = probabilities / batch.targets.len() as f32;
        // An inactive unit passes no gradient back.
        let passed = |mut behind: Array2<f32>, unit: &Array2<f32>| {
            Zip::from(&mut behind).and(unit).for_each(|b, &u| *b = if u > 0.0 { *b } else { 0.0 });
            behind
        };
        let behind_sum = behind_output.dot(&w3.t());
        let behind_second = passed(behind_sum.clone(), &second);
        let behind_first = passed(behind_sum + behind_second.dot(&w2.t()), &first);
        let behind_input = behind_first.dot(&w1.t());
        let mut of_embedding = Array2::<f32>::zeros(embedding.dim());
        let width = embedding.ncols();
        for (row, characters) in
            behind_input.outer_iter().zip(batch.contexts.chunks_exact(self.shape.context))
        {
            for (part, &character) in row.exact_chunks(width).into_iter().zip(characters) {
                of_embedding.row_mut(character as usize).zip_mut_with(&part, |sum, x| *sum += x);
            }
        }
        let of_weights =
            [input.t().dot(&behind_first), first.t().dot(&behind_second), sum.t().dot(&behind_output)];
        let of_biases = [behind_first, behind_second, behind_output].map(|b| b.sum_axis(Axis(0)));
        let mut coordinates = Vec::with_capacity(self.parameters.len());
        coordinates.extend(of_embedding);
        of_weights.iter().for_each(|each| coordinates.extend(each));
        of_biases.iter().for_each(|each| coordinates.extend(each));
        Gradient { loss, coordinates }
    }

    /// Takes one optimizer step along `gradient.coordinates`, which may be an average.
    pub fn update(&mut self, gradient: &Gradient) {
        self.optimizer.step(&mut self.parameters, &gradient.coordinates);
    }

    /// Sets the step size of the next update.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.optimizer.rate = rate;
    }

    /// The number of characters before the one to predict.
    pub fn context(&self) -> usize {
        self.shape.context
    }

    /// A 64-bit FNV-1a digest of all parameters' bits, in hexadecimal.
    pub fn digest(&self) -> String {
        let digest = self.parameters.iter().fold(0xcbf2_9ce4_8422_2325u64, |digest, value| {
            (digest ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{digest:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { vocabulary: 5, context: 3, embedding: 4, hidden: 6 };

    fn batch() -> Batch {
        Batch { contexts: vec![0, 1, 2, 1, 2, 3, 2, 3, 4], targets: vec![3, 4, 0] }
    }

    #[test]
    fn the_seed_alone_decides_the_parameters() {
        let digest = |seed| Model::new(SHAPE, seed, 0.1).digest();
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }

    #[test]
    fn the_first_loss_is_near_that_of_guessing() {
        let model = Model::new(Shape::demo(76, WIDE), 1, 0.1);
        let context = model.context();
        let batch = Batch {
            contexts: (0..20 * context as u32).map(|i| i * 31 % 76).collect(),
            targets: (0..20).collect(),
        };
        let loss = model.loss(&batch);
        assert!((loss - 76f32.ln()).abs() < 0.5, "{loss}");
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let model = Model::new(SHAPE, 7, 0.0);
        let gradient = model.gradient(&batch());
        assert_eq!(gradient.coordinates.len(), model.coordinates());
        // By central differences, coordinate by coordinate.
        let loss_with = |i: usize, moved: f32| {
            let mut other = Model::new(SHAPE, 7, 0.0);
            other.parameters[i] += moved;
            f64::from(other.loss(&batch()))
        };
        let epsilon = 1e-2;
        for (i, &found) in gradient.coordinates.iter().enumerate() {
            let slope = (loss_with(i, epsilon) - loss_with(i, -epsilon)) / f64::from(2.0 * epsilon);
            assert!((f64::from(found) - slope).abs() < 2e-3, "{i}: {found} and {slope}");
        }
    }

    #[test]
    fn updates_lower_the_loss() {
        let mut model = Model::new(SHAPE, 7, 0.05);
        let before = model.loss(&batch());
        for _ in 0..30 {
            let gradient = model.gradient(&batch());
            model.update(&gradient);
        }
        assert!(model.loss(&batch()) < 0.2 * before);
    }
}
