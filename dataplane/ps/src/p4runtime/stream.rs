//! StreamChannel: controllers introduce themselves, and exchange packets with the workers.

use std::sync::Arc;

use p4runtime_proto::v1::{
    DigestListAckError, PacketOut, PacketOutError, StreamError, StreamMessageRequest, StreamMessageResponse,
    StreamOtherError, stream_error, stream_message_request, stream_message_response,
};
use thc_protocol::wire::MAX_PACKET;
use thc_transport::frame::Datagram;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::arbitration::ClientId;
use super::clients::ClientSender;
use super::device::{Device, check_running};
use super::refusal::{Refusal, refuse};

/// Messages that wait for a controller.
const ROOM: usize = 1024;

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
    /// The refusal with which the stream ends.
    fn message(
        &self,
        client: ClientId,
        message: StreamMessageRequest,
        sink: &ClientSender,
    ) -> Result<(), Refusal> {
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
        let source = Some(from.ip()).filter(|source| source.is_ipv4() == to.is_ipv4());
        if !self.clients.shards.try_send(source, to, payload.to_vec()) {
            return refuse(Code::ResourceExhausted, "too many packets wait to be sent: send this one again");
        }
        Ok(())
    }
}
