//! THC's figures of throughput and of where a round's time goes, computed.

use super::costs::{self, PARTITION, QSGD, TOP_K};
use super::schemes::Named;
use super::shapes::{self, Architecture};
use super::sheet::{Line, Make, Sheet};
use super::throughput::{A100, Gpu, Pace, Step, System, Testbed, V100, testbed};
use crate::error::Result;
use crate::simulate::Layout;

pub const SWITCH: System = System::Thc(Layout::Switch);
const SERVER: System = System::Thc(Layout::Server);
pub const COLOCATED: System = System::Thc(Layout::Colocated);
const BYTEPS: System = System::Shares(Named::Exact);
/// Samples of a GPU's step.
pub const BATCH: f64 = 32.0;

/// Fig. 2a.
pub const PARTITIONS: Sheet = Sheet {
    name: "thc-partition",
    random: false,
    columns: &[
        "worker, ms",
        "server, ms",
        "communication, ms",
        "round, ms",
        "beside none, %",
        "with a GPU and four cores, %",
        "published, %",
    ],
    digits: 2,
    drawn: &[0, 1, 2],
    axis: "ms",
    make: Make::Computed(partitions),
};
/// Fig. 6.
pub const THROUGHPUT: Sheet = Sheet {
    name: "thc-throughput",
    random: false,
    columns: &[
        "computing, ms",
        "Horovod, ms",
        "BytePS",
        "THC, switch",
        "THC, server",
        "THC, colocated",
        "TopK",
        "DGC",
        "TernGrad",
        "QSGD",
        "published, switch",
    ],
    digits: 2,
    drawn: &[3, 5, 6, 10],
    axis: "times Horovod's throughput",
    make: Make::Computed(throughput),
};
/// Fig. 7.
pub const BANDWIDTHS: Sheet = Sheet {
    name: "thc-bandwidths",
    random: false,
    columns: &[
        "Horovod, ms",
        "THC, switch",
        "THC, server",
        "THC, colocated",
        "switch, GPU half as fast",
        "switch, nothing hidden",
        "TFLOP/s for the published ratio",
        "published, switch",
    ],
    digits: 2,
    drawn: &[1, 2, 4, 5, 7],
    axis: "times Horovod's throughput",
    make: Make::Computed(bandwidths),
};
/// Fig. 8.
pub const ROUND: Sheet = Sheet {
    name: "thc-round",
    random: false,
    columns: &[
        "worker, ms",
        "communication, ms",
        "server, ms",
        "sum, ms",
        "communication beside none, %",
        "published, %",
    ],
    digits: 1,
    drawn: &[0, 1, 2],
    axis: "ms",
    make: Make::Computed(round),
};
/// Fig. 9.
pub const HOSTS: Sheet = Sheet {
    name: "thc-hosts",
    random: false,
    columns: &["Horovod, ms", "BytePS", "THC, colocated", "published, least", "published, most"],
    digits: 2,
    drawn: &[2, 3, 4],
    axis: "times Horovod's throughput",
    make: Make::Computed(hosts),
};
/// Fig. 12.
pub const RESNETS: Sheet = Sheet { name: "thc-resnets", make: Make::Computed(resnets), ..THROUGHPUT };
/// Fig. 13.
pub const LARGE: Sheet = Sheet { name: "thc-large", make: Make::Computed(large), ..HOSTS };
/// Appendix B.
pub const TABLES: Sheet = Sheet {
    name: "thc-tables",
    random: false,
    columns: &["tables", "least error, ×10⁻³", "at granularity"],
    digits: 2,
    drawn: &[],
    axis: "",
    make: Make::Computed(tables),
};

/// Milliseconds of a 4 MiB partition on links of 100 Gb/s: worker, server, communication.
fn parts(scheme: Named, servers: f64, workers: f64) -> Result<[f64; 3]> {
    let cost = costs::cost_of(scheme);
    let bits = scheme.scheme()?.bits(PARTITION, workers as u32)?;
    let coordinates = PARTITION as f64;
    // A message goes to each server's share, and the result comes back to each worker; the fullest link bounds.
    let passed = if servers > 1.0 { (workers - 1.0) / servers } else { workers };
    let communication = passed * (bits.up + bits.down) as f64 * 1.035 / 100e9;
    let server = (workers * cost.decode + cost.encode) * coordinates / servers * 1e-9;
    Ok([cost.worker * coordinates * 1e-9, server, communication].map(|seconds| 1e3 * seconds))
}

/// A round on one core each, and with compression by a GPU and a server of four cores.
fn rounds(scheme: Named, [worker, server, communication]: [f64; 3]) -> [f64; 2] {
    let gpu = if scheme == Named::Exact { 0.0 } else { 1e-6 * A100.codec_ns * PARTITION as f64 };
    [worker + server + communication, gpu + server / 4.0 + communication]
}

