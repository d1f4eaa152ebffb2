//! The connection to one switch: P4Runtime as its primary controller.

mod requests;
mod status;

pub use status::{RefusedUpdate, Written, closed};
use status::{advice, explain, silence};

use crate::config::TargetConfig;
use crate::error::{ControllerError, causes};
use crate::schema::Schema;
use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::{
    MasterArbitrationUpdate, PacketOut, StreamMessageRequest, StreamMessageResponse, Uint128,
    stream_message_request, stream_message_response,
};
use std::error::Error as _;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Streaming};

/// The interval at which a silent connection is tried.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Messages that may wait to be sent.
const ROOM: usize = 64;
/// The largest message: a pipeline configuration is a compiled program. Far above the size of BMv2's.
const MAX_MESSAGE: usize = 64 << 20;

/// A message that a switch sends unasked.
#[derive(Debug, PartialEq, Eq)]
pub enum SwitchEvent {
    /// A packet for the control plane, from Ethernet on, and the port that it came by, where the program says.
    Packet { frame: Vec<u8>, port: Option<u16> },
    /// This controller is the primary one.
    Primary,
    /// It is not, for this reason.
    Secondary(String),
    /// The connection is over, for this reason if the switch gave one.
    Closed(String),
}

/// A switch.
#[derive(Debug)]
pub struct Target {
    name: String,
    /// The longest time that its answer may take.
    patience: Duration,
    device_id: u64,
    election_id: Uint128,
    schema: Schema,
    whole_counters: bool,
    client: P4RuntimeClient<Channel>,
    sender: mpsc::Sender<StreamMessageRequest>,
    stream: Streaming<StreamMessageResponse>,
}

impl Target {
    /// Connects and asks to be the switch's primary controller. Returns why it is not, unless it is.
    pub async fn connect(config: &TargetConfig) -> Result<(Target, Option<String>), ControllerError> {
        let connected = Target::connect_now(config);
        tokio::time::timeout(config.service.patience, connected)
            .await
            .unwrap_or_else(|_| Err(silence(&config.name, "connecting", config.service.patience)))
    }

    async fn connect_now(config: &TargetConfig) -> Result<(Target, Option<String>), ControllerError> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            let (address, mend) = (&config.service.address, advice(config, error));
            let what = format!("cannot connect to {address}: {}; {mend}", causes(error));
            ControllerError::target(&config.name, what)
        };
        let mut endpoint = Endpoint::from_shared(config.service.address.clone())
            .map_err(|error| failed(&error))?
            .connect_timeout(config.service.patience)
            // A target that is cut off is noticed.
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_keepalive(Some(KEEP_ALIVE));
        if config.service.address.starts_with("https://") {
            endpoint = endpoint.tls_config(client_config(config)?).map_err(|error| failed(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
        let mut client = P4RuntimeClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let election_id = Uint128 {
            high: (config.service.election_id >> 64) as u64,
            low: config.service.election_id as u64,
        };
        let (sender, receiver) = mpsc::channel(ROOM);
        let update = Some(hello(config.service.device_id, election_id));
        let closed = |message: &str| closed(&config.name, message);
        sender.send(StreamMessageRequest { update }).await.map_err(|_| closed(""))?;
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
            patience: config.service.patience,
            device_id: config.service.device_id,
            election_id,
            schema: config.schema.clone(),
            whole_counters: config.program.has_whole_counters(),
            client,
            sender,
            stream,
        };
        match target.event().await {
            SwitchEvent::Primary => Ok((target, None)),
            SwitchEvent::Secondary(why) => Ok((target, Some(why))),
            SwitchEvent::Closed(message) => Err(closed(&message)),
            SwitchEvent::Packet { .. } => Err(closed("it sent a packet before its answer")),
        }
    }

    /// The switch's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's names.
    pub fn schema(&self) -> &Schema {
        &self.schema
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
                    let port = self.schema.ingress_port(&packet.metadata);
                    return SwitchEvent::Packet { frame: packet.payload, port };
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
    pub async fn send(&self, frame: Vec<u8>) -> Result<(), ControllerError> {
        let packet = PacketOut { payload: frame, metadata: Vec::new() };
        self.say(stream_message_request::Update::Packet(packet)).await
    }

    /// Waits for room for a message: a switch that takes none has none in the end.
    async fn say(&self, update: stream_message_request::Update) -> Result<(), ControllerError> {
        let sent = self.sender.send(StreamMessageRequest { update: Some(update) });
        match tokio::time::timeout(self.patience, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(closed(&self.name, "")),
            Err(_) => Err(silence(&self.name, "a message", self.patience)),
        }
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

/// The certificates of a connection to a target, which are read for each, so new ones need no restart.
pub fn client_config(target: &TargetConfig) -> Result<ClientTlsConfig, ControllerError> {
    let wrong = |message: String| ControllerError::Tls { what: format!("target {}", target.name), message };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|cause| wrong(format!("cannot read {}: {cause}", path.display())))
    };
    let Some(authorities) = &target.service.ca else {
        return Err(wrong(
            "its address is https://, so give ca, the authority of its certificate".to_owned(),
        ));
    };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(authorities)?));
    Ok(match &target.service.identity {
        Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        None => config,
    })
}
