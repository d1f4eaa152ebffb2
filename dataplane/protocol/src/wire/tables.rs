//! The lookup tables of a job, as WELCOME lists them (P6, P23).

use super::Form;
use super::layout::payload;
use crate::TableId;
use std::fmt;
use std::ops::Deref;

/// Most tables of a job.
pub const MAX_TABLES: usize = 16;

/// A lookup table, and the form of the packets that carry its indices and sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Table {
    /// Its number, from 1 on; 0 is RAW's.
    pub id: TableId,
    /// Bit budget b: it has 2^b values.
    pub bits: u8,
    /// Width of its indices, at least b, and of its sums.
    pub form: Form,
    /// Granularity g: its largest value.
    pub granularity: u16,
    /// The fraction p of coordinates that is truncated.
    pub fraction: f64,
    /// t_p, so that no two workers compute it differently.
    pub t_p: f64,
    /// T with unused entries zero; all zero if the index is the value ([`Form::is_identity`]).
    pub values: [u8; 16],
}

payload! {
    /// A row of WELCOME's list of tables.
    pub(super) struct Row[ROW_LEN = 40] {
        0 id: TableId,
        1 bits: u8,
        2 width: u8,
        3 lane: u8,
        4 granularity: u16,
        8 fraction: f64,
        16 t_p: f64,
        24 values: [u8; 16],
    }
}

impl Row {
    pub fn new(table: &Table) -> Row {
        let Table { id, bits, form, granularity, fraction, t_p, values } = *table;
        Row { id, bits, width: form.width(), lane: form.sums(), granularity, fraction, t_p, values }
    }

    /// The table; `None` if no form has this width and lane.
    pub fn table(&self) -> Option<Table> {
        let Row { id, bits, width, lane, granularity, fraction, t_p, values } = *self;
        let form = Form::with_sums(width, lane)?;
        Some(Table { id, bits, form, granularity, fraction, t_p, values })
    }
}

/// A job's tables, 1 to [`MAX_TABLES`]; a call that names none uses the first.
#[derive(Clone, Copy, PartialEq)]
pub struct Tables {
    count: u8,
    rows: [Table; MAX_TABLES],
}

/// The reason why tables cannot be those of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum TablesError {
    #[error("{count} tables: a job has 1 to {MAX_TABLES}")]
    Count { count: usize },
    #[error("two tables with the number {id}, or one with the number 0: give each its own from 1 to 255")]
    Number { id: TableId },
    #[error("table {id} of {bits} bits: its indices have {width}; they must have 1 to 4, or 8 for 8 bits")]
    Width { id: TableId, bits: u8, width: u8 },
}

impl Tables {
    /// One table.
    pub const fn one(table: Table) -> Tables {
        Tables { count: 1, rows: [table; MAX_TABLES] }
    }

    /// Tables, in this order.
    ///
    /// # Errors
    /// [`TablesError`].
    pub fn new(tables: &[Table]) -> Result<Tables, TablesError> {
        let &[first, ..] = tables else { return Err(TablesError::Count { count: 0 }) };
        let mut all = Tables { count: tables.len() as u8, ..Tables::one(first) };
        let Some(rows) = all.rows.get_mut(..tables.len()) else {
            return Err(TablesError::Count { count: tables.len() });
        };
        rows.copy_from_slice(tables);
        for (i, &Table { id, bits, form, .. }) in tables.iter().enumerate() {
            if id == TableId(0) || tables[..i].iter().any(|other| other.id == id) {
                return Err(TablesError::Number { id });
            }
            let width = form.width();
            if bits == 0 || bits > width || form.is_identity() != (bits == 8) {
                return Err(TablesError::Width { id, bits, width });
            }
        }
        Ok(all)
    }

    /// The table of calls that name none.
    #[inline]
    pub fn first(&self) -> &Table {
        &self.rows[0]
    }

    /// The place of a table.
    #[inline]
    pub fn place(&self, id: TableId) -> Option<usize> {
        self.iter().position(|table| table.id == id)
    }
}

impl Deref for Tables {
    type Target = [Table];

    fn deref(&self) -> &[Table] {
        &self.rows[..usize::from(self.count)]
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
