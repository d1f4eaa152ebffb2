//! The rows of static jobs, as a controller would write them for the session registry.

use std::net::SocketAddr;

use thc_p4::rows::{self, AddressRow, ControlPlaneRow, JobRow, JobTableRow, MemberRow, Row};
use thc_protocol::aggregator::{Endpoint, JobConfig, Lookup};
use thc_protocol::wire::Kind;
use thc_protocol::{JobId, TableId, WorkerId};

use super::program::Program;
use super::store::{MulticastGroup, Replica, RowChange};

/// The port of a switch that copies leave through; a server has none.
const PORT: u16 = 1;

/// Makes changes of rows.
#[derive(Clone, Copy, Debug)]
pub struct StaticRows(&'static Program);

impl Default for StaticRows {
    fn default() -> StaticRows {
        StaticRows(Program::get())
    }
}

impl StaticRows {
    fn row(self, row: &impl Row) -> RowChange {
        let (table, key) = self.0.place(row);
        let (action, values) = row.action();
        RowChange::Row(table, key, Some(self.0.entry(action, &values)))
    }

    /// JOIN and LEAVE are the control plane's.
    #[must_use]
    pub fn control_plane(self) -> Vec<RowChange> {
        let kinds = [Kind::Join, Kind::Leave];
        kinds.map(|kind| self.row(&ControlPlaneRow { kind: kind as u8, port: PORT })).to_vec()
    }

    /// A lookup table.
    #[must_use]
    pub fn table(self, id: TableId, table: &Lookup) -> RowChange {
        self.row(&rows::LookupRow { table: id.0, values: table.values, form: table.form })
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
        let job = config.job.0;
        let group = index + 1;
        let mut changes = Vec::with_capacity(2 * members.len() + 4);
        let tables = config.tables.iter();
        changes.extend(tables.map(|table| self.row(&JobTableRow { job, table: table.0, on_chip: None })));
        changes.extend(members.iter().flat_map(|&(worker, at)| self.member(config.job, worker, at.addr)));
        let replica =
            |worker: WorkerId| Replica { port: PORT.into(), port_bytes: None, instance: worker.0.into() };
        let replicas = members.iter().map(|&(worker, _)| replica(worker)).collect();
        let copies = MulticastGroup { replicas, metadata: Vec::new() };
        changes.push(RowChange::Group(group.into(), Some(copies)));
        changes.push(self.row(&JobRow {
            job,
            index,
            cookie: config.cookie.0,
            epoch,
            workers: config.workers,
            quorum: config.quorum,
            skip: config.skip,
            data_base: 0,
            data_slots: config.data_slots,
            norm_base: 0,
            norm_slots: config.norm_slots,
            group,
        }));
        changes
    }

    /// A member is at this address.
    #[must_use]
    pub fn member(self, job: JobId, worker: WorkerId, at: SocketAddr) -> [RowChange; 2] {
        let (job, worker) = (job.0, worker.0);
        [
            self.row(&MemberRow { job, worker, ingress_port: 0, at }),
            self.row(&AddressRow { job, worker, mac: [0; 6], at }),
        ]
    }

    /// The changes that end the session of the `index`th job, which has `workers` workers.
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
