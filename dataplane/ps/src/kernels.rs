//! The arithmetic of the server's slots.

use thc_codec::packing::widen;
use thc_codec::sums::pack_sums;
use thc_codec::{CodecError, aggregate};
use thc_protocol::Lane;
use thc_protocol::aggregator::Kernels;
use thc_protocol::wire::Form;

/// The kernels of `thc-codec`, the fastest it has for this processor. They give the same lanes, bit
/// for bit, as [`Scalar`](thc_protocol::aggregator::Scalar), which defines them.
#[derive(Clone, Copy, Debug)]
pub struct Simd;

impl Kernels for Simd {
    #[inline]
    fn lookup(form: Form, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
        let done = match (form, add) {
            (Form::USUAL, false) => aggregate::lookup_set4(lanes, table, packed),
            (Form::USUAL, true) => aggregate::lookup_add4(lanes, table, packed),
            _ => aggregate_other(form, add, lanes, table, packed),
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
    fn pack(form: Form, lanes: &mut [u8]) {
        let done = pack_sums(form.lane().bits(), form.sums(), lanes);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    #[inline]
    fn prefetch(memory: &[u8]) {
        aggregate::prefetch(memory);
    }
}

/// Bytes of the indices of a packet at 4 bits.
const NIBBLES: usize = 512;

/// Forms other than the usual one. Narrow indices are widened to 4 bits first, within the first-level cache.
#[inline(never)]
fn aggregate_other(
    form: Form,
    add: bool,
    lanes: &mut [u8],
    table: &[u8; 16],
    packed: &[u8],
) -> Result<(), CodecError> {
    let mut nibbles = [0; NIBBLES];
    let packed = match form.width() {
        8 if form.lane() == Lane::Bits8 => return sums(add, lanes, packed, aggregate::add8),
        16 => return sums(add, lanes, packed, aggregate::add16),
        8 if add => return aggregate::add8_wide(lanes, packed),
        8 => return aggregate::set8_wide(lanes, packed),
        4 => packed,
        width => {
            let len = (packed.len() * 4 / usize::from(width)).min(NIBBLES);
            widen(width, packed, &mut nibbles[..len])?;
            &nibbles[..len]
        }
    };
    match (form.lane(), add) {
        (Lane::Bits4, false) => aggregate::lookup_set4_half(lanes, table, packed),
        (Lane::Bits4, true) => aggregate::lookup_add4_half(lanes, table, packed),
        (Lane::Bits8, false) => aggregate::lookup_set4(lanes, table, packed),
        (Lane::Bits8, true) => aggregate::lookup_add4(lanes, table, packed),
        (Lane::Bits16, false) => aggregate::lookup_set4_wide(lanes, table, packed),
        (Lane::Bits16, true) => aggregate::lookup_add4_wide(lanes, table, packed),
    }
}

/// Sums of racks in lanes as wide as they are.
fn sums(
    add: bool,
    lanes: &mut [u8],
    packed: &[u8],
    with: impl Fn(&mut [u8], &[u8]) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    if !add {
        lanes.fill(0);
    }
    with(lanes, packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thc_protocol::aggregator::Scalar;

    /// Every form the protocol has, opening and joining.
    #[test]
    fn the_same_lanes_as_the_model() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..50 {
            let mut table = [0; 16];
            random.fill(&mut table);
            let in_racks = |form: Form| {
                [Lane::Bits8, Lane::Bits16].into_iter().filter_map(move |sums| form.in_racks(sums))
            };
            let racks = Form::ALL.into_iter().flat_map(in_racks).flat_map(|(rack, root)| [rack, root]);
            for form in Form::ALL.into_iter().chain(racks) {
                let mut packed = vec![0; form.data_len()];
                let mut expected = vec![0; form.result_len()];
                for add in [false, true, true] {
                    random.fill(&mut packed);
                    let mut got = expected.clone();
                    Scalar::lookup(form, add, &mut expected, &table, &packed);
                    Simd::lookup(form, add, &mut got, &table, &packed);
                    assert_eq!(expected, got, "{form} add {add} round {round}");
                }
            }
            // P44.
            for form in (1..=4)
                .chain([8])
                .flat_map(|width| (5..=16).filter_map(move |lane| Form::with_sums(width, lane)))
            {
                let mut expected = vec![0; form.lanes_len()];
                random.fill(&mut expected);
                let mut got = expected.clone();
                if form.is_packed() {
                    Scalar::pack(form, &mut expected);
                    Simd::pack(form, &mut got);
                }
                assert_eq!(expected[..form.result_len()], got[..form.result_len()], "{form}");
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
