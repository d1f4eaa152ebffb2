//! TFP, which sends the first bits of floating-point numbers, as in AQGB.

use std::ops::Range;

use super::message::{Reader, Writer};
use super::{Bits, Message, Participant, Properties, Result, Scheme, ServerSide, WorkerSide, with_feedback};
use thc_codec::CodecError;
use thc_codec::rounding::Rounding;

/// The format of the numbers that are truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// IEEE 754 single precision: sign, 8 bits of exponent, 23 of mantissa.
    F32,
    /// IEEE 754 half precision: sign, 5, 10.
    F16,
    /// E4M3 of the Open Compute Project's FP8: sign, 4, 3.
    F8,
}

impl Format {
    /// The number of bits of a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        1 + self.exponent() + self.mantissa()
    }

    const fn exponent(self) -> u32 {
        match self {
            Self::F32 => 8,
            Self::F16 => 5,
            Self::F8 => 4,
        }
    }

    const fn mantissa(self) -> u32 {
        match self {
            Self::F32 => 23,
            Self::F16 => 10,
            Self::F8 => 3,
        }
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent() - 1)) - 1
    }

    /// The pattern without sign of the largest finite number.
    const fn largest(self) -> u32 {
        match self {
            Self::F32 => 0x7F7F_FFFF,
            Self::F16 => 0x7BFF,
            // All bits are ones except the last. The pattern of all ones is not a number, and there are no infinities.
            Self::F8 => 0x7E,
        }
    }

    /// The pattern of the largest number that is not above `magnitude`, which is finite and not negative.
    fn floor(self, magnitude: f64) -> u32 {
        let least = 1 - self.bias();
        let power = (exponent_of(magnitude)).max(least);
        // The value in units of the last bit is exact, since a double has more bits of mantissa.
        let units = (magnitude * exp2(self.mantissa() as i32 - power)) as u64;
        let above = (power - least) as u64;
        (units + (above << self.mantissa())).min(u64::from(self.largest())) as u32
    }

    /// The number of a pattern without sign.
    fn value(self, pattern: u32) -> f64 {
        let one = 1 << self.mantissa();
        let (power, rest) = (pattern >> self.mantissa(), pattern & (one - 1));
        let units = if power == 0 { rest } else { rest + one };
        f64::from(units) * exp2(power.max(1) as i32 - self.bias() - self.mantissa() as i32)
    }
}

/// The power of two of a positive number's leading bit; far below all formats for zero.
fn exponent_of(magnitude: f64) -> i32 {
    ((magnitude.to_bits() >> 52) as i32) - 1023
}

/// 2^power, for powers of normal doubles.
fn exp2(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

/// TFP of the paper on AQGB (Luo et al., Future Generation Computer Systems 2025, section 4.4). It works between peers: every worker
/// sends the first `bits` bits of each number to all other workers, and each of these adds them up.
///
/// With `random`, a number is rounded at random to one of the two neighbours that have `bits` bits, so that the mean is the number
/// (Eq. 5). Otherwise it is truncated, and the rest is error feedback. For few bits the numbers are first converted to a narrower
/// format, whose first bits carry more information. For this each partition is multiplied by the largest power of two with which its
/// largest number fits, which takes 16 further bits. (The paper does not say how numbers come into the range of a narrow format.
/// Gradients are below the smallest number of [`Format::F8`].)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tfp {
    /// k, from 2 to the bits of the format.
    pub bits: u32,
    /// The format to which numbers are converted first, by rounding towards zero.
    pub format: Format,
    /// The number p of numbers of a partition, which one packet carries as a whole.
    pub partition: usize,
    /// Whether numbers are rounded at random.
    pub random: bool,
}

/// The offset that is added to a partition's power of two when it is sent.
const SCALE: i32 = 1 << 15;
/// The code of a partition with an infinity or a NaN, all of which becomes NaN.
const NOT_FINITE: u32 = 0xFFFF;
/// The number of numbers of a partition of [`Tfp::narrow`].
const PARTITION: usize = 512;

