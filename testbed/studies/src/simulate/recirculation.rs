//! The load of a P4 switch's loopback ports. A packet comes back to its pipes for each pass, shorter each time while it adds, longer
//! each time while it collects a RESULT (docs/switch.md, "Bandwidth, by arithmetic").

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::table::Table;
use thc_netns::Rate;

/// Bytes of indices of DATA of 1024 coordinates in 4 bits, and of their lanes in words of 4 bytes.
const INDICES: u32 = 512;
const WORDS: u32 = 256;
/// Bytes of headers between passes, and of preamble, gap and checksum around them.
const AROUND: u32 = 60 + 24;
/// Coordinates of a slot, in f32.
const SLOT_BITS: f64 = 1024.0 * 32.0;
/// Bytes of a RESULT on the wire to a worker: the IP packet, and what Ethernet has around it.
const RESULT: f64 = 1072.0 + 38.0;

/// A chip that the program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Chip {
    /// Tofino: 16 words a pass
    Tofino,
    /// Tofino 2: 32 words a pass
    Tofino2,
}

impl Chip {
    fn words(self) -> u32 {
        match self {
            Self::Tofino => 16,
            Self::Tofino2 => 32,
        }
    }

    /// Bits a second of all ports.
    fn ports(self) -> f64 {
        match self {
            Self::Tofino => 6.4e12,
            Self::Tofino2 => 12.8e12,
        }
    }

    /// Bits a second of one port.
    fn port(self) -> f64 {
        match self {
            Self::Tofino => 100e9,
            Self::Tofino2 => 400e9,
        }
    }

    /// Slots with all passes in one pipe.
    fn slots(self) -> u32 {
        32 * self.words()
    }

    /// Passes that add a packet up.
    pub fn passes(self) -> u32 {
        WORDS / self.words()
    }

    /// Passes that collect a RESULT: the last one that adds has its own words.
    pub fn result_passes(self) -> u32 {
        self.passes() - 1
    }

    /// Bytes that a packet which completes no slot fills behind pass `pass`: behind the last it is dropped.
    fn data(self, pass: u32) -> u32 {
        if pass + 1 == self.passes() { 0 } else { AROUND + INDICES - 2 * self.words() * (pass + 1) }
    }

    /// Bytes more that the one which completes its slot fills at the port of that pass, on its way back.
    fn result(self, pass: u32) -> u32 {
        AROUND + 4 * self.words() * (self.passes() - pass)
    }

    /// Bytes of loopback of a packet that completes no slot.
    pub fn data_bytes(self) -> u32 {
        (0..self.passes()).map(|pass| self.data(pass)).sum()
    }

    /// Bytes more of one that does.
    pub fn result_bytes(self) -> u32 {
        (0..self.passes()).map(|pass| self.result(pass)).sum()
    }

    /// The load of the fullest of so many loopback ports over their mean load, where thc-controller gives passes to them there
    /// and back.
    pub fn unevenness(self, workers: u16, ports: u16) -> f64 {
        let ports = usize::from(ports);
        let mut carried = vec![0; ports];
        for pass in 0..self.passes() {
            let place = pass as usize % (2 * ports);
            let port = if place < ports { place } else { 2 * ports - 1 - place };
            carried[port] += u32::from(workers) * self.data(pass) + self.result(pass);
        }
        let fullest = carried.iter().max().copied().unwrap_or_default();
        f64::from(fullest) * ports as f64 / f64::from(carried.iter().sum::<u32>())
    }
}

/// `thc simulate recirculation`
#[derive(Args)]
#[command(
    after_help = "This is arithmetic, not simulation: packets of 1024 coordinates, 4 bits up and 8 down. The greatest link rate is that which \
                  leaves as many ports for loopback as the workers need; the round trip is the longest that the slots of one pipe hide, of which half may \
                  be in flight.\n\n\
                  Examples:\n  \
                  thc simulate recirculation\n  \
                  thc simulate recirculation --workers 8,32 --rate 200gbit --pass-ports 8"
)]
pub struct RecirculationArgs {
    /// Number of workers; each list is computed element by element
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_value = "4,16,64",
          value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: Vec<u16>,
    /// Rate of a worker's link
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "100gbit")]
    rate: Vec<Rate>,
    /// Number of loopback ports: the fullest is the bound
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pass_ports: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line.
#[derive(Debug, Serialize)]
struct Need {
    chip: Chip,
    workers: u16,
    rate: Rate,
    /// Passes and bytes of a slot, and how uneven the ports are.
    passes: u32,
    bytes: u32,
    unevenness: f64,
    /// Gb/s of f32 that a worker has averaged for each Tb/s of loopback.
    goodput: f64,
    /// Tb/s of loopback that workers with links of this rate need.
    loopback: f64,
    /// Gb/s that links may have so that the chip has ports for them and the loopback, at most those of a port.
    link: f64,
    /// Microseconds.
    round_trip: f64,
}

