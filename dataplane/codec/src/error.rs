//! The one error type of the crate.

/// An error in an input. Nothing in this crate panics on bad input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A given t_p is not that of the fraction.
    #[error("t_p {given} does not belong to the fraction {fraction}, whose t_p is {expected}")]
    Threshold {
        /// As given.
        given: f64,
        /// p.
        fraction: f64,
        /// Φ⁻¹(1 − p/2).
        expected: f64,
    },
    /// A vector for the Hadamard transform has an unsupported length.
    #[error("cannot transform {len} coordinates: pad to a power of two from 1 to {max}")]
    TransformLength {
        /// Length given.
        len: usize,
        /// Largest supported length.
        max: usize,
    },
    /// Two slices that belong together have lengths that do not.
    #[error("{what} has length {actual}, pass one of length {expected}")]
    Length {
        /// Which slice is wrong.
        what: &'static str,
        /// Length it must have.
        expected: usize,
        /// Length it has.
        actual: usize,
    },
    /// A slice must hold whole units, such as coordinates in pairs or words of 4 bytes.
    #[error("{what} has length {actual}, pass a multiple of {multiple}")]
    Multiple {
        /// Which slice is wrong.
        what: &'static str,
        /// The number that must divide its length.
        multiple: usize,
        /// Length it has.
        actual: usize,
    },
    /// A bit budget that the called function does not support.
    #[error("bit budget {bits} is not supported here, use {supported}")]
    Bits {
        /// Bit budget given.
        bits: u8,
        /// The supported ones, in words.
        supported: &'static str,
    },
    /// A granularity too small for the bit budget or above 255.
    #[error("granularity {granularity} does not suit bit budget {bits}, use {min} to 255")]
    Granularity {
        /// Bit budget.
        bits: u8,
        /// Granularity given.
        granularity: u32,
        /// Smallest granularity for this bit budget, 2^bits - 1.
        min: u32,
    },
    /// The fraction of truncated coordinates is outside (0, 1).
    #[error("fraction p = {fraction} is not between 0 and 1 (both excluded), 1/32 is usual")]
    Fraction {
        /// Fraction given.
        fraction: f64,
    },
    /// Values that are not a lookup table.
    #[error(
        "lookup table has {len} values and breaks at position {position}: use 2 to 256 values, a power of two of them, strictly increasing from 0"
    )]
    TableValues {
        /// Number of values given.
        len: usize,
        /// First position that is wrong (0 when it is the number of values).
        position: usize,
    },
    /// No granularity lets this many workers add up in the given lane.
    #[error(
        "{workers} workers with bit budget {bits} overflow a lane of {lane_bits} bits: use fewer workers, fewer bits or a wider lane"
    )]
    LaneTooNarrow {
        /// Bit budget.
        bits: u8,
        /// Lane width in bits.
        lane_bits: u8,
        /// Number of workers.
        workers: u32,
    },
    /// A lane width outside 4 to 16 bits, or above 8 for sums that take a byte each.
    #[error("a lane of {lane_bits} bits is not supported, use 4 to 16, or at most 8 for sums of one byte")]
    LaneBits {
        /// Lane width given.
        lane_bits: u8,
    },
    /// A quantization range that is not usable.
    #[error(
        "quantization range from {lo} to {hi} is not usable: both ends must be finite, ordered and at most 2e37 in magnitude"
    )]
    Range {
        /// Lower end.
        lo: f32,
        /// Upper end.
        hi: f32,
    },
    /// A sum of zero workers cannot be averaged.
    #[error("the number of workers in a sum and the granularity must both be at least 1")]
    EmptySum,
    /// A parameter outside its range.
    #[error("{what} is {value}, use {allowed}")]
    Parameter {
        /// Which parameter.
        what: &'static str,
        /// Value given.
        value: f64,
        /// The usable values, in words.
        allowed: &'static str,
    },
    /// A message that cannot be decoded.
    #[error("a compressed message is not readable: {reason}")]
    Message {
        /// The fault, with the values.
        reason: String,
    },
    /// Saved error feedback that cannot be read.
    #[error("saved error feedback is not readable: {reason}")]
    FeedbackFormat {
        /// The fault, with the values.
        reason: String,
    },
}

impl CodecError {
    /// Checks that something has as many elements as it must.
    ///
    /// # Errors
    /// [`CodecError::Length`] unless `actual == expected`.
    pub fn check_len(what: &'static str, expected: usize, actual: usize) -> Result<(), Self> {
        if expected == actual { Ok(()) } else { Err(Self::Length { what, expected, actual }) }
    }

    /// `Err(Multiple)` unless `actual` is a multiple of `multiple`.
    pub(crate) fn check_multiple(what: &'static str, multiple: usize, actual: usize) -> Result<(), Self> {
        if actual.is_multiple_of(multiple) { Ok(()) } else { Err(Self::Multiple { what, multiple, actual }) }
    }
}
