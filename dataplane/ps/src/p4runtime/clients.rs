//! The controllers that are connected, and which of them is primary.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use p4runtime_proto::rpc;
use p4runtime_proto::v1::{
    MasterArbitrationUpdate, PacketIn, StreamMessageResponse, Uint128, stream_message_response,
};
use thc_p4::rows::address_of_number;
use thc_transport::frame::{Datagram, Mac, mac_of};
use tokio::sync::{Notify, mpsc};
use tonic::{Code, Status};

use super::arbitration::{Arbitration, ClientId, Notice, Standing};
use super::refusal::{Refusal, refuse};
use crate::control_port::ControlPacket;
use crate::forwarding::SharedForwarding;
use crate::rows::Program;
use crate::shards::Shards;

/// Streams at a time.
const MAX_STREAMS: usize = 16;

/// The queue of messages to a controller.
pub type ClientSender = mpsc::Sender<Result<StreamMessageResponse, Status>>;

/// All controllers.
#[derive(Debug)]
pub struct Clients {
    device_id: u64,
    /// The address at which workers reach this server.
    own: SocketAddr,
    forwarding: SharedForwarding,
    pub shards: Shards,
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
    sink: ClientSender,
    /// Ends it, because its controller does not read.
    end: Arc<Notify>,
}

impl Clients {
    /// A server that no controller has connected to yet.
    #[must_use]
    pub fn new(device_id: u64, own: SocketAddr, forwarding: SharedForwarding, shards: Shards) -> Clients {
        Clients { device_id, own, forwarding, shards, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a request with this election id comes from the primary controller.
    #[must_use]
    pub fn may_write(&self, election: Option<u128>) -> bool {
        self.lock().arbitration.may_write(election)
    }

    /// The destination of workers' packets: the first row of own_address, or else where this server listens.
    fn own_place(&self) -> (Mac, SocketAddr) {
        let store = self.forwarding.lock().snapshot();
        let row = store.rows(Program::get().known.own_address).next();
        match row.map(|(key, _)| &key[..]) {
            Some(&[mac, address]) => {
                let [.., a, b, c, d, e, f] = mac.to_be_bytes();
                let address = SocketAddr::from((address_of_number(address), self.own.port()));
                ([a, b, c, d, e, f], address)
            }
            _ => (mac_of(self.own.ip()), self.own),
        }
    }

    /// Hands a worker's packet to the primary controller, as a frame. Without one, or while it does not read,
    /// the packet is lost; JOINs are repeated.
    pub fn packet_in(&self, packet: &ControlPacket) {
        let from = packet.source();
        let (to, payload) = (self.own_place(), packet.bytes());
        let datagram = Datagram { from: (mac_of(from.ip()), from), to, ecn: 0, payload };
        let message = PacketIn { payload: datagram.frame(), metadata: Vec::new() };
        if !self.to_primary(stream_message_response::Update::Packet(message)) {
            tracing::debug!("no controller takes the packet of {from}");
        }
    }

    fn to_primary(&self, update: stream_message_response::Update) -> bool {
        let inner = self.lock();
        let stream = inner.arbitration.primary().and_then(|primary| inner.streams.get(&primary));
        let message = Ok(StreamMessageResponse { update: Some(update) });
        stream.is_some_and(|stream| stream.sink.try_send(message).is_ok())
    }

    /// Adds a controller's stream.
    pub fn enter(&self, sink: ClientSender) -> Result<(ClientId, Arc<Notify>), Refusal> {
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

    /// Removes a controller's stream.
    pub fn leave(&self, client: ClientId) {
        let mut inner = self.lock();
        inner.streams.remove(&client);
        let notices = inner.arbitration.leave(client);
        if !notices.is_empty() {
            tracing::info!("P4Runtime: the primary controller has gone");
        }
        self.send_notices(&inner, &notices);
    }

    /// Handles a controller's arbitration update.
    pub fn arbitrate(&self, client: ClientId, update: &MasterArbitrationUpdate) -> Result<(), Refusal> {
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
        self.send_notices(&inner, &notices);
        Ok(())
    }

    fn send_notices(&self, inner: &Inner, notices: &[Notice]) {
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
                // The controller has left a thousand messages unread, and must not miss this one.
                stream.end.notify_one();
            }
        }
    }

    /// Returns whether a packet of this controller may go out.
    pub fn may_send(&self, client: ClientId) -> bool {
        self.lock().arbitration.primary() == Some(client)
    }
}

/// Checks that a request names the only role.
pub fn check_role(id: u64, name: &str) -> Result<(), Refusal> {
    if id == 0 && name.is_empty() {
        return Ok(());
    }
    refuse(Code::NotFound, "there are no roles here: leave the role out")
}

/// An election id as a number.
#[must_use]
pub fn number(id: Option<Uint128>) -> Option<u128> {
    id.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}
