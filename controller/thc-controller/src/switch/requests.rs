//! Requests to a switch: its program, its rows, its counters.

use super::Target;
use super::status::{Written, explain, read_refusal, refuses_updates, silence};
use crate::error::ControllerError;
use crate::switch_rows::{SwitchChanges, SwitchRows};
use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::get_forwarding_pipeline_config_request::ResponseType;
use p4runtime_proto::v1::set_forwarding_pipeline_config_request::Action;
use p4runtime_proto::v1::{
    CounterData, CounterEntry, Entity, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, Index,
    MeterConfig, MulticastGroupEntry, PacketReplicationEngineEntry, ReadRequest,
    SetForwardingPipelineConfigRequest, TableEntry, Update, WriteRequest, entity, forwarding_pipeline_config,
    packet_replication_engine_entry,
};
use prost::Message;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::Code;

/// Loading a program may take so many times what other answers may.
const LOADING: u32 = 10;
/// Bytes of updates in one request, unless one alone has more.
const MAX_WRITE: usize = 1 << 20;
/// Most updates of a request whose answer has a result for each, since that has to fit an HTTP/2 header.
const FEW_UPDATES: usize = 16;

impl Target {
    /// Sends the P4Info to a target with a built-in program, such as thc-ps, unless it has one.
    pub async fn load_if_none(&mut self) -> Result<(), ControllerError> {
        match self.loaded_cookie().await? {
            Some(_) => Ok(()),
            None => self.load(&[], 1).await,
        }
    }

    /// The cookie of the target's program, 0 if it came without one; `None` if it has no program, which only
    /// `FAILED_PRECONDITION` says. Other errors say nothing about that.
    pub async fn loaded_cookie(&mut self) -> Result<Option<u64>, ControllerError> {
        let config = self.program(ResponseType::CookieOnly, Code::FailedPrecondition).await?;
        Ok(config.map(|config| config.cookie.map_or(0, |cookie| cookie.cookie)))
    }

    /// The P4Info of its program; `None` if the switch does not report it.
    pub async fn p4info(&mut self) -> Result<Option<P4Info>, ControllerError> {
        let config = self.program(ResponseType::P4infoAndCookie, Code::Unimplemented).await?;
        Ok(config.and_then(|config| config.p4info))
    }

    /// Its pipeline configuration; `None` if it answers with this code.
    async fn program(
        &mut self,
        response_type: ResponseType,
        none: Code,
    ) -> Result<Option<ForwardingPipelineConfig>, ControllerError> {
        const REQUEST: &str = "asking for its program";
        let (device_id, response_type) = (self.device_id, response_type.into());
        let request = GetForwardingPipelineConfigRequest { device_id, response_type };
        let asked = self.client.get_forwarding_pipeline_config(request);
        match limit_time(&self.name, self.patience, REQUEST, asked).await? {
            Ok(answer) => Ok(Some(answer.into_inner().config.unwrap_or_default())),
            Err(status) if status.code() == none => Ok(None),
            Err(status) => Err(self.failure(REQUEST, &explain(&status))),
        }
    }

