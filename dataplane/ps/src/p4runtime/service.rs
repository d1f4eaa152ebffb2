//! The service's requests, and the checks that they have in common.

use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use p4runtime_proto::API_VERSION;
use p4runtime_proto::v1::p4_runtime_server::P4Runtime;
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
    GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamMessageRequest, StreamMessageResponse, Uint128, WriteRequest,
    WriteResponse, get_forwarding_pipeline_config_request, set_forwarding_pipeline_config_request,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::counters::{Counters, Readings};
use super::pipeline::{Pipeline, Verified, verify};
use super::refusal::{Refusal, refuse};
use super::stream::{Clients, PacketsIn};
use crate::forwarding::SharedForwarding;
use crate::rows::{Program, set_room};
use crate::shards::Shards;
use thc_options::ServerConfig;
use thc_options::credit::Room;

/// What requests work on.
#[derive(Debug)]
pub struct Device {
    /// The number that requests must name.
    pub id: u64,
    /// The built-in program.
    pub program: &'static Program,
    /// The rows.
    pub forwarding: SharedForwarding,
    /// Who counts and sends.
    pub shards: Shards,
    /// The controllers.
    pub clients: Arc<Clients>,
    /// Whether the jobs are static: then nothing can be written.
    fixed: bool,
    /// What its ports hold, and for how many members.
    room: Room,
    state: Mutex<State>,
}

/// What only requests change.
#[derive(Debug, Default)]
pub struct State {
    /// The pipeline configuration.
    pub pipeline: Pipeline,
    /// What counters were set to.
    pub counters: Counters,
}

/// The P4Runtime service of one server.
#[derive(Clone, Debug)]
pub struct Service(Arc<Device>);

impl Service {
    /// Of a server that workers reach at `own`, whose ports hold `room` data packets each.
    #[must_use]
    pub fn new(
        config: &ServerConfig,
        own: SocketAddrV4,
        forwarding: SharedForwarding,
        shards: Shards,
        room: usize,
    ) -> Service {
        let fixed = !config.jobs.is_empty();
        let id = config.p4runtime.as_ref().map_or(0, |p4runtime| p4runtime.device_id);
        let room = Room { packets: u32::try_from(room).unwrap_or(u32::MAX), members: config.members };
        Service(Arc::new(Device { room, ..Device::new(id, own, forwarding, shards, fixed) }))
    }

    /// Where packets for the controller go.
    #[must_use]
    pub fn packets_in(&self) -> PacketsIn {
        PacketsIn::new(Arc::clone(&self.0.clients))
    }
}

impl Device {
    /// Of a server that workers reach at `own`. If the jobs are `fixed`, so is the pipeline.
    #[must_use]
    pub fn new(
        id: u64,
        own: SocketAddrV4,
        forwarding: SharedForwarding,
        shards: Shards,
        fixed: bool,
    ) -> Device {
        let running = fixed.then(Verified::built_in);
        Device {
            id,
            program: Program::get(),
            clients: Arc::new(Clients::new(id, own, forwarding.clone(), shards.clone())),
            forwarding,
            shards,
            fixed,
            room: Room { packets: 0, members: 1 },
            state: Mutex::new(State { pipeline: Pipeline { saved: None, running }, ..State::default() }),
        }
    }

    /// Waits until no other request changes it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters up to now.
    #[must_use]
    pub fn readings(&self) -> Readings {
        Readings::of(&self.shards.reports())
    }

    fn check_device(&self, id: u64) -> Result<(), Refusal> {
        if id == self.id {
            return Ok(());
        }
        refuse(Code::NotFound, format!("there is no device {id}: this is device {}", self.id))
    }

    /// Whether a request may change something.
    pub fn check_writer(
        &self,
        device: u64,
        (role_id, role): (u64, &str),
        election: Option<Uint128>,
    ) -> Result<(), Refusal> {
        self.check_device(device)?;
        check_role(role_id, role)?;
        if self.fixed {
            return refuse(
                Code::PermissionDenied,
                "the jobs of this server are those of its configuration: start it without a job to write jobs",
            );
        }
        if self.clients.may_write(number(election)) {
            return Ok(());
        }
        refuse(Code::PermissionDenied, "election_id is not that of the primary controller")
    }

    /// Whether a request may see something.
    pub fn check_reader(&self, device: u64) -> Result<(), Refusal> {
        self.check_device(device)?;
        check_running(&self.state().pipeline)
    }

