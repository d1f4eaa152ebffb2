//! The schemes that are compared, with their parameters, colours and published errors.

use thc_baselines::{
    Dgc, OneBit, PowerSgd, Qsgd, Scheme, SignSgd, TernGrad, Thc, TopK, TwoBit, Uncompressed, UniformThc,
};
use thc_codec::table::choose;

use crate::charts::{Mark, RGBColor};
use crate::error::Result;

/// A scheme in the figures.
pub struct Entry {
    /// Name in legends and tables, the same for every number of workers.
    pub label: &'static str,
    /// The scheme.
    pub scheme: Box<dyn Scheme>,
    /// Colour of its line.
    pub color: RGBColor,
    /// Mark of its points.
    pub mark: Mark,
    /// Its error with four workers in the paper's section 2.1 (Fig. 2b).
    pub published: Option<f64>,
    /// Whether the sum of its results over rounds tends to the sum of the means: not with momentum.
    pub accumulates: bool,
}

/// Name of THC with the parameters of the paper's testbed.
pub const THC: &str = "THC, g = 30, p = 1/32";
/// Name of THC with the best table for the number of workers.
pub const CHOSEN: &str = "THC, table chosen for n";

/// All schemes for `workers` workers and gradients of the given root mean square, which the 2-bit
/// scheme needs for its threshold.
pub fn entries(workers: u32, rms: f32) -> Result<Vec<Entry>> {
    // 8-bit sums as long as they hold 4-bit indices, then 16-bit ones.
    let chosen = choose(4, 8, workers).or_else(|_| choose(4, 16, workers))?.table;
    let entry = |label, scheme: Box<dyn Scheme>, (r, g, b), mark| Entry {
        label,
        scheme,
        color: RGBColor(r, g, b),
        mark,
        published: None,
        accumulates: true,
    };
    let qsgd = |bucket| Box::new(Qsgd { levels: 7, down_levels: 127, bucket });
    let mut all = vec![
        entry("no compression", Box::new(Uncompressed), (0, 0, 0), Mark::Circle),
        entry(THC, Box::new(Thc::new(4, 30, 1.0 / 32.0)?), (214, 39, 40), Mark::Circle),
        entry(CHOSEN, Box::new(Thc::with_table(chosen)), (255, 127, 14), Mark::Diamond),
        entry(
            "uniform THC, RHT",
            Box::new(UniformThc { bits: 4, rotated: true }),
            (188, 140, 0),
            Mark::Triangle,
        ),
        entry(
            "uniform THC, no RHT",
            Box::new(UniformThc { bits: 4, rotated: false }),
            (140, 110, 60),
            Mark::Square,
        ),
        entry("QSGD, buckets of 512", qsgd(Some(512)), (31, 90, 180), Mark::Circle),
        entry("QSGD, one norm", qsgd(None), (100, 160, 230), Mark::Triangle),
        entry("TernGrad", Box::new(TernGrad { layer: None, clip: None }), (0, 140, 150), Mark::Circle),
        entry(
            "TernGrad, clipped 2.5 σ",
            Box::new(TernGrad { layer: None, clip: Some(2.5) }),
            (80, 195, 190),
            Mark::Diamond,
        ),
        entry("TopK 10 %", Box::new(TopK::symmetric(0.1)), (20, 110, 40), Mark::Circle),
        entry("DGC 10 %", Box::new(Dgc { ratio: 0.1, momentum: 0.9 }), (110, 180, 50), Mark::Hollow),
        entry("signSGD, majority", Box::new(SignSgd), (120, 60, 170), Mark::Circle),
        entry("1-bit SGD", Box::new(OneBit { column: None }), (215, 100, 190), Mark::Triangle),
        entry("2-bit, threshold rms", Box::new(TwoBit { threshold: rms }), (130, 70, 50), Mark::Square),
        entry("PowerSGD, rank 4", Box::new(PowerSgd { rank: 4 }), (110, 110, 110), Mark::Diamond),
    ];
    for entry in &mut all {
        match entry.label {
            "TernGrad" => entry.published = Some(6.95),
            "TopK 10 %" => entry.published = Some(0.46),
            // Momentum sums gradients of several rounds on purpose.
            "DGC 10 %" => entry.accumulates = false,
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_same_labels_for_every_number_of_workers() {
        let labels = |workers| -> Vec<&str> {
            entries(workers, 1.0).unwrap().iter().map(|entry| entry.label).collect()
        };
        let few = labels(1);
        for workers in [2, 17, 18, 64] {
            assert_eq!(labels(workers), few);
        }
        assert_eq!(entries(4, 1.0).unwrap().iter().filter_map(|e| e.published).count(), 2);
        let mut sorted = few.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), few.len());
    }
}
