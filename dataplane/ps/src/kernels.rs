//! The arithmetic of the server's slots.

use thc_codec::aggregate;
use thc_protocol::Lane;
use thc_protocol::aggregator::Kernels;

/// The kernels of `thc-codec`, the fastest it has for this processor. They give the same lanes, bit
/// for bit, as [`Scalar`](thc_protocol::aggregator::Scalar), which defines them.
#[derive(Clone, Copy, Debug)]
pub struct Simd;

impl Kernels for Simd {
    #[inline]
    fn lookup(lane: Lane, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
        let done = match (lane, add) {
            (Lane::Bits8, false) => aggregate::lookup_set4(lanes, table, packed),
            (Lane::Bits8, true) => aggregate::lookup_add4(lanes, table, packed),
            (Lane::Bits16, false) => aggregate::lookup_set4_wide(lanes, table, packed),
            (Lane::Bits16, true) => aggregate::lookup_add4_wide(lanes, table, packed),
        };
        // The only error is a length, and P7.9 let only packets in that fit their slot.
        debug_assert!(done.is_ok(), "{done:?}");
    }

    #[inline]
    fn raw_add(lanes: &mut [u8], words: &[u8]) {
        let done = aggregate::raw_add(lanes, words);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    #[inline]
    fn expect(memory: &[u8]) {
        aggregate::prefetch(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thc_protocol::aggregator::Scalar;

    /// Every length the protocol has, both lanes, opening and joining.
    #[test]
    fn the_same_lanes_as_the_model() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..50 {
            let mut table = [0; 16];
            random.fill(&mut table);
            for lane in [Lane::Bits8, Lane::Bits16] {
                let mut packed = vec![0; lane.data_len()];
                let mut expected = vec![0; 1024];
                for add in [false, true, true] {
                    random.fill(&mut packed);
                    let mut got = expected.clone();
                    Scalar::lookup(lane, add, &mut expected, &table, &packed);
                    Simd::lookup(lane, add, &mut got, &table, &packed);
                    assert_eq!(expected, got, "{lane:?} add {add} round {round}");
                }
            }
            let (mut lanes, mut words) = (vec![0; 1024], vec![0; 1024]);
            random.fill(&mut lanes);
            random.fill(&mut words);
            let mut got = lanes.clone();
            Scalar::raw_add(&mut lanes, &words);
            Simd::raw_add(&mut got, &words);
            assert_eq!(lanes, got, "raw, round {round}");
        }
    }
}
