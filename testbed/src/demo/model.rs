//! The model that the demo trains: a character-level language model after Bengio et al.
//! (2003) with a residual layer. A context of characters is embedded, concatenated, and
//! two layers predict the next character. No recurrence, so one matrix product per layer.

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::optim::{AdamW, Optimizer, ParamsAdamW};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Uniform};

use super::text::Batch;
use crate::error::Result;

/// Sizes of the model, equal on every worker.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Different characters.
    pub vocabulary: usize,
    /// Characters seen before the one to predict.
    pub context: usize,
    /// Numbers per embedded character.
    pub embedding: usize,
    /// Width of the two hidden layers.
    pub hidden: usize,
}

/// The usual width of the hidden layers.
pub const WIDE: usize = 480;
/// A width for about 45,000 parameters, for an aggregator that takes milliseconds for a packet.
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
    variables: Vec<Var>,
    optimizer: AdamW,
    /// Number of parameters, that is coordinates of a gradient.
    pub parameters: usize,
}

/// A loss (nats per character) with the gradients of all parameters.
pub struct Gradient {
    /// Mean cross entropy of the batch in nats.
    pub loss: f32,
    /// All parameters' gradients, one after the other.
    pub coordinates: Vec<f32>,
    store: GradStore,
}

impl Model {
    /// Initial parameters are a function of `shape` and `seed` alone.
    pub fn new(shape: Shape, seed: u64, learning_rate: f64) -> Result<Self> {
        let Shape { vocabulary, context, embedding, hidden } = shape;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut variable = |rows: usize, columns: usize, bound: f64| -> Result<Var> {
            let uniform = Uniform::new_inclusive(-bound, bound).expect("a finite positive bound");
            let values: Vec<f32> = (0..rows * columns).map(|_| uniform.sample(&mut random) as f32).collect();
            Ok(Var::from_tensor(&Tensor::from_vec(values, (rows, columns), &Device::Cpu)?)?)
        };
        // Bounds of uniform distributions that keep the variance through a ReLU.
        let kaiming = |inputs: usize| (6.0 / inputs as f64).sqrt();
        let inputs = context * embedding;
        let weights = [
            variable(vocabulary, embedding, 1.0)?,
            variable(inputs, hidden, kaiming(inputs))?,
            variable(hidden, hidden, 0.5 * kaiming(hidden))?,
            variable(hidden, vocabulary, 0.1 * kaiming(hidden))?,
        ];
        let biases =
            [hidden, hidden, vocabulary].map(|width| Var::zeros((1, width), DType::F32, &Device::Cpu));
        let mut variables = weights.to_vec();
        for bias in biases {
            variables.push(bias?);
        }
        let parameters = variables.iter().map(|v| v.elem_count()).sum();
        let optimizer = AdamW::new(
            variables.clone(),
            ParamsAdamW { lr: learning_rate, beta2: 0.99, weight_decay: 0.0, ..ParamsAdamW::default() },
        )?;
        Ok(Self { shape, variables, optimizer, parameters })
    }

    fn cross_entropy(&self, batch: &Batch) -> Result<Tensor> {
        let rows = batch.targets.len();
        let [embedding, first, second, output, bias1, bias2, bias3] = self.variables.as_slice() else {
            unreachable!("Model::new makes seven variables");
        };
        let contexts = Tensor::from_slice(&batch.contexts, batch.contexts.len(), &Device::Cpu)?;
        let targets = Tensor::from_slice(&batch.targets, rows, &Device::Cpu)?;
        let input = embedding
            .index_select(&contexts, 0)?
            .reshape((rows, self.shape.context * self.shape.embedding))?;
        let hidden = input.matmul(first)?.broadcast_add(bias1)?.relu()?;
        let deeper = hidden.matmul(second)?.broadcast_add(bias2)?.relu()?;
        let logits = (hidden + deeper)?.matmul(output)?.broadcast_add(bias3)?;
        let log = candle_nn::ops::log_softmax(&logits, D::Minus1)?;
        Ok(candle_nn::loss::nll(&log, &targets)?)
    }

