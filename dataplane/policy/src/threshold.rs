//! The communication threshold table, which gives the size from which on compression pays (SlimGC, section 3.3).
//!
//! During the warm-up every even step synchronises compressed tensors, and every odd one raw tensors (Algorithm 1). For each
//! size of tensor the table has three times: t_c of sending it raw, t_c^q of sending it compressed, and t_p^q of compressing
//! and decompressing it. The threshold is the smallest size whose gain t_c / (t_c^q + t_p^q) is above 1 (Algorithm 2, line
//! 1). Smaller tensors are sent raw.
//!
//! Times are noisy, and a threshold must not follow their noise. Therefore this table differs from the paper in two ways.
//! Times are medians, since one late packet moves an average. And a size pays only if all larger sizes do, since the gain
//! grows with the size.

use crate::error::{AdaptError, check};
use std::collections::BTreeMap;

/// Times of one kind, in increasing order.
#[derive(Debug, Clone, Default, PartialEq)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, seconds: f64) {
        let at = self.0.partition_point(|time| *time <= seconds);
        self.0.insert(at, seconds);
    }

    fn median(&self) -> Option<f64> {
        let (upper, lower) = (self.0.get(self.0.len() / 2)?, self.0.get((self.0.len() - 1) / 2)?);
        Some(upper.midpoint(*lower))
    }
}

/// One line of the table, with medians in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdRow {
    /// The number of coordinates of the tensors.
    pub size: u64,
    /// t_c.
    pub raw: f64,
    /// t_c^q.
    pub compressed: f64,
    /// t_p^q.
    pub processing: f64,
}

impl ThresholdRow {
    /// t_c / (t_c^q + t_p^q): above 1 compression pays.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.raw / (self.compressed + self.processing)
    }
}

/// The times of the warm-up, by size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timings {
    sizes: BTreeMap<u64, [Times; 3]>,
}

impl Timings {
    /// Records a raw synchronisation of a tensor, which took this many seconds.
    ///
    /// # Errors
    /// [`AdaptError::Value`] for a time that is negative or not finite.
    pub fn record_raw(&mut self, size: u64, seconds: f64) -> Result<(), AdaptError> {
        let seconds = check("the time", || format!("a tensor of {size}"), seconds)?;
        self.sizes.entry(size).or_default()[0].add(seconds);
        Ok(())
    }

    /// Records a compressed synchronisation of a tensor, with its seconds on the network and those of computing.
    ///
    /// # Errors
    /// As [`Self::record_raw`].
    pub fn record_compressed(&mut self, size: u64, seconds: f64, processing: f64) -> Result<(), AdaptError> {
        let seconds = check("the time", || format!("a tensor of {size}"), seconds)?;
        let processing = check("the time of compressing", || format!("a tensor of {size}"), processing)?;
        let times = self.sizes.entry(size).or_default();
        times[1].add(seconds);
        times[2].add(processing);
        Ok(())
    }

    /// The lines of the sizes that were sent both raw and compressed, by increasing size.
    pub fn rows(&self) -> impl Iterator<Item = ThresholdRow> {
        self.sizes.iter().filter_map(|(&size, [raw, compressed, processing])| {
            Some(ThresholdRow {
                size,
                raw: raw.median()?,
                compressed: compressed.median()?,
                processing: processing.median()?,
            })
        })
    }

    /// The threshold of a group: the smallest size from which on gains are above 1, or `None` if compression does not pay.
    /// Each line has the times of the slowest member, for whom all others wait. All members compute the same threshold,
    /// whatever the order of the tables.
    #[must_use]
    pub fn common_threshold(tables: &[Timings]) -> Option<u64> {
        let mut slowest: BTreeMap<u64, (ThresholdRow, usize)> = BTreeMap::new();
        for row in tables.iter().flat_map(Timings::rows) {
            let (all, seen) = slowest.entry(row.size).or_insert((row, 0));
            all.raw = all.raw.max(row.raw);
            all.compressed = all.compressed.max(row.compressed);
            all.processing = all.processing.max(row.processing);
            *seen += 1;
        }
        let known_to_all = slowest.values().filter(|(_, seen)| *seen == tables.len());
        known_to_all.rev().take_while(|(row, _)| row.gain() > 1.0).last().map(|(row, _)| row.size)
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

    fn threshold(table: &Timings) -> Option<u64> {
        Timings::common_threshold(std::slice::from_ref(table))
    }

    fn figure_6() -> Timings {
        let mut table = Timings::default();
        for (size, raw, compressed, processing, _) in FIGURE_6.iter().rev() {
            for noise in [-0.25, 0.25] {
                table.record_raw(*size, (raw + noise) / 1e3).unwrap();
                table.record_compressed(*size, (compressed - noise) / 1e3, processing / 1e3).unwrap();
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
        assert_eq!(threshold(&table), Some(22));
    }

    #[test]
    fn a_group_goes_by_its_slowest() {
        let fast = figure_6();
        let mut slow = Timings::default();
        for row in fast.rows() {
            slow.record_raw(row.size, row.raw).unwrap();
            slow.record_compressed(row.size, row.compressed, row.processing + 0.006).unwrap();
        }
        let tables = [fast.clone(), slow.clone()];
        assert_eq!(Timings::common_threshold(&tables), Some(40));
        assert_eq!(Timings::common_threshold(&[slow, fast]), Some(40));
        assert_eq!(Timings::common_threshold(&[figure_6()]), Some(22));
        // Members cannot agree on a size that one of them has not measured.
        assert_eq!(Timings::common_threshold(&[figure_6(), Timings::default()]), None);
        assert_eq!(Timings::common_threshold(&[]), None);
    }

    fn with_gains(gains: &[(u64, f64)]) -> Timings {
        let mut table = Timings::default();
        for &(size, gain) in gains {
            table.record_raw(size, gain * 0.01).unwrap();
            table.record_compressed(size, 0.009, 0.001).unwrap();
        }
        table
    }

    #[test]
    fn one_late_packet_moves_no_threshold() {
        let mut table = figure_6();
        for _ in 0..3 {
            table.record_raw(10, 0.0285).unwrap();
            table.record_compressed(10, 0.0243, 0.0063).unwrap();
        }
        // A raw tensor of the smallest size waits for a time-out.
        table.record_raw(10, 0.3).unwrap();
        assert_eq!(threshold(&table), Some(22));
    }

    #[test]
    fn a_small_size_that_pays_by_chance_is_none() {
        // Measured at 1 Gb/s on a busy machine: 256 coordinates seemed to gain, but 1024 and 4096 did not.
        let table = with_gains(&[(256, 1.22), (1024, 0.54), (4096, 0.75), (16_384, 1.46), (65_536, 3.9)]);
        assert_eq!(threshold(&table), Some(16_384));
    }

    #[test]
    fn half_measured_sizes_do_not_count_and_bad_times_are_errors() {
        let mut table = Timings::default();
        table.record_raw(1, 1.0).unwrap();
        table.record_compressed(2, 0.1, 0.1).unwrap();
        assert_eq!((table.rows().count(), threshold(&table)), (0, None));
        assert!(table.record_raw(1, f64::NAN).is_err() && table.record_compressed(1, 1.0, -1.0).is_err());
    }
}
