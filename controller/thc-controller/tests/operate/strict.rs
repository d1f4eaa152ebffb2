//! A switch without a data plane: a P4Runtime server for any P4Info that refuses what the specification says a server
//! refuses, and keeps what it refused.

use p4runtime_proto::bytes::encode;
use p4runtime_proto::config::{P4Info, Table, action_ref, match_field};
use p4runtime_proto::rpc;
use p4runtime_proto::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, CounterData, CounterEntry, Entity, Error, FieldMatch,
    ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, Index,
    MasterArbitrationUpdate, MulticastGroupEntry, PacketIn, PacketMetadata, PacketReplicationEngineEntry,
    ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
    StreamMessageRequest, StreamMessageResponse, TableEntry, Uint128, Update, WriteRequest, WriteResponse,
    entity, field_match, packet_replication_engine_entry, set_forwarding_pipeline_config_request::Action,
    stream_message_request, stream_message_response, table_action, update,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};

type Key = (u32, Vec<(u32, Vec<u8>)>);
type Refused = (Code, String);
type Sink = mpsc::Sender<Result<StreamMessageResponse, Status>>;

/// What it holds.
#[derive(Default)]
pub struct State {
    info: P4Info,
    loaded: Option<ForwardingPipelineConfig>,
    entries: BTreeMap<Key, TableEntry>,
    defaults: BTreeMap<u32, TableEntry>,
    groups: BTreeMap<u32, MulticastGroupEntry>,
    controllers: Vec<(u128, Sink)>,
    /// How often all connections were ended: each one ends when this changes, whatever it is at then.
    ended: watch::Sender<u64>,
    /// Frames that controllers sent.
    pub sent: Vec<Vec<u8>>,
    /// What was refused.
    pub refused: Vec<String>,
    /// Updates that came.
    pub updates: usize,
    /// The longest request's bytes.
    pub longest: usize,
    /// What all cells have counted.
    pub count: i64,
    /// How often each counter was asked for.
    pub counters: BTreeMap<String, usize>,
    /// What goes wrong.
    pub faults: Faults,
    /// Programs that were loaded.
    pub loads: usize,
}

/// A row, as those who refuse it see it: its table's name and the first field of its key.
type Refuses = fn(&str, u128) -> bool;

/// What goes wrong at a switch.
#[derive(Default)]
pub struct Faults {
    /// Rows for which there is no room.
    pub full: Option<Refuses>,
    /// Reads of the counter of this name that fail from now on.
    pub counter: Option<(&'static str, usize)>,
    /// How questions for the program are answered from now on.
    pub program: Option<Code>,
    /// These requests are answered when it is no more so.
    pub hangs: Option<&'static str>,
    /// How long a row takes to be written.
    pub row: Duration,
}

/// A server on a free port, until it is dropped.
pub struct Strict {
    state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Clone)]
struct Service(Arc<Mutex<State>>);

fn refuse<T>(code: Code, message: impl Into<String>) -> Result<T, Refused> {
    Err((code, message.into()))
}

fn election(id: Option<Uint128>) -> u128 {
    id.map_or(0, |id| u128::from(id.high) << 64 | u128::from(id.low))
}

/// A number as the specification wants it: no more bytes than it needs, no more bits than there are.
fn number(what: &str, value: &[u8], bits: i32) -> Result<u128, Refused> {
    let number = value.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
    if value.is_empty() || value.len() > 16 || encode(number) != value {
        return refuse(
            Code::InvalidArgument,
            format!("{what}: {value:02x?} is not the shortest form of a number"),
        );
    }
    if bits > 0 && bits < 128 && number >> bits != 0 {
        return refuse(Code::OutOfRange, format!("{what}: {number} has more than {bits} bits"));
    }
    Ok(number)
}

impl State {
    fn table(&self, id: u32) -> Result<&Table, Refused> {
        let table = self.info.tables.iter().find(|table| table.id() == id);
        table.ok_or_else(|| (Code::NotFound, format!("no table {id}")))
    }

