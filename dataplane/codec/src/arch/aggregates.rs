//! Aggregation on vectors of any width.
//!
//! An instruction set says what is done to vectors of VECTOR bytes, each of which is a run of lanes in wire order:
//!
//! | name | what it is |
//! |-|-|
//! | `load`, `store` | a vector from VECTOR bytes, and into them |
//! | `broadcast(table)` | the 16 values of a table, as the next three take them |
//! | `values(table, packed)` | the values of PACKED bytes of indices in lanes of 8 bits, an array of vectors |
//! | `values_wide(table, packed)` | those of `PACKED_WIDE` bytes as numbers of 16 bits, an array of vectors |
//! | `values_half(tables, packed)` | those of VECTOR bytes in lanes of 4 bits, one vector; `tables` are for upper and for lower lanes |
//! | `to_wire16` | the numbers of `values_wide` as lanes |
//! | `add8`, `add16`, `add32` | lanes and lanes; for `add16`, lanes and numbers of `values_wide` |

/// Goes through lanes and payload, so many bytes of each at a time, and leaves the rest to the definition.
macro_rules! steps {
    ($lanes:ident by $lane_bytes:expr, $payload:ident by $bytes:expr, |$out:ident, $in:ident| $body:block, $rest:expr) => {
        let (mut outs, ins) = ($lanes.chunks_exact_mut($lane_bytes), $payload.chunks_exact($bytes));
        let tail = ins.remainder();
        for ($out, $in) in outs.by_ref().zip(ins) {
            $body
        }
        $rest(outs.into_remainder(), tail);
    };
}
pub(super) use steps;

/// Defines the kernels of aggregation for one instruction set.
macro_rules! kernels {
    ($features:literal) => {
        use $crate::arch::aggregates::steps;
        use $crate::scalar::aggregate as scalar;

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = broadcast(table);
            steps!(
                lanes by 2 * PACKED,
                packed by PACKED,
                |out, packed| {
                    for (out, v) in out.chunks_exact_mut(VECTOR).zip(values(t, packed)) {
                        store(out, v);
                    }
                },
                |lanes, packed| scalar::lookup_set4(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = broadcast(table);
            steps!(
                lanes by 2 * PACKED,
                packed by PACKED,
                |out, packed| {
                    for (out, v) in out.chunks_exact_mut(VECTOR).zip(values(t, packed)) {
                        let sum = add8(load(out), v);
                        store(out, sum);
                    }
                },
                |lanes, packed| scalar::lookup_add4(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = broadcast(table);
            steps!(
                lanes by 4 * PACKED_WIDE,
                packed by PACKED_WIDE,
                |out, packed| {
                    for (out, v) in out.chunks_exact_mut(VECTOR).zip(values_wide(t, packed)) {
                        store(out, to_wire16(v));
                    }
                },
                |lanes, packed| scalar::lookup_set4_wide(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = broadcast(table);
            steps!(
                lanes by 4 * PACKED_WIDE,
                packed by PACKED_WIDE,
                |out, packed| {
                    for (out, v) in out.chunks_exact_mut(VECTOR).zip(values_wide(t, packed)) {
                        let sum = add16(load(out), v);
                        store(out, sum);
                    }
                },
                |lanes, packed| scalar::lookup_add4_wide(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
            steps!(
                lanes by VECTOR,
                packed by VECTOR,
                |out, packed| {
                    store(out, values_half(t, packed));
                },
                |lanes, packed| scalar::lookup_set4_half(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
            let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
            steps!(
                lanes by VECTOR,
                packed by VECTOR,
                |out, packed| {
                    let sum = add8(load(out), values_half(t, packed));
                    store(out, sum);
                },
                |lanes, packed| scalar::lookup_add4_half(lanes, table, packed)
            );
        }

        #[target_feature(enable = $features)]
        pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
            steps!(
                lanes by VECTOR,
                payload by VECTOR,
                |out, words| {
                    let words = add32(load(out), load(words));
                    store(out, words);
                },
                scalar::raw_add
            );
        }

        // The compiler makes vectors of these by itself.

        #[target_feature(enable = $features)]
        pub(crate) fn set8_wide(lanes: &mut [u8], values: &[u8]) {
            scalar::set8_wide(lanes, values);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn add8_wide(lanes: &mut [u8], values: &[u8]) {
            scalar::add8_wide(lanes, values);
        }
    };
}
pub(super) use kernels;
