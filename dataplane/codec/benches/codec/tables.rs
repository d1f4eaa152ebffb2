//! The solver of lookup tables.

use std::hint::black_box;

use thc_bench::{median, seconds};
use thc_codec::table::LookupTable;

use crate::figure::{Figure, REPETITIONS};

/// One table, and a sweep of many.
pub fn solver(figures: &mut Vec<Figure>) {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    assert_eq!(table.values(), [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]);
    let times = (0..REPETITIONS).map(|_| {
        seconds(|| {
            black_box(LookupTable::solve(4, 51, black_box(1.0 / 32.0))).unwrap();
        })
    });
    figures.push(Figure {
        name: "table solver, b=4 g=51, in us over 100 us".to_owned(),
        ratio: median(times) * 1e6 / 100.0,
        aim: 1.0,
        floor: 10.0,
        detail: "time of one table divided by 100 us".to_owned(),
    });
    let mut tables = 0;
    let time = seconds(|| {
        for bits in 2..=4 {
            for g in (1 << bits) - 1..=60 {
                for i in 1..=40 {
                    let fraction = (-0.3 * f64::from(i)).exp();
                    black_box(LookupTable::solve(bits, g, fraction)).unwrap();
                    tables += 1;
                }
            }
        }
    });
    figures.push(Figure {
        name: "sweep of tables, b=2..4 g<=60 p=40 values, over 2 s".to_owned(),
        ratio: time / 2.0,
        aim: 1.0,
        floor: 5.0,
        detail: format!("{tables} tables in {:.0} ms", time * 1e3),
    });
}
