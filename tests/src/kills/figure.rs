//! What was measured, in the form of docs/measuring.md.

use super::{Outcome, Party};
use crate::figures::Figure;
use std::time::Duration;

/// A figure for each party: the median time to recover.
#[must_use]
pub fn figures(outcome: &Outcome, controller: bool) -> Vec<Figure> {
    let variant = if controller { "with a controller" } else { "static job" };
    let parties = [(Party::Server, "server"), (Party::Worker, "a worker"), (Party::Controller, "controller")];
    let figure = |(party, name): (Party, &str)| {
        let of_party = outcome.recoveries.iter().filter(|recovery| recovery.party == party);
        let mut times: Vec<Duration> = of_party.map(|recovery| recovery.time).collect();
        times.sort();
        let seconds = |place: usize| times.get(place).map(Duration::as_secs_f64);
        let median = seconds(times.len() / 2)?;
        let most = seconds(times.len() - 1)?;
        let nine_in_ten = seconds(times.len() * 9 / 10)?;
        Some(Figure {
            name: format!("seconds from SIGKILL of {name} to the next all-reduce, median, {variant}"),
            ratio: median,
            lower_is_better: true,
            aim: 1.0,
            floor: 5.0,
            detail: format!(
                "{} kills measured of {} in all: median {median:.3} s, 90 % {nine_in_ten:.3} s, most {most:.3} s; undisturbed \
                 {:.1} ms an all-reduce; {} means compared, all the same bits; {}",
                times.len(),
                outcome.kills,
                outcome.undisturbed.as_secs_f64() * 1e3,
                outcome.compared,
                outcome.network,
            ),
        })
    };
    parties.into_iter().filter_map(figure).collect()
}
