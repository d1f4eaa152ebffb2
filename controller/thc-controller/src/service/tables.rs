//! Lookup tables that are installed beside those of jobs.

use super::{LANE_BITS, Service};
use crate::refusal::Refusal;
use thc_codec::table::{LookupTable, choose};
use thc_config::{job::wire_table, values::Fraction};
use thc_control_proto::v1;
use thc_protocol::wire::Form;

fn no_table(id: u8) -> Refusal {
    Refusal::not_found(format!("there is no table {id}: `table list` shows those there are"))
}

impl Service {
    /// Solves a table and installs it on all targets.
    ///
    /// # Errors
    /// It cannot be, there is no room, a target refuses.
    pub async fn install_table(&self, asked: &v1::InstallTableRequest) -> Result<v1::Table, Refusal> {
        let invalid = |error: &dyn std::fmt::Display| Refusal::invalid(format!("table: {error}"));
        let bits = u8::try_from(asked.bits).ok().filter(|bits| (1..=4).contains(bits));
        let bits = bits.ok_or_else(|| Refusal::invalid(format!("bits is {}: give 1 to 4", asked.bits)))?;
        let table = match (asked.granularity, &asked.fraction, asked.workers) {
            (Some(granularity), Some(fraction), None) => {
                let fraction: Fraction = fraction.parse().map_err(|error: String| invalid(&error))?;
                let granularity = u16::try_from(granularity).unwrap_or(u16::MAX);
                LookupTable::solve(bits, granularity, fraction.0).map_err(|error| invalid(&error))?
            }
            (None, None, Some(workers)) => {
                choose(bits, LANE_BITS, workers).map_err(|error| invalid(&error))?.table
            }
            _ => {
                let text =
                    "give granularity and fraction, or the number of workers that the best table is for";
                return Err(Refusal::invalid(text.to_owned()));
            }
        };
        let told = wire_table(Form::USUAL, &table);
        let room = self.shared.targets.iter().map(|target| target.config.capacity.tables).min().unwrap_or(0);
        let change = self.change("", |store| {
            let id = store.table(&told, room)?;
            let table = store.tables.get_mut(&id);
            let was_installed = table.is_some_and(|table| std::mem::replace(&mut table.installed, true));
            Ok((id, was_installed))
        });
        let (id, was_installed) = change.await?;
        let there = self.targets_there();
        let synced = self.shared.sync(&there).await.and_then(|()| self.takes_table(id, &there));
        match synced {
            Err(refusal) if !was_installed => {
                let undone = self.change("", |store| {
                    store.tables.entry(id).and_modify(|table| table.installed = false);
                    store.drop_unused_tables();
                    Ok(())
                });
                undone.await?;
                let _ = self.shared.sync(&there).await;
                Err(refusal)
            }
            Err(refusal) => Err(refusal),
            Ok(()) => self.table(id),
        }
    }

    fn takes_table(&self, id: u8, targets: &[String]) -> Result<(), Refusal> {
        let views = self.shared.views();
        for target in targets {
            if let Some(why) = views.get(target).and_then(|view| view.refused_tables.get(&id)) {
                return Err(Refusal::unavailable(format!("target {target} refuses the table: {why}")));
            }
        }
        Ok(())
    }

    fn targets_there(&self) -> Vec<String> {
        let names = self.shared.targets.iter().map(|target| target.config.name.clone());
        names.filter(|name| self.check_connected(name).is_ok()).collect()
    }

    pub(super) fn table(&self, id: u8) -> Result<v1::Table, Refusal> {
        self.shared.store().shown_table(id).ok_or_else(|| no_table(id))
    }

    /// All tables.
    #[must_use]
    pub fn tables(&self) -> Vec<v1::Table> {
        let store = self.shared.store();
        store.tables.keys().filter_map(|&id| store.shown_table(id)).collect()
    }

    /// Deletes a table that no job uses.
    ///
    /// # Errors
    /// There is none, or a job uses it.
    pub async fn delete_table(&self, id: u32) -> Result<(), Refusal> {
        let id = u8::try_from(id).unwrap_or(0);
        let change = self.change("", |store| {
            let shown = store.shown_table(id).ok_or_else(|| no_table(id))?;
            if !shown.jobs.is_empty() {
                return Err(Refusal::not_now(format!(
                    "table {id} is used by {}: delete them first",
                    shown.jobs.join(", ")
                )));
            }
            Ok(store.tables.remove(&id))
        });
        change.await?;
        self.shared.sync(&self.targets_there()).await
    }
}