impl Tfp {
    /// AQGB's scheme for few bits: up to 8 bits of [`Format::F8`], rounded at random, and up to 16 bits of [`Format::F16`], truncated.
    /// The paper converts "when the targeted level of quantization is small, e.g., 4 or 2", and names no limit.
    #[must_use]
    pub const fn narrow(bits: u32) -> Self {
        let format = if bits <= Format::F8.bits() { Format::F8 } else { Format::F16 };
        Self { bits, format, partition: PARTITION, random: matches!(format, Format::F8) }
    }

    /// Returns the message of any numbers, rounded by the random numbers of this seed and round. All numbers of a partition with an
    /// infinity or a NaN become NaN.
    ///
    /// # Errors
    /// [`CodecError::Parameter`] if the scheme does not support the number of bits.
    pub fn message(&self, x: &[f32], seed: u64, round: u64) -> Result<Message> {
        self.check()?;
        Ok(self.encode(x, Rounding::new(seed, round, 0)))
    }

    /// Adds the numbers of a message.
    ///
    /// # Errors
    /// As [`Self::message`], and [`CodecError::Message`] if the message has another length.
    pub fn add(&self, bytes: &[u8], sum: &mut [f32]) -> Result<()> {
        self.check()?;
        let bits = self.length(sum.len());
        let message = Message::from_bytes(bytes.to_vec(), bits)?;
        self.decode(&mut message.read(bits)?, sum.len(), |i, v| sum[i] = (f64::from(sum[i]) + v) as f32);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let refuse = |what, value, allowed| Err(CodecError::Parameter { what, value, allowed });
        if self.bits < 2 || self.bits > self.format.bits() {
            return refuse("the number of bits", f64::from(self.bits), "2 to those of the format");
        }
        if self.partition == 0 {
            return refuse("the length of a partition", 0.0, "at least 1");
        }
        Ok(())
    }

    fn is_scaled(&self) -> bool {
        self.format != Format::F32
    }

    /// The bits of a tensor's message.
    fn length(&self, dimension: usize) -> u64 {
        let scales = if self.is_scaled() { dimension.div_ceil(self.partition) } else { 0 };
        16 * scales as u64 + u64::from(self.bits) * dimension as u64
    }

    /// The number of bits of a pattern that are cut off.
    fn cut(&self) -> u32 {
        self.format.bits() - self.bits
    }

    /// The largest number with these bits.
    fn largest_value(&self) -> f64 {
        self.format.value(self.format.largest() >> self.cut() << self.cut())
    }

    /// The power of two by which a partition is multiplied.
    fn scale(&self, partition: &[f32]) -> i32 {
        let largest = partition.iter().fold(0.0, |most: f64, v| most.max(f64::from(v.abs())));
        if !self.is_scaled() || largest == 0.0 {
            return 0;
        }
        let scale = exponent_of(self.largest_value()) - exponent_of(largest);
        if largest * exp2(scale) > self.largest_value() { scale - 1 } else { scale }
    }

    /// The code of a magnitude without the sign: one of the two codes around it (Eq. 5), or the one below.
    fn code(&self, magnitude: f64, draw: Option<f32>) -> u32 {
        let below = self.format.floor(magnitude) >> self.cut();
        let above = below + 1;
        match draw {
            Some(draw) if above << self.cut() <= self.format.largest() => {
                let (low, high) =
                    (self.format.value(below << self.cut()), self.format.value(above << self.cut()));
                if f64::from(draw) < (magnitude - low) / (high - low) { above } else { below }
            }
            _ => below,
        }
    }

    /// Returns the message of numbers, which must be finite if their format is not scaled.
    fn encode(&self, x: &[f32], rounding: Rounding) -> Message {
        let mut writer = Writer::new(self.length(x.len()));
        let mut i = 0;
        for partition in x.chunks(self.partition) {
            let is_finite = partition.iter().all(|v| v.is_finite());
            let scale = if is_finite { self.scale(partition) } else { 0 };
            if self.is_scaled() {
                writer.put(if is_finite { (scale + SCALE) as u32 } else { NOT_FINITE }, 16);
            }
            for v in partition {
                let v = if is_finite { *v } else { 0.0 };
                let draw = self.random.then(|| rounding.uniform(i));
                let code = self.code(f64::from(v.abs()) * exp2(scale), draw);
                writer.put(u32::from(v.is_sign_negative()) << (self.bits - 1) | code, self.bits);
                i += 1;
            }
        }
        writer.finish()
    }

