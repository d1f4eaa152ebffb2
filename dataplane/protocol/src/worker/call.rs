//! One all-reduce that is not sent yet.

use crate::TableId;
use crate::wire::{Choice, Mode, Norm, Tables};

/// A tensor that a caller wants reduced.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec<'a> {
    /// The caller's name for the tensor, 0 if it has none.
    pub key: u32,
    /// Its partitions, at least one.
    pub parts: &'a [PartSpec],
}

/// A partition of what a caller wants reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSpec {
    /// The choice of a table or RAW. A table must be one of the job's; otherwise its first is taken.
    pub choice: Choice,
    /// Coordinates of the tensor from its first on.
    pub length: u32,
    /// The number of its DATA or RAW packets.
    pub packets: u32,
    /// The value of its NORM.
    pub norm: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The ring of its packets: the table's position in the job, or the one after the last table for RAW.
    pub ring: u8,
    pub table: TableId,
    pub mode: Mode,
    pub length: u32,
    pub packets: u32,
    /// This worker's value, then the maximum.
    pub norm: u32,
    /// A maximum that cannot be; believed if it comes again.
    pub doubted: Option<u32>,
    /// True if nothing of it is sent: there is nothing to send, the call failed, or its norm came too late.
    pub silent: bool,
}

/// A call until all of its packets are sent. From then on the stream knows what is outstanding, and the caller counts the
/// results.
#[derive(Debug)]
pub(super) struct Call {
    key: u32,
    pub parts: Vec<Part>,
    pub norms_sent: usize,
    pub norms_in: usize,
    /// The next packet to send: partition and packet.
    pub cursor: (usize, u32),
    /// True if no maximum of the other workers contains a NaN of this worker: then the call fails only
    /// here.
    pub withheld: bool,
}

impl Call {
    pub fn new(spec: &CallSpec<'_>, tables: &Tables) -> Call {
        let part = |&PartSpec { choice, length, packets, norm }: &PartSpec| {
            let place = match choice {
                Choice::Table(id) => tables.place(id).unwrap_or(0),
                Choice::Raw => tables.len(),
            };
            let choice = tables.get(place).map_or(Choice::Raw, |table| Choice::Table(table.id));
            let (table, mode) = choice.of_norm();
            Part { ring: place as u8, table, mode, length, packets, norm, doubted: None, silent: false }
        };
        Call {
            key: spec.key,
            parts: spec.parts.iter().map(part).collect(),
            norms_sent: 0,
            norms_in: 0,
            cursor: (0, 0),
            withheld: false,
        }
    }

    /// The NORM of a partition; `number` is the call's.
    pub fn norm_of(&self, number: u64, partition: usize) -> Norm {
        let Part { table, mode, length, norm, .. } = self.parts[partition];
        let norm =
            Norm { tag: 0, value: norm, length, call: number as u16, table, mode: mode as u8, key: self.key };
        norm.with_tag(self.parts.len() as u32)
    }

    /// Returns whether every NORM_RESULT is in.
    pub fn has_norms(&self) -> bool {
        self.norms_in == self.parts.len()
    }

    /// All maxima are in. This worker sends no data of a call that has `failed`. With `numbered`, packets that are not sent
    /// take seqs as well, since other workers may send them.
    pub fn begin_data(&mut self, failed: bool, numbered: bool) {
        for part in &mut self.parts {
            part.silent |= failed || part.norm == 0;
            if part.silent && !numbered {
                part.packets = 0;
            }
        }
    }

    /// Moves the cursor over what needs no sending. Returns whether all packets are sent.
    pub fn skip_sent(&mut self) -> bool {
        while let Some(part) = self.parts.get(self.cursor.0) {
            if self.cursor.1 < part.packets {
                return false;
            }
            self.cursor = (self.cursor.0 + 1, 0);
        }
        true
    }
}
