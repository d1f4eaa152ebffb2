//! The one error type of the crate.

/// What can be wrong with measurements.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// Rows of a table that belong together have different lengths, or there are none.
    #[error("{what}: {actual} where {expected} are needed")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        actual: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A cost, an error, a norm or a time that is negative or not finite.
    #[error("{what} of {whose} is {value}: it must be finite and not negative")]
    Value {
        /// Which number.
        what: &'static str,
        /// What the number belongs to.
        whose: String,
        /// As given.
        value: f64,
    },
    /// No assignment keeps the bound.
    #[error(
        "the least error that there is, {least:e}, is above the bound of {bound:e}: allow more, or offer finer choices"
    )]
    Infeasible {
        /// Sum of the layers' least errors.
        least: f64,
        /// The bound asked for.
        bound: f64,
    },
    /// A default that is none of the choices.
    #[error("choice {choice} of layer {layer} is none of the {choices} that there are")]
    Choice {
        /// Layer.
        layer: usize,
        /// As given.
        choice: usize,
        /// How many choices a layer has.
        choices: usize,
    },
    /// A parameter out of its range.
    #[error("{what} is {value}: it must be {range}")]
    Parameter {
        /// Which.
        what: &'static str,
        /// As given.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
}

/// Checks that a number is finite and not negative.
pub(crate) fn check(
    what: &'static str,
    whose: impl FnOnce() -> String,
    value: f64,
) -> Result<f64, AdaptError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(AdaptError::Value { what, whose: whose(), value })
    }
}
