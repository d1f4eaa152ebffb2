//! What would have to be so for the throughput that THC published: causes, each by itself and in pairs, fitted to some of its figures and
//! tried at others.

use super::shapes::{self, Architecture};
use super::sheet::{Line, Make, Sheet};
use super::thc_speed::{BATCH, COLOCATED, SWITCH, ec2};
use super::throughput::{Gpu, Pace, System, Testbed, testbed};
use crate::error::Result;

/// Figs. 6 and 7.
pub const TESTBED: Sheet = Sheet {
    name: "thc-causes",
    random: false,
    columns: &[
        "TFLOP/s",
        "hidden, %",
        "Horovod, Gb/s at most",
        "THC, Gb/s at most",
        "25 Gb/s",
        "40 Gb/s",
        "100 Gb/s",
        "off at most, %",
        "GPT-2",
        "ResNet-50",
    ],
    digits: 2,
    drawn: &[4, 5, 6, 8],
    axis: "times Horovod's throughput; GPT-2 was not fitted",
    make: Make::Computed(fit_causes),
};
/// Figs. 9 and 13.
pub const CLOUD: Sheet = Sheet {
    name: "thc-cloud-causes",
    random: false,
    columns: &["TFLOP/s, least", "most", "ns inside a host, least", "most", "THC's Gb/s, least", "most"],
    digits: 2,
    drawn: &[],
    axis: "",
    make: Make::Computed(find_needed),
};

/// What may be other than computed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cause {
    flops: f64,
    /// The share of what the backward pass could hide that it does.
    hidden: f64,
    /// The most that a ring gets out of a link, and that THC does, in Gb/s.
    ring: f64,
    thc: f64,
}

/// The rates of Fig. 7 with Horovod's and THC's pace at each, and the published ratios.
struct Measured {
    gbit: f64,
    ring: Pace,
    thc: Pace,
    published: f64,
}

const PUBLISHED: [(f64, f64); 3] = [(25.0, 1.85), (40.0, 1.45), (100.0, 1.43)];
/// GPT-2 at 100 Gb/s (Fig. 6).
const GPT2: f64 = 1.54;

/// A pace on a link that carries no more than so many Gb/s.
fn limit_link(pace: &Pace, gbit: f64, most: f64) -> Pace {
    Pace { link: pace.link * (gbit / most).max(1.0), ..*pace }
}

impl Cause {
    fn seconds(&self, hosts: &Testbed, model: &Architecture, system: System, pace: &Pace) -> f64 {
        let hosts = Testbed { gpu: Gpu { flops: self.flops, ..hosts.gpu }, ..*hosts };
        let step = hosts.step(model, BATCH, system, pace);
        let apart = step.computing + step.compressing + step.communicating;
        self.hidden * step.seconds + (1.0 - self.hidden) * apart
    }

    /// Times Horovod's throughput.
    fn ratio(&self, model: &Architecture, at: &Measured) -> f64 {
        let hosts = testbed(at.gbit);
        let ring = self.seconds(&hosts, model, System::Ring, &limit_link(&at.ring, at.gbit, self.ring));
        ring / self.seconds(&hosts, model, SWITCH, &limit_link(&at.thc, at.gbit, self.thc))
    }

    /// By how much the worst of the published ratios is missed.
    fn worst_miss(&self, model: &Architecture, all: &[Measured]) -> f64 {
        all.iter().map(|at| (self.ratio(model, at) / at.published - 1.0).abs()).fold(0.0, f64::max)
    }
}

/// From `low` to `high` in even steps of the logarithm.
fn spread(low: f64, high: f64, count: usize) -> Vec<f64> {
    (0..count).map(|i| low * (high / low).powf(i as f64 / (count - 1) as f64)).collect()
}

fn fit_causes(quick: bool, _: u64) -> Result<Vec<Line>> {
    let mut all = Vec::new();
    for (gbit, published) in PUBLISHED {
        let hosts = testbed(gbit);
        let (ring, thc) = (hosts.pace(System::Ring, quick)?, hosts.pace(SWITCH, quick)?);
        all.push(Measured { gbit, ring, thc, published });
    }
    let usual = Cause { flops: testbed(100.0).gpu.flops, hidden: 1.0, ring: 100.0, thc: 100.0 };
    let fine = if quick { 5 } else { 40 };
    let flops = spread(4e12, 160e12, fine);
    let hidden: Vec<f64> = (0..=fine).map(|i| i as f64 / fine as f64).collect();
    let links = spread(10.0, 100.0, fine);
    let none = |of: f64| vec![of];
    let [f, h, r, t] = [none(usual.flops), none(usual.hidden), none(usual.ring), none(usual.thc)];
    let grids = [
        ("as computed", [&f, &h, &r, &t]),
        ("the GPU's speed", [&flops, &h, &r, &t]),
        ("less is hidden", [&f, &hidden, &r, &t]),
        ("Horovod's link", [&f, &h, &links, &t]),
        ("THC's link", [&f, &h, &r, &links]),
        ("GPU, hidden", [&flops, &hidden, &r, &t]),
        ("GPU, Horovod's link", [&flops, &h, &links, &t]),
        ("GPU, THC's link", [&flops, &h, &r, &links]),
        ("hidden, Horovod's link", [&f, &hidden, &links, &t]),
        ("both links", [&f, &h, &links, &links]),
        ("GPU, hidden, Horovod's link", [&flops, &hidden, &links, &t]),
    ];
    let vgg = shapes::vgg16();
    let (gpt2, resnet) = (shapes::gpt2(), shapes::resnet("ResNet-50", [3, 4, 6, 3]));
    let mut lines = Vec::new();
    for (name, [flops, hidden, ring, thc]) in grids {
        let mut best = (f64::INFINITY, usual);
        for &flops in flops {
            for &hidden in hidden {
                for &ring in ring {
                    for &thc in thc {
                        let cause = Cause { flops, hidden, ring, thc };
                        let off = cause.worst_miss(&vgg, &all);
                        if off < best.0 {
                            best = (off, cause);
                        }
                    }
                }
            }
        }
        let (off, cause) = best;
        let ratios = all.iter().map(|at| cause.ratio(&vgg, at));
        let values = [cause.flops / 1e12, 100.0 * cause.hidden, cause.ring, cause.thc]
            .into_iter()
            .chain(ratios)
            .chain([100.0 * off])
            .chain([&gpt2, &resnet].map(|model| cause.ratio(model, &all[2])));
        lines.push(Line::full(name, values));
    }
    let published = PUBLISHED.map(|(_, ratio)| Some(ratio)).into_iter().chain([None, Some(GPT2), None]);
    lines.push(Line {
        label: "published".to_owned(),
        values: vec![None; 4].into_iter().chain(published).collect(),
    });
    Ok(lines)
}

