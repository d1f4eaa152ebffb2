//! A controller of a test: a P4Runtime client that names things as the P4Info does.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use p4runtime_proto::bytes::encode;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info;
use p4runtime_proto::rpc;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{
    Action, CounterData, CounterEntry, Entity, Error, FieldMatch, ForwardingPipelineConfig, Index,
    MasterArbitrationUpdate, MulticastGroupEntry, PacketOut, PacketReplicationEngineEntry, ReadRequest,
    Replica, SetForwardingPipelineConfigRequest, StreamMessageRequest, StreamMessageResponse, TableAction,
    TableEntry, Uint128, Update, WriteRequest, action, entity, field_match, packet_replication_engine_entry,
    replica, set_forwarding_pipeline_config_request, stream_message_request, stream_message_response,
    table_action, update,
};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const PATIENCE: Duration = crate::session::PATIENCE;

pub use set_forwarding_pipeline_config_request::Action as PipelineAction;

/// Names and values.
pub type Values<'a> = &'a [(&'a str, u128)];

pub fn info() -> P4Info {
    p4info::parse(include_bytes!("../../../../p4/build/thc.p4info.txtpb")).unwrap()
}

/// A connection to a server.
pub struct Controller {
    pub client: P4RuntimeClient<Channel>,
    pub info: P4Info,
    pub election: Option<u128>,
    pub sender: mpsc::Sender<StreamMessageRequest>,
    pub stream: Streaming<StreamMessageResponse>,
}

pub async fn connect(addr: SocketAddr) -> P4RuntimeClient<Channel> {
    P4RuntimeClient::connect(format!("http://{addr}")).await.unwrap().max_decoding_message_size(64 << 20)
}

fn uint128(election: Option<u128>) -> Option<Uint128> {
    election.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 })
}

