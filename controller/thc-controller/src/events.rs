//! What has happened of late, and why: a bounded history beside the log.

use crate::book::seconds;
use std::collections::VecDeque;
use thc_control_proto::v1;

/// How many events are kept: days of a quiet cluster, in no more than a few hundred kilobytes.
const KEPT: usize = 1000;

/// The history, from the oldest on.
#[derive(Debug, Default)]
pub struct EventLog {
    kept: VecDeque<v1::Event>,
    number: u64,
}

/// What an event is about; an empty name is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    /// A target.
    pub target: &'a str,
    /// A job.
    pub job: &'a str,
}

impl EventLog {
    /// Takes one, in place of the oldest if there are too many.
    pub fn push(&mut self, warning: bool, about: About<'_>, what: &str) {
        self.number += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(v1::Event {
            number: self.number,
            time: seconds(),
            warning,
            target: about.target.to_owned(),
            job: about.job.to_owned(),
            what: what.to_owned(),
        });
    }

    /// The events of a job and a target after this number; an empty name stands for all jobs or all targets.
    #[must_use]
    pub fn list_after(&self, after: u64, about: About<'_>) -> Vec<v1::Event> {
        let of = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        let wanted = |event: &&v1::Event| {
            event.number > after && of(about.job, &event.job) && of(about.target, &event.target)
        };
        self.kept.iter().filter(wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_found_by_what_they_are_about() {
        let mut events = EventLog::default();
        for number in 0..KEPT + 5 {
            let job = if number % 2 == 0 { "even" } else { "odd" };
            events.push(false, About { job, target: "ps1" }, &number.to_string());
        }
        let all = events.list_after(0, About::default());
        assert_eq!((all.len(), all[0].what.as_str()), (KEPT, "5"));
        let odd = events.list_after(KEPT as u64, About { job: "odd", target: "" });
        assert_eq!(odd.iter().map(|event| event.what.as_str()).collect::<Vec<_>>(), ["1001", "1003"]);
        assert!(events.list_after(0, About { job: "odd", target: "ps2" }).is_empty());
    }
}
