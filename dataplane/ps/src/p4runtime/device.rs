//! The state behind requests, and the checks that they share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use p4runtime_proto::v1::{
    ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, SetForwardingPipelineConfigRequest,
    Uint128, get_forwarding_pipeline_config_request, set_forwarding_pipeline_config_request,
};
use tonic::Code;

use super::clients::{Clients, check_role, number};
use super::counters::Readings;
use super::pipeline::{built_in, verify};
use super::refusal::{Refusal, refuse};
use crate::forwarding::SharedForwarding;
use crate::rows::{Program, set_room};
use crate::shards::Shards;
use thc_config::job::credit::Room;

/// The state behind requests.
#[derive(Debug)]
pub struct Device {
    /// The number that requests must name.
    pub id: u64,
    /// The built-in program.
    pub program: &'static Program,
    /// The rows.
    pub forwarding: SharedForwarding,
    /// The shards, which count and send.
    pub shards: Shards,
    /// The controllers.
    pub clients: Arc<Clients>,
    /// True if the jobs are static: then nothing can be written.
    fixed: bool,
    /// The room of its ports.
    room: Room,
    state: Mutex<State>,
}

/// The state that only requests change.
#[derive(Debug, Default)]
pub struct State {
    /// The pipeline configuration in force.
    pub pipeline: Option<ForwardingPipelineConfig>,
    /// The counts from which counters begin with 0.
    pub base: Arc<Readings>,
}

impl Device {
    /// The device of a server that workers reach at `own`. If the jobs are `fixed`, so is the pipeline.
    #[must_use]
    pub fn new(
        (id, room): (u64, Room),
        own: SocketAddr,
        forwarding: SharedForwarding,
        shards: Shards,
        fixed: bool,
    ) -> Device {
        let pipeline = fixed.then(built_in);
        Device {
            id,
            program: Program::get(),
            clients: Arc::new(Clients::new(id, own, forwarding.clone(), shards.clone())),
            forwarding,
            shards,
            fixed,
            room,
            state: Mutex::new(State { pipeline, ..State::default() }),
        }
    }

    /// Waits until no other request changes it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters up to now.
    #[must_use]
    pub fn readings(&self) -> Readings {
        Readings::from_reports(&self.shards.reports())
    }

    fn check_device(&self, id: u64) -> Result<(), Refusal> {
        if id == self.id {
            return Ok(());
        }
        refuse(Code::NotFound, format!("there is no device {id}: this is device {}", self.id))
    }

    /// Checks whether a request may change something.
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

    /// Checks whether a request may read something.
    pub fn check_reader(&self, device: u64) -> Result<(), Refusal> {
        self.check_device(device)?;
        check_running(&self.state().pipeline)
    }

    /// Takes a pipeline configuration.
    pub fn set_pipeline(&self, request: SetForwardingPipelineConfigRequest) -> Result<(), Refusal> {
        use set_forwarding_pipeline_config_request::Action;
        let action = request.action();
        self.check_writer(request.device_id, (request.role_id, &request.role), request.election_id)?;
        let mut state = self.state();
        match action {
            Action::Unspecified => refuse(Code::InvalidArgument, "the request has no action"),
            Action::Verify => verify(request.config).map(drop),
            Action::VerifyAndSave | Action::Commit => refuse(
                Code::Unimplemented,
                "a config is set at once: use VERIFY_AND_COMMIT or RECONCILE_AND_COMMIT",
            ),
            Action::VerifyAndCommit => {
                let verified = verify(request.config)?;
                self.commit(&mut state, verified)
            }
            Action::ReconcileAndCommit => {
                state.pipeline = Some(verify(request.config)?);
                Ok(())
            }
        }
    }

    /// A configuration comes into force: all tables are empty, all counters are 0.
    fn commit(&self, state: &mut State, verified: ForwardingPipelineConfig) -> Result<(), Refusal> {
        let mut forwarding = self.forwarding.lock();
        forwarding.restore(Arc::default());
        if !forwarding.commit() {
            return refuse_stopping();
        }
        drop(forwarding);
        state.base = Arc::new(self.readings());
        tracing::info!("P4Runtime: pipeline set");
        state.pipeline = Some(verified);
        Ok(())
    }

    /// The pipeline configuration in force.
    pub fn pipeline(
        &self,
        request: GetForwardingPipelineConfigRequest,
    ) -> Result<ForwardingPipelineConfig, Refusal> {
        use get_forwarding_pipeline_config_request::ResponseType;
        self.check_device(request.device_id)?;
        let state = self.state();
        let Some(config) = &state.pipeline else { return not_running() };
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

/// Checks that a pipeline is in force.
pub fn check_running(pipeline: &Option<ForwardingPipelineConfig>) -> Result<(), Refusal> {
    if pipeline.is_some() { Ok(()) } else { not_running() }
}

fn not_running<T>() -> Result<T, Refusal> {
    refuse(
        Code::FailedPrecondition,
        "no pipeline is set: use SetForwardingPipelineConfig with this server's P4Info",
    )
}

/// The answer while the server ends.
pub fn refuse_stopping<T>() -> Result<T, Refusal> {
    refuse(Code::Unavailable, "the server is stopping")
}
