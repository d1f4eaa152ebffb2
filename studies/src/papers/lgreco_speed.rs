//! L-GreCo's figures of throughput, computed: Transformer-XL's layers, PowerSGD's arithmetic, links of a cloud.

use super::shapes::{self, Architecture, XL_TOKENS};
use super::sheet::{Line, Make, Sheet};
use super::throughput::RTX3090;
use crate::error::Result;

/// Figs. 2 to 5 and the right half of Table 4.
pub const SPEED: Sheet = Sheet {
    name: "lgreco-speed",
    random: false,
    columns: &[
        "step, ms",
        "compressing, %",
        "tokens/s, thousands",
        "beside uniform",
        "published beside uniform",
    ],
    digits: 2,
    drawn: &[3, 4],
    axis: "times the throughput of uniform ranks",
    make: Make::Computed(speed),
};
/// Fig. 7b.
pub const BUCKETS: Sheet = Sheet {
    name: "lgreco-buckets",
    random: true,
    columns: &["slope, ns/B", "score"],
    digits: 3,
    drawn: &[],
    axis: "",
    make: Make::Computed(buckets),
};

/// Fig. 3 by the rate of the cloud's links.
pub const LINKS: Sheet = Sheet {
    name: "lgreco-links",
    random: false,
    columns: &["link in a uniform step, %", "L-GreCo", "Accordion", "k-means", "L-GreCo with Accordion"],
    digits: 2,
    drawn: &[1, 2, 3, 4],
    axis: "times the throughput of uniform ranks on four hosts",
    make: Make::Computed(links),
};
/// Table 1.
pub const OVERHEAD: Sheet = Sheet {
    name: "lgreco-overhead",
    random: false,
    columns: &[
        "choices",
        "errors, ms",
        "dynamic program, ms",
        "an epoch, s",
        "share, %",
        "published, %",
        "of it errors, %",
        "published, of it errors, %",
    ],
    digits: 3,
    drawn: &[4, 5],
    axis: "percent of the training",
    make: Make::Computed(overhead),
};

/// GPUs, and the Gb/s between them, by where they are: 8 in a host, or 4 hosts of 4 in a cloud (section 5).
const PLACES: [(&str, f64, f64, f64); 2] = [("one host", 8.0, 14.0, 1.0), ("four hosts", 16.0, 10.0, 4.0)];
/// Samples of a GPU.
const BATCH: f64 = 32.0;
/// Coordinates of a bucket.
const BUCKET: u64 = 25 << 18;

/// Seconds of a step, and those of compression. `last`: how much of its even share the last bucket sends.
fn step(
    model: &Architecture,
    gpus: f64,
    gbit: f64,
    sharing: f64,
    ratio: f64,
    rank: f64,
    last: f64,
) -> (f64, f64) {
    let forward = |operations: f64| BATCH * operations / RTX3090.flops;
    let total = model.parameters() as f64;
    // Three products of a matrix with rank columns, and gradients through memory four times, if anything is compressed.
    let compress = |coordinates: f64| {
        if rank > 0.0 { coordinates * (6.0 * rank / RTX3090.flops + 16.0 / 0.9e12) } else { 0.0 }
    };
    let bytes = |coordinates: f64| 2.0 * (gpus - 1.0) / gpus * 4.0 * coordinates / ratio * sharing;
    let (mut now, mut free, mut pending) = (forward(model.forward()), 0.0_f64, 0);
    for (number, layer) in model.layers.iter().enumerate().rev() {
        now += 2.0 * forward(layer.forward) + compress(layer.parameters() as f64);
        pending += layer.parameters();
        if pending >= BUCKET || number == 0 {
            // What the last bucket saves the others send, so that the ratio is that of all.
            let of_last = total - model.layers.first().map_or(0.0, |first| first.parameters() as f64);
            let others = 1.0 + (1.0 - last) * (total - of_last) / of_last;
            let part = if number == 0 { last } else { others };
            free = free.max(now) + 50e-6 + part * bytes(pending as f64) * 8.0 / (gbit * 1e9);
            pending = 0;
        }
    }
    (now.max(free), compress(total))
}

fn speed(_: bool, _: u64) -> Result<Vec<Line>> {
    let model = shapes::transformer_xl();
    // The ratios of Table 4; Fig. 6b: L-GreCo sends half of what Accordion sends of the last bucket.
    let ways = [
        ("no compression", 1.0, 0.0, 1.0, [None, None]),
        ("uniform, rank 32", 14.1, 32.0, 1.0, [Some(1.0), Some(1.0)]),
        ("L-GreCo", 23.5, 32.0, 0.5, [Some(144.0 / 110.0), Some(150.0 / 72.0)]),
        ("Accordion", 23.9, 32.0, 1.0, [Some(114.0 / 110.0), Some(107.0 / 72.0)]),
        ("k-means", 21.6, 32.0, 1.0, [Some(124.0 / 110.0), Some(112.0 / 72.0)]),
        ("L-GreCo with Accordion", 36.9, 32.0, 0.5, [Some(138.0 / 110.0), Some(176.0 / 72.0)]),
    ];
    let mut lines = Vec::new();
    for (place, (name, gpus, gbit, sharing)) in PLACES.into_iter().enumerate() {
        let uniform = step(&model, gpus, gbit, sharing, 14.1, 32.0, 1.0).0;
        for (way, ratio, rank, last, published) in ways {
            let (seconds, compressing) = step(&model, gpus, gbit, sharing, ratio, rank, last);
            let tokens = gpus * BATCH * XL_TOKENS as f64 / seconds / 1e3;
            let values = [1e3 * seconds, 100.0 * compressing / seconds, tokens, uniform / seconds];
            lines.push(Line::with_published(format!("{way}, {name}"), values, published[place]));
        }
    }
    Ok(lines)
}

