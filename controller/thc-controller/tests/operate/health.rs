//! gRPC's health service (grpc.health.v1), as probes ask it.

use crate::aggregator;
use crate::controller::HANG;
use std::net::SocketAddr;
use std::time::Instant;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// What a service says of itself.
async fn health(at: SocketAddr, service: &str) -> Result<ServingStatus, Code> {
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel).check(request).await.map_err(|status| status.code())?;
    match answer.into_inner().status {
        1 => Ok(ServingStatus::Serving),
        2 => Ok(ServingStatus::NotServing),
        _ => Ok(ServingStatus::Unknown),
    }
}

/// A thc-ps says at its P4Runtime port that it serves.
#[tokio::test]
async fn a_parameter_server_serves() {
    let server = aggregator::start();
    let at = server.p4runtime().unwrap();
    let start = Instant::now();
    while health(at, "p4.v1.P4Runtime").await != Ok(ServingStatus::Serving) {
        assert!(start.elapsed() < HANG);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(health(at, "").await, Ok(ServingStatus::Serving));
}
