//! The requirements of a switch program on its rows, beyond those of all programs, as its P4Info shows them.

use crate::capacity::{Capacity, Forms, RowCounts, WORKER_BITS};
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info::P4InfoError;
use std::collections::BTreeMap;
use thc_p4::rows::{PassCells, PassRow};

/// The first bits of a port's number say which pipe it belongs to; these are the others.
const PORTS_OF_A_PIPE: u32 = 7;
/// The number of a norm's only pass in `passes`, if passes have cells.
const NORM_PASS: u8 = 255;
/// The beginning of every such table's name.
const LOOKUP_OF_BYTES: &str = "lookup_";

/// The way of a packet from one pass to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// A cell is found by slot and pass; a row only says which port leads to a pass after the first.
    Ports {
        /// The number of passes after the first.
        later: u8,
    },
    /// Each pass, including the first, has cells in the pipe of its port, and a row says where they begin.
    Cells {
        /// The number of passes of a DATA packet.
        passes: u8,
        /// Cells of a pipe for DATA and RAW; those of norms follow.
        cells: u32,
    },
}

/// The place of a lookup table's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookups {
    /// One row of `lookup`, by the table's id.
    Row,
    /// Each of several tables has a row for each byte of indices, under a number of the chip's.
    Bytes {
        /// Bits of the values that one byte of indices stands for.
        bits: i32,
        /// The number of lookup tables for which there is room.
        room: u8,
    },
}

/// A program's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramShape {
    /// The way of packets from pass to pass.
    pub passes: Passes,
    /// The place of lookup tables.
    pub lookups: Lookups,
    /// `true` if answers take the aggregator's addresses from a table.
    pub source: bool,
    /// `true` if a table has the ports by which packets come back.
    pub loopback: bool,
    /// Its capacity; the number of data slots depends on the ports if passes have cells.
    capacity: Capacity,
}

fn size(size: i64) -> u32 {
    u32::try_from(size).unwrap_or(0)
}

impl ProgramShape {
    /// The program that this P4Info describes.
    ///
    /// # Errors
    /// [`P4InfoError::Missing`] if it is not THC's.
    pub fn from_p4info(info: &P4Info) -> Result<ProgramShape, P4InfoError> {
        let counted = size(info.counter("packets")?.size) >> WORKER_BITS;
        let jobs = counted.min(size(info.table("jobs")?.size));
        let rows = size(info.table("passes")?.size).max(1);
        let has_cells = info.action("set_pass").is_ok();
        let (passes, data_slots, norm_slots) = if has_cells {
            let words = info
                .registers
                .iter()
                .filter(|register| alias(register.preamble.as_ref()).starts_with("lanes"));
            let sizes: Vec<u32> = words.map(|register| size(register.size.into())).collect();
            let missing = || P4InfoError::Missing { kind: "register", name: "lanes0".to_owned() };
            let (cells, all) =
                (sizes.iter().min().ok_or_else(missing)?, sizes.iter().max().ok_or_else(missing)?);
            // Each pass has a row to add; to collect all do but the last one, in whose place are the norms.
            let passes = u8::try_from(rows / 2).unwrap_or(u8::MAX).max(1);
            (Passes::Cells { passes, cells: *cells }, 0, all - cells)
        } else {
            // A slot is a cell for each pass.
            let data = size(info.register("heads")?.size.into()) / rows;
            let later = u8::try_from(rows - 1).unwrap_or(u8::MAX);
            (Passes::Ports { later }, data, size(info.register("tags")?.size.into()))
        };
        let lookups = lookups(info)?;
        let tables = match &lookups {
            // The number 0 is none.
            Lookups::Row => size(info.table("lookup")?.size).min(255),
            Lookups::Bytes { room, .. } => (*room).into(),
        };
        Ok(ProgramShape {
            passes,
            source: info.table("source").is_ok(),
            loopback: info.table("loopback_ports").is_ok(),
            capacity: Capacity {
                data_slots,
                norm_slots,
                jobs,
                tables,
                rows: RowCounts {
                    members: size(info.table("members")?.size),
                    addresses: size(info.table("addresses")?.size),
                    job_tables: size(info.table("job_tables")?.size),
                    // A program without this table is no rack.
                    roots: info.table("roots").map_or(0, |roots| size(roots.size)),
                },
                forms: Some(Forms::from_p4info(info)),
            },
            lookups,
        })
    }

    /// Returns whether to read all cells of a counter at once: the control plane of a chip updates the whole counter
    /// for each request, so many requests for one cell cost far more. Software servers answer for the
    /// requested cells only.
    #[must_use]
    pub(crate) fn has_whole_counters(&self) -> bool {
        matches!(self.lookups, Lookups::Bytes { .. })
    }

    /// Its capacity with these ports for its passes.
    #[must_use]
    pub fn capacity(&self, pass_ports: &[u16]) -> Capacity {
        let data_slots = match self.passes {
            Passes::Ports { .. } => self.capacity.data_slots,
            Passes::Cells { passes, cells } => {
                let pipes = pipes(passes, pass_ports);
                let most = pipes.values().map(Vec::len).max().unwrap_or(usize::from(passes));
                cells / u32::try_from(most).unwrap_or(1).max(1)
            }
        };
        Capacity { data_slots, ..self.capacity }
    }

