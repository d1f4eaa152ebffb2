//! The connection to one switch: P4Runtime as its primary controller.

mod status;
mod written;

pub use written::{RefusedUpdate, Written};

use status::{advice, explain, read_refusal, refuses_updates, silence};

use crate::config::TargetConfig;
use crate::error::{ControllerError, causes};
use crate::schema::Schema;
use crate::switch_rows::SwitchRows;
use crate::tls;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{
    CounterData, CounterEntry, Entity, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, Index,
    MasterArbitrationUpdate, MeterConfig, MulticastGroupEntry, PacketOut, PacketReplicationEngineEntry,
    ReadRequest, SetForwardingPipelineConfigRequest, StreamMessageRequest, StreamMessageResponse, TableEntry,
    Uint128, Update, WriteRequest, entity, forwarding_pipeline_config,
    get_forwarding_pipeline_config_request, packet_replication_engine_entry,
    set_forwarding_pipeline_config_request::Action, stream_message_request, stream_message_response,
};
use prost::Message;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

/// Loading a program may take so many times what other answers may.
const LOADING: u32 = 10;
/// How often a silent connection is tried.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Messages that may wait to be sent.
const ROOM: usize = 64;
/// The largest message: a pipeline configuration is a compiled program. Far above the size of BMv2's.
const MAX_MESSAGE: usize = 64 << 20;
/// Bytes of updates in one request, unless one alone has more.
const MAX_WRITE: usize = 1 << 20;
/// Most updates of a request whose answer has a result for each, since that has to fit an HTTP/2 header.
const FEW_UPDATES: usize = 16;

/// What a switch says by itself.
#[derive(Debug, PartialEq, Eq)]
pub enum SwitchEvent {
    /// A packet for the control plane, from Ethernet on.
    Packet(Vec<u8>),
    /// This controller is the primary one.
    Primary,
    /// It is not, for this reason.
    Secondary(String),
    /// The connection is over, for this reason if the switch gave one.
    Closed(String),
}

/// Requests of one kind that were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// How long that took together.
    pub took: Duration,
}

/// A switch.
#[derive(Debug)]
pub struct Target {
    name: String,
    /// How long it may take to answer.
    patience: Duration,
    device_id: u64,
    election_id: Uint128,
    schema: Schema,
    whole_counters: bool,
    requests: BTreeMap<&'static str, Requests>,
    client: P4RuntimeClient<Channel>,
    sender: mpsc::Sender<StreamMessageRequest>,
    stream: Streaming<StreamMessageResponse>,
}

impl Target {
    /// Connects and asks to be the switch's primary controller. Returns why it is not, unless it is.
    ///
    /// # Errors
    /// [`ControllerError::Connect`], [`ControllerError::Tls`], [`ControllerError::Closed`], [`ControllerError::Silent`].
    pub async fn connect(config: &TargetConfig) -> Result<(Target, Option<String>), ControllerError> {
        let connected = Target::connect_now(config);
        tokio::time::timeout(config.patience, connected)
            .await
            .unwrap_or_else(|_| Err(silence(&config.name, "connecting", config.patience)))
    }

