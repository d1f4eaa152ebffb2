//! The lookup tables of a job, as WELCOME lists them (P6, P23).

use super::norm::finalize;
use super::{Form, put, u64_at};
use crate::TableId;
use std::fmt;
use std::ops::Deref;

/// Most tables of a job.
pub const MAX_TABLES: usize = 16;
/// Bytes of a row behind WELCOME's fixed part.
pub(super) const TABLE_LEN: usize = 40;

/// A lookup table, and how what it stands for travels.
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

impl Table {
    fn emit(&self, row: &mut [u8]) {
        row[..4].copy_from_slice(&[self.id.0, self.bits, self.form.width(), self.form.sums()]);
        put(row, 4, &self.granularity.to_be_bytes());
        put(row, 6, &[0; 2]);
        put(row, 8, &self.fraction.to_bits().to_be_bytes());
        put(row, 16, &self.t_p.to_bits().to_be_bytes());
        put(row, 24, &self.values);
    }
}

/// A job's tables, 1 to [`MAX_TABLES`]; a call that names none uses the first.
#[derive(Clone, Copy, PartialEq)]
pub struct Tables {
    count: u8,
    rows: [Table; MAX_TABLES],
}

/// Why tables cannot be those of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// There are no tables, or too many.
    #[error("{count} tables: a job has 1 to {MAX_TABLES}")]
    Count {
        /// How many.
        count: usize,
    },
    /// 0, or two of one number.
    #[error("two tables with the number {id}, or one with the number 0: give each its own from 1 to 255")]
    Number {
        /// The number.
        id: TableId,
    },
    /// More values than indices of this width can name.
    #[error("table {id} of {bits} bits: its indices have {width}; they must have 1 to 4, or 8 for 8 bits")]
    Width {
        /// The table.
        id: TableId,
        /// b.
        bits: u8,
        /// Bits per index.
        width: u8,
    },
}

impl Tables {
    /// One table.
    #[must_use]
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

    /// What a call takes that names none.
    #[inline]
    #[must_use]
    pub fn first(&self) -> &Table {
        &self.rows[0]
    }

    /// The place of a table.
    #[inline]
    #[must_use]
    pub fn place(&self, id: TableId) -> Option<usize> {
        self.iter().position(|table| table.id == id)
    }

    /// Tables behind the first, as rows.
    pub(super) fn emit_rest(&self, rows: &mut [u8]) {
        rows.chunks_exact_mut(TABLE_LEN).zip(&self[1..]).for_each(|(row, table)| table.emit(row));
    }

    /// In what two lists differ after their first tables, as a number; 0 for nothing.
    pub(super) fn digest_rest(&self) -> u64 {
        let mut row = [0; TABLE_LEN];
        let hash = |hash, table: &Table| {
            table.emit(&mut row);
            (0..TABLE_LEN).step_by(8).fold(hash, |hash, at| finalize(hash ^ u64_at(&row, at)).wrapping_add(1))
        };
        self[1..].iter().fold(0, hash)
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