    fn key(table: &Table, fields: &[FieldMatch]) -> Result<Key, Refused> {
        let name = table.name();
        let mut key = Vec::new();
        for known in &table.match_fields {
            let mut found = fields.iter().filter(|field| field.field_id == known.id);
            let (Some(field), None) = (found.next(), found.next()) else {
                return refuse(Code::InvalidArgument, format!("{name}: {} is not there once", known.name));
            };
            let exact = matches!(known.r#match, Some(match_field::Match::MatchType(kind))
                if kind == match_field::MatchType::Exact as i32);
            let (true, Some(field_match::FieldMatchType::Exact(value))) = (exact, &field.field_match_type)
            else {
                return refuse(Code::InvalidArgument, format!("{name}.{} is not matched so", known.name));
            };
            number(&format!("{name}.{}", known.name), &value.value, known.bitwidth)?;
            key.push((known.id, value.value.clone()));
        }
        if fields.len() != table.match_fields.len() {
            return refuse(Code::InvalidArgument, format!("{name}: fields that it has not"));
        }
        Ok((table.id(), key))
    }

    fn action(&self, table: &Table, entry: &TableEntry) -> Result<(), Refused> {
        let name = table.name();
        let Some(table_action::Type::Action(action)) =
            entry.action.as_ref().and_then(|action| action.r#type.as_ref())
        else {
            return refuse(Code::InvalidArgument, format!("{name}: no action"));
        };
        let allowed = table.action_refs.iter().find(|one| one.id == action.action_id);
        let wrong = if entry.is_default_action {
            action_ref::Scope::TableOnly
        } else {
            action_ref::Scope::DefaultOnly
        };
        if allowed.is_none_or(|one| one.scope == wrong as i32) {
            return refuse(
                Code::PermissionDenied,
                format!("{name}: action {} may not be there", action.action_id),
            );
        }
        let Some(known) = self.info.actions.iter().find(|known| known.id() == action.action_id) else {
            return refuse(Code::NotFound, format!("no action {}", action.action_id));
        };
        if known.params.len() != action.params.len() {
            return refuse(Code::InvalidArgument, format!("{}: not all parameters, or more", known.name()));
        }
        for param in &known.params {
            let what = format!("{}.{}", known.name(), param.name);
            let Some(given) = action.params.iter().find(|given| given.param_id == param.id) else {
                return refuse(Code::InvalidArgument, format!("{what} is missing"));
            };
            number(&what, &given.value, param.bitwidth)?;
        }
        Ok(())
    }

    fn entry(&mut self, kind: update::Type, entry: TableEntry) -> Result<(), Refused> {
        let table = self.table(entry.table_id)?.clone();
        let name = table.name().to_owned();
        if table.is_const_table {
            return refuse(Code::PermissionDenied, format!("{name} is constant"));
        }
        if entry.is_default_action {
            if kind != update::Type::Modify || !entry.r#match.is_empty() {
                return refuse(Code::InvalidArgument, format!("{name}: a default can only be modified"));
            }
            if table.const_default_action_id != 0 {
                return refuse(Code::PermissionDenied, format!("{name} has a constant default action"));
            }
            self.action(&table, &entry)?;
            self.defaults.insert(entry.table_id, entry);
            return Ok(());
        }
        let has_meters = self.info.direct_meters.iter().any(|meter| meter.direct_table_id == table.id());
        if entry.meter_config.is_some() && !has_meters {
            return refuse(Code::InvalidArgument, format!("{name} has no meters"));
        }
        let key = State::key(&table, &entry.r#match)?;
        let there = self.entries.contains_key(&key);
        match kind {
            update::Type::Unspecified => refuse(Code::InvalidArgument, "an update without a type"),
            update::Type::Insert if there => refuse(Code::AlreadyExists, format!("{name}: {key:?}")),
            update::Type::Modify | update::Type::Delete if !there => {
                refuse(Code::NotFound, format!("{name}: {key:?}"))
            }
            update::Type::Delete => {
                self.entries.remove(&key);
                Ok(())
            }
            update::Type::Insert | update::Type::Modify => {
                self.action(&table, &entry)?;
                let first = key
                    .1
                    .first()
                    .map_or(0, |(_, value)| value.iter().fold(0, |n, &byte| n << 8 | u128::from(byte)));
                let alias = table.preamble.as_ref().map_or("", |preamble| &preamble.alias);
                if self.faults.full.is_some_and(|full| full(alias, first)) {
                    return refuse(Code::ResourceExhausted, format!("{name}: no place is left for this key"));
                }
                let rows = self.entries.range((key.0, Vec::new())..(key.0 + 1, Vec::new())).count();
                if !there && i64::try_from(rows).unwrap() >= table.size {
                    return refuse(Code::ResourceExhausted, format!("{name} has its {rows} rows"));
                }
                self.entries.insert(key, entry);
                Ok(())
            }
        }
    }

    fn update(&mut self, update: Update) -> Result<(), Refused> {
        let kind = update.r#type();
        match update.entity.and_then(|entity| entity.entity) {
            Some(entity::Entity::TableEntry(entry)) => self.entry(kind, entry),
            Some(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
                r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
            })) => {
                let number = group.multicast_group_id;
                let copies: BTreeSet<_> =
                    group.replicas.iter().map(|r| (format!("{:?}", r.port_kind), r.instance)).collect();
                match (kind, self.groups.contains_key(&number)) {
                    _ if number == 0 => refuse(Code::InvalidArgument, "group 0"),
                    _ if copies.len() != group.replicas.len() => {
                        refuse(Code::InvalidArgument, format!("group {number}: replicas twice"))
                    }
                    (update::Type::Insert, true) => refuse(Code::AlreadyExists, format!("group {number}")),
                    (update::Type::Modify | update::Type::Delete, false) => {
                        refuse(Code::NotFound, format!("group {number}"))
                    }
                    (update::Type::Delete, true) => {
                        self.groups.remove(&number);
                        Ok(())
                    }
                    _ => {
                        self.groups.insert(number, group);
                        Ok(())
                    }
                }
            }
            // Value sets among it, which neither Stratum nor PI's server takes.
            other => refuse(Code::Unimplemented, format!("{other:?}")),
        }
    }

    fn primary(&self) -> Option<&(u128, Sink)> {
        self.controllers.iter().filter(|(_, sink)| !sink.is_closed()).max_by_key(|(id, _)| *id)
    }

    fn read(&mut self, asked: entity::Entity) -> Result<Vec<entity::Entity>, Refused> {
        Ok(match asked {
            entity::Entity::TableEntry(entry) if entry.is_default_action => {
                self.table(entry.table_id)?;
                self.defaults
                    .get(&entry.table_id)
                    .cloned()
                    .map(entity::Entity::TableEntry)
                    .into_iter()
                    .collect()
            }
            entity::Entity::TableEntry(entry) => {
                if entry.table_id != 0 {
                    self.table(entry.table_id)?;
                }
                let of = |(key, _): &(&Key, &TableEntry)| entry.table_id == 0 || key.0 == entry.table_id;
                // Meters are in the answer if they are in the question.
                let answer = |(_, row): (&Key, &TableEntry)| {
                    let meter_config = row.meter_config.filter(|_| entry.meter_config.is_some());
                    entity::Entity::TableEntry(TableEntry { meter_config, ..row.clone() })
                };
                self.entries.iter().filter(of).map(answer).collect()
            }
            entity::Entity::PacketReplicationEngineEntry(_) => {
                let group = |group: &MulticastGroupEntry| {
                    let r#type = packet_replication_engine_entry::Type::MulticastGroupEntry(group.clone());
                    entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
                        r#type: Some(r#type),
                    })
                };
                self.groups.values().map(group).collect()
            }
            entity::Entity::CounterEntry(mut cell) => {
                let faulty = self.faults.counter.filter(|(name, left)| {
                    *left > 0 && self.info.counter(name).is_ok_and(|counter| counter.id() == cell.counter_id)
                });
                if let Some((name, left)) = faulty {
                    self.faults.counter = Some((name, left - 1));
                    return refuse(Code::Internal, "a bad moment");
                }
                let known = self.info.counters.iter().find(|known| known.id() == cell.counter_id);
                let Some(known) = known else {
                    return refuse(Code::NotFound, format!("no counter {}", cell.counter_id));
                };
                *self
                    .counters
                    .entry(known.preamble.as_ref().map_or("", |p| &p.alias).to_owned())
                    .or_default() += 1;
                let all = match cell.index.take() {
                    None => 0..known.size,
                    Some(Index { index }) if (0..known.size).contains(&index) => index..index + 1,
                    Some(Index { index }) => {
                        let text = format!("counter {} has no cell {index}", cell.counter_id);
                        return refuse(Code::OutOfRange, text);
                    }
                };
                let data = Some(CounterData { packet_count: self.count, byte_count: 0 });
                all.map(|index| {
                    let index = Some(Index { index });
                    entity::Entity::CounterEntry(CounterEntry { counter_id: cell.counter_id, index, data })
                })
                .collect()
            }
            other => return refuse(Code::Unimplemented, format!("{other:?}")),
        })
    }
}

