//! The requests as gRPC has them.

use super::Service;
use crate::section::JobSection;
use thc_control_proto::v1;
use thc_control_proto::v1::control_server::Control;
use tonic::{Request, Response, Status, async_trait};

/// Completes an operation even if the client that asked for it goes away meanwhile.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    match tokio::spawn(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Status::internal(format!("the controller has failed: {error}"))),
    }
}

type Reply<T> = Result<Response<T>, Status>;

#[async_trait]
impl Control for Service {
    async fn create_job(&self, request: Request<v1::CreateJobRequest>) -> Reply<v1::Job> {
        let (service, asked) = (self.clone(), JobSection::parse(&request.into_inner().section)?);
        Ok(Response::new(finish(async move { service.create_job(&asked).await }).await?))
    }

    async fn list_jobs(&self, _: Request<v1::ListJobsRequest>) -> Reply<v1::ListJobsResponse> {
        Ok(Response::new(v1::ListJobsResponse { jobs: self.jobs() }))
    }

    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Reply<v1::Job> {
        Ok(Response::new(self.job(&request.into_inner().name)?))
    }

    async fn delete_job(&self, request: Request<v1::DeleteJobRequest>) -> Reply<v1::DeleteJobResponse> {
        let (service, name) = (self.clone(), request.into_inner().name);
        finish(async move { service.delete_job(&name).await }).await?;
        Ok(Response::new(v1::DeleteJobResponse {}))
    }

    async fn list_targets(&self, _: Request<v1::ListTargetsRequest>) -> Reply<v1::ListTargetsResponse> {
        Ok(Response::new(v1::ListTargetsResponse { targets: self.targets() }))
    }

    async fn apply_jobs(&self, request: Request<v1::ApplyJobsRequest>) -> Reply<v1::ApplyJobsResponse> {
        let (service, asked) = (self.clone(), request.into_inner());
        let changes = finish(async move { service.apply(&asked).await }).await?;
        Ok(Response::new(v1::ApplyJobsResponse { changes }))
    }

    async fn diagnose(&self, request: Request<v1::DiagnoseRequest>) -> Reply<v1::DiagnoseResponse> {
        Ok(Response::new(self.diagnose(&request.into_inner().job).await?))
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Reply<v1::JoinResponse> {
        Ok(Response::new(self.join(&request.into_inner()).await?))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Reply<v1::ReportResponse> {
        self.report(request.into_inner())?;
        Ok(Response::new(v1::ReportResponse {}))
    }
}
