//! Pulls and pushes of a model over loopback, and the quantizers under them, against a copy of as many floats:
//! `cargo bench -p thc-model`.
//!
//! Every answer is checked before it is timed, and work and yardstick take turns. Results go to `bench/model.json` in the
//! target directory. Without `--bench` (as `cargo test --benches` calls it) there is one short turn, and nothing is written.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use serde_json::{Value, json};
use thc_bench::{is_measuring, median, seconds};
use thc_codec::packing::packed_len;
use thc_codec::rounding::Rounding;
use thc_model::codec::lattice::Lattice;
use thc_model::codec::sparsify::sparsify;
use thc_model::payload::{self, Encoding};
use thc_model::shard::{Applied, ModelShard, PushHead};
use thc_model::{
    Client, ClientConfig, ModelBits, ModelJobConfig, ModelServer, ModelServerConfig, Pull, Push, Spec,
};

const SECRET: &str = "a secret for benchmarks";

struct Figure {
    name: String,
    aim: f64,
    floor: f64,
    ratio: f64,
    detail: String,
}

/// The median of the time of `work` over that of a copy of `x`, turn by turn.
fn compare(name: &str, x: &[f32], turns: usize, work: impl FnMut()) -> Figure {
    compare_after(name, x, turns, || {}, work)
}

/// [`compare`] with something before each turn that does not count.
fn compare_after(
    name: &str,
    x: &[f32],
    turns: usize,
    mut before: impl FnMut(),
    mut work: impl FnMut(),
) -> Figure {
    let mut copy = vec![0.0; x.len()];
    let (mut ratios, mut times, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        before();
        let yard = seconds(|| black_box(&mut copy).copy_from_slice(black_box(x)));
        let time = seconds(&mut work);
        ratios.push(time / yard);
        times.push(time);
        copies.push(yard);
    }
    figure(name, x.len(), ratios, times, copies)
}

fn figure(name: &str, len: usize, ratios: Vec<f64>, times: Vec<f64>, copies: Vec<f64>) -> Figure {
    let rate = |time: f64| 4.0 * len as f64 / time / 1e9;
    let (time, yard) = (median(times), median(copies));
    let detail = format!("{:.3} GB/s of floats, the copy {:.1} GB/s", rate(time), rate(yard));
    let (aim, floor) = if name.contains("loopback") { (60.0, 300.0) } else { (6.0, 20.0) };
    Figure { name: name.to_owned(), aim, floor, ratio: median(ratios), detail }
}

/// Numbers of either sign that no width represents exactly.
fn vector(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.7).sin()).collect()
}

fn quantizers(len: usize, turns: usize, figures: &mut Vec<Figure>) {
    let x = vector(len);
    let mut out = vec![0.0; len];
    for bits in [4, 8, 11] {
        let on = Lattice::fit(&x, bits).unwrap();
        let mut packed = vec![0; packed_len(bits, len)];
        let mut round = 0;
        let mut quantize = |packed: &mut [u8]| {
            round += 1;
            on.quantize(&x, Rounding::new(1, round, 0), 0, packed).unwrap();
        };
        quantize(&mut packed);
        on.dequantize(&packed, &mut out).unwrap();
        assert!(x.iter().zip(&out).all(|(a, b)| (a - b).abs() <= on.delta() * 1.01));
        figures.push(compare(&format!("quantize to {bits} bits"), &x, turns, || quantize(&mut packed)));
        figures.push(compare(&format!("dequantize {bits} bits"), &x, turns, || {
            on.dequantize(&packed, &mut out).unwrap();
        }));
    }
    let (mut encoded, mut decoded) = (Vec::new(), vec![0.0; len]);
    figures.push(compare("encode a push of 8 bits", &x, turns, || {
        encoded.clear();
        payload::encode(&x, Encoding::Dense { bits: 8 }, Rounding::new(1, 1, 0), &mut encoded).unwrap();
    }));
    payload::decode(&encoded, &mut decoded).unwrap();
    assert!(x.iter().zip(&decoded).all(|(a, b)| (a - b).abs() <= 1.01 / 127.0));
    let mut round = 0;
    assert!(sparsify(&x, None, Rounding::new(1, 0, 0)).unwrap().positions.len() > len / 3);
    figures.push(compare("sparsify", &x, turns, || {
        round += 1;
        black_box(sparsify(&x, Some(len as f32 / 100.0), Rounding::new(1, round, 0)).unwrap());
    }));
}

