//! Reports this worker's totals to the controller.

use super::{Controller, client};
use crate::Stats;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::time::Duration;
use thc_control_proto::v1::control_client::ControlClient;
use thc_control_proto::v1::{ReportRequest, WorkerReport};
use tonic::transport::Channel;

/// The interval at which a worker reports.
const PERIOD: Duration = Duration::from_secs(2);

/// A thread that reports until this is dropped. The drop does not wait for the thread, whose connection may hang.
#[derive(Debug)]
pub struct Reporter {
    _stop: Sender<()>,
}

impl Reporter {
    /// Reports what `stats` returns, until it returns `None`.
    ///
    /// # Errors
    /// An error if no thread can be started.
    pub fn start(
        controller: Controller,
        worker: u8,
        stats: impl Fn() -> Option<Stats> + Send + 'static,
    ) -> std::io::Result<Reporter> {
        let (stop, stopped) = bounded(0);
        std::thread::Builder::new().name("thc-report".to_owned()).spawn(move || {
            let Ok(runtime) = client::runtime() else { return };
            let mut connection = None;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Some(stats) = stats() else { return };
                let request = ReportRequest {
                    job: controller.url.job().to_owned(),
                    worker: worker.into(),
                    token: controller.token,
                    report: Some(report(&stats)),
                };
                if let Err(error) = runtime.block_on(send(&controller, &mut connection, request)) {
                    tracing::debug!("{}: a report was not taken: {}", controller.url, client::words(&error));
                    connection = None;
                }
            }
        })?;
        Ok(Reporter { _stop: stop })
    }
}

async fn send(
    controller: &Controller,
    connection: &mut Option<ControlClient<Channel>>,
    request: ReportRequest,
) -> Result<(), tonic::Status> {
    if let Some(client) = connection {
        return client.report(request).await.map(|_| ());
    }
    let mut client = client::connect(controller).await?;
    client.report(request).await?;
    *connection = Some(client);
    Ok(())
}

fn report(stats: &Stats) -> WorkerReport {
    WorkerReport {
        calls: stats.calls,
        packets: stats.packets_up.saturating_sub(stats.retransmissions),
        repeated_packets: stats.retransmissions,
        round_trip_us: u32::try_from(stats.round_trip.as_micros()).unwrap_or(u32::MAX),
        stragglers: stats.stragglers,
    }
}