fn partition(label: String, scheme: Named, parts: [f64; 3], none: [f64; 2], published: Option<f64>) -> Line {
    let rounds = rounds(scheme, parts);
    let beside = [0, 1].map(|way| 100.0 * (rounds[way] / none[way] - 1.0));
    Line::with_published(label, parts.into_iter().chain([rounds[0]]).chain(beside), published)
}

fn partitions(_: bool, _: u64) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (place, servers) in [("one server", 1.0), ("four colocated", 4.0)] {
        let mut none = [f64::NAN; 2];
        for scheme in [Named::Exact, Named::THC, TOP_K, Named::Dgc, Named::TernGrad, QSGD] {
            let parts = parts(scheme, servers, 4.0)?;
            if scheme == Named::Exact {
                none = rounds(scheme, parts);
            }
            let published = match (scheme, servers > 1.0) {
                (TOP_K, false) => Some(19.3),
                (Named::Dgc, false) => Some(27.1),
                (TOP_K, true) => Some(-20.6),
                _ => None,
            };
            lines.push(partition(format!("{}, {place}", scheme.label()), scheme, parts, none, published));
        }
        if servers == 1.0 {
            // Up once and down once on every link; the switch adds at line rate.
            let bits = Named::THC.scheme()?.bits(PARTITION, 4)?;
            let worker = parts(Named::THC, 1.0, 4.0)?[0];
            let communication = 1e3 * (bits.up + bits.down) as f64 * 1.035 / 100e9;
            let parts = [worker, 0.0, communication];
            lines.push(partition("THC, at the switch".to_owned(), Named::THC, parts, none, None));
        }
    }
    Ok(lines)
}

/// A step of a system.
fn step(testbed: &Testbed, model: &Architecture, batch: f64, system: System, pace: &Pace) -> Step {
    testbed.step(model, batch, system, pace)
}

const COMPARED: [System; 8] = [
    BYTEPS,
    SWITCH,
    SERVER,
    COLOCATED,
    System::Shares(TOP_K),
    System::Shares(Named::Dgc),
    System::Shares(Named::TernGrad),
    System::Shares(QSGD),
];

fn compare_systems(models: &[(Architecture, Option<f64>)], quick: bool) -> Result<Vec<Line>> {
    let testbed = testbed(100.0);
    let ring = testbed.pace(System::Ring, quick)?;
    let mut paces = Vec::new();
    for system in COMPARED {
        paces.push((system, testbed.pace(system, quick)?));
    }
    Ok(models
        .iter()
        .map(|(model, published)| {
            let horovod = step(&testbed, model, BATCH, System::Ring, &ring);
            let times = paces
                .iter()
                .map(|(system, pace)| horovod.seconds / step(&testbed, model, BATCH, *system, pace).seconds);
            let values: Vec<f64> =
                [1e3 * horovod.computing, 1e3 * horovod.seconds].into_iter().chain(times).collect();
            Line::with_published(model.name, values, *published)
        })
        .collect())
}

fn throughput(quick: bool, _: u64) -> Result<Vec<Line>> {
    let mut models = vec![(shapes::vgg16(), Some(1.43)), (shapes::gpt2(), Some(1.54))];
    if !quick {
        models.extend(
            [
                shapes::vgg19(),
                shapes::roberta_base(),
                shapes::roberta_large(),
                shapes::bart_large(),
                shapes::bert_base(),
            ]
            .map(|model| (model, None)),
        );
    }
    compare_systems(&models, quick)
}

fn resnets(quick: bool, _: u64) -> Result<Vec<Line>> {
    let models = [
        shapes::resnet("ResNet-50", [3, 4, 6, 3]),
        shapes::resnet("ResNet-101", [3, 4, 23, 3]),
        shapes::resnet("ResNet-152", [3, 8, 36, 3]),
    ];
    compare_systems(&models.map(|model| (model, None)), quick)
}

fn bandwidths(quick: bool, _: u64) -> Result<Vec<Line>> {
    let model = shapes::vgg16();
    let all = [
        (1.0, None),
        (2.5, None),
        (5.0, None),
        (10.0, None),
        (25.0, Some(1.85)),
        (40.0, Some(1.45)),
        (100.0, Some(1.43)),
    ];
    let some = if quick { &all[4..5] } else { &all[..] };
    let mut lines = Vec::new();
    for &(gbit, published) in some {
        let hosts = testbed(gbit);
        let ring = hosts.pace(System::Ring, quick)?;
        let horovod = |hosts: &Testbed| step(hosts, &model, BATCH, System::Ring, &ring).seconds;
        let mut values = vec![1e3 * horovod(&hosts)];
        for system in [SWITCH, SERVER, COLOCATED] {
            let pace = hosts.pace(system, quick)?;
            values.push(horovod(&hosts) / step(&hosts, &model, BATCH, system, &pace).seconds);
        }
        let thc = hosts.pace(SWITCH, quick)?;
        let ratio = |flops: f64| {
            let other = Testbed { gpu: Gpu { flops, ..hosts.gpu }, ..hosts };
            horovod(&other) / step(&other, &model, BATCH, SWITCH, &thc).seconds
        };
        values.push(ratio(0.5 * hosts.gpu.flops));
        let bare = |system, pace: &Pace| {
            let step = step(&hosts, &model, BATCH, system, pace);
            step.computing + step.compressing + step.communicating
        };
        values.push(bare(System::Ring, &ring) / bare(SWITCH, &thc));
        let mut values: Vec<Option<f64>> = values.into_iter().map(Some).collect();
        values.push(published.and_then(|published| speed_for(published, ratio)).map(|flops| flops / 1e12));
        values.push(published);
        lines.push(Line { label: format!("{gbit} Gb/s"), values });
    }
    Ok(lines)
}

