#![allow(clippy::unwrap_used)]

use super::*;
use crate::tensors::{EXACT, TensorBlock};
use proptest::prelude::*;

const HOW: [Encoding; 5] = [
    Encoding::Full,
    Encoding::Dense { bits: 2 },
    Encoding::Dense { bits: 11 },
    Encoding::Sparse { bits: 8, budget: None },
    Encoding::Sparse { bits: 8, budget: Some(3.0) },
];

const ROUNDINGS: Roundings = Roundings { seed: 1, round: 2, shard: 3 };

fn rounding() -> Rounding {
    ROUNDINGS.piece(0)
}

#[test]
fn sizes_by_hand() {
    let mut x = vec![0.0; 1000];
    x[7] = -2.0;
    x[500] = 2.0;
    let size = |how| encode(&x, how, rounding(), &mut Vec::new()).unwrap();
    assert_eq!(size(Encoding::Full), VectorSize { bits: 8 + 32_000, paper: 32_000 });
    assert_eq!(size(Encoding::Dense { bits: 8 }), VectorSize { bits: 48 + 8000, paper: 8032 });
    // Head 9; positions 3; signs 1.
    assert_eq!(
        size(Encoding::Sparse { bits: 8, budget: None }),
        VectorSize { bits: 8 * 13, paper: 32 + 2 * 18 }
    );
}

#[test]
fn what_is_broken_is_refused() {
    let mut out = [0.0; 4];
    let with = |head: &[u8], floats: &[f32]| {
        let mut bytes = head.to_vec();
        put_floats(floats, &mut bytes);
        bytes
    };
    let shapes = [
        vec![],
        vec![9],
        with(&[0], &[1.0; 3]),
        with(&[0], &[1.0; 5]),
        with(&[1, 8], &[1.0]),
        with(&[1, 17], &[1.0, 0.0]),
        with(&[1, 8], &[-1.0, 0.0]),
        [with(&[2], &[1.0]), vec![1, 0, 0]].concat(),
        [with(&[2], &[1.0]), vec![1, 0, 0, 0, 0]].concat(),
        [with(&[2], &[1.0]), vec![5, 0, 0, 0, 0, 0, 0]].concat(),
        [with(&[2], &[1.0]), vec![255, 255, 255, 255, 255, 0]].concat(),
    ];
    for bytes in shapes {
        assert!(matches!(decode(&bytes, &mut out), Err(Broken::Shape(_))), "{bytes:?}");
    }
    let infinite = [
        with(&[0], &[1.0, f32::NAN, 1.0, 1.0]),
        with(&[0], &[1.0, 1.0, 1.0, f32::INFINITY]),
        with(&[1, 8], &[f32::NAN, 0.0]),
        [with(&[1, 16], &[2e37]), vec![0; 8]].concat(),
        [with(&[2], &[f32::INFINITY]), vec![1, 0, 0, 0, 0, 0]].concat(),
    ];
    for bytes in infinite {
        assert_eq!(decode(&bytes, &mut out), Err(Broken::NotFinite), "{bytes:?}");
    }
    for how in HOW {
        assert!(encode(&[1.0, f32::NAN], how, rounding(), &mut Vec::new()).is_err());
    }
}

#[test]
fn each_piece_has_a_scale_of_its_own() {
    // Small numbers beside large ones: one scale would be 1000 / 127.
    let x: Vec<f32> = (0..100).map(|i| (i as f32).sin() * if i < 50 { 0.01 } else { 1000.0 }).collect();
    let dense = Encoding::Dense { bits: 8 };
    let blocks = [(0..50, 8), (50..80, 8), (80..100, EXACT)].map(|(range, bits)| TensorBlock { range, bits });
    let mut bytes = Vec::new();
    let size = encode_blocks(&x, &blocks, |_| dense, ROUNDINGS, &mut bytes).unwrap();
    assert_eq!(size, VectorSize { bits: 8 * (5 + 3 * 4 + 2 * 6 + 80 + 81), paper: 64 + 640 + 640 });
    assert_eq!(size.bits, 8 * bytes.len() as u64);
    let mut out = vec![9.0; 100];
    decode(&bytes, &mut out).unwrap();
    assert!(x[..50].iter().zip(&out).all(|(x, out)| (x - out).abs() < 1e-4));
    assert!(x[50..80].iter().zip(&out[50..]).all(|(x, out)| (x - out).abs() < 8.0));
    assert_eq!(&out[80..], &x[80..]);
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut], &mut out).is_err(), "{cut}");
    }
    assert!(decode(&[bytes.clone(), vec![0]].concat(), &mut out).is_err());
    assert!(decode(&bytes, &mut [0.0; 99]).is_err() && decode(&bytes, &mut [0.0; 101]).is_err());
    // Pieces of one coordinate would be longer than floats.
    let ones: Vec<_> = (0..100).map(|i| TensorBlock { range: i..i + 1, bits: 8 }).collect();
    bytes.clear();
    encode_blocks(&x, &ones, |_| dense, ROUNDINGS, &mut bytes).unwrap();
    assert_eq!(bytes.len(), 401);
}

proptest! {
    #[test]
    fn round_trip(x in prop::collection::vec(prop_oneof![Just(0.0), -1e6_f32..1e6], 1..300), seed: u64) {
        let max = norm::max_abs(&x);
        for how in HOW {
            let mut bytes = Vec::new();
            let size = encode(&x, how, Rounding::new(seed, 0, 0), &mut bytes).unwrap();
            prop_assert_eq!(size.bits, 8 * bytes.len() as u64);
            prop_assert!(bytes.len() <= max_len(x.len()));
            let mut out = vec![9.0; x.len()];
            decode(&bytes, &mut out).unwrap();
            match how {
                Encoding::Full => prop_assert_eq!(&x, &out),
                Encoding::Sparse { .. } => {
                    prop_assert!(x.iter().zip(&out).all(|(x, out)| *out == 0.0 || x * out > 0.0));
                }
                Encoding::Dense { bits } => {
                    let step = max / ((1 << (bits - 1)) - 1) as f32 * 1.01;
                    prop_assert!(x.iter().zip(&out).all(|(x, out)| (x - out).abs() <= step));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), form in 0_u8..5) {
        let mut out = [0.0; 10];
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = form;
        }
        if decode(&bytes, &mut out).is_ok() {
            prop_assert!(out.iter().all(|v| v.is_finite()));
        }
    }
}
