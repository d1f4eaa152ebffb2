//! TernGrad, which sends −s, 0 or s for each coordinate, where s is the largest magnitude.

use super::check_len;
use super::message::Writer;
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, width};
use thc_codec::CodecError;
use thc_codec::rounding::Rounding;

/// TernGrad (Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017) with scaler sharing.
///
/// The scale s of a layer is the largest magnitude that any worker has in it, which all workers know after
/// the preliminary stage. A coordinate g becomes sign(g)·s with probability |g|/s, and 0 otherwise. Since all
/// workers use the same scale, the server adds ternary digits and sends their sums, without decompression and
/// without a further error (the paper's parameter localisation and scaler sharing).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TernGrad {
    /// The number of coordinates of a layer, which has a scale of its own. `None`: the tensor is one layer.
    pub layer: Option<usize>,
    /// Clip to this many standard deviations of a layer first. The paper uses 2.5, which makes the
    /// scheme biased. `None` does not clip.
    pub clip: Option<f32>,
}

impl TernGrad {
    /// The length of a layer in a tensor of `dimension` coordinates.
    fn layer(&self, dimension: usize) -> Result<usize> {
        let refuse = |what, value, allowed| Err(CodecError::Parameter { what, value, allowed });
        match (self.clip, self.layer) {
            (Some(clip), _) if !(clip.is_finite() && clip > 0.0) => {
                refuse("the clipping threshold in standard deviations", f64::from(clip), "above 0")
            }
            (_, Some(0)) => refuse("the length of a layer", 0.0, "at least 1"),
            (_, layer) => Ok(layer.unwrap_or(dimension).min(dimension)),
        }
    }
}

/// The bits of a sum of the ternary digits 0, 1, 2 of `workers` workers.
fn sum_width(workers: u32) -> u32 {
    width(2 * u64::from(workers))
}

impl Scheme for TernGrad {
    fn name(&self) -> String {
        match self.clip {
            Some(clip) => format!("TernGrad, clipped at {clip}σ"),
            None => "TernGrad".to_owned(),
        }
    }

    fn properties(&self) -> Properties {
        Properties {
            unbiased: self.clip.is_none(),
            homomorphic: true,
            error_feedback: false,
            recompressed: false,
        }
    }

    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        let scales = 32 * dimension.div_ceil(self.layer(dimension)?) as u64;
        let d = dimension as u64;
        Ok(Bits { up: scales + 2 * d, down: scales + u64::from(sum_width(workers)) * d })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        Ok(Box::new(TernGradWorker {
            layer: self.layer(participant.dimension)?,
            clip: self.clip,
            participant,
            scales: Vec::new(),
            call: 0,
        }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        Ok(Box::new(TernGradServer {
            layers: participant.dimension.div_ceil(self.layer(participant.dimension)?),
            participant,
        }))
    }
}

struct TernGradWorker {
    layer: usize,
    clip: Option<f32>,
    participant: Participant,
    scales: Vec<f32>,
    call: u64,
}

/// The bound of a layer's magnitudes after clipping.
fn bound(layer: &[f32], clip: Option<f32>) -> f32 {
    let largest = layer.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let Some(clip) = clip else { return largest };
    let count = layer.len() as f64;
    let mean = layer.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
    let variance = layer.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / count;
    largest.min((f64::from(clip) * variance.sqrt()) as f32)
}

impl WorkerSide for TernGradWorker {
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let bounds: Vec<f32> = gradient.chunks(self.layer).map(|layer| bound(layer, self.clip)).collect();
        Ok(Message::from_floats(&bounds))
    }

    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message> {
        check_len("gradient", self.participant.dimension, gradient.len())?;
        self.scales = agreed.floats(gradient.len().div_ceil(self.layer))?;
        let rounding = Rounding::new(self.participant.private_seed, self.call, 0);
        self.call += 1;
        let mut writer = Writer::new(2 * gradient.len() as u64);
        let mut i = 0;
        for (layer, scale) in gradient.chunks(self.layer).zip(&self.scales) {
            let bound = bound(layer, self.clip);
            for g in layer {
                let sent = rounding.uniform(i) * scale < g.abs().min(bound);
                writer.put(
                    if !sent {
                        1
                    } else if *g > 0.0 {
                        2
                    } else {
                        0
                    },
                    2,
                );
                i += 1;
            }
        }
        Ok(writer.finish())
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let bits = sum_width(self.participant.workers);
        let mut reader = result.read(u64::from(bits) * self.participant.dimension as u64)?;
        let digits = (0..self.participant.dimension).map(|i| {
            let digit = f64::from(reader.take(bits)) - f64::from(count);
            (digit / f64::from(count) * f64::from(self.scales[i / self.layer])) as f32
        });
        Ok(digits.collect())
    }
}

