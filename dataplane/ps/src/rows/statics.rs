//! The rows of static jobs: what the session registry asks for, written as a controller would.

use std::net::SocketAddr;

use thc_protocol::aggregator::{Endpoint, JobConfig, Lookup};
use thc_protocol::wire::Kind;
use thc_protocol::{JobId, TableId, WorkerId};
use thc_transport::frame::address_number;

use super::program::Program;
use super::store::{MulticastGroup, Replica, RowChange};

/// The port of a switch that copies leave through; a server has none.
const PORT: u32 = 1;

/// Makes changes of rows.
#[derive(Clone, Copy, Debug)]
pub struct StaticRows(&'static Program);

impl Default for StaticRows {
    fn default() -> StaticRows {
        StaticRows(Program::get())
    }
}

impl StaticRows {
    /// JOIN, LEAVE and POSITION are the control plane's.
    #[must_use]
    pub fn control_plane(self) -> Vec<RowChange> {
        let row = |kind: Kind| {
            let entry = self.0.entry("to_control", &[("port", PORT.into())]);
            RowChange::Row(self.0.known.control_plane, vec![(kind as u8).into()], Some(entry))
        };
        vec![row(Kind::Join), row(Kind::Leave), row(Kind::Position)]
    }

    /// A lookup table.
    #[must_use]
    pub fn table(self, id: TableId, table: &Lookup) -> RowChange {
        let values = [
            ("values", u128::from_be_bytes(table.values)),
            ("width", table.form.width().into()),
            ("lane", table.form.code().into()),
        ];
        RowChange::Row(self.0.known.lookup, vec![id.0.into()], Some(self.0.entry("set_values", &values)))
    }

    /// A session of the `index`th job.
    #[must_use]
    pub fn session(
        self,
        index: u16,
        epoch: u32,
        config: &JobConfig,
        members: &[(WorkerId, Endpoint)],
    ) -> Vec<RowChange> {
        let job = u128::from(config.job.0);
        let group = u32::from(index) + 1;
        let mut changes = Vec::with_capacity(2 * members.len() + 4);
        for table in &config.tables {
            let entry = self.0.entry("allow_table", &[]);
            changes.push(RowChange::Row(self.0.known.job_tables, vec![job, table.0.into()], Some(entry)));
        }
        changes.extend(members.iter().flat_map(|&(worker, at)| self.member(config.job, worker, at.addr)));
        let replica = |worker: WorkerId| Replica { port: PORT, port_bytes: None, instance: worker.0.into() };
        let replicas = members.iter().map(|&(worker, _)| replica(worker)).collect();
        changes.push(RowChange::Group(group, Some(MulticastGroup { replicas, metadata: Vec::new() })));
        let values = [
            ("index", index.into()),
            ("cookie", config.cookie.0.into()),
            ("epoch", epoch.into()),
            ("workers", config.workers.into()),
            ("quorum", config.quorum.into()),
            ("skip", config.skip.into()),
            ("data_slots", config.data_slots.into()),
            ("norm_slots", config.norm_slots.into()),
            ("group", group.into()),
        ];
        changes.push(RowChange::Row(self.0.known.jobs, vec![job], Some(self.0.entry("set_job", &values))));
        changes
    }

    /// A member is at this address.
    #[must_use]
    pub fn member(self, job: JobId, worker: WorkerId, at: SocketAddr) -> [RowChange; 2] {
        let key = vec![job.0.into(), worker.0.into()];
        let values = [("address", address_number(at.ip())), ("udp_port", at.port().into())];
        [
            RowChange::Row(self.0.known.members, key.clone(), Some(self.0.entry("set_member", &values))),
            RowChange::Row(self.0.known.addresses, key, Some(self.0.entry("set_address", &values))),
        ]
    }

    /// The session of the `index`th job, which has so many workers, is over.
    #[must_use]
    pub fn end(self, index: u16, job: JobId, workers: u8) -> Vec<RowChange> {
        let known = self.0.known;
        let number = u128::from(job.0);
        let mut changes = vec![RowChange::Row(known.jobs, vec![number], None)];
        for worker in 0..workers {
            let key = vec![number, worker.into()];
            changes.push(RowChange::Row(known.members, key.clone(), None));
            changes.push(RowChange::Row(known.addresses, key, None));
        }
        // The next session may have other tables.
        changes.extend(
            (0..=u8::MAX).map(|table| RowChange::Row(known.job_tables, vec![number, table.into()], None)),
        );
        changes.push(RowChange::Group(u32::from(index) + 1, None));
        changes
    }
}
