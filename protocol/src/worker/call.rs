//! One all-reduce under way.

use crate::wire::{Mode, Norm};

/// What a caller wants reduced.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec<'a> {
    /// How its coordinates travel.
    pub mode: Mode,
    /// Coordinates.
    pub length: u32,
    /// The caller's name for the tensor, 0 if it has none.
    pub key: u32,
    /// For each partition how many DATA or RAW packets it has (P4).
    pub packets: &'a [u32],
    /// For each partition the value of its NORM (P5, P19).
    pub norms: &'a [u32],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub packets: u32,
    /// This worker's value, then the maximum.
    pub norm: u32,
    /// A maximum that cannot be (P19); believed if it comes again.
    pub doubted: Option<u32>,
    pub finished: u32,
}

impl Part {
    /// Whether all its packets have results, or it has none.
    fn done(&self) -> bool {
        self.norm == 0 || self.finished == self.packets
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub norm: Norm,
    pub mode: Mode,
    pub parts: Vec<Part>,
    pub norms_sent: usize,
    pub norms_in: usize,
    /// Partitions that have packets without results, once all norms are in.
    open: usize,
    /// The next packet to send: partition and packet.
    pub cursor: (usize, u32),
    /// Failed on all workers: nobody sends data of it.
    pub failed: bool,
    /// Failed here only: the others send data of it, and this worker must not (P19).
    pub withheld: bool,
}

impl Call {
    pub fn new(spec: &CallSpec<'_>, norm: Norm) -> Call {
        let parts = spec.packets.iter().zip(spec.norms);
        Call {
            norm,
            mode: spec.mode,
            parts: parts
                .map(|(&packets, &norm)| Part { packets, norm, doubted: None, finished: 0 })
                .collect(),
            norms_sent: 0,
            norms_in: 0,
            open: 0,
            cursor: (0, 0),
            failed: false,
            withheld: false,
        }
    }

    /// Whether every NORM_RESULT is in.
    pub fn has_norms(&self) -> bool {
        self.norms_in == self.parts.len()
    }

    /// All maxima are in: what has none of data is done.
    pub fn note_norms(&mut self) {
        self.open = self.parts.iter().filter(|part| !part.done()).count();
    }

    /// So many more packets of a partition are finished.
    pub fn finish(&mut self, partition: usize, packets: u32) {
        let part = &mut self.parts[partition];
        part.finished += packets;
        self.open -= usize::from(part.done());
    }

    /// Moves the cursor over what needs no sending; whether all is sent.
    pub fn skip_sent(&mut self) -> bool {
        while let Some(part) = self.parts.get(self.cursor.0) {
            if !self.failed && part.norm != 0 && self.cursor.1 < part.packets {
                return false;
            }
            self.cursor = (self.cursor.0 + 1, 0);
        }
        true
    }

    /// Whether nothing of it is outstanding or to be sent.
    pub fn done(&self) -> bool {
        self.has_norms() && (self.failed || self.open == 0)
    }
}