/// The operations a second with which a ratio, which grows with them, is as published.
fn speed_for(published: f64, ratio: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = (1e11_f64, 1e16_f64);
    if !(ratio(low)..ratio(high)).contains(&published) {
        return None;
    }
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if ratio(middle) < published { low = middle } else { high = middle }
    }
    Some(low)
}

fn round(quick: bool, _: u64) -> Result<Vec<Line>> {
    let (hosts, model) = (testbed(100.0), shapes::vgg16());
    let none = {
        let pace = hosts.pace(System::Server(Named::Exact), quick)?;
        pace.link * model.parameters() as f64
    };
    let mut lines = Vec::new();
    for (name, system, published) in [
        ("no compression, one server", System::Server(Named::Exact), None),
        ("THC, switch", SWITCH, None),
        ("THC, one server", SERVER, Some(32.5)),
        ("TopK, one server", System::Server(TOP_K), None),
        ("TernGrad, one server", System::Server(Named::TernGrad), None),
        ("no compression, colocated", BYTEPS, None),
        ("THC, colocated", COLOCATED, None),
        ("TopK, colocated", System::Shares(TOP_K), None),
    ] {
        let pace = hosts.pace(system, quick)?;
        let step = step(&hosts, &model, BATCH, system, &pace);
        let coordinates = model.parameters() as f64;
        let (link, server) = (pace.link * coordinates, pace.server * coordinates);
        let worker = step.computing + step.compressing;
        let values = [worker, link, server, worker + link + server].map(|seconds| 1e3 * seconds);
        lines.push(Line::with_published(name, values.into_iter().chain([100.0 * link / none]), published));
    }
    Ok(lines)
}

/// Eight hosts of eight GPUs, TCP at 25 Gb/s; 130 GB/s by NVLink inside, twice 7/8 of 4 bytes.
pub fn ec2() -> Testbed {
    Testbed { gpu: V100, workers: 8, gbit: 25.0, kernel: true, inside_ns: 7.0 / 130.0 }
}

fn on_ec2(models: &[(Architecture, f64, [f64; 2])], quick: bool) -> Result<Vec<Line>> {
    let hosts = ec2();
    let ring = hosts.pace(System::Ring, quick)?;
    let [byteps, thc] = [BYTEPS, COLOCATED].map(|system| hosts.pace(system, quick));
    let (byteps, thc) = (byteps?, thc?);
    Ok(models
        .iter()
        .map(|(model, batch, published)| {
            let horovod = step(&hosts, model, *batch, System::Ring, &ring).seconds;
            let of = |system, pace| horovod / step(&hosts, model, *batch, system, pace).seconds;
            let values =
                [1e3 * horovod, of(BYTEPS, &byteps), of(COLOCATED, &thc), published[0], published[1]];
            Line::full(model.name, values)
        })
        .collect())
}

fn hosts(quick: bool, _: u64) -> Result<Vec<Line>> {
    let models = if quick {
        vec![shapes::vgg16()]
    } else {
        vec![shapes::vgg16(), shapes::vgg19(), shapes::roberta_base(), shapes::bert_base(), shapes::gpt2()]
    };
    let models: Vec<_> = models.into_iter().map(|model| (model, BATCH, [1.05, 1.16])).collect();
    on_ec2(&models, quick)
}

fn large(quick: bool, _: u64) -> Result<Vec<Line>> {
    // "A smaller batch size": a quarter.
    let models = [
        (shapes::roberta_large(), BATCH / 4.0, [1.11, 1.11]),
        (shapes::bart_large(), BATCH / 4.0, [1.12, 1.12]),
    ];
    on_ec2(&models[..if quick { 1 } else { 2 }], quick)
}

fn tables(_: bool, _: u64) -> Result<Vec<Line>> {
    let sweep = thc_demo::sweep::run()?;
    let (bits, granularity, _) = sweep.least_at;
    let mut lines: Vec<Line> = sweep
        .of_bits
        .iter()
        .map(|(bits, tables)| Line {
            label: format!("b = {bits}"),
            values: vec![Some(f64::from(*tables)), None, None],
        })
        .collect();
    let best = [f64::from(sweep.tables), 1e3 * sweep.least_error, f64::from(granularity)];
    lines.push(Line::full(format!("all; the least error has b = {bits}"), best));
    Ok(lines)
}
