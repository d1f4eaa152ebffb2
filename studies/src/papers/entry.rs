//! What the registry says of a table or a figure.

use std::fmt;

use super::sheet::Sheet;
use super::study::Study;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// As on the command line.
    pub name: &'static str,
    /// Authors, title, where it appeared.
    pub title: &'static str,
    /// Its figures are numbered from 1 to this.
    pub figures: u8,
    /// Its tables are numbered from 1 to this.
    pub tables: u8,
    /// Sentences of its text that stand here beside tables and figures.
    pub claims: u8,
}

/// What has a number in a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Figure,
    Table,
    /// A sentence of the text that says a number.
    Claim,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Figure => "Figure",
            Self::Table => "Table",
            Self::Claim => "Claim",
        })
    }
}

/// What is measured or computed for an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Trainings.
    Study(Study),
    /// A table.
    Sheet(Sheet),
}

/// What became of it here.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    /// It explains, and measures nothing.
    Drawing,
    /// Measured by `thc papers`, smaller than in the paper.
    Scaled {
        /// What is smaller or other.
        how: &'static str,
        /// What is measured.
        study: Study,
    },
    /// Computed by `thc papers`, by arithmetic or by a simulation; scaled down where it is measured on gradients that were saved.
    Computed {
        /// What stands for what.
        how: &'static str,
        /// What is computed.
        sheet: Sheet,
    },
    /// Measured by another command, whose figures stand on a page of the documentation.
    Elsewhere {
        /// What is smaller or other.
        how: &'static str,
        /// The command.
        command: &'static str,
        /// What it gave.
        ours: &'static str,
        /// The page.
        page: &'static str,
    },
}

/// A table or a figure, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Figure or table.
    pub kind: Kind,
    /// Its number.
    pub number: u8,
    /// Its part, if it has parts that fare differently: `a`.
    pub part: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper found.
    pub published: &'static str,
    /// What became of it here.
    pub status: Status,
    /// Why ours differs; nothing where it does not, or where nothing was measured.
    pub difference: &'static str,
    /// What is measured beside it, which tests a cause or shows another part.
    pub more: &'static [Part],
}

impl Entry {
    /// A figure; its difference, if any, by [`Self::with_reason`].
    pub const fn figure(
        number: u8,
        part: &'static str,
        title: &'static str,
        published: &'static str,
        status: Status,
    ) -> Self {
        Self { kind: Kind::Figure, number, part, title, published, status, difference: "", more: &[] }
    }

    /// A table.
    pub const fn table(number: u8, title: &'static str, published: &'static str, status: Status) -> Self {
        Self { kind: Kind::Table, ..Self::figure(number, "", title, published, status) }
    }

    /// A sentence.
    pub const fn claim(number: u8, title: &'static str, published: &'static str, status: Status) -> Self {
        Self { kind: Kind::Claim, ..Self::figure(number, "", title, published, status) }
    }

    /// With the reason of a difference.
    pub const fn with_reason(self, difference: &'static str) -> Self {
        Self { difference, ..self }
    }

    /// With more that is measured.
    pub const fn with_parts(self, more: &'static [Part]) -> Self {
        Self { more, ..self }
    }

    /// Its name in a paper: "Figure 2a".
    pub fn name(&self) -> String {
        format!("{} {}{}", self.kind, self.number, self.part)
    }

    /// What became of it, in two words.
    pub fn state(&self) -> &'static str {
        match self.status {
            Status::Drawing => "explains, measures nothing",
            Status::Scaled { .. } | Status::Elsewhere { .. } => "scaled down",
            Status::Computed { sheet, .. } if sheet.needs_gradients() => "scaled down",
            Status::Computed { .. } => "computed",
        }
    }

    /// What is measured here.
    pub fn parts(&self) -> Vec<Part> {
        let own = match self.status {
            Status::Scaled { study, .. } => Some(Part::Study(study)),
            Status::Computed { sheet, .. } => Some(Part::Sheet(sheet)),
            _ => None,
        };
        own.into_iter().chain(self.more.iter().copied()).collect()
    }
}

impl Part {
    /// What it shows, where it is not the first of its entry.
    pub fn title(&self) -> String {
        match self {
            Self::Sheet(sheet) if !sheet.axis.is_empty() => sheet.axis.to_owned(),
            _ => self.name().replace('-', " "),
        }
    }

    /// Name of its files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Study(study) => study.name,
            Self::Sheet(sheet) => sheet.name,
        }
    }
}