    fn set_pipeline(&self, request: SetForwardingPipelineConfigRequest) -> Result<(), Refusal> {
        use set_forwarding_pipeline_config_request::Action;
        let action = request.action();
        self.check_writer(request.device_id, (request.role_id, &request.role), request.election_id)?;
        let mut state = self.state();
        match action {
            Action::Unspecified => refuse(Code::InvalidArgument, "the request has no action"),
            Action::Verify => verify(request.config).map(drop),
            Action::VerifyAndSave => {
                state.pipeline.saved = Some(verify(request.config)?);
                Ok(())
            }
            Action::VerifyAndCommit => {
                let verified = verify(request.config)?;
                self.commit(&mut state, verified)
            }
            Action::Commit if request.config.is_some() => {
                refuse(Code::InvalidArgument, "COMMIT takes the config that was saved: send none")
            }
            Action::Commit => match state.pipeline.saved.take() {
                Some(saved) => self.commit(&mut state, saved),
                None => refuse(Code::NotFound, "no config is saved: use VERIFY_AND_SAVE before"),
            },
            Action::ReconcileAndCommit => {
                let verified = verify(request.config)?;
                state.pipeline.saved = None;
                state.pipeline.running = Some(verified);
                Ok(())
            }
        }
    }

    /// A configuration comes into force: all tables are empty, all counters are 0.
    fn commit(&self, state: &mut State, verified: Verified) -> Result<(), Refusal> {
        let mut forwarding = self.forwarding.lock();
        forwarding.restore(Arc::default());
        if !forwarding.commit() {
            return stopping();
        }
        drop(forwarding);
        state.counters.reset(self.readings());
        tracing::info!("P4Runtime: pipeline set");
        state.pipeline.saved = None;
        state.pipeline.running = Some(verified);
        Ok(())
    }

    fn pipeline(
        &self,
        request: GetForwardingPipelineConfigRequest,
    ) -> Result<ForwardingPipelineConfig, Refusal> {
        use get_forwarding_pipeline_config_request::ResponseType;
        self.check_device(request.device_id)?;
        let state = self.state();
        let Some(Verified { config, .. }) = &state.pipeline.running else { return not_running() };
        let wants = request.response_type();
        let p4info = matches!(wants, ResponseType::All | ResponseType::P4infoAndCookie);
        let device = matches!(wants, ResponseType::All | ResponseType::DeviceConfigAndCookie);
        let mut p4info = config.p4info.clone().filter(|_| p4info);
        if self.room.packets > 0 {
            p4info.iter_mut().for_each(|info| set_room(info, &self.room.to_string()));
        }
        Ok(ForwardingPipelineConfig {
            p4info,
            p4_device_config: if device { config.p4_device_config.clone() } else { Vec::new() },
            cookie: config.cookie,
        })
    }
}

/// There is one role.
pub fn check_role(id: u64, name: &str) -> Result<(), Refusal> {
    if id == 0 && name.is_empty() {
        return Ok(());
    }
    refuse(Code::NotFound, "there are no roles here: leave the role out")
}

/// Whether a pipeline is in force.
pub fn check_running(pipeline: &Pipeline) -> Result<(), Refusal> {
    if pipeline.running.is_some() { Ok(()) } else { not_running() }
}

fn not_running<T>() -> Result<T, Refusal> {
    refuse(
        Code::FailedPrecondition,
        "no pipeline is set: use SetForwardingPipelineConfig with this server's P4Info",
    )
}

/// The answer while the server ends.
pub fn stopping<T>() -> Result<T, Refusal> {
    refuse(Code::Unavailable, "the server is stopping")
}

/// An election id as a number.
#[must_use]
pub fn number(id: Option<Uint128>) -> Option<u128> {
    id.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = ReceiverStream<Result<ReadResponse, Status>>;
    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        self.0.write(request.into_inner())?;
        Ok(Response::new(WriteResponse {}))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        Ok(Response::new(self.0.read(request.into_inner())?))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        self.0.set_pipeline(request.into_inner())?;
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let config = Some(self.0.pipeline(request.into_inner())?);
        Ok(Response::new(GetForwardingPipelineConfigResponse { config }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        Ok(Response::new(super::stream::open(Arc::clone(&self.0), request.into_inner())?))
    }

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        Ok(Response::new(CapabilitiesResponse { p4runtime_api_version: API_VERSION.to_owned() }))
    }
}