    /// Calls `visit` with the number of each coordinate.
    fn decode(&self, reader: &mut Reader<'_>, dimension: usize, mut visit: impl FnMut(usize, f64)) {
        let mut unit = 1.0;
        for i in 0..dimension {
            if self.is_scaled() && i % self.partition == 0 {
                // Messages of this encoder only have powers of doubles.
                unit = match reader.take(16) {
                    NOT_FINITE => f64::NAN,
                    scale => exp2((SCALE - scale as i32).clamp(-1000, 1000)),
                };
            }
            let code = reader.take(self.bits);
            let magnitude = code & ((1 << (self.bits - 1)) - 1);
            let value = self.format.value(magnitude << self.cut()) * unit;
            visit(i, if code >> (self.bits - 1) == 1 { -value } else { value });
        }
    }

    /// The coordinates of each packet of at most `limit` bits, which has as many consecutive partitions as fit, and at least one.
    #[must_use]
    pub fn packets(&self, dimension: usize, limit: u64) -> Vec<Range<usize>> {
        let partition = self.partition.max(1);
        let whole = (limit / self.length(partition).max(1)).max(1) as usize;
        let step = partition.saturating_mul(whole);
        (0..dimension).step_by(step).map(|start| start..dimension.min(start.saturating_add(step))).collect()
    }
}

/// Takes the bits `first` to `first + bits` of numbers in [`Format::F32`], the most significant first. The first stage sends the bits
/// from 0 on, and the second stage the next ones. There are at most 32 in all.
///
/// # Errors
/// [`CodecError::Parameter`] if these bits do not exist.
pub fn take(x: &[f32], first: u32, bits: u32) -> Result<Message> {
    let low = bits_below(first, bits)?;
    let mut writer = Writer::new(u64::from(bits) * x.len() as u64);
    for v in x {
        writer.put((u64::from(v.to_bits()) >> low & ((1 << bits) - 1)) as u32, bits);
    }
    Ok(writer.finish())
}

/// Puts the bits that [`take`] took into numbers whose bits from `first` on are zeros.
///
/// # Errors
/// As [`take`], and [`CodecError::Message`] if the message has another length.
pub fn put(message: &Message, first: u32, bits: u32, x: &mut [f32]) -> Result<()> {
    let low = bits_below(first, bits)?;
    let mut reader = message.read(u64::from(bits) * x.len() as u64)?;
    for v in x {
        *v = f32::from_bits(v.to_bits() | reader.take(bits) << low);
    }
    Ok(())
}

/// The number of bits below the taken ones.
fn bits_below(first: u32, bits: u32) -> Result<u32> {
    match first.checked_add(bits).and_then(|end| 32_u32.checked_sub(end)) {
        Some(low) if bits > 0 => Ok(low),
        _ => Err(CodecError::Parameter {
            what: "the number of bits",
            value: f64::from(bits),
            allowed: "at least 1, and with those before 32 at most",
        }),
    }
}

impl Scheme for Tfp {
    fn name(&self) -> String {
        let format = match self.format {
            Format::F32 => "FP32",
            Format::F16 => "FP16",
            Format::F8 => "FP8",
        };
        let way = if self.random { "rounded" } else { "truncated" };
        format!("TFP {way}, {} bit of {format}", self.bits)
    }

    fn source(&self) -> &'static str {
        "Luo et al.: Approximate Gradient Synchronization With Adaptive Quantized Gradient Broadcast, FGCS 2025"
    }

    fn properties(&self) -> Properties {
        // Each worker adds up the numbers that it decodes, since nothing is added on the way.
        Properties {
            unbiased: self.random,
            homomorphic: true,
            error_feedback: !self.random,
            recompressed: false,
        }
    }

    /// There is no server: each worker receives the messages of all workers, including its own.
    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits> {
        self.check()?;
        let up = self.length(dimension);
        Ok(Bits { up, down: up * u64::from(workers) })
    }

    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>> {
        participant.check()?;
        self.check()?;
        let feedback = vec![0.0; participant.dimension];
        Ok(Box::new(TfpWorker { scheme: *self, feedback, seed: participant.private_seed, call: 0 }))
    }

    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>> {
        participant.check()?;
        self.check()?;
        Ok(Box::new(Broadcast { bits: self.length(participant.dimension) }))
    }
}