struct TernGradServer {
    layers: usize,
    participant: Participant,
}

impl ServerSide for TernGradServer {
    fn agree(&mut self, announcements: &[Message]) -> Result<Message> {
        let mut scales = vec![0.0_f32; self.layers];
        for message in announcements {
            let bounds = message.floats(self.layers)?;
            scales.iter_mut().zip(bounds).for_each(|(s, b)| *s = s.max(b));
        }
        Ok(Message::from_floats(&scales))
    }

    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut sums = vec![0_u32; self.participant.dimension];
        for message in messages {
            let mut reader = message.read(2 * sums.len() as u64)?;
            sums.iter_mut().for_each(|sum| *sum += reader.take(2));
        }
        let bits = sum_width(self.participant.workers);
        let mut writer = Writer::new(u64::from(bits) * sums.len() as u64);
        let largest = 2 * self.participant.workers;
        sums.into_iter().for_each(|sum| writer.put(sum.min(largest), bits));
        Ok(writer.finish())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;

    #[test]
    fn sizes_by_hand() {
        let whole = TernGrad { layer: None, clip: None };
        // Sums of 4 digits are 0 to 8, 4 bits; a scale each way.
        assert_eq!(whole.bits(100, 4).unwrap(), Bits { up: 232, down: 432 });
        assert_eq!(whole.bits(100, 1).unwrap(), Bits { up: 232, down: 232 });
        let layers = TernGrad { layer: Some(30), clip: None };
        assert_eq!(layers.bits(100, 64).unwrap(), Bits { up: 328, down: 928 });
    }

    #[test]
    fn each_layer_has_the_scale_of_its_largest_coordinate() {
        let scheme = TernGrad { layer: Some(2), clip: None };
        let mut group = SchemeGroup::new(&scheme, 4, 2, 1).unwrap();
        let found = group.allreduce(&[&[1.0, -1.0, 0.0, 8.0], &[-1.0, -1.0, 0.0, 8.0]]).unwrap();
        assert_eq!(found.mean, [0.0, -1.0, 0.0, 8.0]);
        let small = group.allreduce(&[&[0.0, 0.0, 0.0, 0.0], &[0.0, 0.0, 2.0, 2.0]]).unwrap();
        assert_eq!(small.mean, [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn the_error_of_copies_is_what_theory_says() {
        // One coordinate has variance |g|·s − g², so copies have NMSE (s·‖x‖₁/‖x‖² − 1) / n.
        let x: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin() + 0.3).collect();
        let sum: f64 = x.iter().map(|v| f64::from(v.abs())).sum();
        let squares: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum();
        let expected = (f64::from(bound(&x, None)) * sum / squares - 1.0) / 4.0;
        let mut group = SchemeGroup::new(&TernGrad { layer: None, clip: None }, x.len(), 4, 3).unwrap();
        let rounds = 50;
        let mut error = 0.0;
        for _ in 0..rounds {
            let mean = group.allreduce(&[&x[..]; 4]).unwrap().mean;
            error += x.iter().zip(mean).map(|(x, m)| f64::from(x - m).powi(2)).sum::<f64>();
        }
        let found = error / f64::from(rounds) / squares;
        assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
    }

    #[test]
    fn clipping_bounds_the_scale() {
        let mut x = vec![1.0_f32; 64];
        x.iter_mut().step_by(2).for_each(|v| *v = -1.0);
        x[0] = -100.0;
        assert_eq!(bound(&x, None), 100.0);
        let clipped = bound(&x, Some(2.5));
        assert!(clipped > 25.0 && clipped < 35.0, "{clipped}");
        for wrong in [TernGrad { layer: Some(0), clip: None }, TernGrad { layer: None, clip: Some(0.0) }] {
            assert!(matches!(wrong.bits(4, 1), Err(CodecError::Parameter { .. })));
            assert!(wrong.worker(Participant::worker(4, 1, 0, 1)).is_err());
        }
    }
}
