//! From which size on compression pays (SlimGC, section 3.3): the communication threshold table.
//!
//! During the warm-up every even step synchronises compressed, every odd one raw (Algorithm 1). Per size of tensor the table keeps
//! the averages of three times: t_c raw, t_c^q compressed, t_p^q compressing and decompressing. The threshold is the smallest
//! size whose gain t_c / (t_c^q + t_p^q) is above 1 (Algorithm 2, line 1); smaller tensors are sent raw.

use crate::error::{AdaptError, check};
use std::collections::BTreeMap;

/// How a tensor is synchronised in a step of the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As it is.
    Raw,
    /// Through the codec.
    Compressed,
}

impl Way {
    /// That of a step, counted from 1 (Algorithm 1, lines 5 to 8).
    #[must_use]
    pub fn of_step(step: u64) -> Way {
        if step.is_multiple_of(2) { Way::Compressed } else { Way::Raw }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    seconds: f64,
    count: u64,
}

impl Sum {
    fn add(&mut self, seconds: f64) {
        self.seconds += seconds;
        self.count += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.seconds / self.count as f64)
    }
}

/// One line of the table: averages in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Coordinates of the tensors.
    pub size: u64,
    /// t_c.
    pub raw: f64,
    /// t_c^q.
    pub compressed: f64,
    /// t_p^q.
    pub processing: f64,
}

impl Row {
    /// t_c / (t_c^q + t_p^q): above 1 compression pays.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.raw / (self.compressed + self.processing)
    }
}

/// The times of the warm-up, by size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    sizes: BTreeMap<u64, [Sum; 3]>,
}

impl Table {
    /// A raw synchronisation of a tensor took so many seconds.
    ///
    /// # Errors
    /// [`AdaptError::Value`] for a time that is negative or not finite.
    pub fn raw(&mut self, size: u64, seconds: f64) -> Result<(), AdaptError> {
        let seconds = check("the time", || format!("a tensor of {size}"), seconds)?;
        self.sizes.entry(size).or_default()[0].add(seconds);
        Ok(())
    }

    /// A compressed one took so many seconds on the network and so many of computing.
    ///
    /// # Errors
    /// As [`Self::raw`].
    pub fn compressed(&mut self, size: u64, seconds: f64, processing: f64) -> Result<(), AdaptError> {
        let seconds = check("the time", || format!("a tensor of {size}"), seconds)?;
        let processing = check("the time of compressing", || format!("a tensor of {size}"), processing)?;
        let sums = self.sizes.entry(size).or_default();
        sums[1].add(seconds);
        sums[2].add(processing);
        Ok(())
    }

    /// The lines of the sizes that were seen both ways, by increasing size.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.sizes.iter().filter_map(|(&size, [raw, compressed, processing])| {
            Some(Row {
                size,
                raw: raw.mean()?,
                compressed: compressed.mean()?,
                processing: processing.mean()?,
            })
        })
    }

    /// The smallest size with a gain above 1; `None` if compression never pays.
    #[must_use]
    pub fn threshold(&self) -> Option<u64> {
        self.rows().find(|row| row.gain() > 1.0).map(|row| row.size)
    }

    /// The threshold of a group: its members' times, line by line the slowest member's, for nobody goes on before that one. All
    /// members come to the same, whatever the order of the tables.
    #[must_use]
    pub fn agreed(tables: &[Table]) -> Option<u64> {
        let mut slowest: BTreeMap<u64, (Row, usize)> = BTreeMap::new();
        for row in tables.iter().flat_map(Table::rows) {
            let (all, seen) = slowest.entry(row.size).or_insert((row, 0));
            all.raw = all.raw.max(row.raw);
            all.compressed = all.compressed.max(row.compressed);
            all.processing = all.processing.max(row.processing);
            *seen += 1;
        }
        let known_to_all = slowest.values().filter(|(_, seen)| *seen == tables.len());
        known_to_all.map(|(row, _)| row).find(|row| row.gain() > 1.0).map(|row| row.size)
    }

    /// Whether the link is another than when the table was made: the raw time of a size is off by more than `share`.
    /// Then it is time for another warm-up.
    #[must_use]
    pub fn changed(&self, size: u64, seconds: f64, share: f64) -> bool {
        let known = self.sizes.get(&size).and_then(|sums| sums[0].mean());
        known.is_some_and(|known| (seconds - known).abs() > share * known)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Fig. 6 of the paper, sizes in units of 100 kB, times in ms.
    const FIGURE_6: [(u64, f64, f64, f64, f64); 4] = [
        (10, 28.5, 24.3, 6.3, 0.93),
        (16, 30.5, 25.3, 6.5, 0.96),
        (22, 40.2, 28.3, 6.8, 1.15),
        (40, 75.5, 37.3, 8.5, 1.65),
    ];

    fn figure_6() -> Table {
        let mut table = Table::default();
        for (size, raw, compressed, processing, _) in FIGURE_6.iter().rev() {
            for noise in [-0.25, 0.25] {
                table.raw(*size, (raw + noise) / 1e3).unwrap();
                table.compressed(*size, (compressed - noise) / 1e3, processing / 1e3).unwrap();
            }
        }
        table
    }

    #[test]
    fn the_papers_table_gives_the_papers_gains_and_threshold() {
        let table = figure_6();
        for (row, (size, .., gain)) in table.rows().zip(FIGURE_6) {
            assert_eq!(row.size, size);
            assert!((row.gain() - gain).abs() < 0.005, "{size}: {} {gain}", row.gain());
        }
        assert_eq!(table.threshold(), Some(22));
        assert!(
            !table.changed(22, 0.045, 0.2) && table.changed(22, 0.09, 0.2) && !table.changed(23, 9.0, 0.2)
        );
    }

    #[test]
    fn a_group_goes_by_its_slowest() {
        let fast = figure_6();
        let mut slow = Table::default();
        for row in fast.rows() {
            slow.raw(row.size, row.raw).unwrap();
            slow.compressed(row.size, row.compressed, row.processing + 0.006).unwrap();
        }
        let tables = [fast.clone(), slow.clone()];
        assert_eq!(Table::agreed(&tables), Some(40));
        assert_eq!(Table::agreed(&[slow, fast]), Some(40));
        assert_eq!(Table::agreed(&[figure_6()]), Some(22));
        // A size that one has not seen is no ground to agree on.
        assert_eq!(Table::agreed(&[figure_6(), Table::default()]), None);
        assert_eq!(Table::agreed(&[]), None);
    }

    #[test]
    fn half_measured_sizes_do_not_count_and_bad_times_are_errors() {
        let mut table = Table::default();
        table.raw(1, 1.0).unwrap();
        table.compressed(2, 0.1, 0.1).unwrap();
        assert_eq!((table.rows().count(), table.threshold()), (0, None));
        assert!(table.raw(1, f64::NAN).is_err() && table.compressed(1, 1.0, -1.0).is_err());
        assert_eq!([1, 2, 3].map(Way::of_step), [Way::Raw, Way::Compressed, Way::Raw]);
    }
}