struct TfpWorker {
    scheme: Tfp,
    feedback: Vec<f32>,
    seed: u64,
    call: u64,
}

impl WorkerSide for TfpWorker {
    fn compress(&mut self, gradient: &[f32], _: &Message) -> Result<Message> {
        let mut x = with_feedback(gradient, &self.feedback)?;
        let message = self.scheme.encode(&x, Rounding::new(self.seed, self.call, 0));
        self.call += 1;
        if !self.scheme.random {
            let mut reader = message.read(self.scheme.length(x.len()))?;
            self.scheme.decode(&mut reader, gradient.len(), |i, sent| {
                x[i] = (f64::from(x[i]) - sent) as f32;
            });
            self.feedback = x;
        }
        Ok(message)
    }

    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>> {
        let dimension = self.feedback.len();
        let mut reader = result.read(self.scheme.length(dimension) * u64::from(count))?;
        let mut sum = vec![0.0_f64; dimension];
        for _ in 0..count {
            self.scheme.decode(&mut reader, dimension, |i, v| sum[i] += v);
        }
        Ok(sum.into_iter().map(|v| (v / f64::from(count)) as f32).collect())
    }

    fn feedback(&self) -> Option<&[f32]> {
        (!self.scheme.random).then_some(&self.feedback)
    }
}

/// Passes every message to all workers.
struct Broadcast {
    bits: u64,
}

