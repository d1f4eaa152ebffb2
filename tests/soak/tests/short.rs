//! The first traces; `make soak` runs more of them.
#![allow(missing_docs)]

use thc_soak::Report;

/// Runs the traces of these seeds and says what came of them.
fn traces(seeds: std::ops::Range<u64>) {
    let mut all = Report::default();
    for seed in seeds.clone() {
        let one = std::panic::catch_unwind(|| thc_soak::run(seed, 250));
        let Ok(one) = one else {
            panic!("again: make soak SEED={seed} TRACE=250 COUNT=1");
        };
        all.complete += one.complete;
        all.happenings += one.happenings;
        all.sessions += one.sessions;
    }
    println!(
        "seeds {seeds:?}: {} all-reduces, {} happenings, {} sessions",
        all.complete, all.happenings, all.sessions
    );
    assert!(all.complete >= 250 * (seeds.end - seeds.start));
}

#[test]
fn every_mean_is_exact_whatever_happens_first_traces() {
    traces(0..20);
}

#[test]
fn every_mean_is_exact_whatever_happens_more_traces() {
    traces(100..120);
}

#[test]
fn every_mean_is_exact_whatever_happens_yet_more_traces() {
    traces(200..220);
}

#[test]
fn every_mean_is_exact_whatever_happens_last_traces() {
    traces(300..320);
}