    /// The rows of `passes` if passes have cells: number, port, and the first cell. `None` without ports.
    #[must_use]
    pub fn cells(&self, pass_ports: &[u16]) -> Vec<(u8, u16, u32)> {
        let Passes::Cells { passes, cells } = self.passes else { return Vec::new() };
        let Some(&first) = pass_ports.first() else { return Vec::new() };
        let slots = self.capacity(pass_ports).data_slots;
        let mut rows = vec![(NORM_PASS, first, cells)];
        for of_pipe in pipes(passes, pass_ports).values() {
            rows.extend((0..).zip(of_pipe).map(|(place, &(pass, port))| (pass, port, place * slots)));
        }
        rows.sort_unstable();
        rows
    }
}

/// Through which port each pass goes: forwards and backwards over the ports, again and again. Packets get
/// shorter from pass to pass and RESULTs longer, so a port with an early pass also gets a late one, and all
/// carry about as much.
pub fn snake(pass_ports: &[u16]) -> impl Iterator<Item = u16> + '_ {
    pass_ports.iter().chain(pass_ports.iter().rev()).copied().cycle()
}

/// The passes whose cells are in each pipe, with their ports.
fn pipes(passes: u8, pass_ports: &[u16]) -> BTreeMap<u16, Vec<(u8, u16)>> {
    let mut pipes: BTreeMap<u16, Vec<(u8, u16)>> = BTreeMap::new();
    for (pass, port) in (0..passes).zip(snake(pass_ports)) {
        pipes.entry(port >> PORTS_OF_A_PIPE).or_default().push((pass, port));
    }
    pipes
}

fn alias(preamble: Option<&p4runtime_proto::config::Preamble>) -> &str {
    preamble.map_or("", |preamble| &preamble.alias)
}

fn lookups(info: &P4Info) -> Result<Lookups, P4InfoError> {
    if info.table("lookup").is_ok() {
        return Ok(Lookups::Row);
    }
    let mut of_bytes =
        info.tables.iter().filter(|table| alias(table.preamble.as_ref()).starts_with(LOOKUP_OF_BYTES));
    let Some(first) = of_bytes.next() else {
        return Err(P4InfoError::Missing { kind: "table", name: "lookup".to_owned() });
    };
    let action = format!("set_{}", alias(first.preamble.as_ref()).trim_start_matches(LOOKUP_OF_BYTES));
    let bits = info.action(&action)?.params.first().map_or(0, |param| param.bitwidth);
    let room = u8::try_from(first.size >> 8).unwrap_or(u8::MAX);
    Ok(Lookups::Bytes { bits, room })
}

