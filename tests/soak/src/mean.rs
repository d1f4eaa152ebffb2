//! What an all-reduce must give: the mean of its inputs by the definitions (P4, P5, P19), all workers in one place,
//! without packets.

use thc_codec::partition::{self, Partition};
use thc_codec::quantizer::{Quantizer, dequantize8, dequantize16};
use thc_codec::rounding::Source;
use thc_codec::signs::SignKey;
use thc_codec::table::LookupTable;
use thc_codec::{norm, rht};
use thc_protocol::wire::{Mode, Norm, Welcome};
use thc_protocol::{Lane, Rank, WorkerId};

/// What one worker puts in.
#[derive(Clone, Debug)]
pub struct Input {
    /// The tensor.
    pub x: Vec<f32>,
    /// Its error feedback, if it has any.
    pub error: Option<Vec<f32>>,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// The mean, and by worker the error feedback that is left.
    Mean { mean: Vec<f32>, errors: Vec<Option<Vec<f32>>> },
    /// This worker's tensor has something that is not finite.
    NonFinite(Rank),
}

/// The numbers of a session.
pub struct Numbers {
    table: LookupTable,
    quantizer: Quantizer,
    lane: Lane,
    seed: u64,
    block: u8,
}

impl Numbers {
    pub fn new(welcome: &Welcome) -> Numbers {
        let told = welcome.tables.first();
        let values = &told.values[..1 << told.bits];
        let table = LookupTable::with_threshold(values, told.fraction, told.t_p).unwrap();
        Numbers {
            quantizer: Quantizer::new(&table),
            table,
            lane: told.form.lane(),
            seed: welcome.job_seed,
            block: welcome.block,
        }
    }

    pub fn output(&self, call: u64, mode: Mode, inputs: &[Input]) -> Output {
        let length = inputs[0].x.len();
        let parts: Vec<Partition> = partition::split(length, self.block).collect();
        let mut norms = Vec::with_capacity(parts.len());
        for part in &parts {
            let value = |(worker, input): (u8, &Input)| value(worker, input, part, mode);
            let maximum = (0u8..).zip(inputs).map(value).max().unwrap();
            if let Some(worker) = Norm::non_finite_worker(maximum) {
                return Output::NonFinite(worker);
            }
            norms.push(f32::from_bits(maximum));
        }
        let mut mean = vec![0.0; length];
        let mut errors: Vec<_> = inputs.iter().map(|input| input.error.clone()).collect();
        for (part, &norm) in parts.iter().zip(&norms).filter(|(_, norm)| **norm != 0.0) {
            let out = &mut mean[part.offset..part.offset + part.len];
            match mode {
                Mode::Raw => raw(norm, part, inputs, out),
                Mode::Compressed => self.compress(call, norm, part, inputs, out, &mut errors),
            }
        }
        Output::Mean { mean, errors }
    }

    fn compress(
        &self,
        call: u64,
        norm: f32,
        part: &Partition,
        inputs: &[Input],
        out: &mut [f32],
        errors: &mut [Option<Vec<f32>>],
    ) {
        let d = part.padded;
        let place = part.offset..part.offset + part.len;
        let key = SignKey { job_seed: self.seed, call, partition: part.index };
        let range = (self.table.t_p() / (d as f64).sqrt() * f64::from(norm)) as f32;
        let mut sums = vec![0u32; d];
        let mut indices = vec![0; d];
        for (worker, input) in (0u16..).zip(inputs) {
            let mut rotated = vec![0.0; d];
            match &input.error {
                Some(error) => {
                    rht::forward_sum(&input.x[place.clone()], &error[place.clone()], &mut rotated, key)
                        .unwrap();
                }
                None => {
                    rotated[..part.len].copy_from_slice(&input.x[place.clone()]);
                    rht::forward(&mut rotated, key).unwrap();
                }
            }
            let rounding = Source::for_worker(self.seed, worker).rounding(call, part.index);
            self.quantizer.quantize(&mut rotated, range, &rounding, 0, &mut indices).unwrap();
            let values = self.table.values();
            sums.iter_mut().zip(&indices).for_each(|(sum, z)| *sum += u32::from(values[usize::from(*z)]));
            if let Some(error) = &mut errors[usize::from(worker)] {
                rht::inverse_into(&mut rotated, &mut error[place.clone()], key).unwrap();
            }
        }
        let mut estimate = vec![0.0; d];
        let (count, g) = (inputs.len() as u32, u32::from(self.table.granularity()));
        match self.lane {
            Lane::Bits4 | Lane::Bits8 => {
                let sums: Vec<u8> = sums.iter().map(|&sum| u8::try_from(sum).unwrap()).collect();
                dequantize8(&sums, count, g, range, &mut estimate).unwrap();
            }
            Lane::Bits16 => {
                let sums: Vec<u8> =
                    sums.iter().flat_map(|&sum| u16::try_from(sum).unwrap().to_be_bytes()).collect();
                dequantize16(&sums, count, g, range, &mut estimate).unwrap();
            }
        }
        if part.len == d {
            out.copy_from_slice(&estimate);
            rht::inverse(out, key).unwrap();
        } else {
            rht::inverse_into(&mut estimate, out, key).unwrap();
        }
    }
}

/// The value of a worker's NORM (P5, P19).
fn value(worker: u8, input: &Input, part: &Partition, mode: Mode) -> u32 {
    let place = part.offset..part.offset + part.len;
    let x = &input.x[place.clone()];
    let value = match (mode, &input.error) {
        (Mode::Raw, _) => norm::max_abs(x),
        (_, Some(error)) => norm::l2_sum(x, &error[place]),
        _ => norm::l2(x),
    };
    if value.is_nan() || value > f32::from_bits(Norm::MAX) {
        Norm::non_finite(WorkerId(worker))
    } else if value < f32::from_bits(Norm::MIN) {
        0
    } else {
        value.to_bits()
    }
}

fn raw(norm: f32, part: &Partition, inputs: &[Input], out: &mut [f32]) {
    // The least e with ℓ < 2^e: as an f64 no norm is denormal.
    let exponent = (f64::from(norm).to_bits() >> 52) as i32 - 1022;
    let headroom = (inputs.len() as f64).log2().ceil() as i32;
    let scale = 2f64.powi(30 - exponent - headroom);
    let factor = 1.0 / (scale * inputs.len() as f64);
    for (at, mean) in (part.offset..).zip(out) {
        let value = |input: &Input| i64::from((f64::from(input.x[at]) * scale).round_ties_even() as i32);
        let sum: i64 = inputs.iter().map(value).sum();
        *mean = (f64::from(i32::try_from(sum).unwrap()) * factor) as f32;
    }
}
