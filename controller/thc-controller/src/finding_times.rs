//! When each finding about a job was first made.

use std::collections::BTreeMap;
use thc_control_proto::v1::Finding;

/// Present findings about jobs, each with the time of its first.
#[derive(Debug, Default)]
pub struct FindingTimes {
    /// Times by job, then by what is said.
    jobs: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The text of a finding without its changing numbers: a worker that is silent for 5 s will soon be silent
/// for 6 s. Numbers within names stay: target ps1 is not ps2.
fn stable_text(finding: &Finding) -> String {
    let numeric = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let words: Vec<&str> = finding.what.split_whitespace().filter(|word| !numeric(word)).collect();
    format!("{} {:?}", words.join(" "), finding.worker)
}

impl FindingTimes {
    /// Takes the findings about a job at this time, in seconds since 1970, and adds since when each has been
    /// reported.
    pub fn note(&mut self, job: &str, findings: &mut [Finding], now: u64) {
        let before = self.jobs.remove(job).unwrap_or_default();
        let mut after = BTreeMap::new();
        for finding in findings {
            let says = stable_text(finding);
            finding.since = before.get(&says).copied().unwrap_or(now);
            after.insert(says, finding.since);
        }
        self.jobs.insert(job.to_owned(), after);
    }

    /// Forgets all jobs but these.
    pub fn keep(&mut self, jobs: &[String]) {
        self.jobs.retain(|job, _| jobs.contains(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_keeps_its_time() {
        let finding = |what: &str, worker| Finding { what: what.to_owned(), worker, ..Finding::default() };
        let mut times = FindingTimes::default();
        let mut say = |findings: &mut [Finding], now| {
            times.note("train", findings, now);
            findings.iter().map(|finding| finding.since).collect::<Vec<_>>()
        };
        assert_eq!(say(&mut [finding("worker 0 is silent for 5 s", Some(0))], 100), [100]);
        let both = &mut [
            finding("worker 0 is silent for 15 s", Some(0)),
            finding("worker 1 is silent for 5 s", Some(1)),
        ];
        assert_eq!(say(both, 110), [100, 110]);
        let targets = &mut [finding("target ps1 is away", None)];
        assert_eq!(say(targets, 115), [115]);
        let targets = &mut [finding("target ps2 is away", None), finding("target ps1 is away", None)];
        assert_eq!(say(targets, 118), [118, 115]);
        assert_eq!(say(&mut [], 120), [0; 0]);
        assert_eq!(say(&mut [finding("worker 0 is silent for 5 s", Some(0))], 130), [130]);
    }
}