    async fn connect_now(config: &TargetConfig) -> Result<(Target, Option<String>), ControllerError> {
        let failed = |error: &(dyn std::error::Error + 'static)| ControllerError::Connect {
            target: config.name.clone(),
            address: config.address.clone(),
            message: causes(error),
            mend: advice(config, error),
        };
        let mut endpoint = Endpoint::from_shared(config.address.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(config.patience)
            // A target that is cut off is noticed.
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_keepalive(Some(KEEP_ALIVE));
        if config.address.starts_with("https://") {
            endpoint = endpoint.tls_config(tls::client_config(config)?).map_err(|error| failed(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
        let mut client = P4RuntimeClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let election_id = Uint128 { high: (config.election_id >> 64) as u64, low: config.election_id as u64 };
        let (sender, receiver) = mpsc::channel(ROOM);
        let update = Some(hello(config.device_id, election_id));
        let closed = |message| ControllerError::Closed { target: config.name.clone(), message };
        sender.send(StreamMessageRequest { update }).await.map_err(|_| closed(String::new()))?;
        let stream = client
            .stream_channel(ReceiverStream::new(receiver))
            .await
            .map_err(|status| match status.source() {
                Some(cause) => failed(cause),
                None => failed(&status),
            })?
            .into_inner();
        let mut target = Target {
            name: config.name.clone(),
            patience: config.patience,
            device_id: config.device_id,
            election_id,
            schema: config.schema.clone(),
            whole_counters: config.program.has_whole_counters(),
            requests: BTreeMap::new(),
            client,
            sender,
            stream,
        };
        match target.event().await {
            SwitchEvent::Primary => Ok((target, None)),
            SwitchEvent::Secondary(why) => Ok((target, Some(why))),
            SwitchEvent::Closed(message) => Err(closed(message)),
            SwitchEvent::Packet(_) => Err(closed("it sent a packet before its answer".to_owned())),
        }
    }

    /// The switch's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's names.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The requests to it so far, by kind.
    #[must_use]
    pub fn requests(&self) -> &BTreeMap<&'static str, Requests> {
        &self.requests
    }

    /// Waits for what the switch says next.
    pub async fn event(&mut self) -> SwitchEvent {
        loop {
            let message = match self.stream.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return SwitchEvent::Closed(String::new()),
                Err(status) => return SwitchEvent::Closed(explain(&status)),
            };
            match message.update {
                Some(stream_message_response::Update::Packet(packet)) => {
                    return SwitchEvent::Packet(packet.payload);
                }
                Some(stream_message_response::Update::Arbitration(update)) => {
                    let code = update.status.map_or(0, |status| status.code);
                    if code == Code::Ok as i32 {
                        return SwitchEvent::Primary;
                    }
                    let number = |id: Uint128| u128::from(id.high) << 64 | u128::from(id.low);
                    let (highest, own) =
                        (number(update.election_id.unwrap_or_default()), number(self.election_id));
                    let holder = if code == Code::NotFound as i32 {
                        "the primary controller is gone, whose election id was"
                    } else {
                        "another controller is its primary, whose election id is"
                    };
                    return SwitchEvent::Secondary(format!(
                        "{holder} {highest}, and this one's is {own}: stop that one or give a higher election_id"
                    ));
                }
                Some(stream_message_response::Update::Error(error)) => {
                    tracing::warn!(target = self.name, "a message was refused: {}", error.message);
                }
                None => {}
            }
        }
    }

    /// Sends a frame, as if it came in at the controller's port.
    ///
    /// # Errors
    /// [`ControllerError::Closed`], [`ControllerError::Silent`].
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), ControllerError> {
        let packet = PacketOut { payload: frame, metadata: Vec::new() };
        self.say(stream_message_request::Update::Packet(packet)).await
    }

    /// Waits for room for a message: a switch that takes none has none in the end.
    async fn say(&self, update: stream_message_request::Update) -> Result<(), ControllerError> {
        let sent = self.sender.send(StreamMessageRequest { update: Some(update) });
        match tokio::time::timeout(self.patience, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ControllerError::Closed { target: self.name.clone(), message: String::new() }),
            Err(_) => Err(silence(&self.name, "a message", self.patience)),
        }
    }

