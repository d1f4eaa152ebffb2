//! Which part of a host is full first, by cores and by the rate of its link: arithmetic with the costs that everything else here is
//! simulated with.
//!
//! What a resource can do is said in the bits a second of the link that it keeps busy, in the direction that carries more (down): so
//! resources and links can be compared.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::arguments::Source;
use super::settings::{Costs, Keys};
use crate::charts::{Axis, COLOURS, Chart, GREY, Mark, Series, Table, write};
use crate::error::{Error, Result};
use crate::units::{Rate, positive, share};

/// Coordinates of a packet and of a block, which has a NORM.
const PACKET: f64 = 1024.0;
const BLOCK: f64 = 8192.0;
/// Bytes of RESULT and NORM_RESULT, IP's and UDP's headers included, and of DATA and NORM.
const DOWN: [f64; 2] = [1072.0, 68.0];
const UP: [f64; 2] = [560.0, 68.0];
/// Times that what a packet carries crosses the memory: by the device, and to and from where the kernel copies it.
const CROSSINGS: f64 = 3.0;
/// Bytes of memory of a coordinate: read for its norm and for its index, and its mean, which is fetched and written.
const TENSOR: f64 = 4.0 + 4.0 + 8.0;
/// More with error feedback: read for its norm and for its index, and what is left, fetched and written.
const FEEDBACK: f64 = 4.0 + 4.0 + 8.0;

/// `thc simulate limits`
#[derive(Args)]
#[command(
    after_help = "A host is as fast as the first of its resources that is full: the link, the cores that compute, the threads that send \
                  and\nreceive, memory, PCIe to the NIC, and to the GPU if gradients are there. Each is given as the rate of the link that \
                  it keeps\nbusy. Costs are those of --config (thc simulate calibrate); all resources overlap, so this is the best case.\n\n\
                  Examples:\n  \
                  thc simulate limits\n  \
                  thc simulate limits --config here.toml --rate 100gbit --hosts 16,64 --network-threads 4 --svg limits.svg"
)]
pub struct LimitsArgs {
    /// Cores of a host
    #[arg(long = "hosts", value_name = "CORES,…", value_delimiter = ',', default_value = "8,16,32,64",
          value_parser = clap::value_parser!(u16).range(2..=1024))]
    hosts: Vec<u16>,
    /// Share of the cores that the training leaves
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    left: f64,
    /// Threads that send and receive, each of which takes a core
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    network_threads: u16,
    /// GB/s of memory for each core
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = positive)]
    memory: f64,
    /// Most GB/s of memory of a host
    #[arg(long, value_name = "GB/S", default_value_t = 300.0, value_parser = positive)]
    memory_most: f64,
    /// GB/s of PCIe, each way, to the NIC and to the GPU: 16 lanes of version 4 carry some 26, of version 5 twice as many
    #[arg(long, value_name = "GB/S", default_value_t = 26.0, value_parser = positive)]
    pcie: f64,
    /// Time that a GPU takes for a coordinate's norm, index and mean: an H100, docs/measuring.md
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 0.0143, value_parser = positive)]
    gpu_ns: f64,
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw what each resource keeps busy, by cores, into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Codec {
    /// The host, of gradients in its memory.
    Host,
    /// A GPU, of gradients in its own.
    Gpu,
}

/// Bits a second of a link that each resource of a host keeps busy.
#[derive(Clone, Copy, Debug, Serialize)]
struct Limits {
    cores: u16,
    by: Codec,
    codec: f64,
    packets: f64,
    memory: f64,
    pcie: f64,
}

