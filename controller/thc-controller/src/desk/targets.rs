//! Targets: what they hold, and what they have room for.

use super::Desk;
use crate::book::{Book, Job};
use crate::config::TargetConfig;
use crate::live::TargetView;
use crate::refusal::Refusal;
use crate::state::AgentCommand;
use thc_control_proto::v1;

/// What jobs take of a target's room.
fn uses(book: &Book, config: &TargetConfig) -> Vec<v1::Use> {
    let jobs: Vec<&Job> = book.jobs.values().filter(|job| job.places.contains_key(&config.name)).collect();
    let sum = |of: fn(&Job) -> u32| jobs.iter().map(|job| of(job)).sum::<u32>();
    let capacity = &config.capacity;
    let mut uses = vec![
        ("data slots".to_owned(), sum(|job| job.spec.data_slots), capacity.data_slots),
        ("norm slots".to_owned(), sum(|job| job.spec.norm_slots), capacity.norm_slots),
        ("jobs".to_owned(), jobs.len() as u32, capacity.jobs),
        ("lookup tables".to_owned(), book.tables.len() as u32, capacity.tables),
    ];
    for (place, (table, all)) in capacity.rows.counts_by_name().into_iter().enumerate() {
        let used = jobs.iter().map(|job| job.spec.rows().counts_by_name()[place].1).sum();
        uses.push((format!("rows of {table}"), used, all));
    }
    uses.into_iter().map(|(what, used, all)| v1::Use { what, used, all }).collect()
}

fn target_message(book: &Book, config: &TargetConfig, view: Option<&TargetView>) -> v1::Target {
    let uses = uses(book, config);
    let requests = view.map(|view| view.requests.clone()).unwrap_or_default();
    let requests = requests.into_iter().map(|(request, of)| v1::Requests {
        request: request.to_owned(),
        count: of.count,
        seconds: of.took.as_secs_f64(),
    });
    v1::Target {
        name: config.name.clone(),
        address: config.address.clone(),
        connected: view.is_some_and(|view| view.connected),
        error: view.map(|view| view.error.clone()).unwrap_or_default(),
        aggregator: config.at.to_string(),
        data_slots: config.capacity.data_slots,
        data_slots_used: uses[0].used,
        uses,
        compared: view.and_then(|view| view.compared).map(|compared| compared.elapsed().as_secs_f64()),
        differences: view.map(|view| view.differences.clone()).unwrap_or_default(),
        repairs: view.map_or(0, |view| view.repairs),
        requests: requests.collect(),
    }
}

impl Desk {
    /// All targets.
    #[must_use]
    pub fn targets(&self) -> Vec<v1::Target> {
        let book = self.shared.book();
        let views = self.shared.views();
        let configs = self.shared.targets.iter().map(|target| &target.config);
        configs.map(|config| target_message(&book, config, views.get(&config.name))).collect()
    }

    /// The rows that a target holds.
    ///
    /// # Errors
    /// There is no such target, or it is away.
    pub async fn rows(&self, target: &str) -> Result<Vec<v1::Row>, Refusal> {
        self.shared.ask(target, AgentCommand::Rows).await
    }

    /// Where they differ from those that were written; repairs that if so asked.
    ///
    /// # Errors
    /// As [`Desk::rows`].
    pub async fn compare(&self, target: &str, repair: bool) -> Result<Vec<v1::Difference>, Refusal> {
        self.shared.ask(target, |answer| AgentCommand::Compare { repair, answer }).await
    }
}
