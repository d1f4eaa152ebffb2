//! Write: a batch of updates, each with a result of its own.

use p4runtime_proto::v1::{Update, WriteRequest, entity, write_request};
use thc_protocol::JobId;
use tonic::{Code, Status};

use super::device::{Device, check_running, refuse_stopping};
use super::entries::{group_change, table_change};
use super::refusal::{Refusal, batch_status, refuse};
use crate::forwarding::Forwarding;
use crate::rows::RowChange;

impl Device {
    /// Makes the updates of a batch; the shards see all of them at once.
    ///
    /// # Errors
    /// The refusal of the whole batch, or a status with the result of each update.
    pub fn write(&self, request: WriteRequest) -> Result<(), Status> {
        self.check_writer(request.device_id, (request.role_id, &request.role), request.election_id)?;
        self.write_batch(&request)
    }

    /// Makes the updates of a batch without a check of the writer.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_batch(&self, request: &WriteRequest) -> Result<(), Status> {
        use write_request::Atomicity;
        let state = self.state();
        check_running(&state.pipeline)?;
        let rollback = match request.atomicity() {
            Atomicity::ContinueOnError => false,
            Atomicity::RollbackOnError => true,
            Atomicity::DataplaneAtomic => {
                let message =
                    "each shard changes at once, but not all shards together: use another atomicity";
                return Err(Status::unimplemented(message));
            }
        };
        let mut forwarding = self.forwarding.lock();
        let before = forwarding.snapshot();
        let mut results: Vec<_> =
            request.updates.iter().map(|update| self.update(&mut forwarding, update)).collect();
        if rollback && results.iter().any(Result::is_err) {
            forwarding.restore(before);
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = refuse(Code::Aborted, "rolled back because of another update");
            }
            return batch_status(&results);
        }
        drop(before);
        if !forwarding.commit() {
            return Ok(refuse_stopping()?);
        }
        batch_status(&results)
    }

    fn update(&self, forwarding: &mut Forwarding, update: &Update) -> Result<(), Refusal> {
        use entity::Entity;
        let kind = update.r#type();
        let entity = update.entity.as_ref().and_then(|entity| entity.entity.as_ref());
        let Some(entity) = entity else { return refuse(Code::InvalidArgument, "the update has no entity") };
        match entity {
            Entity::TableEntry(entry) => {
                let change = table_change(self.program, forwarding.store(), kind, entry)?;
                self.change(forwarding, change)
            }
            Entity::PacketReplicationEngineEntry(entry) => {
                let change = group_change(forwarding.store(), kind, entry)?;
                self.change(forwarding, change)
            }
            other => refuse(Code::Unimplemented, not_there(other)),
        }
    }

    /// Makes a change unless rows then contradict each other.
    fn change(&self, forwarding: &mut Forwarding, change: RowChange) -> Result<(), Refusal> {
        let known = self.program.known;
        let (checked, job) = match &change {
            RowChange::Row(table, key, Some(_)) if *table == known.jobs || *table == known.job_tables => {
                (true, Some(JobId(key[0] as u16)))
            }
            RowChange::Row(table, ..) => (*table == known.lookup, None),
            _ => (false, None),
        };
        let undo = forwarding.exchange(change);
        if checked && let Err(error) = forwarding.check(job) {
            forwarding.exchange(undo);
            return Err(error.into());
        }
        Ok(())
    }
}

/// The refusal for entities that the program or this server does not have.
#[must_use]
pub fn not_there(entity: &entity::Entity) -> &'static str {
    use entity::Entity;
    match entity {
        Entity::CounterEntry(_) => "counters are read, not written",
        Entity::RegisterEntry(_) => "registers are not served, as by BMv2",
        Entity::ActionProfileMember(_) | Entity::ActionProfileGroup(_) => {
            "the program has no action profiles"
        }
        Entity::MeterEntry(_) | Entity::DirectMeterEntry(_) => "the program has no meters",
        Entity::DirectCounterEntry(_) => "the program's tables have no counters of their own",
        Entity::ValueSetEntry(_) => "the program has no value sets",
        Entity::DigestEntry(_) => "the program has no digests",
        _ => "this is not served",
    }
}
