//! The error type of the crate.

/// An error in measurements or parameters.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// Rows of a table that belong together have different lengths, or the table has no rows.
    #[error("{what}: got {actual}, {expected} are needed")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The actual number.
        actual: usize,
        /// The number that is needed.
        expected: usize,
    },
    /// A cost, an error, a norm or a time that is negative or not finite.
    #[error("{what} of {whose} is {value}: it must be finite and not negative")]
    Value {
        /// The name of the number.
        what: &'static str,
        /// The thing to which the number belongs.
        whose: String,
        /// The given value.
        value: f64,
    },
    /// No assignment stays within the bound.
    #[error(
        "the least possible error, {least:e}, is above the bound of {bound:e}: allow a larger error, or offer finer choices"
    )]
    Infeasible {
        /// The sum of the layers' least errors.
        least: f64,
        /// The requested bound.
        bound: f64,
    },
    /// A default is none of the choices.
    #[error("choice {choice} of layer {layer} does not exist: a layer has {choices} choices, from 0 on")]
    Choice {
        /// The layer.
        layer: usize,
        /// The given value.
        choice: usize,
        /// The number of choices of a layer.
        choices: usize,
    },
    /// A parameter is out of its range.
    #[error("{what} is {value}: it must be {range}")]
    Parameter {
        /// The name of the parameter.
        what: &'static str,
        /// The given value.
        value: f64,
        /// The allowed range.
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
