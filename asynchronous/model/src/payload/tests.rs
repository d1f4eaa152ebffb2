#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use super::*;
use proptest::prelude::*;

const HOW: [Encoding; 7] = [
    Encoding::Full,
    Encoding::Dense { bits: 2 },
    Encoding::Dense { bits: 11 },
    Encoding::Shortest { bits: 4 },
    Encoding::Shortest { bits: 8 },
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
    // Head 10 bytes; positions 1 + 3 bytes (10 bits each); 2 bytes.
    assert_eq!(size(Encoding::Shortest { bits: 8 }), VectorSize { bits: 8 * 16, paper: 8032 });
    // Head 9; positions 1 + 3; signs 1.
    assert_eq!(
        size(Encoding::Sparse { bits: 8, budget: None }),
        VectorSize { bits: 8 * 14, paper: 32 + 2 * 18 }
    );
}

#[test]
fn leaving_zeros_out_changes_nothing() {
    let x: Vec<f32> = (0..300).map(|i| if i % 7 == 0 { (i as f32).sin() } else { 0.0 }).collect();
    let decoded = |how| {
        let (mut bytes, mut out) = (Vec::new(), vec![9.0; 300]);
        encode(&x, how, rounding(), &mut bytes).unwrap();
        decode(&bytes, &mut out).unwrap();
        out
    };
    for bits in 2..=16 {
        assert_eq!(decoded(Encoding::Dense { bits }), decoded(Encoding::Shortest { bits }), "{bits} bits");
    }
}

#[test]
fn the_shorter_form_is_taken() {
    let encoded = |x: &[f32], encoding| {
        let mut bytes = Vec::new();
        encode(x, encoding, rounding(), &mut bytes).unwrap();
        bytes
    };
    for bits in 2..=16 {
        let (dense, shortest) = (Encoding::Dense { bits }, Encoding::Shortest { bits });
        // Of a hundred coordinates so many are not zero.
        for nonzero in (0..=100).step_by(5) {
            let x: Vec<f32> = (0..1000).map(|i| if i * 37 % 100 < nonzero { 1.0 } else { 0.0 }).collect();
            let [dense, shortest] = [encoded(&x, dense), encoded(&x, shortest)];
            match shortest[0] {
                LATTICE_SPARSE => assert!(shortest.len() < dense.len(), "{bits} bits, {nonzero} %"),
                _ => assert_eq!(shortest, dense, "{bits} bits, {nonzero} %"),
            }
            assert!(nonzero > 5 || shortest[0] == LATTICE_SPARSE, "{bits} bits, {nonzero} %");
        }
    }
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
        [with(&[2, 8], &[1.0]), vec![1, 0, 0]].concat(),
        [with(&[2, 8], &[1.0]), vec![5, 0, 0, 0, 255, 0, 0]].concat(),
        [with(&[3], &[1.0]), vec![1, 0, 0, 0, 255, 0]].concat(),
        [with(&[3], &[1.0]), vec![255, 255, 255, 255, 255, 0]].concat(),
    ];
    for bytes in shapes {
        assert!(matches!(decode(&bytes, &mut out), Err(Broken::Shape(_))), "{bytes:?}");
    }
    let infinite = [
        with(&[0], &[1.0, f32::NAN, 1.0, 1.0]),
        with(&[0], &[1.0, 1.0, 1.0, f32::INFINITY]),
        with(&[1, 8], &[f32::NAN, 0.0]),
        [with(&[1, 16], &[2e37]), vec![0; 8]].concat(),
        [with(&[3], &[f32::INFINITY]), vec![1, 0, 0, 0, 255, 0, 0]].concat(),
    ];
    for bytes in infinite {
        assert_eq!(decode(&bytes, &mut out), Err(Broken::NotFinite), "{bytes:?}");
    }
    for how in HOW {
        assert!(encode(&[1.0, f32::NAN], how, rounding(), &mut Vec::new()).is_err());
    }
}

