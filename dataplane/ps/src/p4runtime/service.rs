//! The service's requests.

use std::net::SocketAddr;
use std::sync::Arc;

use p4runtime_proto::API_VERSION;
use p4runtime_proto::v1::p4_runtime_server::P4Runtime;
use p4runtime_proto::v1::{
    CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
    GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamMessageRequest, StreamMessageResponse, WriteRequest,
    WriteResponse,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::clients::Clients;
use super::device::Device;
use crate::forwarding::SharedForwarding;
use crate::shards::Shards;
use thc_config::job::credit::Room;
use thc_config::server::ServerConfig;

/// The P4Runtime service of one server.
#[derive(Clone, Debug)]
pub struct Service(Arc<Device>);

impl Service {
    /// The service of a server that workers reach at `own`, whose ports hold `room` data packets each.
    #[must_use]
    pub fn new(
        config: &ServerConfig,
        own: SocketAddr,
        forwarding: SharedForwarding,
        shards: Shards,
        room: usize,
    ) -> Service {
        let fixed = !config.jobs.is_empty();
        let id = config.p4runtime.as_ref().map_or(0, |p4runtime| p4runtime.device_id);
        let room = Room { packets: u32::try_from(room).unwrap_or(u32::MAX), members: config.members };
        Service(Arc::new(Device::new((id, room), own, forwarding, shards, fixed)))
    }

    /// The controllers, to which packets go.
    #[must_use]
    pub fn clients(&self) -> Arc<Clients> {
        Arc::clone(&self.0.clients)
    }
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
