//! The connection to one switch: P4Runtime as its primary controller.

use crate::capacity::{self, Forms};
use crate::config::TargetConfig;
use crate::error::{ControllerError, causes, has_io};
use crate::schema::Schema;
use crate::tls;
use crate::wanted::Wanted;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::rpc::Status;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{
    CounterData, CounterEntry, Entity, Error, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
    Index, MasterArbitrationUpdate, MulticastGroupEntry, PacketOut, PacketReplicationEngineEntry,
    ReadRequest, SetForwardingPipelineConfigRequest, StreamMessageRequest, StreamMessageResponse, TableEntry,
    Uint128, Update, WriteRequest, entity, forwarding_pipeline_config,
    get_forwarding_pipeline_config_request, packet_replication_engine_entry,
    set_forwarding_pipeline_config_request, stream_message_request, stream_message_response,
};
use prost::Message;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::Duration;
use thc_options::credit::Room;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

/// How long a switch may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a silent connection is tried.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Messages that may wait to be sent.
const ROOM: usize = 64;
/// A pipeline configuration is a compiled program; far above what BMv2's take.
const MAX_MESSAGE: usize = 64 << 20;
/// Bytes of updates in one request, unless one alone has more.
const MAX_WRITE: usize = 1 << 20;

/// What a switch says by itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet for the control plane, from Ethernet on.
    Packet(Vec<u8>),
    /// Whether this controller is the primary one.
    Primary(bool),
    /// There is no primary one any more; who wants to be it needs an election id above this one.
    Vacant(u64),
    /// The connection is over.
    Closed,
}

/// A switch.
#[derive(Debug)]
pub struct Target {
    name: String,
    device_id: u64,
    election_id: Uint128,
    schema: Schema,
    client: P4RuntimeClient<Channel>,
    sender: mpsc::Sender<StreamMessageRequest>,
    stream: Streaming<StreamMessageResponse>,
}

