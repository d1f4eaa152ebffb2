//! How long a lookup table of a chip takes to install, and who waits meanwhile.

use crate::programs::{COOKIE, Site, TOFINO2};
use std::time::{Duration, Instant};
use thc_protocol::wire::Kind;

const MORE: &[&str] = &["table", "install", "--granularity", "31", "--fraction", "1/32"];

/// Whoever joins while a table's rows are written waits for a part of them; who needs that table, until it is there.
#[test]
fn who_joins_waits_for_no_table() {
    let site = Site::with_keys(TOFINO2, "patience = \"5m\"");
    site.create();
    let rows = site.strict.rows("lookup_");
    site.strict.state().faults.row = Duration::from_millis(2);
    let cookie = COOKIE.to_string();
    let job = ["job", "create", "b", "--workers", "2", "--number", "8", "--cookie", &cookie];
    let table = ["--slots", "64", "--norm-slots", "32", "--granularity", "31", "--fraction", "1/32"];
    let asked = [&job[..], &table].concat();
    std::thread::scope(|scope| {
        let installing = scope.spawn(|| site.controller().ask(MORE));
        site.controller().wait_until("its first rows", |_| site.strict.rows("lookup_") > rows);
        // Of a job that has that table, nobody is welcome yet.
        let creating = scope.spawn(|| site.controller().ask(&asked));
        let session = site.join_workers(1);
        assert!(!installing.is_finished() && !creating.is_finished(), "it came when all rows were there");
        assert_eq!((site.sent_cookie(8, Kind::Welcome), site.strict.rows("job_tables")), (None, 1));
        site.leave(1, session);
        site.strict.state().faults.row = Duration::ZERO;
        for made in [installing.join().unwrap(), creating.join().unwrap()] {
            assert_eq!(made.code, Some(0), "{made:?}");
        }
    });
    assert_eq!(site.strict.rows("lookup_"), 2 * rows);
    site.joined_at(8, 1);
    assert_eq!(site.strict.state().refused, Vec::<String>::new());
}

/// A table that is refused half-way, or not wanted any more, leaves no rows, and takes nothing from others.
#[test]
fn a_table_that_is_refused_half_way_leaves_nothing() {
    let site = Site::start(TOFINO2);
    site.create();
    site.join_workers(1);
    let before = site.rows();
    site.strict.state().faults.full = Some(|table, _| table == "lookup_b20");
    let refused = site.controller().ask(MORE);
    let says = "target chip refuses the table: ";
    assert!(refused.code == Some(1) && refused.err.contains(says), "{refused:?}");
    assert!(refused.err.contains("no place is left"), "{refused:?}");
    site.controller().wait_until("taken back", |_| site.rows() == before);
    site.strict.state().faults.full = None;
    site.strict.state().refused.clear();
    site.controller().ask_done(MORE);
    assert_eq!(site.rows(), [[2 * before[0]].as_slice(), &before[1..]].concat().as_slice());
    assert_eq!(site.strict.state().refused, Vec::<String>::new());
}

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
            let session = site.join_workers(row.as_micros() as u64 + 1);
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