#[test]
fn a_part_is_some_coordinates_alone() {
    let x: Vec<f32> = (0..100).map(|i| (i as f32).sin()).collect();
    for spans in [vec![], vec![0..1], vec![3..40, 40..41, 99..100], vec![0..100]] {
        for how in HOW {
            let (mut bytes, mut alone) = (Vec::new(), Vec::new());
            let size = encode_part(&x, &spans, VectorForm::Whole(how), ROUNDINGS, &mut bytes).unwrap();
            assert_eq!(size.bits, 8 * bytes.len() as u64);
            let chosen: Vec<f32> = spans.iter().flat_map(|span| &x[span.clone()]).copied().collect();
            let mut out = vec![9.0; 100];
            assert_eq!(decode_push(&bytes, &mut out).unwrap(), spans);
            let how = if chosen.is_empty() { Encoding::Full } else { how };
            let plain = encode(&chosen, how, rounding(), &mut alone).unwrap();
            assert_eq!(size.paper, plain.paper);
            let mut wanted = vec![9.0; chosen.len()];
            decode(&alone, &mut wanted).unwrap();
            assert_eq!(out[..chosen.len()], wanted);
        }
    }
    let mut whole = Vec::new();
    encode_full(&x, &mut whole);
    assert_eq!(decode_push(&whole, &mut [0.0; 100]).unwrap(), [0..100]);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    for (head, floats) in [
        (words(&[1, 0, 101]), 101),
        (words(&[1, u32::MAX, u32::MAX]), 1),
        (words(&[1, 5, 0]), 0),
        (words(&[2, 5, 2, 6, 1]), 3),
        (words(&[2, 6, 1, 5, 1]), 2),
        (words(&[101]), 0),
        (words(&[1, 0, 2]), 3),
        (words(&[1, 0]), 0),
        (words(&[u32::MAX]), 0),
    ] {
        let mut bytes = [vec![PART], head, vec![FLOATS]].concat();
        put_floats(&vec![1.0; floats], &mut bytes);
        assert!(matches!(decode_push(&bytes, &mut [0.0; 100]), Err(Broken::Shape(_))), "{bytes:?}");
    }
    // A part of a part is none.
    let nested =
        [vec![PART], words(&[1, 0, 1]), vec![PART], words(&[1, 0, 1]), vec![FLOATS, 0, 0, 0, 0]].concat();
    assert!(decode_push(&nested, &mut [0.0; 100]).is_err());
}

#[test]
fn each_piece_has_a_scale_of_its_own() {
    // Small numbers beside large ones: one scale would be 1000 / 127.
    let x: Vec<f32> = (0..100).map(|i| (i as f32).sin() * if i < 50 { 0.01 } else { 1000.0 }).collect();
    let dense = Some(Encoding::Dense { bits: 8 });
    let pieces = [(50, dense), (30, dense), (10, Some(Encoding::Full)), (10, None)];
    let pieces = pieces.map(|(length, encoding)| VectorPiece { length, encoding });
    let mut bytes = Vec::new();
    let size = encode_pieces(&x, &pieces, ROUNDINGS, &mut bytes).unwrap();
    assert_eq!(size, VectorSize { bits: 8 * (5 + 4 * 4 + 2 * 6 + 80 + 41 + 1), paper: 64 + 640 + 320 });
    assert_eq!(size.bits, 8 * bytes.len() as u64);
    let mut out = vec![9.0; 100];
    decode(&bytes, &mut out).unwrap();
    assert!(x[..50].iter().zip(&out).all(|(x, out)| (x - out).abs() < 1e-4));
    assert!(x[50..80].iter().zip(&out[50..]).all(|(x, out)| (x - out).abs() < 8.0));
    assert_eq!((&out[80..90], &out[90..]), (&x[80..90], &[9.0; 10][..]));
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut], &mut out).is_err(), "{cut}");
    }
    assert!(decode(&[bytes.clone(), vec![0]].concat(), &mut out).is_err());
    assert!(decode(&bytes, &mut [0.0; 99]).is_err() && decode(&bytes, &mut [0.0; 101]).is_err());
    assert!(decode(&[FROZEN], &mut []).is_err());
    // What a push leaves out is not in it: nothing of it is frozen.
    assert!(decode_push(&bytes, &mut out).is_err());
    // Pieces of one coordinate would be longer than floats.
    let ones = vec![VectorPiece { length: 1, encoding: dense }; 100];
    bytes.clear();
    encode_pieces(&x, &ones, ROUNDINGS, &mut bytes).unwrap();
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
                Encoding::Dense { bits } | Encoding::Shortest { bits } => {
                    let step = max / ((1 << (bits - 1)) - 1) as f32 * 1.01;
                    prop_assert!(x.iter().zip(&out).all(|(x, out)| (x - out).abs() <= step));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), form in 0_u8..7) {
        let mut out = [0.0; 10];
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = form;
        }
        if decode(&bytes, &mut out).is_ok() {
            prop_assert!(out.iter().all(|v| v.is_finite()));
        }
        let mut out = [0.0; 10];
        if let Ok(spans) = decode_push(&bytes, &mut out) {
            prop_assert!(out.iter().all(|v| v.is_finite()));
            prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(spans.iter().all(|span| !span.is_empty() && span.end <= 10));
        }
    }
}
