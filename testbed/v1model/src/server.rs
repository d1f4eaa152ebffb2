//! The switch's P4Runtime server.

use super::cable::Cable;
use super::rows::Refused;
use super::switch::Switch;
use p4runtime_proto::rpc;
use p4runtime_proto::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, Entity, Error, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, MasterArbitrationUpdate,
    PacketIn, PacketMetadata, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamMessageRequest, StreamMessageResponse, Uint128, WriteRequest,
    WriteResponse, set_forwarding_pipeline_config_request, stream_message_request, stream_message_response,
};
use prost::Message;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};

/// Entities of one answer to a read.
const CHUNK: usize = 1000;
/// The longest request: the program has 2 MB.
const MAX_MESSAGE: usize = 16 << 20;

type Sink = mpsc::Sender<Result<StreamMessageResponse, Status>>;

/// A controller's stream, and its election id.
struct Controller {
    election: u128,
    sink: Sink,
}

#[derive(Default)]
struct Control {
    controllers: Vec<Controller>,
    loaded: Option<ForwardingPipelineConfig>,
}

#[derive(Clone)]
struct Service {
    cable: Cable,
    control: Arc<Mutex<Control>>,
}

fn election(id: Option<Uint128>) -> u128 {
    id.map_or(0, |id| u128::from(id.high) << 64 | u128::from(id.low))
}

impl Control {
    fn primary(&self) -> Option<&Controller> {
        let open = self.controllers.iter().filter(|controller| !controller.sink.is_closed());
        open.max_by_key(|controller| controller.election)
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        Status::new(refused.code, refused.message)
    }
}

impl Service {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary controller gets a frame, and beside it the program's header, the port. Without one that keeps up, nobody does.
    fn to_controller(&self, mut header: Vec<u8>) {
        let payload = header.split_off(header.len().min(2));
        let packet = PacketIn { payload, metadata: vec![PacketMetadata { metadata_id: 1, value: header }] };
        let update = Some(stream_message_response::Update::Packet(packet));
        if let Some(primary) = self.control().primary() {
            let _ = primary.sink.try_send(Ok(StreamMessageResponse { update }));
        }
    }

    fn check_primary(&self, id: Option<Uint128>) -> Result<(), Status> {
        let is_primary = self.control().primary().is_some_and(|primary| primary.election == election(id));
        if is_primary { Ok(()) } else { Err(Status::permission_denied("not the primary controller")) }
    }

    fn arbitrate(&self, hello: MasterArbitrationUpdate, sink: &Sink) -> MasterArbitrationUpdate {
        let id = election(hello.election_id);
        let mut control = self.control();
        control.controllers.retain(|other| !other.sink.same_channel(sink) && !other.sink.is_closed());
        control.controllers.push(Controller { election: id, sink: sink.clone() });
        let is_primary = control.primary().is_some_and(|primary| primary.election == id);
        let code = if is_primary { Code::Ok } else { Code::AlreadyExists };
        MasterArbitrationUpdate {
            status: Some(rpc::Status { code: code as i32, ..rpc::Status::default() }),
            ..hello
        }
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;
    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        let request = request.into_inner();
        self.check_primary(request.election_id)?;
        let mut site = self.cable.site();
        let Some(switch) = &mut site.switch else { return Err(Status::failed_precondition("no program")) };
        let result = |update| match switch.update(update) {
            Ok(()) => Error { canonical_code: Code::Ok as i32, ..Error::default() },
            Err(refused) => {
                Error { canonical_code: refused.code as i32, message: refused.message, ..Error::default() }
            }
        };
        let results: Vec<Error> = request.updates.into_iter().map(result).collect();
        if results.iter().all(|result| result.canonical_code == Code::Ok as i32) {
            return Ok(Response::new(WriteResponse {}));
        }
        let any = |error: &Error| prost_types::Any { type_url: String::new(), value: error.encode_to_vec() };
        let details = results.iter().map(any).collect();
        let all = rpc::Status { code: Code::Unknown as i32, message: String::new(), details };
        Err(Status::with_details(Code::Unknown, "updates failed", all.encode_to_vec().into()))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let mut entities = Vec::new();
        {
            let site = self.cable.site();
            let Some(switch) = &site.switch else { return Err(Status::failed_precondition("no program")) };
            for asked in request.into_inner().entities {
                let Some(asked) = asked.entity else {
                    return Err(Status::invalid_argument("nothing to read"));
                };
                entities.extend(switch.read(asked)?);
            }
        }
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            for chunk in entities.chunks(CHUNK) {
                let entities = chunk.iter().map(|entity| Entity { entity: Some(entity.clone()) }).collect();
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
        let request = request.into_inner();
        self.check_primary(request.election_id)?;
        if request.action != set_forwarding_pipeline_config_request::Action::VerifyAndCommit as i32 {
            return Err(Status::unimplemented("a program is loaded by VERIFY_AND_COMMIT alone"));
        }
        let config = request.config.unwrap_or_default();
        let Some(info) = config.p4info.clone() else { return Err(Status::invalid_argument("no P4Info")) };
        // The interpreter knows what p4c makes of this program, and no more of BMv2's format.
        if config.p4_device_config != thc_p4::BMV2 {
            return Err(Status::invalid_argument("another program than the p4/build/thc.json of this build"));
        }
        self.cable.site().switch = Some(Switch::new(info, 0));
        self.control().loaded = Some(config);
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        _: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        match self.control().loaded.clone() {
            Some(config) => Ok(Response::new(GetForwardingPipelineConfigResponse { config: Some(config) })),
            None => Err(Status::failed_precondition("no program")),
        }
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let mut stream = request.into_inner();
        let (sink, receiver) = mpsc::channel(1024);
        let service = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = stream.message().await {
                match message.update {
                    Some(stream_message_request::Update::Arbitration(hello)) => {
                        let answer = service.arbitrate(hello, &sink);
                        let update = Some(stream_message_response::Update::Arbitration(answer));
                        if sink.send(Ok(StreamMessageResponse { update })).await.is_err() {
                            break;
                        }
                    }
                    Some(stream_message_request::Update::Packet(packet)) => {
                        let to_controller = |frame| service.to_controller(frame);
                        service.cable.site().from_controller(&packet.payload, &to_controller);
                    }
                    _ => {}
                }
            }
            service.control().controllers.retain(|other| !other.sink.same_channel(&sink));
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

/// Serves P4Runtime at `listener` and carries frames until `end`.
///
/// # Errors
/// If the server or the cable fails.
pub async fn serve(
    listener: TcpListener,
    cable: Cable,
    end: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let service = Service { cable: cable.clone(), control: Arc::default() };
    let ended = Arc::new(AtomicBool::new(false));
    let carrier = {
        let (service, ended) = (service.clone(), ended.clone());
        let ends = move || ended.load(Ordering::Relaxed);
        std::thread::spawn(move || cable.run(ends, |frame| service.to_controller(frame)))
    };
    let server = P4RuntimeServer::new(service).max_decoding_message_size(MAX_MESSAGE);
    let incoming = TcpListenerStream::new(listener);
    // A controller's stream does not end of itself, so serving ends with `end` and not when all streams have ended.
    let served = tokio::select! {
        served = tonic::transport::Server::builder().add_service(server).serve_with_incoming(incoming) => served,
        () = end => Ok(()),
    };
    ended.store(true, Ordering::Relaxed);
    let carried = carrier.join().map_err(|_| anyhow::anyhow!("the cable's thread has panicked"))?;
    served?;
    Ok(carried?)
}