impl ServerSide for Broadcast {
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message> {
        let mut writer = Writer::new(self.bits * messages.len() as u64);
        for message in messages {
            let mut reader = message.read(self.bits)?;
            let mut left = self.bits;
            while left > 0 {
                let part = left.min(32) as u32;
                writer.put(reader.take(part), part);
                left -= u64::from(part);
            }
        }
        Ok(writer.finish())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SchemeGroup;
    use super::*;
    use proptest::prelude::*;

    const fn tfp(bits: u32, format: Format, random: bool) -> Tfp {
        Tfp { bits, format, partition: 4, random }
    }

    /// Fig. 7: T(3.6, 12) is 3.5 with probability 0.6, otherwise 3.75.
    #[test]
    fn the_papers_example() {
        let cut =
            SchemeGroup::new(&tfp(12, Format::F32, false), 1, 1, 1).unwrap().allreduce(&[&[3.6]]).unwrap();
        assert_eq!(cut.mean, [3.5]);
        let scheme = tfp(12, Format::F32, true);
        assert_eq!([0.39, 0.41].map(|draw| scheme.code(3.6, Some(draw)) << 20), [0x4070_0000, 0x4060_0000]);
        assert_eq!((f32::from_bits(0x4060_0000), f32::from_bits(0x4070_0000)), (3.5, 3.75));
        let rounds = 4000;
        let up = (0..rounds).filter(|seed| {
            let found =
                SchemeGroup::new(&scheme, 1, 1, *seed).unwrap().allreduce(&[&[-3.6]]).unwrap().mean[0];
            assert!(found == -3.5 || found == -3.75);
            found == -3.75
        });
        let share = up.count() as f64 / rounds as f64;
        assert!((share - 0.4).abs() < 5.0 * (0.24 / rounds as f64).sqrt(), "{share}");
    }

    #[test]
    fn formats_are_those_of_their_standards() {
        let of = |format: Format, x: f64| (format.floor(x), format.value(format.floor(x)));
        // From the tables of IEEE 754 and of OCP's FP8: one, largest, smallest normal, smallest at all.
        assert_eq!(of(Format::F16, 1.0), (0x3C00, 1.0));
        assert_eq!(of(Format::F16, 1e9), (0x7BFF, 65504.0));
        assert_eq!(of(Format::F16, 6.2e-5), (0x0400 | 16, 2_f64.powi(-14) + 16.0 * 2_f64.powi(-24)));
        assert_eq!(of(Format::F16, 2_f64.powi(-24)), (1, 2_f64.powi(-24)));
        assert_eq!(of(Format::F8, 1.0), (0x38, 1.0));
        assert_eq!(of(Format::F8, 449.0), (0x7E, 448.0));
        assert_eq!(of(Format::F8, 2_f64.powi(-6)), (0x08, 2_f64.powi(-6)));
        assert_eq!(of(Format::F8, 1.2 * 2_f64.powi(-9)), (1, 2_f64.powi(-9)));
        assert_eq!(of(Format::F32, 0.0), (0, 0.0));
        assert_eq!([Format::F32, Format::F16, Format::F8].map(Format::bits), [32, 16, 8]);
    }

    #[test]
    fn few_bits_say_more_in_a_narrow_format() {
        let x: Vec<f32> = (0..4096).map(|i| ((i * 2_654_435_761_u64 % 1000) as f32 - 499.5) * 1e-6).collect();
        let error = |format| {
            let scheme = Tfp { partition: 512, ..tfp(4, format, true) };
            let found = SchemeGroup::new(&scheme, x.len(), 1, 3).unwrap().allreduce(&[&x]).unwrap().mean;
            let square = |v: f32| f64::from(v).powi(2);
            x.iter().zip(found).map(|(x, f)| square(x - f)).sum::<f64>()
                / x.iter().map(|x| square(*x)).sum::<f64>()
        };
        let errors = [Format::F32, Format::F16, Format::F8].map(error);
        // Of FP32 nothing of them is left but signs, unless one in many millions becomes 2.
        assert!(errors[0] > 0.999 && errors[1] > 2.0 * errors[2] && errors[2] < 0.6, "{errors:?}");
    }

    /// Gradients of any size come through: at 4 bits of FP32 everything between 2^-31 and 2 is 2^-31.
    #[test]
    fn few_bits_deliver_gradients_of_any_size() {
        let x: Vec<f32> =
            (0..2000).map(|i| ((i * 2_654_435_761_u64 % 1000) as f32 - 499.5) / 500.0).collect();
        for size in [1e-30_f32, 1e-5, 0.5, 1e30] {
            let x: Vec<f32> = x.iter().map(|v| v * size).collect();
            let square = |v: f32| f64::from(v / size).powi(2);
            for (bits, most) in [(2, 2.0), (4, 0.6), (8, 0.003), (12, 1e-4), (16, 1e-6)] {
                let scheme = Tfp::narrow(bits);
                let message = scheme.message(&x, 1, 2).unwrap();
                let mut found = vec![0.0; x.len()];
                scheme.add(message.bytes(), &mut found).unwrap();
                let error = x.iter().zip(&found).map(|(x, f)| square(x - f)).sum::<f64>()
                    / x.iter().map(|x| square(*x)).sum::<f64>();
                assert!(error < most, "{size:e} in {bits} bits: {error}");
            }
        }
        let mut cut = vec![0.0; x.len()];
        put(&take(&x, 0, 4).unwrap(), 0, 4, &mut cut).unwrap();
        assert!(cut.iter().all(|v| v.abs() < 1e-9));
    }

    #[test]
    fn what_is_not_finite_is_told_with_its_partition() {
        let mut x = vec![1.0; 1100];
        (x[3], x[600]) = (f32::INFINITY, f32::NAN);
        for bits in [4, 12] {
            let scheme = Tfp::narrow(bits);
            let mut found = vec![0.0; x.len()];
            scheme.add(scheme.message(&x, 1, 2).unwrap().bytes(), &mut found).unwrap();
            assert!(found[..1024].iter().all(|v| v.is_nan()) && found[1024..].iter().all(|v| *v == 1.0));
        }
        assert!(Tfp::narrow(4).add(&[0; 3], &mut [0.0; 1100]).is_err());
        assert!(Tfp::narrow(17).message(&x, 0, 0).is_err() && Tfp::narrow(1).message(&x, 0, 0).is_err());
    }

    #[test]
    fn packets_are_greedy_and_hold_whole_partitions() {
        let scheme = Tfp { bits: 10, format: Format::F32, partition: 100, random: false };
        assert_eq!(scheme.packets(1000, 3500), [0..300, 300..600, 600..900, 900..1000]);
        assert_eq!(scheme.packets(250, 5), [0..100, 100..200, 200..250]);
        assert_eq!(scheme.packets(0, 3500), []);
        assert_eq!(Tfp { format: Format::F16, ..scheme }.packets(400, 2032), [0..200, 200..400]);
    }

    #[test]
    fn what_is_none_is_refused() {
        for (bits, format, partition) in
            [(1, Format::F32, 4), (33, Format::F32, 4), (9, Format::F8, 4), (4, Format::F8, 0)]
        {
            let wrong = Tfp { bits, format, partition, random: true };
            assert!(wrong.bits(10, 1).is_err() && wrong.worker(Participant::worker(10, 1, 0, 1)).is_err());
        }
        for (first, bits) in [(0, 0), (0, 33), (30, 3), (u32::MAX, 1)] {
            assert!(take(&[1.0], first, bits).is_err());
        }
        assert!(put(&take(&[1.0], 0, 8).unwrap(), 0, 8, &mut [0.0; 2]).is_err());
    }

    proptest! {
        /// A truncated number is the largest of so many bits that is not above, by the patterns themselves.
        #[test]
        fn truncation_keeps_the_first_bits(x: Vec<f32>, bits in 2u32..=32) {
            let x: Vec<f32> = x.into_iter().filter(|v| v.is_finite()).collect();
            prop_assume!(!x.is_empty());
            let scheme = tfp(bits, Format::F32, false);
            let found = SchemeGroup::new(&scheme, x.len(), 1, 1).unwrap().allreduce(&[&x]).unwrap().mean;
            let mask = u32::MAX << (32 - bits);
            for (x, found) in x.iter().zip(found) {
                let cut = f32::from_bits(x.to_bits() & mask);
                prop_assert!(found == cut, "{x} {found} {cut}");
            }
        }

        /// Both stages together are the number, however its bits are cut.
        #[test]
        fn stages_follow_each_other(x: Vec<f32>, first in 2u32..32, second in 1u32..32) {
            let second = second.min(32 - first);
            let mut found = vec![0.0; x.len()];
            put(&take(&x, 0, first).unwrap(), 0, first, &mut found).unwrap();
            let mask = |bits| u32::MAX << (32 - bits);
            prop_assert!(x.iter().zip(&found).all(|(x, f)| f.to_bits() == x.to_bits() & mask(first)));
            put(&take(&x, first, second).unwrap(), first, second, &mut found).unwrap();
            prop_assert!(x.iter().zip(&found).all(|(x, f)| f.to_bits() == x.to_bits() & mask(first + second)));
        }

        /// What is rounded is one of the two numbers around, and no partition's largest is cut off.
        #[test]
        fn rounding_stays_between_neighbours(x in prop::collection::vec(-1e3f32..1e3, 1..40), bits in 2u32..=8, seed: u64) {
            for format in [Format::F16, Format::F8] {
                let scheme = tfp(bits, format, true);
                let found = SchemeGroup::new(&scheme, x.len(), 1, seed).unwrap().allreduce(&[&x]).unwrap().mean;
                for (x, found) in x.chunks(4).zip(found.chunks(4)) {
                    let unit = exp2(scheme.scale(x));
                    for (x, found) in x.iter().zip(found) {
                        let low = scheme.format.floor(f64::from(x.abs()) * unit) >> scheme.cut();
                        let around = [low, low + 1].map(|code| (scheme.format.value(code << scheme.cut()) / unit) as f32);
                        prop_assert!(around.contains(&found.abs()) && (*found == 0.0 || x.signum() == found.signum()));
                        prop_assert!(f64::from(x.abs()) * unit <= scheme.largest_value());
                    }
                }
            }
        }
    }
}
