//! The gRPC service over [`Desk`].

use crate::desk::Desk;
use thc_control_proto::v1::control_server::Control;
use thc_control_proto::v1::{
    CreateJobRequest, DeleteJobRequest, DeleteJobResponse, DeleteTableRequest, DeleteTableResponse,
    DiagnoseRequest, DiagnoseResponse, GetJobRequest, InstallTableRequest, Job, JoinRequest, JoinResponse,
    ListJobsRequest, ListJobsResponse, ListTablesRequest, ListTablesResponse, ListTargetsRequest,
    ListTargetsResponse, ReadCountersRequest, ReadCountersResponse, ReportRequest, ReportResponse, Table,
};
use tonic::{Request, Response, Status, async_trait};

/// The service.
#[derive(Clone, Debug)]
pub struct Service(pub Desk);

#[async_trait]
impl Control for Service {
    async fn create_job(&self, request: Request<CreateJobRequest>) -> Result<Response<Job>, Status> {
        let spec = request.into_inner().spec.unwrap_or_default();
        Ok(Response::new(self.0.create_job(&spec).await?))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        Ok(Response::new(ListJobsResponse { jobs: self.0.jobs() }))
    }

    async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<Job>, Status> {
        Ok(Response::new(self.0.job(&request.into_inner().name)?))
    }

    async fn delete_job(
        &self,
        request: Request<DeleteJobRequest>,
    ) -> Result<Response<DeleteJobResponse>, Status> {
        self.0.delete_job(&request.into_inner().name).await?;
        Ok(Response::new(DeleteJobResponse {}))
    }

    async fn install_table(&self, request: Request<InstallTableRequest>) -> Result<Response<Table>, Status> {
        Ok(Response::new(self.0.install_table(&request.into_inner()).await?))
    }

    async fn list_tables(
        &self,
        _: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        Ok(Response::new(ListTablesResponse { tables: self.0.tables() }))
    }

    async fn delete_table(
        &self,
        request: Request<DeleteTableRequest>,
    ) -> Result<Response<DeleteTableResponse>, Status> {
        self.0.delete_table(request.into_inner().id).await?;
        Ok(Response::new(DeleteTableResponse {}))
    }

    async fn list_targets(
        &self,
        _: Request<ListTargetsRequest>,
    ) -> Result<Response<ListTargetsResponse>, Status> {
        Ok(Response::new(ListTargetsResponse { targets: self.0.targets() }))
    }

    async fn read_counters(
        &self,
        request: Request<ReadCountersRequest>,
    ) -> Result<Response<ReadCountersResponse>, Status> {
        Ok(Response::new(self.0.counters(&request.into_inner().job)?))
    }

    async fn diagnose(
        &self,
        request: Request<DiagnoseRequest>,
    ) -> Result<Response<DiagnoseResponse>, Status> {
        Ok(Response::new(self.0.diagnose(&request.into_inner().job)?))
    }

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        Ok(Response::new(self.0.join(&request.into_inner())?))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        self.0.report(request.into_inner())?;
        Ok(Response::new(ReportResponse {}))
    }
}
