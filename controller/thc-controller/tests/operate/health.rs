//! gRPC's health service (grpc.health.v1), as probes ask it.

use crate::aggregator;
use crate::controller::{Controller, HANG};
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

/// The one that has the jobs serves; the one that stands by does not, until it has them.
#[tokio::test(flavor = "multi_thread")]
async fn the_one_that_has_the_jobs_serves() {
    let server = aggregator::start();
    let target = aggregator::target_section(&server, "ps1");
    let first = Controller::start(&target);
    let second = Controller::start_with(&target, &first.folder().join("jobs.state"));
    for service in ["", "thc.control.v1.Control"] {
        assert_eq!(health(first.listen, service).await, Ok(ServingStatus::Serving));
        assert_eq!(health(second.listen, service).await, Ok(ServingStatus::NotServing));
    }
    assert_eq!(health(first.listen, "another").await, Err(Code::NotFound));
    // Those who watch hear of the change.
    let channel =
        Endpoint::from_shared(format!("http://{}", second.listen)).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: String::new() };
    let mut watched = HealthClient::new(channel).watch(request).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
    let _folder = first.stop();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    assert_eq!(health(second.listen, "thc.control.v1.Control").await, Ok(ServingStatus::Serving));
}

/// A thc-ps says so at its P4Runtime port.
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
