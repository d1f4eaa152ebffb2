//! Targets, and the use of their capacity.

use super::Service;
use crate::config::TargetConfig;
use crate::live::TargetView;
use crate::store::Store;
use std::collections::BTreeMap;
use thc_control_proto::v1;

/// The use of a target's capacity by jobs.
#[derive(Default)]
struct Used {
    data_slots: u32,
    norm_slots: u32,
    jobs: u32,
    rows: [u32; 4],
}

/// The use of each target's capacity, from one pass over the jobs.
fn used_room(store: &Store) -> BTreeMap<&str, Used> {
    let mut all: BTreeMap<&str, Used> = BTreeMap::new();
    for job in store.jobs.values() {
        let (config, rows) = (job.spec.config(), job.spec.rows().counts_by_name());
        for target in job.places.keys() {
            let used = all.entry(target).or_default();
            used.data_slots += config.data_slots;
            used.norm_slots += config.norm_slots;
            used.jobs += 1;
            used.rows.iter_mut().zip(rows).for_each(|(used, (_, of_job))| *used += of_job);
        }
    }
    all
}

fn uses(config: &TargetConfig, tables: u32, used: &Used) -> Vec<v1::Use> {
    let capacity = &config.capacity;
    let uses = [
        ("data slots".to_owned(), used.data_slots, capacity.data_slots),
        ("norm slots".to_owned(), used.norm_slots, capacity.norm_slots),
        ("jobs".to_owned(), used.jobs, capacity.jobs),
        ("lookup tables".to_owned(), tables, capacity.tables),
    ];
    let rows = capacity.rows.counts_by_name().into_iter().zip(used.rows);
    let rows = rows.map(|((table, all), used)| (format!("rows of {table}"), used, all));
    uses.into_iter().chain(rows).map(|(what, used, all)| v1::Use { what, used, all }).collect()
}

fn target_message(config: &TargetConfig, view: Option<&TargetView>, uses: Vec<v1::Use>) -> v1::Target {
    v1::Target {
        name: config.name.clone(),
        address: config.service.address.clone(),
        connected: view.is_some_and(|view| view.connected),
        error: view.map(|view| view.error.clone()).unwrap_or_default(),
        aggregator: config.at.to_string(),
        uses,
        compared: view.and_then(|view| view.compared).map(|compared| compared.elapsed().as_secs_f64()),
        repairs: view.map_or(0, |view| view.repairs),
    }
}

impl Service {
    /// All targets.
    pub fn targets(&self) -> Vec<v1::Target> {
        let store = self.shared.store();
        let views = self.shared.views();
        let (used, none, tables) = (used_room(&store), Used::default(), store.tables.len() as u32);
        let target = |config: &TargetConfig| {
            let uses = uses(config, tables, used.get(config.name.as_str()).unwrap_or(&none));
            target_message(config, views.get(&config.name), uses)
        };
        self.shared.targets.iter().map(|handle| target(&handle.config)).collect()
    }
}
