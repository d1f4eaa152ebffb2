//! The size of a rack, as options write it.

use std::fmt;
use std::str::FromStr;

use crate::values::textual;

textual!(RackSize, "workers of a rack, like 8 or \"7/8\"", ToString::to_string);

/// Workers of a rack, and how many of them complete a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RackSize {
    /// The number of workers.
    pub workers: u64,
    /// The quorum.
    pub quorum: u64,
}

impl fmt::Display for RackSize {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quorum < self.workers {
            write!(f, "{}/{}", self.quorum, self.workers)
        } else {
            self.workers.fmt(f)
        }
    }
}

impl FromStr for RackSize {
    type Err = String;

    /// `8`, or `7/8` for a quorum of 7 of 8.
    fn from_str(text: &str) -> Result<RackSize, String> {
        let wrong = || {
            format!("{text:?} is not a rack: write 8 for 8 workers, or 7/8 for 8 of whom 7 complete a sum")
        };
        let (quorum, workers) = text.split_once('/').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        Ok(RackSize { workers: number(workers)?, quorum: number(quorum)? })
    }
}