/// A step of a shard by itself, and one while a pull reads the version before it.
fn steps(len: usize, turns: usize, figures: &mut Vec<Figure>) {
    let spec = Spec { bits: ModelBits::Fixed(8), ..Spec::sgd(len as u64, 1e-3) };
    let mut shard = ModelShard::new(Arc::new(spec), 0);
    let x = vector(len);
    assert!(shard.initialise(&x));
    let step = |shard: &mut ModelShard| {
        let head = PushHead { sequence: shard.sequence(0) + 1, stamp: shard.stamp(), scale: 1.0 };
        assert!(matches!(shard.push(0, &head, black_box(&x)), Applied::Taken { .. }));
    };
    figures.push(compare("a step of a shard", &x, turns, || step(&mut shard)));
    // What a pull has is given back by another thread, without the shard's lock.
    let (mut held, mut old) = (None, None);
    let mut ratios = Vec::new();
    let mut copy = vec![0.0; len];
    let (mut times, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        drop(old.take());
        old = held.take();
        held = shard.prepare(0, None, None).1;
        let yard = seconds(|| black_box(&mut copy).copy_from_slice(black_box(&x)));
        let time = seconds(|| step(&mut shard));
        ratios.push(time / yard);
        times.push(time);
        copies.push(yard);
    }
    figures.push(figure("a step of a shard beside a pull", len, ratios, times, copies));
}

fn streams(len: usize, turns: usize, figures: &mut Vec<Figure>) {
    let server = ModelServer::start(ModelServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        jobs: vec![ModelJobConfig::new("train", SECRET.into())],
        ..ModelServerConfig::default()
    })
    .unwrap();
    let first = vector(len);
    for bits in [32, 8] {
        let config = |worker| ClientConfig {
            server: server.local().to_string(),
            secret: SECRET.into(),
            worker,
            ..ClientConfig::default()
        };
        let spec = Spec { bits: ModelBits::Fixed(bits), ..Spec::sgd(len as u64, 0.5) };
        let name = format!("model-{bits}");
        let mut client = Client::open(config(0), &name, spec.clone()).unwrap();
        client.initialise(&first).unwrap();
        let mut x = vec![0.0; len];
        client.pull(&mut x, Pull::default()).unwrap();
        let step = if bits == 32 { 0.0 } else { 1.0 / 127.0 * 1.01 };
        assert!(x.iter().zip(&first).all(|(a, b)| (a - b).abs() <= step));
        let mut gradient = vec![0.25; len];
        gradient[0] = -0.25;
        let _ = client.push(&gradient, Push::bits(bits)).unwrap();
        client.pull(&mut x, Pull::default()).unwrap();
        assert!(x.iter().zip(&first).skip(1).all(|(a, b)| (a - b + 0.125).abs() <= 0.01));
        let mut other = Client::open(config(1), &name, spec).unwrap();
        let mut theirs = vec![0.0; len];
        other.pull(&mut theirs, Pull::default()).unwrap();
        // A pull of the version that the worker has would be a flag: another worker changes it.
        let change = || {
            let _ = other.push(&gradient, Push::bits(bits)).unwrap();
        };
        figures.push(compare_after(
            &format!("pull {bits} bits over loopback"),
            &first,
            turns,
            change,
            || {
                client.pull(&mut x, Pull::default()).unwrap();
            },
        ));
        figures.push(compare(&format!("push {bits} bits over loopback"), &first, turns, || {
            let _ = other.push(&gradient, Push::bits(bits)).unwrap();
        }));
        figures.push(compare(&format!("push and pull {bits} bits over loopback"), &first, turns, || {
            let _ = other.push_pull(&gradient, Push::bits(bits), &mut theirs, Pull::default()).unwrap();
        }));
    }
    server.shutdown().unwrap();
}

fn main() {
    let measuring = is_measuring();
    let (turns, len) = if measuring { (25, 1 << 22) } else { (1, 1 << 14) };
    let mut figures = Vec::new();
    quantizers(if measuring { 1 << 20 } else { len }, 2 * turns, &mut figures);
    steps(if measuring { 1 << 20 } else { len }, 2 * turns, &mut figures);
    streams(len, turns, &mut figures);
    let json: Vec<Value> = figures
        .iter()
        .map(|figure| {
            println!("{:<40} {:>8.2} × a copy, {}", figure.name, figure.ratio, figure.detail);
            let ratio = (figure.ratio * 1000.0).round() / 1000.0;
            json!({ "name": figure.name, "ratio": ratio, "better": "lower", "aim": figure.aim, "floor": figure.floor, "detail": figure.detail })
        })
        .collect();
    if measuring {
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "model", &json).unwrap();
    }
}
