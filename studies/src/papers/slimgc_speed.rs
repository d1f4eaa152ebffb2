//! SlimGC's figures of sizes, speed and memory, computed from the layers of the real models.

use super::costs::{self, TOP_K};
use super::schemes::Named;
use super::shapes::{self, Architecture};
use super::sheet::{Line, Make, Sheet};
use super::throughput::{Pace, System, Testbed, V100};
use crate::error::Result;
use crate::simulate::Layout;

/// Figs. 1 and 5: sizes of tensors.
pub const SIZES: Sheet = Sheet {
    name: "slimgc-sizes",
    random: false,
    columns: &[
        "tensors",
        "below 1500 B, %",
        "below 15 kB, %",
        "below 80 kB, %",
        "their share of the bytes, %",
    ],
    digits: 1,
    drawn: &[1, 3, 4],
    axis: "percent",
    make: Make::Computed(sizes),
};
/// Fig. 12.
pub const SPEED: Sheet = Sheet {
    name: "slimgc-speed",
    random: false,
    columns: &["2-bit, ms", "threshold", "threshold and CPU", "SlimGC", "published, most"],
    digits: 2,
    drawn: &[1, 3, 4],
    axis: "times the speed of 2-bit compression on the GPU",
    make: Make::Computed(speed),
};
/// Table 2.
pub const PARTS: Sheet = Sheet {
    name: "slimgc-parts",
    random: false,
    columns: &["communication saved, %", "processing added, %", "published saved, %", "published added, %"],
    digits: 1,
    drawn: &[0, 1, 2, 3],
    axis: "percent",
    make: Make::Computed(parts),
};
/// Table 3.
pub const AGAINST: Sheet = Sheet {
    name: "slimgc-against",
    random: false,
    columns: &[
        "TernGrad",
        "TopK",
        "DGC",
        "SlimGC",
        "published TernGrad",
        "published TopK",
        "published DGC",
        "published SlimGC",
    ],
    digits: 2,
    drawn: &[0, 1, 3, 4, 5, 7],
    axis: "times THC's speed",
    make: Make::Computed(compare_schemes),
};
/// Fig. 14.
pub const MEMORY: Sheet = Sheet {
    name: "slimgc-memory",
    random: false,
    columns: &["on the GPU, MiB", "on the CPU, MiB", "less, %", "published, %"],
    digits: 1,
    drawn: &[2, 3],
    axis: "percent less",
    make: Make::Computed(memory),
};

fn sizes(_: bool, _: u64) -> Result<Vec<Line>> {
    let models = [
        shapes::resnet20(),
        shapes::resnet("ResNet-50", [3, 4, 6, 3]),
        shapes::resnet("ResNet-152", [3, 8, 36, 3]),
        shapes::vgg16(),
        shapes::bert_base(),
        shapes::gpt2(),
    ];
    let line = |model: &Architecture| {
        let tensors = model.tensors();
        let below = |bytes: u64| tensors.iter().filter(move |tensor| 4 * **tensor < bytes);
        let share = |bytes| 100.0 * below(bytes).count() as f64 / tensors.len() as f64;
        let of_bytes = 100.0 * below(80_000).sum::<u64>() as f64 / model.parameters() as f64;
        let values = [tensors.len() as f64, share(1500), share(15_000), share(80_000), of_bytes];
        Line::full(model.name, values)
    };
    Ok(models.iter().map(line).collect())
}

/// SlimGC's hosts: two V100s each behind one link; a server for each worker.
pub fn hosts(gbit: f64) -> Testbed {
    Testbed { gpu: V100, workers: 8, gbit, kernel: true, inside_ns: 0.0 }
}

/// From which size on 1-bit and 2-bit compression pays on a V100 (section 2.2): smaller tensors cost a launch, whatever their size.
pub const THRESHOLD: u64 = 80_000;
/// Seconds that compressing a tensor takes on the GPU whatever its size. From 80 kB on 2-bit compression gains at 100 Gb/s, so this is what a link
/// takes for the bytes that it saves there: 15/16 of 80 kB both ways.
const LAUNCH: f64 = 12e-6;

/// What 2-bit compression costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Seconds of a tensor that is compressed on the GPU, whatever its size.
    pub launch: f64,
    /// Seconds of a coordinate.
    pub coordinate: f64,
    /// Bits of a coordinate of the result.
    pub down: f64,
}

impl Overhead {
    /// As all figures but those that look for causes are computed.
    pub const USUAL: Self = Self { launch: LAUNCH, coordinate: V100.codec_ns * 1e-9, down: 2.0 };
}

/// Seconds that this part of a model takes on links, with so many bits up and down.
fn link(gbit: f64, bits: f64, coordinates: u64) -> f64 {
    let n = 8.0;
    (n - 1.0) / n * bits * coordinates as f64 * 1.035 / (gbit * 1e9)
}

/// A step: compression on the GPU or on the CPU, of all tensors or of large ones, hidden behind computing or not.
pub fn step(
    model: &Architecture,
    batch: f64,
    gbit: f64,
    least: u64,
    on_cpu: bool,
    backup: bool,
    overhead: &Overhead,
) -> f64 {
    let tensors = model.tensors();
    let compressed: Vec<u64> = tensors.iter().copied().filter(|tensor| 4 * tensor >= least).collect();
    let coordinates: u64 = compressed.iter().sum();
    let exact = model.parameters() - coordinates;
    let computing = 3.0 * batch * model.forward() / V100.flops;
    let compressing = overhead.coordinate * coordinates as f64 + overhead.launch * compressed.len() as f64;
    let on_host = costs::cost_of(Named::THC).worker * 1e-9 * coordinates as f64 / 8.0;
    let communicating = link(gbit, 2.0 + overhead.down, coordinates) + link(gbit, 64.0, exact);
    let (gpu, beside) =
        if on_cpu { (computing, on_host + communicating) } else { (computing + compressing, communicating) };
    if backup {
        // A step on the weights before: all that is not on the GPU hides behind it.
        return gpu.max(beside);
    }
    // Two thirds of computing are backward, behind which half of the gradients hide.
    gpu + (beside - computing / 3.0).max(beside / 4.0)
}