impl Target {
    /// Connects and asks to be the switch's primary controller. Whether it is.
    ///
    /// # Errors
    /// [`ControllerError::Connect`], [`ControllerError::Tls`], [`ControllerError::Closed`].
    pub async fn connect(config: &TargetConfig) -> Result<(Target, bool), ControllerError> {
        let failed = |error: &(dyn std::error::Error + 'static)| ControllerError::Connect {
            target: config.name.clone(),
            address: config.address.clone(),
            message: causes(error),
            mend: mend(config, error),
        };
        let mut endpoint = Endpoint::from_shared(config.address.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(PATIENCE)
            // A target that is cut off is noticed.
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_keepalive(Some(KEEP_ALIVE));
        if config.address.starts_with("https://") {
            endpoint = endpoint.tls_config(tls::of_target(config)?).map_err(|error| failed(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
        let mut client = P4RuntimeClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let election_id = Uint128 { high: 0, low: config.election_id };
        let (sender, receiver) = mpsc::channel(ROOM);
        let update = Some(hello(config.device_id, election_id));
        let closed = || ControllerError::Closed { target: config.name.clone() };
        sender.send(StreamMessageRequest { update }).await.map_err(|_| closed())?;
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
            device_id: config.device_id,
            election_id,
            schema: config.schema.clone(),
            client,
            sender,
            stream,
        };
        let answer = tokio::time::timeout(PATIENCE, target.event()).await;
        match answer {
            Ok(Event::Primary(primary)) => Ok((target, primary)),
            Ok(Event::Vacant(highest)) => {
                target.claim(highest).await?;
                Ok((target, false))
            }
            Ok(_) => Err(closed()),
            Err(_) => Err(target.failure("arbitration", "no answer")),
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

    /// Waits for what the switch says next.
    pub async fn event(&mut self) -> Event {
        loop {
            let Ok(Some(message)) = self.stream.message().await else { return Event::Closed };
            match message.update {
                Some(stream_message_response::Update::Packet(packet)) => {
                    return Event::Packet(packet.payload);
                }
                Some(stream_message_response::Update::Arbitration(update)) => {
                    let code = update.status.map_or(0, |status| status.code);
                    if code == Code::NotFound as i32 {
                        return Event::Vacant(update.election_id.map_or(0, |id| id.low));
                    }
                    return Event::Primary(code == Code::Ok as i32);
                }
                Some(stream_message_response::Update::Error(error)) => {
                    tracing::warn!(target = self.name, "a message was refused: {}", error.message);
                }
                None => {}
            }
        }
    }

    /// Asks to be the primary controller in place of one whose election id was this.
    ///
    /// # Errors
    /// [`ControllerError::Closed`].
    pub async fn claim(&mut self, highest: u64) -> Result<(), ControllerError> {
        self.election_id.low = self.election_id.low.max(highest.saturating_add(1));
        let update = Some(hello(self.device_id, self.election_id));
        let sent = self.sender.send(StreamMessageRequest { update }).await;
        sent.map_err(|_| ControllerError::Closed { target: self.name.clone() })
    }

    /// Sends a frame, as if it came in at the controller's port.
    ///
    /// # Errors
    /// [`ControllerError::Closed`].
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), ControllerError> {
        let packet = PacketOut { payload: frame, metadata: Vec::new() };
        let update = Some(stream_message_request::Update::Packet(packet));
        let sent = self.sender.send(StreamMessageRequest { update }).await;
        sent.map_err(|_| ControllerError::Closed { target: self.name.clone() })
    }

    /// Loads the program unless the switch has it already. Whether it was loaded.
    ///
    /// # Errors
    /// [`ControllerError::Request`].
    pub async fn load(&mut self, device_config: &[u8], cookie: u64) -> Result<bool, ControllerError> {
        if self.loaded().await == Some(cookie) {
            return Ok(false);
        }
        self.set_program(device_config.to_vec(), cookie).await?;
        Ok(true)
    }

    /// Tells a target that has its program built in, as thc-ps, which P4Info is meant, unless it knows one.
    ///
    /// # Errors
    /// [`ControllerError::Request`].
    pub async fn load_if_none(&mut self) -> Result<(), ControllerError> {
        match self.loaded().await {
            Some(_) => Ok(()),
            None => self.set_program(Vec::new(), 1).await,
        }
    }

    /// The cookie of the program that the target has.
    async fn loaded(&mut self) -> Option<u64> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: get_forwarding_pipeline_config_request::ResponseType::CookieOnly.into(),
        };
        // A switch without a program refuses the question.
        let answer = self.client.get_forwarding_pipeline_config(request).await.ok()?;
        Some(answer.into_inner().config?.cookie.map_or(0, |cookie| cookie.cookie))
    }

    /// The packets that the target does, those that it holds, and whether it tells marks, as its own P4Info says.
    pub async fn says(&mut self) -> (Option<Forms>, Option<Room>, bool) {
        let info = self.p4info().await;
        let info = info.as_ref();
        (info.map(Forms::of), info.and_then(capacity::room), info.is_some_and(capacity::marks))
    }

    async fn p4info(&mut self) -> Option<P4Info> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: get_forwarding_pipeline_config_request::ResponseType::P4infoAndCookie.into(),
        };
        let answer = self.client.get_forwarding_pipeline_config(request).await.ok()?;
        answer.into_inner().config?.p4info
    }

