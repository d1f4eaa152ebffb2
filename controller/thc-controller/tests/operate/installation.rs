//! How long a lookup table of a chip takes to install, and who waits meanwhile.

use crate::programs::{Site, TOFINO2};
use std::time::{Duration, Instant};

/// Prints the times: `cargo test -p thc-controller --test operate -- --ignored --nocapture installation`.
#[test]
#[ignore = "a measurement"]
fn installation_of_a_table_of_16384_rows() {
    let site = Site::start(TOFINO2);
    site.create();
    for (micros, granularity) in [(0, "30"), (10, "31"), (50, "32")] {
        let row = Duration::from_micros(micros);
        site.strict.state().faults.row = row;
        let before = site.strict.state().updates;
        let began = Instant::now();
        let (installed, joined) = std::thread::scope(|scope| {
            let installing = scope.spawn(|| {
                let table = ["--granularity", granularity, "--fraction", "1/32"];
                let made = site.controller().ask(&[&["table", "install"], &table[..]].concat());
                assert_eq!(made.code, Some(0), "{made:?}");
                began.elapsed()
            });
            // Two workers of another job join when its first rows are there.
            while site.strict.state().updates == before && !installing.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let asked = Instant::now();
            let session = site.joined(row.as_micros() as u64 + 1);
            let joined = asked.elapsed();
            let installed = installing.join().unwrap();
            site.leave(row.as_micros() as u64 + 1, session);
            (installed, joined)
        });
        let rows = site.strict.state().updates - before;
        println!(
            "{row:?} a row: {rows} rows in {:.0} ms; two workers who joined meanwhile waited {:.0} ms",
            installed.as_secs_f64() * 1e3,
            joined.as_secs_f64() * 1e3
        );
    }
}
