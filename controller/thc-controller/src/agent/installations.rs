//! Lookup tables of which a target has not all rows yet.

use crate::error::ControllerError;
use crate::state::Answer;
use p4runtime_proto::v1::Update;
use std::collections::{BTreeSet, VecDeque};
use thc_p4::rows::LookupBytes;

/// A lookup table of which a target is getting the rows.
#[derive(Debug)]
pub(super) struct Installation {
    /// Its number on the wire.
    pub(super) table: u8,
    pub(super) lookup: LookupBytes,
    pub(super) rest: VecDeque<Update>,
}

/// The lookup tables that a target is getting, the present one first, and the jobs that wait for them.
#[derive(Debug, Default)]
pub(super) struct Installations {
    pub(super) tables: VecDeque<Installation>,
    waiting: Vec<Answer<()>>,
}

impl Installations {
    /// Whether there is nothing left to do.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The numbers of these tables on the wire.
    pub(super) fn tables(&self) -> BTreeSet<u8> {
        self.tables.iter().map(|one| one.table).collect()
    }

    /// What the target has of them is not known any more.
    pub(super) fn forget(&mut self) {
        self.tables.clear();
    }

    /// Answers when all tables are there.
    pub(super) fn wait(&mut self, answer: Answer<()>) {
        self.waiting.push(answer);
    }

    /// Answers those who wait, unless tables are still to come.
    pub(super) fn answer(&mut self) {
        if self.is_empty() {
            // Who has asked may have gone; that is no loss.
            self.waiting.drain(..).for_each(|answer| drop(answer.send(Ok(()))));
        }
    }

    /// They do not come.
    pub(super) fn refuse(&mut self, error: impl Fn() -> ControllerError) {
        self.tables.clear();
        self.waiting.drain(..).for_each(|answer| drop(answer.send(Err(error()))));
    }

    pub(super) fn has(&self, number: u8) -> bool {
        self.tables.iter().any(|one| one.lookup.number == number)
    }
}