    async fn set_program(&mut self, device_config: Vec<u8>, cookie: u64) -> Result<(), ControllerError> {
        let config = ForwardingPipelineConfig {
            p4info: Some(self.schema.info().clone()),
            p4_device_config: device_config,
            cookie: Some(forwarding_pipeline_config::Cookie { cookie }),
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            action: set_forwarding_pipeline_config_request::Action::VerifyAndCommit.into(),
            config: Some(config),
            ..SetForwardingPipelineConfigRequest::default()
        };
        match self.client.set_forwarding_pipeline_config(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure("loading the program", &explain(&status))),
        }
    }

    /// Writes updates in their order, in as many requests as servers take: gRPC's take messages of 4 MiB unless told otherwise.
    ///
    /// # Errors
    /// [`ControllerError::Request`] with what the switch says of each update that it refused.
    pub async fn write(&mut self, updates: Vec<Update>) -> Result<(), ControllerError> {
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let mut room = MAX_WRITE;
            let mut some = Vec::new();
            while let Some(update) = updates.next_if(|next| some.is_empty() || next.encoded_len() <= room) {
                room = room.saturating_sub(update.encoded_len());
                some.push(update);
            }
            self.write_some(some).await?;
        }
        Ok(())
    }

    async fn write_some(&mut self, updates: Vec<Update>) -> Result<(), ControllerError> {
        let request = WriteRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            updates,
            ..WriteRequest::default()
        };
        match self.client.write(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure("a write", &explain(&status))),
        }
    }

    /// All rows and groups that it holds in tables that this controller writes.
    ///
    /// # Errors
    /// [`ControllerError::Request`].
    pub async fn held(&mut self) -> Result<Wanted, ControllerError> {
        let mut asked = Vec::new();
        for table_id in self.schema.written() {
            for is_default_action in [false, true] {
                let entry = TableEntry { table_id, is_default_action, ..TableEntry::default() };
                asked.push(entity::Entity::TableEntry(entry));
            }
        }
        let all = MulticastGroupEntry::default();
        asked.push(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
            r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(all)),
        }));
        Ok(Wanted::read(self.read(asked).await?))
    }

    /// Cells of a counter: packets and bytes, in the order asked for.
    ///
    /// # Errors
    /// [`ControllerError::Request`], [`ControllerError::P4Info`].
    pub async fn counters(&mut self, name: &str, cells: &[u32]) -> Result<Vec<(u64, u64)>, ControllerError> {
        if cells.is_empty() {
            return Ok(Vec::new());
        }
        let counter_id = self.schema.info().counter(name)?.id();
        let asked = cells.iter().map(|&index| {
            let index = Some(Index { index: index.into() });
            entity::Entity::CounterEntry(CounterEntry { counter_id, index, data: None })
        });
        let entities = self.read(asked.collect()).await?;
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

    async fn read(&mut self, asked: Vec<entity::Entity>) -> Result<Vec<Entity>, ControllerError> {
        let entities = asked.into_iter().map(|entity| Entity { entity: Some(entity) }).collect();
        let request = ReadRequest { device_id: self.device_id, entities, role: String::new() };
        let mut answers = match self.client.read(request).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return Err(self.failure("a read", &explain(&status))),
        };
        let mut entities = Vec::new();
        loop {
            match answers.message().await {
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

/// What to do about a target that cannot be reached.
fn mend(config: &TargetConfig, error: &(dyn std::error::Error + 'static)) -> &'static str {
    if has_io(error, |kind| kind == std::io::ErrorKind::ConnectionRefused) {
        "is the switch running?"
    } else if config.address.starts_with("https://") {
        "are ca, cert and key those that it wants, and does it use TLS at all?"
    } else {
        "is it there, and does it want TLS (address = \"https://…\", ca)?"
    }
}

fn hello(device_id: u64, election_id: Uint128) -> stream_message_request::Update {
    stream_message_request::Update::Arbitration(MasterArbitrationUpdate {
        device_id,
        role: None,
        election_id: Some(election_id),
        status: None,
    })
}

/// A status in words, with those of its updates that failed.
fn explain(status: &tonic::Status) -> String {
    let details = Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let failures: Vec<String> = details
        .iter()
        .enumerate()
        .filter_map(|(number, any)| Some((number, Error::decode(any.value.as_slice()).ok()?)))
        .filter(|(_, error)| error.canonical_code != Code::Ok as i32)
        .map(|(number, error)| {
            let code = Code::from_i32(error.canonical_code);
            format!("update {number}: {code:?} {}", error.message).trim_end().to_owned()
        })
        .collect();
    match (failures.is_empty(), status.message()) {
        (false, _) => failures.join("; "),
        (true, "") => format!("{:?}", status.code()),
        (true, message) => format!("{:?}: {message}", status.code()),
    }
}