impl Service {
    /// Waits for as long as such requests hang.
    async fn hang(&self, request: &str) {
        while self.state().faults.hangs == Some(request) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn write_rows(&self, request: WriteRequest) -> Result<Response<WriteResponse>, Status> {
        let mut state = self.state();
        state.longest = state.longest.max(request.encoded_len());
        if state.loaded.is_none() {
            return Err(Status::failed_precondition("no program"));
        }
        if state.primary().is_none_or(|(id, _)| *id != election(request.election_id)) {
            return Err(Status::permission_denied("not the primary controller"));
        }
        let mut details = Vec::new();
        let mut failed = false;
        for update in request.updates {
            state.updates += 1;
            let mut error = Error { canonical_code: Code::Ok as i32, ..Error::default() };
            if let Err((code, message)) = state.update(update) {
                failed = true;
                state.refused.push(message.clone());
                error = Error { canonical_code: code as i32, message, ..Error::default() };
            }
            details.push(prost_types::Any { type_url: String::new(), value: error.encode_to_vec() });
        }
        if failed {
            let all = rpc::Status { code: Code::Unknown as i32, message: String::new(), details };
            return Err(Status::with_details(Code::Unknown, "updates failed", all.encode_to_vec().into()));
        }
        Ok(Response::new(WriteResponse {}))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn status((code, message): Refused) -> Status {
    Status::new(code, message)
}

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;
    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        self.hang("write").await;
        let request = request.into_inner();
        let took = self.state().faults.row * request.updates.len() as u32;
        let answer = self.write_rows(request);
        tokio::time::sleep(took).await;
        answer
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        self.hang("read").await;
        let mut entities = Vec::new();
        {
            let mut state = self.state();
            if state.loaded.is_none() {
                return Err(Status::failed_precondition("no program"));
            }
            for asked in request.into_inner().entities {
                let Some(asked) = asked.entity else { return Err(Status::invalid_argument("nothing")) };
                entities.extend(state.read(asked).map_err(status)?);
            }
        }
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            for some in entities.chunks(1000) {
                let entities = some.iter().map(|entity| Entity { entity: Some(entity.clone()) }).collect();
                if sender.send(Ok(ReadResponse { entities })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        self.hang("load").await;
        let mut state = self.state();
        let request = request.into_inner();
        if request.action != Action::VerifyAndCommit as i32 {
            return Err(Status::unimplemented("a program is loaded anew or not at all"));
        }
        state.loads += 1;
        // Whatever there was is gone.
        state.entries.retain(|_, entry| entry.is_const);
        state.defaults.clear();
        let config = request.config;
        if config.as_ref().and_then(|config| config.p4info.as_ref()) != Some(&state.info) {
            state.refused.push("another P4Info".to_owned());
            return Err(Status::invalid_argument("another P4Info"));
        }
        state.loaded = config;
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        _: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        self.hang("program").await;
        let state = self.state();
        if let Some(code) = state.faults.program {
            return Err(Status::new(code, "a bad moment"));
        }
        let Some(config) = state.loaded.clone() else {
            return Err(Status::failed_precondition("no program"));
        };
        Ok(Response::new(GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        self.hang("stream").await;
        let mut stream = request.into_inner();
        let (sink, receiver) = mpsc::channel(64);
        let service = self.clone();
        let mut ended = self.state().ended.subscribe();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = stream.message() => message,
                    _ = ended.changed() => break,
                };
                let Ok(Some(message)) = message else { break };
                match message.update {
                    Some(stream_message_request::Update::Arbitration(hello)) => {
                        let id = election(hello.election_id);
                        let primary = {
                            let mut state = service.state();
                            state.controllers.retain(|(_, other)| !other.same_channel(&sink));
                            state.controllers.push((id, sink.clone()));
                            state.primary().is_some_and(|(highest, _)| *highest == id)
                        };
                        let code = if primary { Code::Ok } else { Code::AlreadyExists };
                        let status = rpc::Status { code: code as i32, ..rpc::Status::default() };
                        let answer = MasterArbitrationUpdate { status: Some(status), ..hello };
                        let update = Some(stream_message_response::Update::Arbitration(answer));
                        if sink.send(Ok(StreamMessageResponse { update })).await.is_err() {
                            break;
                        }
                    }
                    Some(stream_message_request::Update::Packet(packet)) => {
                        service.state().sent.push(packet.payload);
                    }
                    _ => {}
                }
            }
            service.state().controllers.retain(|(_, other)| !other.same_channel(&sink));
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        Ok(Response::new(CapabilitiesResponse { p4runtime_api_version: "1.4.1".to_owned() }))
    }
}

impl Strict {
    /// With this program to load, and rows of its constant tables.
    pub fn start(info: P4Info) -> Strict {
        let state = State { info, ..State::default() };
        let strict = Service(Arc::new(Mutex::new(state)));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(P4RuntimeServer::new(strict.clone()));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let strict = Strict { state: strict.0, address, runtime: Some(runtime) };
        strict.furnish();
        strict
    }

    /// What is there before any controller: a row in each constant table, and another program's group.
    fn furnish(&self) {
        let mut state = self.state();
        let tables: Vec<u32> = state.info.tables.iter().filter(|t| t.is_const_table).map(Table::id).collect();
        for table_id in tables {
            let entry = TableEntry { table_id, is_const: true, ..TableEntry::default() };
            state.entries.insert((table_id, vec![(0, vec![1])]), entry);
        }
        let group = MulticastGroupEntry { multicast_group_id: 999, ..MulticastGroupEntry::default() };
        state.groups.insert(999, group);
    }

    /// What it holds.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a program that somebody else has loaded.
    pub fn has_program(&self, info: P4Info) {
        let p4info = Some(info);
        self.state().loaded =
            Some(ForwardingPipelineConfig { p4info, ..ForwardingPipelineConfig::default() });
    }

    /// It was off: everything is gone, and controllers must connect anew.
    pub fn restart(&self) {
        {
            let mut state = self.state();
            let info = std::mem::take(&mut state.info);
            let refused = std::mem::take(&mut state.refused);
            let faults = std::mem::take(&mut state.faults);
            *state = State { info, refused, faults, ..State::default() };
        }
        self.furnish();
    }

    /// Rows of the tables whose names begin so.
    pub fn rows(&self, name: &str) -> usize {
        let state = self.state();
        let of = |id: u32| {
            let table =
                state.info.tables.iter().find(|table| table.id() == id).and_then(|t| t.preamble.as_ref());
            table.is_some_and(|preamble| {
                preamble.alias == name || (name.ends_with('_') && preamble.alias.starts_with(name))
            })
        };
        state.entries.keys().filter(|(id, _)| of(*id)).count()
    }

    /// The parameters of the rows of a table, by name, and its key's fields.
    pub fn values(&self, name: &str) -> Vec<BTreeMap<String, u128>> {
        let state = self.state();
        let table = state.info.table(name).unwrap();
        let rows = state.entries.iter().filter(|((id, _), _)| *id == table.id()).map(|(_, entry)| entry);
        rows.chain(state.defaults.get(&table.id()))
            .map(|entry| {
                let mut values = BTreeMap::new();
                let value = |bytes: &[u8]| bytes.iter().fold(0_u128, |n, &byte| n << 8 | u128::from(byte));
                for field in &entry.r#match {
                    let known = table.match_fields.iter().find(|known| known.id == field.field_id).unwrap();
                    let Some(field_match::FieldMatchType::Exact(exact)) = &field.field_match_type else {
                        continue;
                    };
                    values.insert(known.name.clone(), value(&exact.value));
                }
                if let Some(table_action::Type::Action(action)) =
                    entry.action.as_ref().and_then(|a| a.r#type.as_ref())
                {
                    let known =
                        state.info.actions.iter().find(|known| known.id() == action.action_id).unwrap();
                    for param in &action.params {
                        let name = known.params.iter().find(|known| known.id == param.param_id).unwrap();
                        values.insert(name.name.clone(), value(&param.value));
                    }
                }
                values
            })
            .collect()
    }

    /// Copies of a group: ports and instances.
    pub fn group(&self, number: u32) -> Option<usize> {
        self.state().groups.get(&number).map(|group| group.replicas.len())
    }

    /// Somebody else deletes the rows of a table whose keys begin so.
    pub fn delete(&self, name: &str, first: u128) {
        let mut state = self.state();
        let id = state.info.table(name).unwrap().id();
        let begins = |key: &[(u32, Vec<u8>)]| key.first().is_some_and(|(_, value)| *value == encode(first));
        state.entries.retain(|(table, key), _| *table != id || !begins(key));
    }

    /// Somebody else changes the first row of a table whose name begins so: its values become 1.
    pub fn disturb(&self, name: &str) {
        let mut state = self.state();
        let begins = |table: &&Table| table.preamble.as_ref().is_some_and(|p| p.alias.starts_with(name));
        let id = state.info.tables.iter().find(begins).unwrap().id();
        let row = state.entries.iter_mut().find(|((of, _), _)| *of == id).unwrap().1;
        if let Some(table_action::Type::Action(action)) = row.action.as_mut().and_then(|a| a.r#type.as_mut())
        {
            action.params[0].value = vec![1];
        }
    }

    /// Ends all connections, as if the network had: controllers come back.
    pub fn cut(&self) {
        let mut state = self.state();
        state.ended.send_modify(|ended| *ended += 1);
        state.controllers.clear();
    }

    /// Has a frame that came by a port come to the control plane's. Without a primary controller it is lost.
    pub fn packet_in(&self, port: u16, frame: Vec<u8>) {
        let sink = self.state().primary().map(|(_, sink)| sink.clone());
        // The one field of the programs' header.
        let metadata = vec![PacketMetadata { metadata_id: 1, value: encode(port.into()) }];
        let packet = PacketIn { payload: frame, metadata };
        let update = Some(stream_message_response::Update::Packet(packet));
        if let Some(sink) = sink {
            // Nor is one that goes away meanwhile anybody's loss.
            let _ = sink.blocking_send(Ok(StreamMessageResponse { update }));
        }
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
