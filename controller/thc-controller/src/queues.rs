//! Through which queue of its port a packet goes to a pass, if passes have cells: the fewer passes it has
//! left, the higher the queue's number. A port that serves higher queues first finishes packets before it
//! begins others, so an overloaded port loses only packets that have been through no pass yet.

use thc_p4::rows::{PassCells, PassRow};

/// The rows of `passes`: of those that add, with their ports and first cells and in their order, the norms' last; and of those that
/// collect. A port has so many queues.
#[must_use]
pub fn rows(passes: &[(u8, u16, u32)], queues: u8) -> Vec<PassRow> {
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
        let rows = rows(&passes, 8);
        assert_eq!(port_queues(&rows, 68), [(0, false, 0), (3, false, 1), (0, true, 2), (255, false, 3)]);
        assert_eq!(port_queues(&rows, 69), [(1, false, 0), (2, false, 1), (2, true, 2), (1, true, 3)]);
        let firsts = |row: &PassRow| {
            passes.iter().any(|pass| (pass.0, pass.2) == (row.pass, row.cells.as_ref().unwrap().first))
        };
        assert!(rows.iter().all(firsts));
    }

    /// Of fewer queues than passes, neighbours share one; of one, all do.
    #[test]
    fn queues_are_shared_where_there_are_too_few() {
        let mut passes: Vec<(u8, u16, u32)> = (0..16).map(|pass| (pass, 68, 512 * u32::from(pass))).collect();
        passes.push((255, 68, 8192));
        for queues in [1, 3, 8, 32, 128] {
            let rows = rows(&passes, queues);
            assert_eq!(rows.len(), 32);
            let numbers: Vec<u8> = port_queues(&rows, 68).iter().map(|row| row.2).collect();
            assert!(
                numbers.is_sorted() && numbers.windows(2).all(|pair| pair[1] - pair[0] <= 1),
                "{numbers:?}"
            );
            assert_eq!((numbers[0], *numbers.last().unwrap()), (0, queues.min(32) - 1));
        }
        assert!(rows(&[], 8).is_empty());
    }
}