fn links(_: bool, _: u64) -> Result<Vec<Line>> {
    let model = shapes::transformer_xl();
    let (_, gpus, _, sharing) = PLACES[1];
    let line = |gbit: f64| {
        let seconds = |ratio, last| step(&model, gpus, gbit, sharing, ratio, 32.0, last).0;
        let uniform = seconds(14.1, 1.0);
        let computing = step(&model, gpus, 1e9, sharing, 14.1, 32.0, 1.0).0;
        let others = [seconds(23.5, 0.5), seconds(23.9, 1.0), seconds(21.6, 1.0), seconds(36.9, 0.5)];
        let ratios = others.map(|seconds| uniform / seconds);
        let share = 100.0 * (1.0 - computing / uniform);
        Line::full(format!("{gbit} Gb/s"), [share].into_iter().chain(ratios))
    };
    let mut lines: Vec<Line> = [10.0, 7.5, 5.0, 4.0, 3.0, 2.0].map(line).to_vec();
    let published = [None, Some(150.0 / 72.0), Some(107.0 / 72.0), Some(112.0 / 72.0), Some(176.0 / 72.0)];
    lines.push(Line { label: "published".to_owned(), values: published.to_vec() });
    Ok(lines)
}

/// Nanoseconds of one state of the dynamic program: 177 ms for 78 layers of 100 choices and 10,000 steps of error (docs/adapt.md).
const STATE: f64 = 2.3e-9;
/// Steps of error of the program.
const STEPS: f64 = 10_000.0;
/// Bytes a second of an RTX 3090's memory.
const MEMORY: f64 = 0.94e12;

/// A choice once in an epoch, for every parameter in the paper's ranges: half to twice the usual one by ones, or a tenth to ten times by tenths.
fn overhead(_: bool, _: u64) -> Result<Vec<Line>> {
    let xl = shapes::transformer_xl();
    let resnet = shapes::resnet("ResNet-50", [3, 4, 6, 3]);
    // WikiText-103 has 103 million tokens and a step 256 samples of them; ImageNet 1.28 million pictures, and a step 2048; eight GPUs.
    let tokens = 103e6 / (256.0 * XL_TOKENS as f64);
    let epochs = [(&xl, 32.0, tokens, 32.0), (&resnet, 256.0, 1.28e6 / 2048.0, 4.0)];
    let published = [[0.56, 0.49, 0.15, 0.14], [0.14, 0.13, 0.04, 0.03], [0.38, 0.35, 0.33, 0.30]];
    let mut lines = Vec::new();
    for (at, (model, batch, steps, rank)) in epochs.into_iter().enumerate() {
        let coordinates = model.parameters() as f64;
        let epoch = steps * 3.0 * batch * model.forward() / RTX3090.flops;
        // Bytes of memory and operations of one coordinate, compressed, decompressed and compared.
        let ranks: f64 =
            (0..).map(|more| 0.5 * rank + f64::from(more)).take_while(|r| *r <= 2.0 * rank).sum();
        let families = [
            ("PowerSGD", 1.5 * rank + 1.0, 24.0, 6.0 * ranks / (1.5 * rank + 1.0)),
            ("QSGD, 4 bits", 7.0, 24.0, 0.0),
            ("TopK", 100.0, 64.0, 0.0),
        ];
        for ((name, choices, bytes, operations), published) in families.into_iter().zip(published) {
            let errors = choices * coordinates * (bytes / MEMORY + operations / RTX3090.flops);
            let program = STATE * STEPS * choices * model.tensors().len() as f64;
            let [all, of_errors] = [published[2 * at], published[2 * at + 1]];
            let share = 100.0 * (errors + program) / epoch;
            let part = 100.0 * errors / epoch;
            let values = [choices, 1e3 * errors, 1e3 * program, epoch, share, all, part, of_errors];
            lines.push(Line::full(format!("{name}, {}", model.name), values));
        }
    }
    Ok(lines)
}

/// The regression of section 5.4 over steps whose ratios are drawn at random, by bucket.
fn buckets(_: bool, seed: u64) -> Result<Vec<Line>> {
    use rand::{Rng, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let model = shapes::transformer_xl();
    let (_, gpus, gbit, sharing) = PLACES[1];
    let mut sizes = Vec::new();
    let (mut pending, mut ready, mut now) = (0, Vec::new(), 0.0);
    for (number, layer) in model.layers.iter().enumerate().rev() {
        now += 2.0 * BATCH * layer.forward / RTX3090.flops;
        pending += layer.parameters();
        if pending >= BUCKET || number == 0 {
            sizes.push(4.0 * pending as f64);
            ready.push(now);
            pending = 0;
        }
    }
    let mut measured = Vec::new();
    for _ in 0..200 {
        let bytes: Vec<f64> = sizes.iter().map(|size| size / random.random_range(4.0..40.0)).collect();
        let mut free = ready[0];
        for (bytes, ready) in bytes.iter().zip(&ready) {
            let takes = 50e-6 + sharing * 2.0 * (gpus - 1.0) / gpus * bytes * 8.0 / (gbit * 1e9);
            free = f64::max(free, *ready) + takes * random.random_range(0.97..1.03);
        }
        measured.push((bytes, free - ready[0]));
    }
    let fit = thc_adapt::buckets::fit(&measured)
        .map_err(|error| crate::error::Error::Failure(error.to_string()))?;
    let lines = fit.slopes.iter().enumerate().map(|(number, slope)| Line {
        label: format!("bucket {} of {}", number + 1, sizes.len()),
        values: vec![Some(1e9 * slope), None],
    });
    let all = Line { label: "regression".to_owned(), values: vec![None, Some(fit.score)] };
    Ok(lines.chain([all]).collect())
}