impl Need {
    fn compute(chip: Chip, workers: u16, rate: Rate, ports: u16) -> Self {
        let bytes = u32::from(workers) * chip.data_bytes() + chip.result_bytes();
        let unevenness = chip.unevenness(workers, ports);
        let bits = f64::from(bytes) * 8.0 * unevenness;
        // The bits of loopback for each bit of a worker's link.
        let of_link = bits / (RESULT * 8.0);
        let slots = rate.0 as f64 / (RESULT * 8.0);
        Self {
            chip,
            workers,
            rate,
            passes: u32::from(workers) * chip.passes() + chip.result_passes(),
            bytes,
            unevenness,
            goodput: 1e12 / bits * SLOT_BITS / 1e9,
            loopback: slots * bits / 1e12,
            link: (chip.ports() / (f64::from(workers) + of_link)).min(chip.port()) / 1e9,
            round_trip: f64::from(chip.slots()) / 2.0 / slots * 1e6,
        }
    }
}

impl RecirculationArgs {
    /// Computes and reports.
    pub fn report(&self) -> Result<String> {
        let mut needs = Vec::new();
        for &chip in Chip::value_variants() {
            for &workers in &self.workers {
                let need = |&rate| Need::compute(chip, workers, rate, self.pass_ports);
                needs.extend(self.rate.iter().map(need));
            }
        }
        if self.json {
            return serde_json::to_string_pretty(&needs).map_err(Error::Event);
        }
        Ok(table(&needs).to_markdown())
    }
}

fn table(needs: &[Need]) -> Table {
    let header = [
        "chip",
        "workers",
        "passes a slot",
        "bytes a slot",
        "fullest port",
        "f32 Gb/s a worker, each Tb/s",
        "links",
        "loopback Tb/s",
        "link at most, Gb/s",
        "round trip, µs",
    ];
    let row = |need: &Need| {
        let chip = if need.chip == Chip::Tofino { "Tofino" } else { "Tofino 2" };
        vec![
            chip.to_owned(),
            need.workers.to_string(),
            need.passes.to_string(),
            need.bytes.to_string(),
            format!("{:.2}", need.unevenness),
            format!("{:.1}", need.goodput),
            need.rate.name(),
            format!("{:.2}", need.loopback),
            format!("{:.0}", need.link),
            format!("{:.1}", need.round_trip),
        ]
    };
    Table::new(&header, needs.iter().map(row))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RecirculationArgs,
    }

    #[test]
    fn bytes_are_those_that_the_documentation_counts() {
        assert_eq!((Chip::Tofino2.data_bytes(), Chip::Tofino2.result_bytes()), (2380, 5280));
        assert_eq!((Chip::Tofino.data_bytes(), Chip::Tofino.result_bytes()), (5100, 10_048));
        let of = |chip, workers| Need::compute(chip, workers, Rate(100_000_000_000), 1);
        let needs = [(Chip::Tofino, 4), (Chip::Tofino, 16), (Chip::Tofino2, 4), (Chip::Tofino2, 64)];
        let bytes = needs.map(|(chip, workers)| of(chip, workers).bytes);
        assert_eq!(bytes, [30_448, 91_648, 14_800, 157_600]);
        assert_eq!(of(Chip::Tofino2, 16).passes, 135);
        // On one port nothing is uneven.
        assert!(
            (of(Chip::Tofino2, 4).goodput - 276.8).abs() < 0.1
                && (of(Chip::Tofino2, 4).loopback - 1.33).abs() < 0.01
        );
    }

    #[test]
    fn passes_there_and_back_load_ports_evenly() {
        for (workers, most) in [(4, 1.023), (16, 1.032), (64, 1.04)] {
            let uneven = Chip::Tofino2.unevenness(workers, 4);
            assert!((1.0..most).contains(&uneven), "{workers}: {uneven}");
        }
        // With a port for each pass, the first has the longest packets.
        assert!(Chip::Tofino2.unevenness(4, 8) > 1.7);
    }

    #[test]
    fn the_ports_of_a_chip_are_links_and_loopback() {
        assert!((Need::compute(Chip::Tofino, 4, Rate(65_000_000_000), 1).link - 100.0).abs() < 1e-9);
        let need = Need::compute(Chip::Tofino, 16, Rate(65_000_000_000), 1);
        let all = 16.0 * 65e9 + need.loopback * 1e12;
        assert!((need.link / 65.0 - 6.4e12 / all).abs() < 1e-9, "{need:?}");
    }

    #[test]
    fn a_table_and_no() {
        let parse = |line: &str| Line::try_parse_from(["recirculation"].into_iter().chain(line.split(' ')));
        let said = parse("--workers 4,16,64").map(|line| line.args.report().unwrap());
        assert_eq!(said.unwrap().lines().count(), 2 + 6);
        assert!(parse("--workers 65").is_err());
    }
}
