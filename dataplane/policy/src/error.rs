//! The error type of the crate.

/// An error in measurements or parameters.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum AdaptError {
    /// Rows of a table that belong together have different lengths, or the table has no rows.
    #[error("{what}: got {actual}, {expected} are needed")]
    Count { what: &'static str, actual: usize, expected: usize },
    /// A cost, an error, a norm or a time that is negative or not finite.
    #[error("{what} of {whose} is {value}: it must be finite and not negative")]
    Value { what: &'static str, whose: String, value: f64 },
    /// No assignment stays within the bound.
    #[error(
        "the least possible error, {least:e}, is above the bound of {bound:e}: allow a larger error, or offer finer choices"
    )]
    Infeasible { least: f64, bound: f64 },
    /// A default is none of the choices.
    #[error("choice {choice} of layer {layer} does not exist: a layer has {choices} choices, from 0 on")]
    Choice { layer: usize, choice: usize, choices: usize },
    /// A parameter is out of its range.
    #[error("{what} is {value}: it must be {range}")]
    Parameter { what: &'static str, value: f64, range: &'static str },
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
