//! A way to a target on which one request goes wrong: a P4Runtime server that hands all requests on to another one, and what it says back.

use p4runtime_proto::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_proto::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
    GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamMessageRequest, StreamMessageResponse, WriteRequest,
    WriteResponse, entity, stream_message_request, stream_message_response,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

/// What happens to a request, or to a message of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive, and that is said: a stream ends.
    Lost,
    /// It arrives, and the answer does not: a stream ends after it.
    Unanswered,
    /// It does not arrive, and nothing is said: who waits for an answer waits, and a packet is one less.
    Silent,
    /// It is done, and `happens` is called before it.
    Happening,
}

/// How it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    On,
    Lost,
    Unanswered,
    Silent,
}

#[derive(Default)]
struct State {
    /// Names of the requests and messages so far; readings of counters that come all the time are not among them.
    steps: Vec<&'static str>,
    /// At which of them what goes wrong.
    fault: Option<(usize, Fault)>,
    happens: Option<Box<dyn FnOnce() + Send>>,
    /// Counters that were read.
    readings: usize,
}

/// The way.
pub struct Unreliable {
    state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Clone)]
struct Service {
    state: Arc<Mutex<State>>,
    to: P4RuntimeClient<Channel>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost_error() -> Status {
    Status::unavailable("lost on the way")
}

impl Service {
    /// A request or message goes by.
    fn step(&self, name: &'static str) -> Course {
        let fault = {
            let mut state = lock(&self.state);
            let place = state.steps.len();
            state.steps.push(name);
            let fault = state.fault.filter(|(at, _)| *at == place).map(|(_, fault)| fault);
            if fault == Some(Fault::Happening)
                && let Some(happens) = state.happens.take()
            {
                happens();
            }
            fault
        };
        match fault {
            None | Some(Fault::Happening) => Course::On,
            Some(Fault::Lost) => Course::Lost,
            Some(Fault::Unanswered) => Course::Unanswered,
            Some(Fault::Silent) => Course::Silent,
        }
    }

    /// Returns whether a reading of counters is a step: they come all the time; the first ones are, and then some.
    fn counts_reading(&self) -> bool {
        let mut state = lock(&self.state);
        state.readings += 1;
        state.readings <= 12 || state.readings.is_multiple_of(8)
    }

    /// Does a request as it goes.
    async fn request<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Status> {
        match self.step(name) {
            Course::On => work.await,
            Course::Lost => Err(lost_error()),
            // Until whoever waits has gone.
            Course::Silent => std::future::pending().await,
            Course::Unanswered => {
                let _ = work.await;
                Err(lost_error())
            }
        }
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = Streaming<ReadResponse>;
    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        let mut to = self.to.clone();
        self.request("write", to.write(request.into_inner())).await
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let (mut to, request) = (self.to.clone(), request.into_inner());
        let counters = request
            .entities
            .iter()
            .all(|entity| matches!(entity.entity, Some(entity::Entity::CounterEntry(_))));
        let name = if counters { "counters" } else { "read" };
        if counters && !self.counts_reading() {
            return to.read(request).await;
        }
        self.request(name, to.read(request)).await
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let mut to = self.to.clone();
        self.request("load", to.set_forwarding_pipeline_config(request.into_inner())).await
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let mut to = self.to.clone();
        self.request("program", to.get_forwarding_pipeline_config(request.into_inner())).await
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        match self.step("stream") {
            Course::On => {}
            Course::Silent => std::future::pending().await,
            Course::Lost | Course::Unanswered => return Err(lost_error()),
        }
        let mut from = request.into_inner();
        let (sender, receiver) = mpsc::channel(64);
        let mut answers = self.to.clone().stream_channel(ReceiverStream::new(receiver)).await?.into_inner();
        let (sink, told) = mpsc::channel(64);
        let service = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    message = from.message() => {
                        let Ok(Some(message)) = message else { return };
                        let name = match message.update {
                            Some(stream_message_request::Update::Arbitration(_)) => "arbitration",
                            _ => "packet out",
                        };
                        let course = service.step(name);
                        if course == Course::Silent {
                            continue;
                        }
                        if course == Course::Lost || sender.send(message).await.is_err() {
                            return;
                        }
                        if course == Course::Unanswered {
                            // Until it has arrived.
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            return;
                        }
                    }
                    message = answers.message() => {
                        let Ok(Some(message)) = message else { return };
                        let name = match message.update {
                            Some(stream_message_response::Update::Arbitration(_)) => "arbitration's answer",
                            _ => "packet in",
                        };
                        match service.step(name) {
                            Course::Silent => continue,
                            Course::On if sink.send(Ok(message)).await.is_ok() => {}
                            _ => return,
                        }
                    }
                    () = sink.closed() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn capabilities(
        &self,
        request: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        self.to.clone().capabilities(request.into_inner()).await
    }
}

impl Unreliable {
    /// The way to a server that listens there.
    pub fn relay_to(server: SocketAddr) -> Unreliable {
        let state = Arc::new(Mutex::new(State::default()));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let to = runtime
            .block_on(async { Endpoint::from_shared(format!("http://{server}")).unwrap().connect_lazy() });
        let service = Service { state: Arc::clone(&state), to: P4RuntimeClient::new(to) };
        let server = tonic::transport::Server::builder().add_service(P4RuntimeServer::new(service));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Unreliable { state, address, runtime: Some(runtime) }
    }

    /// At this request or message, counted from the first one that ever comes, this goes wrong.
    pub fn set(&self, at: usize, fault: Fault, happens: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        state.fault = Some((at, fault));
        state.happens = Some(Box::new(happens));
    }

    /// What has gone by.
    pub fn steps(&self) -> Vec<&'static str> {
        lock(&self.state).steps.clone()
    }
}

impl Drop for Unreliable {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