impl Limits {
    fn bounds_by_name(&self) -> [(&'static str, f64); 4] {
        [("codec", self.codec), ("packets", self.packets), ("memory", self.memory), ("PCIe", self.pcie)]
    }

    /// The first that is full, behind a link of this rate or without bound.
    fn first(&self, rate: f64) -> (&'static str, f64) {
        self.bounds_by_name()
            .into_iter()
            .fold(("link", rate), |first, next| if next.1 < first.1 { next } else { first })
    }
}

/// Bytes a coordinate of packets and of NORMs.
fn bytes([packet, norm]: [f64; 2], around: f64) -> f64 {
    (packet + around) / PACKET + (norm + around) / BLOCK
}

impl LimitsArgs {
    /// Works it out and reports.
    ///
    /// # Errors
    /// A setting that makes no sense.
    pub fn run(&self) -> Result<String> {
        let usual = Keys {
            rate: Some([25, 100, 400].map(|gbit| Rate(gbit * 1_000_000_000)).to_vec()),
            ..Keys::default()
        };
        let settings = self.source.keys()?.or(usual).validate()?;
        let framing = f64::from(settings.framing);
        let of = |by| self.hosts.iter().map(move |&cores| (cores, by));
        let all: Vec<Limits> = of(Codec::Host)
            .chain(of(Codec::Gpu))
            .map(|(cores, by)| self.limits(&settings.costs, settings.feedback, framing, cores, by))
            .collect();
        if let Some(path) = &self.svg {
            let text = self.chart(&all, &settings.rate).svg("limits", (980, 560))?;
            write(path, &text)?;
        }
        if self.json {
            let all = json!({ "settings": settings, "limits": all });
            return serde_json::to_string_pretty(&all).map_err(Error::Event);
        }
        Ok(table(&all, &settings.rate).to_markdown())
    }

    fn limits(&self, costs: &Costs, feedback: bool, framing: f64, cores: u16, by: Codec) -> Limits {
        // What the link carries for a coordinate, and what a resource that takes so many nanoseconds for one keeps busy.
        let bits = bytes(DOWN, framing) * 8.0;
        let busy = |ns: f64| bits / ns * 1e9;
        let network = f64::from(self.network_threads);
        let computing = (f64::from(cores) * self.left - network).max(1.0);
        let fed = if feedback { costs.feedback_ns } else { 0.0 };
        let own = (costs.norm_ns + costs.compress_ns + fed + costs.decompress_ns) / computing;
        let crossing = CROSSINGS * (bytes(UP, 0.0) + bytes(DOWN, 0.0));
        let tensor = TENSOR + if feedback { FEEDBACK } else { 0.0 };
        // To the GPU go gradients and means, or indices and sums; to the NIC what is on the wire. The busier direction of either counts.
        let (codec, memory, pcie) = match by {
            Codec::Host => (own, tensor + crossing + 8.0, 4.0_f64.max(bytes(DOWN, 0.0))),
            Codec::Gpu => (self.gpu_ns, crossing + 1.5, bytes(DOWN, 0.0)),
        };
        Limits {
            cores,
            by,
            codec: busy(codec),
            packets: busy((costs.send_ns + costs.receive_ns) * (1.0 / PACKET + 1.0 / BLOCK) / network),
            memory: busy(memory / (self.memory * f64::from(cores)).min(self.memory_most)),
            pcie: busy(pcie / self.pcie),
        }
    }