/// The value for which a function that grows or falls throughout has a result; nothing where it has it nowhere in between.
fn value_for(result: f64, low: f64, high: f64, of: impl Fn(f64) -> f64) -> Option<f64> {
    let grows = of(high) > of(low);
    let below = |value: f64| (of(value) < result) == grows;
    if !below(low) || below(high) {
        return None;
    }
    let (mut low, mut high) = (low, high);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if below(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

fn find_needed(quick: bool, _: u64) -> Result<Vec<Line>> {
    let base = [1.05, 1.16];
    let mut models = vec![(shapes::vgg16(), 1.0, base), (shapes::roberta_large(), 0.25, [1.11, 1.11])];
    if !quick {
        models = vec![
            (shapes::vgg16(), 1.0, base),
            (shapes::vgg19(), 1.0, base),
            (shapes::roberta_base(), 1.0, base),
            (shapes::bert_base(), 1.0, base),
            (shapes::gpt2(), 1.0, base),
            (shapes::roberta_large(), 0.25, [1.11, 1.11]),
            (shapes::bart_large(), 0.25, [1.12, 1.12]),
        ];
    }
    let hosts = ec2();
    let (ring, thc) = (hosts.pace(System::Ring, quick)?, hosts.pace(COLOCATED, quick)?);
    // For each cause the least and the most with which a model's ratio is in the published range, and what is left of that for all.
    let mut common = [(0.0_f64, f64::INFINITY); 3];
    let mut lines = Vec::new();
    for (model, part, published) in &models {
        let ratio = |hosts: &Testbed, thc: &Pace| {
            let step = |system, pace| hosts.step(model, BATCH * part, system, pace).seconds;
            step(System::Ring, &ring) / step(COLOCATED, thc)
        };
        let faster = |flops: f64| ratio(&Testbed { gpu: Gpu { flops, ..hosts.gpu }, ..hosts }, &thc);
        let inside = |ns: f64| ratio(&Testbed { inside_ns: ns, ..hosts }, &thc);
        let link = |gbit: f64| ratio(&hosts, &limit_link(&thc, hosts.gbit, gbit));
        let mut values = Vec::new();
        for (number, range) in common.iter_mut().enumerate() {
            let mut ends = published.map(|published| match number {
                0 => value_for(published, 1e10, 1e15, faster).map(|flops| flops / 1e12),
                1 => value_for(published, 0.01, 1e4, inside),
                _ => value_for(published, 0.1, hosts.gbit, link),
            });
            if ends[0] > ends[1] {
                ends.swap(0, 1);
            }
            *range = (range.0.max(ends[0].unwrap_or(f64::INFINITY)), range.1.min(ends[1].unwrap_or(0.0)));
            values.extend(ends);
        }
        let label = if published[0] < published[1] {
            format!("{}, {} to {}", model.name, published[0], published[1])
        } else {
            format!("{}, {}", model.name, published[0])
        };
        lines.push(Line { label, values });
    }
    // One value fits all models if the largest of the least is not above the least of the most.
    let values = common.into_iter().flat_map(|(least, most)| [Some(least), Some(most)]);
    lines
        .push(Line { label: "largest of the least, least of the most".to_owned(), values: values.collect() });
    Ok(lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_is_no_worse_with_another_cause_besides() {
        let lines = fit_causes(true, 1).unwrap();
        let off = |name: &str| {
            lines.iter().find(|line| line.label == name).and_then(|line| line.values[7]).unwrap()
        };
        for one in ["the GPU's speed", "less is hidden"] {
            assert!(off("GPU, hidden") <= off(one) + 1e-9, "{one}");
            assert!(off("GPU, hidden, Horovod's link") <= off("GPU, hidden") + 1e-9);
        }
        assert!(off("as computed") > 20.0);
    }

    #[test]
    fn values_are_found_for_what_grows_and_for_what_falls() {
        assert!((value_for(9.0, 0.1, 100.0, |x| x * x).unwrap() - 3.0).abs() < 1e-9);
        assert!((value_for(0.25, 0.1, 100.0, |x| 1.0 / x).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(value_for(-1.0, 0.1, 100.0, |x| x), None);
        assert_eq!(value_for(1000.0, 0.1, 100.0, |x| x), None);
    }
}
