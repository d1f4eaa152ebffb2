//! Table `lookup`: the lookup tables T (P6).

use super::Row;
use thc_protocol::wire::Form;

/// A lookup table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Key: its id.
    pub table: u8,
    /// T\[0\] to T\[15\].
    pub values: [u8; 16],
    /// The form of packets that name it.
    pub form: Form,
}

impl Row for Lookup {
    const TABLE: &'static str = "lookup";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("table", self.table.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let values = u128::from_be_bytes(self.values);
        let form = self.form;
        ("set_values", vec![("values", values), ("width", form.width().into()), ("lane", form.sums().into())])
    }
}