impl Controller {
    /// Connects without introducing itself.
    pub async fn silent(addr: SocketAddr) -> Controller {
        let mut client = connect(addr).await;
        let (sender, receiver) = mpsc::channel(64);
        let stream = client.stream_channel(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Controller { client, info: info(), election: None, sender, stream }
    }

    /// Connects and introduces itself with an election id; gives how it stands.
    pub async fn new(addr: SocketAddr, election: u128) -> (Controller, Code) {
        let mut controller = Controller::silent(addr).await;
        controller.introduce(Some(election)).await;
        let code = controller.expect_standing().await;
        (controller, code)
    }

    /// The primary one, with the pipeline set.
    pub async fn primary(addr: SocketAddr) -> Controller {
        let (mut controller, code) = Controller::new(addr, 1).await;
        assert_eq!(code, Code::Ok);
        controller.set_pipeline(PipelineAction::VerifyAndCommit, b"").await.unwrap();
        controller
    }

    pub async fn introduce(&mut self, election: Option<u128>) {
        self.election = election;
        self.arbitrate(MasterArbitrationUpdate {
            device_id: 0,
            election_id: uint128(election),
            ..Default::default()
        })
        .await;
    }

    pub async fn arbitrate(&self, update: MasterArbitrationUpdate) {
        let update = Some(stream_message_request::Update::Arbitration(update));
        self.sender.send(StreamMessageRequest { update }).await.unwrap();
    }

    pub async fn message(&mut self) -> Result<Option<StreamMessageResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.stream.message()).await.unwrap()
    }

    pub async fn update(&mut self) -> stream_message_response::Update {
        self.message().await.unwrap().unwrap().update.unwrap()
    }

    /// Waits until it is told how it stands.
    pub async fn expect_standing(&mut self) -> Code {
        match self.update().await {
            stream_message_response::Update::Arbitration(update) => {
                Code::from_i32(update.status.unwrap().code)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a packet.
    pub async fn packet(&mut self) -> Vec<u8> {
        match self.update().await {
            stream_message_response::Update::Packet(packet) => packet.payload,
            other => panic!("{other:?}"),
        }
    }

    pub async fn send(&self, payload: Vec<u8>) {
        let packet = PacketOut { payload, metadata: Vec::new() };
        let update = Some(stream_message_request::Update::Packet(packet));
        self.sender.send(StreamMessageRequest { update }).await.unwrap();
    }

    pub async fn set_pipeline(&mut self, action: PipelineAction, device: &[u8]) -> Result<(), Status> {
        let config = ForwardingPipelineConfig {
            p4info: Some(self.info.clone()),
            p4_device_config: device.to_vec(),
            cookie: None,
        };
        self.pipeline(action, Some(config)).await
    }

    pub async fn pipeline(
        &mut self,
        action: PipelineAction,
        config: Option<ForwardingPipelineConfig>,
    ) -> Result<(), Status> {
        let request = SetForwardingPipelineConfigRequest {
            election_id: uint128(self.election),
            action: action.into(),
            config,
            ..Default::default()
        };
        self.client.set_forwarding_pipeline_config(request).await.map(drop)
    }

    /// Writes updates.
    pub async fn try_write(&mut self, updates: Vec<Update>) -> Result<(), Status> {
        let request = WriteRequest { election_id: uint128(self.election), updates, ..Default::default() };
        self.client.write(request).await.map(drop)
    }

    /// Writes updates, all of which must be taken.
    pub async fn write(&mut self, kind: update::Type, entities: Vec<entity::Entity>) {
        let updates = entities.into_iter().map(|entity| update(kind, entity)).collect();
        if let Err(status) = self.try_write(updates).await {
            panic!("{status:?}: {:?}", errors(&status));
        }
    }

    /// Reads entities.
    pub async fn read(&mut self, asked: Vec<entity::Entity>) -> Result<Vec<entity::Entity>, Status> {
        let entities = asked.into_iter().map(|entity| Entity { entity: Some(entity) }).collect();
        let request = ReadRequest { entities, ..ReadRequest::default() };
        let mut stream = self.client.read(request).await?.into_inner();
        let mut entities = Vec::new();
        while let Some(answer) = stream.message().await? {
            entities.extend(answer.entities.into_iter().filter_map(|entity| entity.entity));
        }
        Ok(entities)
    }

    /// A row.
    pub fn row(&self, table: &str, key: Values<'_>, action: &str, params: Values<'_>) -> entity::Entity {
        let table = self.info.table(table).unwrap();
        let field = |(name, value): &(&str, u128)| {
            let field = table.match_fields.iter().find(|field| field.name == *name).unwrap();
            let exact = field_match::Exact { value: encode(*value) };
            FieldMatch {
                field_id: field.id,
                field_match_type: Some(field_match::FieldMatchType::Exact(exact)),
            }
        };
        let found = self.info.action(action).unwrap();
        let param = |param: &p4runtime_proto::config::action::Param| {
            let value = params.iter().find(|(name, _)| *name == param.name);
            action::Param { param_id: param.id, value: encode(value.map_or(0, |(_, value)| *value)) }
        };
        let action = Action { action_id: found.id(), params: found.params.iter().map(param).collect() };
        entity::Entity::TableEntry(TableEntry {
            table_id: table.id(),
            r#match: key.iter().map(field).collect(),
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action: key.is_empty(),
            ..TableEntry::default()
        })
    }

    /// One cell of a counter: packets and bytes.
    pub async fn counter(&mut self, name: &str, index: u32) -> (i64, i64) {
        let counter_id = self.info.counter(name).unwrap().id();
        let index = Some(Index { index: index.into() });
        let asked = entity::Entity::CounterEntry(CounterEntry { counter_id, index, data: None });
        match &self.read(vec![asked]).await.unwrap()[..] {
            [entity::Entity::CounterEntry(CounterEntry { data: Some(data), .. })] => {
                let CounterData { packet_count, byte_count } = *data;
                (packet_count, byte_count)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// All rows of a table; 0 is all tables.
pub fn all_rows(table_id: u32) -> entity::Entity {
    entity::Entity::TableEntry(TableEntry { table_id, ..TableEntry::default() })
}

/// A multicast group; its replicas are ports and instances.
pub fn group(number: u32, replicas: &[(u32, u32)]) -> entity::Entity {
    let replica = |&(port, instance): &(u32, u32)| Replica {
        port_kind: Some(replica::PortKind::EgressPort(port)),
        instance,
    };
    let group = MulticastGroupEntry {
        multicast_group_id: number,
        replicas: replicas.iter().map(replica).collect(),
        metadata: Vec::new(),
    };
    entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
        r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
    })
}

pub fn update(kind: update::Type, entity: entity::Entity) -> Update {
    Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) }
}

/// What a batch's status says of each of its parts.
pub fn errors(status: &Status) -> Vec<(Code, String)> {
    let details = rpc::Status::decode(status.details()).unwrap().details;
    details
        .iter()
        .map(|any| {
            assert_eq!(any.type_url, "type.googleapis.com/p4.v1.Error");
            let error = Error::decode(any.value.as_slice()).unwrap();
            (Code::from_i32(error.canonical_code), error.message)
        })
        .collect()
}
