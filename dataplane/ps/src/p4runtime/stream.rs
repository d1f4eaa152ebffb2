//! StreamChannel: controllers introduce themselves, and exchange packets with the workers.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use p4runtime_proto::rpc;
use p4runtime_proto::v1::{
    DigestListAckError, MasterArbitrationUpdate, PacketIn, PacketOut, PacketOutError, StreamError,
    StreamMessageRequest, StreamMessageResponse, StreamOtherError, Uint128, stream_error,
    stream_message_request, stream_message_response,
};
use thc_protocol::wire::MAX_PACKET;
use thc_transport::frame::{Datagram, Mac, mac_of};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::arbitration::{Arbitration, ClientId, Notice, Standing};
use super::refusal::{Refusal, refuse};
use super::service::{Device, check_role, check_running, number};
use crate::control_port::ControlPacket;
use crate::forwarding::SharedForwarding;
use crate::rows::Program;
use crate::shards::Shards;

/// Streams at a time.
const MAX_STREAMS: usize = 16;
/// Messages that wait for a controller.
const ROOM: usize = 1024;

type Sink = mpsc::Sender<Result<StreamMessageResponse, Status>>;

/// All controllers.
#[derive(Debug)]
pub struct Clients {
    device_id: u64,
    /// Where workers reach this server.
    own: SocketAddrV4,
    forwarding: SharedForwarding,
    shards: Shards,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    arbitration: Arbitration,
    streams: BTreeMap<ClientId, Stream>,
    next: ClientId,
}

#[derive(Debug)]
struct Stream {
    sink: Sink,
    /// Ends it, because its controller does not read.
    end: Arc<Notify>,
}

/// Where packets for the controller go.
#[derive(Clone, Debug)]
pub struct PacketsIn(Arc<Clients>);

impl PacketsIn {
    /// To the primary one of these.
    #[must_use]
    pub fn new(clients: Arc<Clients>) -> PacketsIn {
        PacketsIn(clients)
    }

    /// Hands a worker's packet to the primary controller, as a frame. Without one, or while it does not read,
    /// the packet is lost; JOINs are repeated.
    pub fn packet(&self, packet: &ControlPacket) {
        let own = self.0.own_place();
        let from = packet.from();
        let datagram =
            Datagram { from: (mac_of(*from.ip()), from), to: own, ecn: 0, payload: packet.bytes() };
        let message = PacketIn { payload: datagram.frame(), metadata: Vec::new() };
        if !self.0.to_primary(stream_message_response::Update::Packet(message)) {
            tracing::debug!("no controller takes the packet of {from}");
        }
    }
}

impl Clients {
    /// None yet.
    #[must_use]
    pub fn new(device_id: u64, own: SocketAddrV4, forwarding: SharedForwarding, shards: Shards) -> Clients {
        Clients { device_id, own, forwarding, shards, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request with this election id comes from the primary controller.
    #[must_use]
    pub fn may_write(&self, election: Option<u128>) -> bool {
        self.lock().arbitration.may_write(election)
    }

    /// What workers' packets are addressed to: the first row of own_address, or else where this server listens.
    fn own_place(&self) -> (Mac, SocketAddrV4) {
        let store = self.forwarding.lock().snapshot();
        let row = store.rows(Program::get().known.own_address).next();
        match row.map(|(key, _)| &key[..]) {
            Some(&[mac, address]) => {
                let [.., a, b, c, d, e, f] = mac.to_be_bytes();
                let address = SocketAddrV4::new((address as u32).into(), self.own.port());
                ([a, b, c, d, e, f], address)
            }
            _ => (mac_of(*self.own.ip()), self.own),
        }
    }

    fn to_primary(&self, update: stream_message_response::Update) -> bool {
        let inner = self.lock();
        let stream = inner.arbitration.primary().and_then(|primary| inner.streams.get(&primary));
        let message = Ok(StreamMessageResponse { update: Some(update) });
        stream.is_some_and(|stream| stream.sink.try_send(message).is_ok())
    }

    fn enter(&self, sink: Sink) -> Result<(ClientId, Arc<Notify>), Refusal> {
        let mut inner = self.lock();
        if inner.streams.len() >= MAX_STREAMS {
            return refuse(
                Code::ResourceExhausted,
                format!("{MAX_STREAMS} controllers are connected already"),
            );
        }
        let id = inner.next;
        inner.next += 1;
        let end = Arc::new(Notify::new());
        inner.streams.insert(id, Stream { sink, end: Arc::clone(&end) });
        Ok((id, end))
    }

    fn leave(&self, client: ClientId) {
        let mut inner = self.lock();
        inner.streams.remove(&client);
        let notices = inner.arbitration.leave(client);
        if !notices.is_empty() {
            tracing::info!("P4Runtime: the primary controller has gone");
        }
        self.tell(&inner, &notices);
    }

    fn arbitrate(&self, client: ClientId, update: &MasterArbitrationUpdate) -> Result<(), Refusal> {
        let mut inner = self.lock();
        let live = inner.arbitration.knows(client);
        if update.device_id != self.device_id {
            let code = if live { Code::FailedPrecondition } else { Code::NotFound };
            return refuse(
                code,
                format!("there is no device {}: this is device {}", update.device_id, self.device_id),
            );
        }
        if let Some(role) = &update.role
            && let Err(refusal) = check_role(role.id, &role.name)
        {
            let code = if live { Code::FailedPrecondition } else { refusal.code };
            return refuse(code, refusal.message);
        }
        let before = inner.arbitration.primary();
        let notices = inner.arbitration.arbitrate(client, number(update.election_id))?;
        if inner.arbitration.primary() != before {
            let primary = inner.arbitration.primary() == Some(client);
            tracing::info!(
                "P4Runtime: {}",
                if primary { "a controller is primary" } else { "no primary controller" }
            );
        }
        self.tell(&inner, &notices);
        Ok(())
    }

    fn tell(&self, inner: &Inner, notices: &[Notice]) {
        let highest = inner.arbitration.highest();
        let election_id = highest.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 });
        for Notice { client, standing } in notices {
            let (code, message) = match standing {
                Standing::Primary => (Code::Ok, "this controller is primary"),
                Standing::Backup => (Code::AlreadyExists, "another controller is primary"),
                Standing::Vacant => (Code::NotFound, "no controller is primary"),
            };
            let status = rpc::Status { code: code.into(), message: message.to_owned(), details: Vec::new() };
            let update = MasterArbitrationUpdate {
                device_id: self.device_id,
                role: None,
                election_id,
                status: Some(status),
            };
            let update = Some(stream_message_response::Update::Arbitration(update));
            if let Some(stream) = inner.streams.get(client)
                && stream.sink.try_send(Ok(StreamMessageResponse { update })).is_err()
            {
                // It has not read a thousand messages, and must not miss this one.
                stream.end.notify_one();
            }
        }
    }