    fn chart(&self, all: &[Limits], rates: &[Rate]) -> Chart {
        let ends = [self.hosts.iter().min(), self.hosts.iter().max()];
        let ends: Vec<f64> = ends.into_iter().flatten().map(|&cores| f64::from(cores)).collect();
        let mut series: Vec<Series> = rates
            .iter()
            .map(|rate| {
                let points = ends.iter().map(|&cores| (cores, rate.0 as f64 / 1e9)).collect();
                Series { dashed: true, ..Series::new(format!("a link of {}", rate.name()), GREY, points) }
            })
            .collect();
        for (by, mark, of) in [(Codec::Host, Mark::Circle, "host"), (Codec::Gpu, Mark::Hollow, "GPU")] {
            for (place, color) in COLOURS.into_iter().take(4).enumerate() {
                let own = all.iter().filter(|limits| limits.by == by);
                let points: Vec<(f64, f64)> = own
                    .map(|limits| (f64::from(limits.cores), limits.bounds_by_name()[place].1 / 1e9))
                    .collect();
                let what = ["codec", "packets", "memory", "PCIe"][place];
                // Packets are the same whoever computes.
                let name = match (what, by) {
                    ("packets", Codec::Gpu) => continue,
                    ("packets", Codec::Host) => {
                        format!("packets, {} network thread(s)", self.network_threads)
                    }
                    _ => format!("{what}, {of} codec"),
                };
                series.push(Series { mark: Some(mark), ..Series::new(name, color, points) });
            }
        }
        let heights = || series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let y = Axis::log("Gb/s of a link kept busy", heights());
        let x = Axis {
            ticks: self.hosts.iter().map(|&cores| f64::from(cores)).collect(),
            ..Axis::log("cores of a host", ends.iter().copied())
        };
        Chart {
            title: "What each part of a host keeps busy".to_owned(),
            subtitle: format!(
                "{:.0} % of the cores for THC; the lowest line below a link's is the next limit",
                100.0 * self.left
            ),
            x,
            y,
            series,
            notes: Vec::new(),
            names: 260,
        }
    }
}

fn table(all: &[Limits], rates: &[Rate]) -> Table {
    let mut header = vec!["codec by".to_owned(), "cores".to_owned()];
    header.extend(["codec", "packets", "memory", "PCIe"].map(|name| format!("{name} Gb/s")));
    header.extend(rates.iter().map(|rate| format!("at {}", rate.name())));
    let row = |limits: &Limits| {
        let by = if limits.by == Codec::Host { "host" } else { "GPU" };
        let mut row = vec![by.to_owned(), limits.cores.to_string()];
        row.extend(limits.bounds_by_name().map(|(_, rate)| format!("{:.0}", rate / 1e9)));
        row.extend(rates.iter().map(|rate| {
            let (name, busy) = limits.first(rate.0 as f64);
            if name == "link" {
                "link".to_owned()
            } else {
                format!("{name}: {:.0} %", 100.0 * busy / rate.0 as f64)
            }
        }));
        row
    };
    Table { header, rows: all.iter().map(row).collect() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LimitsArgs,
    }

    fn limits(line: &str) -> LimitsArgs {
        Line::parse_from(["limits"].into_iter().chain(line.split_whitespace())).args
    }

    #[test]
    fn each_resource_is_a_rate_of_the_link() {
        let args = limits("--hosts 8 --left 0.5 --memory 10 --pcie 26");
        let costs = Keys::default().validate().unwrap().costs;
        let host = args.limits(&costs, false, 38.0, 8, Codec::Host);
        // 1110 bytes for 1024 coordinates and 106 for 8192 in 0.69 ns a coordinate, on three of the four cores.
        let bits = (1110.0 / 1024.0 + 106.0 / 8192.0) * 8.0;
        assert!((host.codec / (bits / (0.69e-9 / 3.0)) - 1.0).abs() < 1e-9, "{host:?}");
        assert!((host.packets / (bits / (370e-9 * 9.0 / 8192.0)) - 1.0).abs() < 1e-9, "{host:?}");
        assert_eq!((host.first(1e9), host.first(1e13).0), (("link", 1e9), "packets"));
        // A GPU takes computing off the cores and the tensor out of memory; error feedback makes both dearer.
        let gpu = args.limits(&costs, false, 38.0, 8, Codec::Gpu);
        assert!(gpu.codec > 5.0 * host.codec && gpu.memory > 2.0 * host.memory && gpu.pcie > host.pcie);
        let fed = args.limits(&costs, true, 38.0, 8, Codec::Host);
        assert!(fed.codec < host.codec && fed.memory < host.memory);
        let four = limits("--hosts 64 --network-threads 4").limits(&costs, false, 38.0, 64, Codec::Host);
        assert!((four.packets / host.packets - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_table_a_picture_and_no() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.svg");
        let said = limits(&format!("--svg {}", path.display())).run().unwrap();
        assert_eq!(said.lines().count(), 2 + 8, "{said}");
        assert!(said.contains("at 400 Gb/s") && said.contains("packets: "), "{said}");
        let drawn = std::fs::read_to_string(path).unwrap();
        assert!(drawn.contains("a link of 100 Gb/s") && drawn.contains("memory, GPU codec"));
        for wrong in ["--left=0", "--left=1.5", "--pcie=nan", "--memory=-1", "--hosts=1"] {
            assert!(Line::try_parse_from(["limits", wrong]).is_err(), "{wrong}");
        }
    }
}
