//! Lookup tables as an aggregator has them (P6).

use crate::wire::{Form, Table};

/// A table's values, and the form of the packets that name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Its form.
    pub form: Form,
    /// T, unused entries zero; all of them where the index is the value.
    pub values: [u8; 16],
}

impl From<&Table> for Lookup {
    fn from(table: &Table) -> Lookup {
        Lookup { form: table.form, values: table.values }
    }
}

impl Lookup {
    /// g: the largest value.
    pub fn granularity(&self) -> u8 {
        if self.form.is_identity() { u8::MAX } else { self.values.into_iter().max().unwrap_or(0) }
    }

    /// Checks P6, but for the lanes.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn check(&self) -> Result<(), TableError> {
        let Lookup { form, values } = self;
        let Some(last) = values.iter().rposition(|&value| value != 0) else {
            return if form.is_identity() { Ok(()) } else { Err(TableError::Zero) };
        };
        // 2^b indices are used.
        let used = (last + 1).next_power_of_two().max(2);
        if form.is_identity() || used > 1 << form.width() {
            return Err(TableError::Width { used, width: form.width() });
        }
        if values[0] != 0 {
            return Err(TableError::Value { index: 0, value: values[0], used });
        }
        match (1..used).find(|&z| values[z] <= values[z - 1]) {
            Some(z) => Err(TableError::Value { index: z, value: values[z], used }),
            None => Ok(()),
        }
    }
}

/// A fault of a lookup table (P6 tables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum TableError {
    #[error("all values are 0; a table is 0 first and then strictly increasing over 2, 4, 8 or 16 values")]
    Zero,
    #[error(
        "T[{index}] is {value}; its first {used} values must be 0 first and then strictly increasing, all others 0"
    )]
    Value { index: usize, value: u8, used: usize },
    #[error(
        "it has {used} values for indices of {width} bits; there must be at most 2^{width}, and none at all for 8 bits, where \
         the index is the value"
    )]
    Width { used: usize, width: u8 },
}