    /// Loads a program.
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::Silent`].
    pub async fn load(&mut self, device_config: &[u8], cookie: u64) -> Result<(), ControllerError> {
        self.set_program(device_config.to_vec(), cookie, Action::VerifyAndCommit).await?;
        Ok(())
    }

    /// Replaces the program and keeps what the target holds. Returns false if the target does not support
    /// that; then it is unchanged.
    ///
    /// # Errors
    /// As [`Target::load`].
    pub async fn reconcile(&mut self, device_config: &[u8], cookie: u64) -> Result<bool, ControllerError> {
        self.set_program(device_config.to_vec(), cookie, Action::ReconcileAndCommit).await
    }

    /// Sends the P4Info to a target with a built-in program, such as thc-ps, unless it has one.
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::Silent`].
    pub async fn load_if_none(&mut self) -> Result<(), ControllerError> {
        match self.loaded_cookie().await? {
            Some(_) => Ok(()),
            None => self.load(&[], 1).await,
        }
    }

    /// The cookie of the target's program, 0 if it came without one; `None` if it has no program, which only
    /// `FAILED_PRECONDITION` says. Other errors say nothing about that.
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::Silent`].
    pub async fn loaded_cookie(&mut self) -> Result<Option<u64>, ControllerError> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: get_forwarding_pipeline_config_request::ResponseType::CookieOnly.into(),
        };
        let asked = self.client.get_forwarding_pipeline_config(request);
        let whose = (self.name.as_str(), &mut self.requests);
        match limit_time(whose, self.patience, ASKING_PROGRAM, asked).await? {
            Ok(answer) => {
                let cookie = answer.into_inner().config.and_then(|config| config.cookie);
                Ok(Some(cookie.map_or(0, |cookie| cookie.cookie)))
            }
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(status) => Err(self.failure(ASKING_PROGRAM, &explain(&status))),
        }
    }

    /// The P4Info of its program; `None` if the switch does not report it.
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::Silent`].
    pub async fn p4info(&mut self) -> Result<Option<P4Info>, ControllerError> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: get_forwarding_pipeline_config_request::ResponseType::P4infoAndCookie.into(),
        };
        let asked = self.client.get_forwarding_pipeline_config(request);
        let whose = (self.name.as_str(), &mut self.requests);
        match limit_time(whose, self.patience, ASKING_PROGRAM, asked).await? {
            Ok(answer) => Ok(answer.into_inner().config.and_then(|config| config.p4info)),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(self.failure(ASKING_PROGRAM, &explain(&status))),
        }
    }

    /// False if it does not know how to do it in this way.
    async fn set_program(
        &mut self,
        device_config: Vec<u8>,
        cookie: u64,
        action: Action,
    ) -> Result<bool, ControllerError> {
        let config = ForwardingPipelineConfig {
            p4info: Some(self.schema.info().clone()),
            p4_device_config: device_config,
            cookie: Some(forwarding_pipeline_config::Cookie { cookie }),
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            action: action.into(),
            config: Some(config),
            ..SetForwardingPipelineConfigRequest::default()
        };
        let request = self.client.set_forwarding_pipeline_config(request);
        let whose = (self.name.as_str(), &mut self.requests);
        match limit_time(whose, LOADING * self.patience, "loading the program", request).await? {
            Ok(_) => Ok(true),
            Err(status) if action == Action::ReconcileAndCommit && status.code() == Code::Unimplemented => {
                Ok(false)
            }
            Err(status) => Err(self.failure("loading the program", &explain(&status))),
        }
    }

    /// Writes updates in their order, in as many requests as servers take: gRPC's take messages of 4 MiB unless told otherwise.
    /// With `careful` each has only a few, so that the switch can say which it refuses. A request with a
    /// refused update is the last.
    ///
    /// # Errors
    /// [`ControllerError::Request`]: the switch takes no updates at all. [`ControllerError::Silent`].
    pub async fn write(&mut self, updates: Vec<Update>, careful: bool) -> Result<Written, ControllerError> {
        let mut updates = updates.into_iter().peekable();
        let most = if careful { FEW_UPDATES } else { usize::MAX };
        while updates.peek().is_some() {
            let mut room = MAX_WRITE;
            let mut some = Vec::new();
            while let Some(update) =
                updates.next_if(|next| some.is_empty() || (some.len() < most && next.encoded_len() <= room))
            {
                room = room.saturating_sub(update.encoded_len());
                some.push(update);
            }
            match self.write_some(some).await? {
                Written::All => {}
                refused => return Ok(refused),
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
        let whose = (self.name.as_str(), &mut self.requests);
        match limit_time(whose, self.patience, "a write", request).await? {
            Ok(_) => Ok(Written::All),
            Err(status) if refuses_updates(status.code()) => Ok(read_refusal(&status, updates)),
            Err(status) => Err(self.failure("a write", &explain(&status))),
        }
    }

    /// All rows and groups that it holds in tables that this controller writes.
    ///
    /// # Errors
    /// [`ControllerError::Request`].
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
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::P4Info`].
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
        let whose = (self.name.as_str(), &mut self.requests);
        let mut answers = match limit_time(whose, self.patience, "a read", request).await? {
            Ok(answers) => answers.into_inner(),
            Err(status) => return Err(self.failure("a read", &explain(&status))),
        };
        let mut entities = Vec::new();
        loop {
            let whose = (self.name.as_str(), &mut self.requests);
            match limit_time(whose, self.patience, "a part of what is read", answers.message()).await? {
                Ok(Some(answer)) => entities.extend(answer.entities),
                Ok(None) => return Ok(entities),
                Err(status) => return Err(self.failure("a read", &explain(&status))),
            }
        }
    }

    fn failure(&self, request: &'static str, message: &str) -> ControllerError {
        ControllerError::Request { target: self.name.clone(), request, message: message.to_owned() }
    }
}

/// What a switch is asked when its program is asked for.
const ASKING_PROGRAM: &str = "asking for its program";

/// An answer, unless it takes too long. How long it takes is noted.
async fn limit_time<T>(
    (target, requests): (&str, &mut BTreeMap<&'static str, Requests>),
    patience: Duration,
    request: &'static str,
    answer: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<Result<T, tonic::Status>, ControllerError> {
    let began = Instant::now();
    let answer = tokio::time::timeout(patience, answer).await;
    let noted = requests.entry(request).or_default();
    (noted.count, noted.took) = (noted.count + 1, noted.took + began.elapsed());
    answer.map_err(|_| silence(target, request, patience))
}

fn hello(device_id: u64, election_id: Uint128) -> stream_message_request::Update {
    stream_message_request::Update::Arbitration(MasterArbitrationUpdate {
        device_id,
        role: None,
        election_id: Some(election_id),
        status: None,
    })
}
