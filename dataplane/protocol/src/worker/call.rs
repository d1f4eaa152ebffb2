//! One all-reduce under way.

use crate::TableId;
use crate::wire::{Choice, Mode, Norm, Tables};

/// A tensor that a caller wants reduced.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec<'a> {
    /// The caller's name for the tensor, 0 if it has none.
    pub key: u32,
    /// Its partitions.
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
    pub finished: u32,
    /// True if nothing of it is sent: there is nothing to send, the call failed, or its norm came too late.
    pub silent: bool,
}

impl Part {
    /// Returns whether all its packets have results, or it has none.
    fn is_done(&self) -> bool {
        self.finished == self.packets
    }
}

#[derive(Debug)]
pub(super) struct Call {
    key: u32,
    pub parts: Vec<Part>,
    pub norms_sent: usize,
    pub norms_in: usize,
    /// Partitions that have packets without results, once all norms are in.
    open: usize,
    /// The next packet to send: partition and packet.
    pub cursor: (usize, u32),
    /// Failed: this worker sends no data of it.
    pub failed: bool,
    /// True if no maximum of the other workers contains a NaN of this worker: then the call fails only
    /// here.
    pub withheld: bool,
    /// True if its packets take seqs even if no worker sends them.
    numbered: bool,
}

impl Call {
    pub fn new(spec: &CallSpec<'_>, tables: &Tables, numbered: bool) -> Call {
        let part = |&PartSpec { choice, length, packets, norm }: &PartSpec| {
            let place = match choice {
                Choice::Table(id) => tables.place(id).unwrap_or(0),
                Choice::Raw => tables.len(),
            };
            let choice = tables.get(place).map_or(Choice::Raw, |table| Choice::Table(table.id));
            let (table, mode) = choice.of_norm();
            let (doubted, finished, silent) = (None, 0, false);
            Part { ring: place as u8, table, mode, length, packets, norm, doubted, finished, silent }
        };
        Call {
            key: spec.key,
            parts: spec.parts.iter().map(part).collect(),
            norms_sent: 0,
            norms_in: 0,
            open: 0,
            cursor: (0, 0),
            failed: false,
            withheld: false,
            numbered,
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

    /// All maxima are in, and it is known whether the call has failed: partitions without data are done.
    pub fn begin_data(&mut self) {
        for part in &mut self.parts {
            part.silent |= self.failed || part.norm == 0;
            if part.silent && !self.numbered {
                part.packets = 0;
            }
        }
        self.open = self.parts.iter().filter(|part| !part.is_done()).count();
    }

    /// Counts further finished packets of a partition.
    pub fn finish(&mut self, partition: usize, packets: u32) {
        let part = &mut self.parts[partition];
        part.finished += packets;
        self.open -= usize::from(part.is_done());
    }

    /// Moves the cursor over what needs no sending; whether all is sent.
    pub fn skip_sent(&mut self) -> bool {
        while let Some(part) = self.parts.get(self.cursor.0) {
            if self.cursor.1 < part.packets {
                return false;
            }
            self.cursor = (self.cursor.0 + 1, 0);
        }
        true
    }

    /// Returns whether nothing of it is outstanding or to be sent.
    pub fn is_done(&self) -> bool {
        self.has_norms() && self.open == 0
    }
}
