//! RAW: integers on a scale that all workers share (P32).

use thc_protocol::wire::RAW_WORDS;
use thc_protocol::worker::PacketId;

/// The least e with value < 2^e, for a finite positive f32 given by its bits.
pub(super) fn exponent(bits: u32) -> i32 {
    let (field, fraction) = ((bits >> 23 & 0xFF) as i32, bits & 0x7F_FFFF);
    if field > 0 { field - 126 } else { u32::BITS as i32 - fraction.leading_zeros() as i32 - 149 }
}

/// 2^e exactly, for normal f64.
pub(super) fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

/// A tensor and its error feedback.
pub(super) fn add_feedback(x: &[f32], kept: &[f32]) -> Vec<f32> {
    x.iter().zip(kept).map(|(x, e)| x + e).collect()
}

/// Fills a RAW payload; coordinates beyond `x` are zeros, integers beyond `limit` are cut off: with a quorum below n
/// the maximum may not be of this worker.
pub(in crate::engine) fn write_raw(x: &[f32], at: PacketId, scale: f64, limit: f64, payload: &mut [u8]) {
    let first = at.packet as usize * RAW_WORDS;
    write_words(x.get(first..).unwrap_or(&[]).iter().copied(), scale, limit, payload);
}

pub(super) fn write_words(x: impl IntoIterator<Item = f32>, scale: f64, limit: f64, words: &mut [u8]) {
    let mut values = x.into_iter();
    for word in words.chunks_exact_mut(4) {
        let value = values.next().map_or(0, |value| raw_word(value, scale, limit));
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// A coordinate as it goes RAW (P32).
pub(in crate::engine) fn raw_word(value: f32, scale: f64, limit: f64) -> i32 {
    (f64::from(value) * scale).round_ties_even().clamp(-limit, limit) as i32
}

/// The factor of sums of `count` workers (P32).
pub(in crate::engine) fn raw_factor(count: u16, scale: f64) -> f64 {
    1.0 / (scale * f64::from(count))
}

/// Reads the mean out of a RAW_RESULT; `out` is what of the packet's 256 coordinates exists.
pub(in crate::engine) fn read_raw(sums: &[u8], count: u16, scale: f64, out: &mut [f32]) {
    let factor = raw_factor(count, scale);
    for (value, word) in out.iter_mut().zip(sums.chunks_exact(4)) {
        *value = (f64::from(i32::from_be_bytes([word[0], word[1], word[2], word[3]])) * factor) as f32;
    }
}