fn speed(_: bool, _: u64) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (gbit, published) in
        [(10.0, [Some(1.32), Some(1.16), Some(1.16)]), (100.0, [Some(1.759), Some(1.374), Some(1.687)])]
    {
        let models = [
            (shapes::resnet("ResNet-152", [3, 8, 36, 3]), 32.0),
            (shapes::vgg16(), 32.0),
            (shapes::bert_base(), 32.0),
        ];
        for ((model, batch), published) in models.into_iter().zip(published) {
            let of =
                |least, on_cpu, backup| step(&model, batch, gbit, least, on_cpu, backup, &Overhead::USUAL);
            let plain = of(0, false, false);
            let values = [
                1e3 * plain,
                plain / of(THRESHOLD, false, false),
                plain / of(THRESHOLD, true, false),
                plain / of(THRESHOLD, true, true),
            ];
            lines.push(Line::with_published(format!("{}, {gbit} Gb/s", model.name), values, published));
        }
    }
    Ok(lines)
}

fn parts(_: bool, _: u64) -> Result<Vec<Line>> {
    let models = [
        (shapes::resnet("ResNet-50", [3, 4, 6, 3]), [2869.6, 2121.5, 566.5, 951.9]),
        (shapes::vgg16(), [158_828.0, 120_948.0, 27_165.0, 42_120.0]),
    ];
    let line = |(model, [plain, quantized, before, after]): (Architecture, [f64; 4])| {
        let saved = |bits: f64| 100.0 * (1.0 - bits / 32.0);
        // Updating reads and writes gradients, moments and parameters; quantizing on the GPU comes to it.
        let update = 5.0 * 4.0 * model.parameters() as f64 / 0.9e12;
        let added = V100.codec_ns * 1e-9 * model.parameters() as f64 + LAUNCH * model.tensors().len() as f64;
        let values = [
            saved(2.0),
            100.0 * added / update,
            100.0 * (1.0 - quantized / plain),
            100.0 * (after / before - 1.0),
        ];
        Line::full(model.name, values)
    };
    Ok(models.into_iter().map(line).collect())
}

fn compare_schemes(quick: bool, _: u64) -> Result<Vec<Line>> {
    // Samples a second: TernGrad, TopK, DGC, THC, SlimGC.
    let all = [
        (shapes::vgg16(), [92.25, 52.17, 37.33, 69.3, 107.78]),
        (shapes::vgg19(), [80.32, 49.92, 35.86, 64.1, 98.40]),
        (shapes::bert_base(), [123.75, 102.20, 92.44, 118.08, 143.15]),
        (shapes::gpt2(), [110.73, 95.50, 84.12, 106.29, 127.98]),
    ];
    let hosts = hosts(100.0);
    let thc = System::Thc(Layout::Colocated);
    let thc_pace = hosts.pace(thc, quick)?;
    let mut lines = Vec::new();
    for (model, published) in all {
        let seconds = |system, pace: &Pace| hosts.step(&model, 32.0, system, pace).seconds;
        let own = seconds(thc, &thc_pace);
        let mut values = Vec::new();
        for scheme in [Named::TernGrad, TOP_K, Named::Dgc] {
            let system = System::Shares(scheme);
            values.push(own / seconds(system, &hosts.pace(system, quick)?));
        }
        values.push(own / step(&model, 32.0, 100.0, THRESHOLD, true, true, &Overhead::USUAL));
        let [tern_grad, top_k, dgc, of_thc, slimgc] = published;
        values.extend([tern_grad, top_k, dgc, slimgc].map(|speed| speed / of_thc));
        lines.push(Line::full(model.name, values));
    }
    Ok(lines)
}

fn memory(_: bool, _: u64) -> Result<Vec<Line>> {
    let models = [(shapes::vgg16(), 32.0, 8.9), (shapes::alexnet(), 128.0, 10.3), (inception(), 32.0, 4.1)];
    let line = |(model, batch, published): (Architecture, f64, f64)| {
        let parameters = model.parameters() as f64;
        let kept: f64 = model.layers.iter().map(|layer| layer.kept).sum();
        // Parameters, gradients, momentum; what the backward pass needs, and its gradients while it goes; the runtime's own.
        let training = 4.0 * (3.0 * parameters + 2.0 * batch * kept) + 600e6;
        // Residuals as long as gradients, and messages of 2 bits both ways.
        let compressing = 4.0 * parameters + 2.0 * parameters / 4.0;
        let (gpu, cpu) = (training + compressing, training);
        let mib = f64::from(1 << 20);
        Line::with_published(model.name, [gpu / mib, cpu / mib, 100.0 * (1.0 - cpu / gpu)], Some(published))
    };
    Ok(models.into_iter().map(line).collect())
}

/// Inception-BN by its totals (Ioffe, Szegedy 2015): 11.3 million parameters, 2 thousand million multiply-adds; ten million numbers are kept.
fn inception() -> Architecture {
    let layer = shapes::Layer { tensors: vec![11_300_000], forward: 4e9, kept: 10e6 };
    Architecture { name: "Inception-BN", layers: vec![layer] }
}