    /// Loads a program. The target holds nothing afterwards.
    pub async fn load(&mut self, device_config: &[u8], cookie: u64) -> Result<(), ControllerError> {
        const REQUEST: &str = "loading the program";
        let config = ForwardingPipelineConfig {
            p4info: Some(self.schema.info().clone()),
            p4_device_config: device_config.to_vec(),
            cookie: Some(forwarding_pipeline_config::Cookie { cookie }),
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            action: Action::VerifyAndCommit.into(),
            config: Some(config),
            ..SetForwardingPipelineConfigRequest::default()
        };
        let request = self.client.set_forwarding_pipeline_config(request);
        match limit_time(&self.name, LOADING * self.patience, REQUEST, request).await? {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure(REQUEST, &explain(&status))),
        }
    }

    /// Makes changes, each part when those before it are made, in as many requests as servers take: gRPC's take messages of 4 MiB
    /// by default. With `careful` each has only a few updates, so that the switch can say which it refuses. A request
    /// with a refused update is the last.
    pub async fn write(&mut self, changes: SwitchChanges, careful: bool) -> Result<Written, ControllerError> {
        let most = if careful { FEW_UPDATES } else { usize::MAX };
        for part in [changes.withdrawn, changes.others, changes.entered] {
            let mut updates = part.into_iter().peekable();
            while updates.peek().is_some() {
                let mut room = MAX_WRITE;
                let mut some = Vec::new();
                while let Some(update) = updates
                    .next_if(|next| some.is_empty() || (some.len() < most && next.encoded_len() <= room))
                {
                    room = room.saturating_sub(update.encoded_len());
                    some.push(update);
                }
                match self.write_some(some).await? {
                    Written::All => {}
                    refused => return Ok(refused),
                }
            }
        }
        Ok(Written::All)
    }

    async fn write_some(&mut self, updates: Vec<Update>) -> Result<Written, ControllerError> {
        let request = WriteRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            updates: updates.clone(),
            ..WriteRequest::default()
        };
        let request = self.client.write(request);
        match limit_time(&self.name, self.patience, "a write", request).await? {
            Ok(_) => Ok(Written::All),
            Err(status) if refuses_updates(status.code()) => Ok(read_refusal(&status, updates)),
            Err(status) => Err(self.failure("a write", &explain(&status))),
        }
    }

    /// All rows and groups that it holds in tables that this controller writes.
    pub async fn read_rows(&mut self) -> Result<SwitchRows, ControllerError> {
        let mut asked = Vec::new();
        for table_id in self.schema.written_tables() {
            for is_default_action in [false, true] {
                // Meters are in the answer if they are in the question; defaults have none.
                let meters = !is_default_action && self.schema.has_meters(table_id);
                let meter_config = meters.then(MeterConfig::default);
                let entry = TableEntry { table_id, is_default_action, meter_config, ..TableEntry::default() };
                asked.push(entity::Entity::TableEntry(entry));
            }
        }
        let all = MulticastGroupEntry::default();
        asked.push(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
            r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(all)),
        }));
        Ok(SwitchRows::read(self.read(asked).await?))
    }

    /// Cells of a counter: packets and bytes, in the order of the request. This is one request, however many
    /// there are.
    pub async fn counters(&mut self, name: &str, cells: &[u32]) -> Result<Vec<(u64, u64)>, ControllerError> {
        if cells.is_empty() {
            return Ok(Vec::new());
        }
        let counter_id = self.schema.info().counter(name)?.id();
        let entry = |index: Option<i64>| {
            let index = index.map(|index| Index { index });
            entity::Entity::CounterEntry(CounterEntry { counter_id, index, data: None })
        };
        let asked = match self.whole_counters {
            true => vec![entry(None)],
            false => cells.iter().map(|&cell| entry(Some(cell.into()))).collect(),
        };
        let entities = self.read(asked).await?;
        let places: BTreeMap<i64, usize> =
            cells.iter().zip(0..).map(|(&cell, place)| (cell.into(), place)).collect();
        let mut values = vec![(0, 0); cells.len()];
        for entity in entities {
            let Some(entity::Entity::CounterEntry(CounterEntry {
                index: Some(at), data: Some(data), ..
            })) = entity.entity
            else {
                continue;
            };
            let CounterData { byte_count, packet_count } = data;
            if let Some(&place) = places.get(&at.index) {
                values[place] = (packet_count.max(0) as u64, byte_count.max(0) as u64);
            }
        }
        Ok(values)
    }

    /// Each message of the answer may take as long as any other answer.
    async fn read(&mut self, asked: Vec<entity::Entity>) -> Result<Vec<Entity>, ControllerError> {
        let entities = asked.into_iter().map(|entity| Entity { entity: Some(entity) }).collect();
        let request = ReadRequest { device_id: self.device_id, entities, role: String::new() };
        let request = self.client.read(request);
        let mut answers = match limit_time(&self.name, self.patience, "a read", request).await? {
            Ok(answers) => answers.into_inner(),
            Err(status) => return Err(self.failure("a read", &explain(&status))),
        };
        let mut entities = Vec::new();
        loop {
            match limit_time(&self.name, self.patience, "a part of what is read", answers.message()).await? {
                Ok(Some(answer)) => entities.extend(answer.entities),
                Ok(None) => return Ok(entities),
                Err(status) => return Err(self.failure("a read", &explain(&status))),
            }
        }
    }

    fn failure(&self, request: &'static str, message: &str) -> ControllerError {
        ControllerError::target(&self.name, format!("{request} failed: {message}"))
    }
}

/// An answer, unless it takes too long.
async fn limit_time<T>(
    target: &str,
    patience: Duration,
    request: &'static str,
    answer: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<Result<T, tonic::Status>, ControllerError> {
    tokio::time::timeout(patience, answer).await.map_err(|_| silence(target, request, patience))
}