    fn may_send(&self, client: ClientId) -> bool {
        self.lock().arbitration.primary() == Some(client)
    }
}

/// Serves one stream.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there are too many.
pub fn open(
    device: Arc<Device>,
    mut requests: Streaming<StreamMessageRequest>,
) -> Result<ReceiverStream<Result<StreamMessageResponse, Status>>, Refusal> {
    let (sink, responses) = mpsc::channel(ROOM);
    let (client, end) = device.clients.enter(sink.clone())?;
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = requests.message() => message,
                () = end.notified() => break,
                () = sink.closed() => break,
            };
            let Ok(Some(message)) = message else { break };
            if let Err(refusal) = device.message(client, message, &sink) {
                let _ = sink.try_send(Err(refusal.into()));
                break;
            }
        }
        device.clients.leave(client);
    });
    Ok(ReceiverStream::new(responses))
}

impl Device {
    /// Takes a controller's message.
    ///
    /// # Errors
    /// What the stream is ended for.
    fn message(&self, client: ClientId, message: StreamMessageRequest, sink: &Sink) -> Result<(), Refusal> {
        use stream_message_request::Update;
        let (refusal, details) = match message.update {
            Some(Update::Arbitration(update)) => return self.clients.arbitrate(client, &update),
            Some(Update::Packet(packet)) => match self.packet_out(client, &packet) {
                Ok(()) => return Ok(()),
                Err(refusal) => {
                    (refusal, stream_error::Details::PacketOut(PacketOutError { packet_out: None }))
                }
            },
            Some(Update::DigestAck(_)) => {
                let refusal =
                    Refusal { code: Code::InvalidArgument, message: "the program has no digests".to_owned() };
                (refusal, stream_error::Details::DigestListAck(DigestListAckError { digest_list_ack: None }))
            }
            None => {
                let refusal = Refusal {
                    code: Code::InvalidArgument,
                    message: "the message is of no kind that is served".to_owned(),
                };
                (refusal, stream_error::Details::Other(StreamOtherError { other: None }))
            }
        };
        let error = StreamError {
            canonical_code: refusal.code.into(),
            message: refusal.message,
            details: Some(details),
            ..StreamError::default()
        };
        // A controller that does not read misses what was wrong.
        let _ = sink.try_send(Ok(StreamMessageResponse {
            update: Some(stream_message_response::Update::Error(error)),
        }));
        Ok(())
    }

    fn packet_out(&self, client: ClientId, packet: &PacketOut) -> Result<(), Refusal> {
        if !self.clients.may_send(client) {
            return refuse(Code::PermissionDenied, "only the primary controller sends packets");
        }
        check_running(&self.state().pipeline)?;
        if !packet.metadata.is_empty() {
            return refuse(Code::InvalidArgument, "packets have no metadata in this program");
        }
        let Datagram { from: (_, from), to: (_, to), payload, .. } = Datagram::parse(&packet.payload)
            .map_err(|what| Refusal { code: Code::InvalidArgument, message: what.to_owned() })?;
        if payload.is_empty() || payload.len() > MAX_PACKET {
            return refuse(Code::InvalidArgument, format!("the payload must have 1 to {MAX_PACKET} bytes"));
        }
        if !self.clients.shards.try_send(Some(*from.ip()), to, payload.to_vec()) {
            return refuse(Code::ResourceExhausted, "too many packets wait to be sent: send this one again");
        }
        Ok(())
    }
}