/// The rows of `passes`, with the queue of its port through which a packet goes to a pass: the fewer passes it has left,
/// the higher the queue's number. A port that serves higher queues first finishes packets before it begins others, so an
/// overloaded port loses only packets that have been through no pass yet. Rows: of those that add, with their ports and first cells and in their order, the norms' last; and of those that
/// collect. A port has so many queues.
pub fn queue_rows(passes: &[(u8, u16, u32)], queues: u8) -> Vec<PassRow> {
    let Some((norms, data)) = passes.split_last() else { return Vec::new() };
    // In the order in which a packet goes through them. The last pass that adds also has a RESULT's last words.
    let adding = data.iter().map(|pass| (pass, false));
    let collecting = data.iter().rev().skip(1).map(|pass| (pass, true));
    let all: Vec<_> = adding.chain(collecting).chain([(norms, false)]).collect();
    let row = |(at, &(&(pass, port, first_cell), collect))| {
        let same_port = |rows: &[(&(u8, u16, u32), bool)]| rows.iter().filter(|row| row.0.1 == port).count();
        let (before, count) = (same_port(&all[..at]), same_port(&all));
        let queue = before * count.min(queues.into()) / count;
        PassRow { pass, port, cells: Some(PassCells { collect, queue: queue as u8, first: first_cell }) }
    };
    all.iter().enumerate().map(row).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use p4runtime_proto::p4info::parse;

    fn program(text: &str) -> ProgramShape {
        ProgramShape::from_p4info(&parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn of_v1model() {
        let program = program(include_str!("../../../p4/build/thc.p4info.txtpb"));
        assert_eq!((program.passes, &program.lookups), (Passes::Ports { later: 7 }, &Lookups::Row));
        assert!(!program.source && !program.loopback);
        let capacity = program.capacity(&[]);
        assert_eq!((capacity.data_slots, capacity.norm_slots, capacity.tables), (1024, 1024, 255));
        assert!(program.cells(&[300]).is_empty());
    }

    #[test]
    fn of_tna_and_t2na() {
        let one = program(include_str!("../../../p4/build/tofino/tofino.p4info.txtpb"));
        let two = program(include_str!("../../../p4/build/tofino/tofino2.p4info.txtpb"));
        assert_eq!(one.passes, Passes::Cells { passes: 16, cells: 8192 });
        assert_eq!(two.passes, Passes::Cells { passes: 8, cells: 8192 });
        for program in [&one, &two] {
            assert_eq!(program.lookups, Lookups::Bytes { bits: 16, room: 4 });
            assert!(program.source && program.loopback);
        }
        // All passes in one pipe, or over four.
        assert_eq!((one.capacity(&[68]).data_slots, two.capacity(&[68]).data_slots), (512, 1024));
        let spread = [68, 196, 324, 452];
        assert_eq!((one.capacity(&spread).data_slots, two.capacity(&spread).data_slots), (2048, 4096));
        let capacity = two.capacity(&[68]);
        assert_eq!((capacity.norm_slots, capacity.jobs, capacity.tables), (1024, 16, 4));
        assert_eq!(capacity.forms.unwrap().to_string(), "2/4, 4/8, 8/16");
    }

    /// Bytes of a slot of n workers on the loopback links of each pass on Tofino 2 (docs/switch.md): no port carries much more than
    /// the mean.
    #[test]
    fn passes_load_their_ports_evenly() {
        let program = program(include_str!("../../../p4/build/tofino/tofino2.p4info.txtpb"));
        let ports = [68, 196, 324, 452];
        for (workers, total) in [(4_u64, 14_800), (16, 43_360)] {
            let mut loads = BTreeMap::new();
            for &(pass, port, _) in program.cells(&ports).iter().filter(|row| row.0 != NORM_PASS) {
                // 84 bytes of headers and gaps; indices that are left there, and words that are collected on the way back.
                let there = if pass < 7 { workers * (84 + 512 - 64 * (u64::from(pass) + 1)) } else { 0 };
                let back = 84 + 128 * (8 - u64::from(pass));
                *loads.entry(port).or_insert(0) += there + back;
            }
            let most = *loads.values().max().unwrap();
            assert_eq!(loads.values().sum::<u64>(), total);
            assert!(most as f64 / (total as f64 / 4.0) < 1.04, "{workers}: {loads:?}");
        }
    }

    /// No two passes have a cell in common, and none has one beyond its pipe's.
    #[test]
    fn cells_of_passes_lie_apart() {
        let program = program(include_str!("../../../p4/build/tofino/tofino2.p4info.txtpb"));
        for ports in [vec![68], vec![68, 69, 70], vec![68, 196], vec![1, 140, 68, 196, 324]] {
            let slots = program.capacity(&ports).data_slots;
            let rows = program.cells(&ports);
            assert_eq!(rows.len(), 9);
            assert!(rows.contains(&(255, ports[0], 8192)));
            let data: Vec<_> = rows.iter().filter(|row| row.0 != 255).collect();
            for (at, (_, port, first)) in data.iter().enumerate() {
                assert!(first + slots <= 8192, "{ports:?}");
                for (_, other, from) in &data[at + 1..] {
                    assert!(port >> 7 != other >> 7 || first.abs_diff(*from) >= slots, "{ports:?}");
                }
            }
        }
    }

    /// Pass, whether it collects, and queue, of a port.
    fn port_queues(rows: &[PassRow], port: u16) -> Vec<(u8, bool, u8)> {
        let port_queues = rows.iter().filter(|row| row.port == port);
        port_queues
            .map(|row| {
                let cells = row.cells.as_ref().unwrap();
                (row.pass, cells.collect, cells.queue)
            })
            .collect()
    }

    #[test]
    fn later_passes_have_higher_queues() {
        let passes = [(0, 68, 0), (1, 69, 0), (2, 69, 64), (3, 68, 64), (255, 68, 8192)];
        let rows = queue_rows(&passes, 8);
        assert_eq!(port_queues(&rows, 68), [(0, false, 0), (3, false, 1), (0, true, 2), (255, false, 3)]);
        assert_eq!(port_queues(&rows, 69), [(1, false, 0), (2, false, 1), (2, true, 2), (1, true, 3)]);
        let firsts = |row: &PassRow| {
            passes.iter().any(|pass| (pass.0, pass.2) == (row.pass, row.cells.as_ref().unwrap().first))
        };
        assert!(rows.iter().all(firsts));
    }

    /// With fewer queues than passes neighbours share one; with one queue all do.
    #[test]
    fn queues_are_shared_where_there_are_too_few() {
        let mut passes: Vec<(u8, u16, u32)> = (0..16).map(|pass| (pass, 68, 512 * u32::from(pass))).collect();
        passes.push((255, 68, 8192));
        for queues in [1, 3, 8, 32, 128] {
            let rows = queue_rows(&passes, queues);
            assert_eq!(rows.len(), 32);
            let numbers: Vec<u8> = port_queues(&rows, 68).iter().map(|row| row.2).collect();
            assert!(
                numbers.is_sorted() && numbers.windows(2).all(|pair| pair[1] - pair[0] <= 1),
                "{numbers:?}"
            );
            assert_eq!((numbers[0], *numbers.last().unwrap()), (0, queues.min(32) - 1));
        }
        assert!(queue_rows(&[], 8).is_empty());
    }
}
