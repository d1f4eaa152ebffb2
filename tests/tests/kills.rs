//! A short form of `make kills`: server, workers and controller killed three times each.
#![allow(clippy::unwrap_used, missing_docs)]

use thc_tests::kills::{Plan, figures, run};

fn three_kills_each(controller: bool) {
    let plan = Plan {
        kills: 3,
        controller,
        workers: 2,
        coordinates: 300_000,
        repeat: 150,
        loss: 0.01,
        seed: 7,
        tell: false,
    };
    let outcome = run(&plan).unwrap_or_else(|error| panic!("{error}"));
    figures(&outcome, controller).iter().for_each(|figure| println!("{}: {}", figure.name, figure.detail));
    assert_eq!(outcome.kills, if controller { 9 } else { 6 });
    assert!(!outcome.recoveries.is_empty() && outcome.compared > 2 * plan.repeat);
}

#[test]
fn kills_change_no_bit() {
    three_kills_each(false);
}

#[test]
fn kills_change_no_bit_under_a_controller() {
    three_kills_each(true);
}