    /// Mean cross entropy of `batch` in nats per character.
    pub fn loss(&self, batch: &Batch) -> Result<f32> {
        Ok(self.cross_entropy(batch)?.to_scalar()?)
    }

    /// Loss and gradient of `batch` at the present parameters.
    pub fn gradient(&self, batch: &Batch) -> Result<Gradient> {
        let loss = self.cross_entropy(batch)?;
        let store = loss.backward()?;
        let mut coordinates = Vec::with_capacity(self.parameters);
        for variable in &self.variables {
            match store.get(variable) {
                Some(gradient) => {
                    coordinates.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
                }
                None => coordinates.resize(coordinates.len() + variable.elem_count(), 0.0),
            }
        }
        Ok(Gradient { loss: loss.to_scalar()?, coordinates, store })
    }

    /// One optimizer step along `gradient.coordinates`, whatever has been made of them.
    pub fn update(&mut self, mut gradient: Gradient) -> Result<()> {
        let mut rest = gradient.coordinates.as_slice();
        for variable in &self.variables {
            let (own, others) = rest.split_at(variable.elem_count());
            let own = Tensor::from_slice(own, variable.shape(), &Device::Cpu)?;
            gradient.store.insert(variable, own);
            rest = others;
        }
        Ok(self.optimizer.step(&gradient.store)?)
    }

    /// Sets the step size of the next update.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.optimizer.set_learning_rate(rate);
    }

    /// Characters the model sees before the one to predict.
    pub fn context(&self) -> usize {
        self.shape.context
    }

    /// A 64-bit FNV-1a digest of all parameters' bits, in hexadecimal.
    pub fn digest(&self) -> Result<String> {
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        for variable in &self.variables {
            for value in variable.flatten_all()?.to_vec1::<f32>()? {
                digest = (digest ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Ok(format!("{digest:016x}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { vocabulary: 5, context: 3, embedding: 4, hidden: 6 };

    fn batch() -> Batch {
        Batch { contexts: vec![0, 1, 2, 1, 2, 3, 2, 3, 4], targets: vec![3, 4, 0] }
    }

    #[test]
    fn the_seed_alone_decides_the_parameters() {
        let digest = |seed| Model::new(SHAPE, seed, 0.1).unwrap().digest().unwrap();
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }

    #[test]
    fn the_first_loss_is_near_that_of_guessing() {
        let model = Model::new(Shape::demo(76, WIDE), 1, 0.1).unwrap();
        let context = model.context();
        let batch = Batch {
            contexts: (0..20 * context as u32).map(|i| i * 31 % 76).collect(),
            targets: (0..20).collect(),
        };
        let loss = model.loss(&batch).unwrap();
        assert!((loss - 76f32.ln()).abs() < 0.5, "{loss}");
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        // One small step against each block of the gradient changes the loss as predicted.
        let mut model = Model::new(SHAPE, 7, 0.0).unwrap();
        let gradient = model.gradient(&batch()).unwrap();
        assert_eq!(gradient.coordinates.len(), model.parameters);
        let length: f32 = gradient.coordinates.iter().map(|x| x * x).sum();
        let before = model.loss(&batch()).unwrap();
        let mut rest = gradient.coordinates.as_slice();
        let epsilon = 1e-3;
        for variable in &model.variables {
            let (own, others) = rest.split_at(variable.elem_count());
            rest = others;
            let own = Tensor::from_slice(own, variable.shape(), &Device::Cpu).unwrap();
            let moved = (variable.as_tensor() - (own * f64::from(epsilon)).unwrap()).unwrap();
            variable.set(&moved).unwrap();
        }
        let after = model.loss(&batch()).unwrap();
        let predicted = epsilon * length;
        assert!(((before - after) / predicted - 1.0).abs() < 0.05);
        model.update(gradient).unwrap();
    }

    #[test]
    fn updates_lower_the_loss() {
        let mut model = Model::new(SHAPE, 7, 0.05).unwrap();
        let before = model.loss(&batch()).unwrap();
        for _ in 0..30 {
            let gradient = model.gradient(&batch()).unwrap();
            model.update(gradient).unwrap();
        }
        assert!(model.loss(&batch()).unwrap() < 0.2 * before);
    }
}
