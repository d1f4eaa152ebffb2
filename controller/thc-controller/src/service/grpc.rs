//! The requests as gRPC has them.

use super::Service;
use crate::refusal::Refusal;
use crate::section::JobSection;
use thc_control_proto::v1::control_server::Control;
use thc_control_proto::v1::{
    ApplyJobsRequest, ApplyJobsResponse, CompareTargetRequest, CompareTargetResponse, CreateJobRequest,
    DeleteJobRequest, DeleteJobResponse, DeleteTableRequest, DeleteTableResponse, DiagnoseRequest,
    DiagnoseResponse, GetJobRequest, InstallTableRequest, Job, JoinRequest, JoinResponse, ListJobsRequest,
    ListJobsResponse, ListTablesRequest, ListTablesResponse, ListTargetsRequest, ListTargetsResponse,
    ReadCountersRequest, ReadCountersResponse, ReadRowsRequest, ReadRowsResponse, ReportRequest,
    ReportResponse, Table, UpdateJobRequest,
};
use tonic::{Request, Response, Status, async_trait};

/// Completes an operation even if the client that asked for it goes away meanwhile.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Status> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Status::internal(format!("the controller has failed: {error}"))),
    }
}

/// The section that a request has.
fn section(text: &str) -> Result<JobSection, Refusal> {
    JobSection::parse(text).map_err(|error| Refusal::invalid(error.to_string()))
}

#[async_trait]
impl Control for Service {
    async fn create_job(&self, request: Request<CreateJobRequest>) -> Result<Response<Job>, Status> {
        let (service, asked) = (self.clone(), section(&request.into_inner().section)?);
        Ok(Response::new(finish(async move { service.create_job(&asked).await }).await?))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        Ok(Response::new(ListJobsResponse { jobs: self.jobs() }))
    }

    async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<Job>, Status> {
        Ok(Response::new(self.job(&request.into_inner().name)?))
    }

    async fn update_job(&self, request: Request<UpdateJobRequest>) -> Result<Response<Job>, Status> {
        let (service, UpdateJobRequest { name, section: text }) = (self.clone(), request.into_inner());
        let asked = section(&text)?;
        Ok(Response::new(finish(async move { service.update_job(&name, &asked).await }).await?))
    }

    async fn delete_job(
        &self,
        request: Request<DeleteJobRequest>,
    ) -> Result<Response<DeleteJobResponse>, Status> {
        let (service, name) = (self.clone(), request.into_inner().name);
        finish(async move { service.delete_job(&name).await }).await?;
        Ok(Response::new(DeleteJobResponse {}))
    }

    async fn install_table(&self, request: Request<InstallTableRequest>) -> Result<Response<Table>, Status> {
        let (service, asked) = (self.clone(), request.into_inner());
        Ok(Response::new(finish(async move { service.install_table(&asked).await }).await?))
    }

    async fn list_tables(
        &self,
        _: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        Ok(Response::new(ListTablesResponse { tables: self.tables() }))
    }

    async fn delete_table(
        &self,
        request: Request<DeleteTableRequest>,
    ) -> Result<Response<DeleteTableResponse>, Status> {
        let (service, id) = (self.clone(), request.into_inner().id);
        finish(async move { service.delete_table(id).await }).await?;
        Ok(Response::new(DeleteTableResponse {}))
    }

    async fn list_targets(
        &self,
        _: Request<ListTargetsRequest>,
    ) -> Result<Response<ListTargetsResponse>, Status> {
        Ok(Response::new(ListTargetsResponse { targets: self.targets() }))
    }

    async fn read_rows(
        &self,
        request: Request<ReadRowsRequest>,
    ) -> Result<Response<ReadRowsResponse>, Status> {
        Ok(Response::new(ReadRowsResponse { rows: self.rows(&request.into_inner().target).await? }))
    }

    async fn compare_target(
        &self,
        request: Request<CompareTargetRequest>,
    ) -> Result<Response<CompareTargetResponse>, Status> {
        let (service, asked) = (self.clone(), request.into_inner());
        let asked_repair = asked.repair;
        let work = async move { service.compare(&asked.target, asked.repair).await };
        let differences = finish(work).await?;
        let repaired = asked_repair && !differences.is_empty();
        Ok(Response::new(CompareTargetResponse { differences, repaired }))
    }

    async fn apply_jobs(
        &self,
        request: Request<ApplyJobsRequest>,
    ) -> Result<Response<ApplyJobsResponse>, Status> {
        let (service, asked) = (self.clone(), request.into_inner());
        let changes = finish(async move { service.apply(&asked).await }).await?;
        Ok(Response::new(ApplyJobsResponse { changes }))
    }

    async fn read_counters(
        &self,
        request: Request<ReadCountersRequest>,
    ) -> Result<Response<ReadCountersResponse>, Status> {
        Ok(Response::new(self.counters(&request.into_inner().job)?))
    }

    async fn diagnose(
        &self,
        request: Request<DiagnoseRequest>,
    ) -> Result<Response<DiagnoseResponse>, Status> {
        Ok(Response::new(self.diagnose(&request.into_inner().job).await?))
    }

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        Ok(Response::new(self.join(&request.into_inner()).await?))
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        self.report(request.into_inner())?;
        Ok(Response::new(ReportResponse {}))
    }
}
