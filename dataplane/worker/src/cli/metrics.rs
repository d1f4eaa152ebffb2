//! The metrics of a running worker for Prometheus: the totals of its group, as the Python package exports them, and the age of a call.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thc_config::metrics::{DescriptorEncoder, Labels, MetricsServer, counters, gauges};
use thc_worker::{METRICS, MetricKind, Stats};

/// The last state that the run has reported. Readers get that, and never wait for an all-reduce.
#[derive(Clone, Debug, Default)]
pub struct RunMetrics(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    /// Job and worker; nothing is known before they are.
    of: Option<(u16, u8)>,
    stats: Stats,
    /// When the call began that is under way.
    began: Option<Instant>,
}

impl RunMetrics {
    /// Serves the last state that the run has reported.
    pub fn serve(&self, at: SocketAddr) -> io::Result<MetricsServer> {
        let shared = self.clone();
        let make = move || {
            let state = shared.lock().clone();
            thc_config::metrics::text("thc_group", move |encoder| write(encoder, &state))
        };
        let endpoint = MetricsServer::serve(at, make)?;
        tracing::info!("metrics at http://{}/metrics", endpoint.local());
        Ok(endpoint)
    }

    /// The worker has joined.
    pub fn set_worker(&self, job: u16, worker: u8) {
        self.lock().of = Some((job, worker));
    }

    /// A call begins.
    pub fn begin_call(&self) {
        self.lock().began = Some(Instant::now());
    }

    /// Calls are done; these are the totals.
    pub fn set_stats(&self, stats: Stats) {
        let mut state = self.lock();
        (state.stats, state.began) = (stats, None);
    }

    /// The state is whole at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(encoder: &mut DescriptorEncoder<'_>, state: &State) -> fmt::Result {
    let labels = || -> Option<Labels<2>> {
        state.of.map(|(job, worker)| [("thc_job", job.to_string()), ("worker", worker.to_string())])
    };
    for metric in METRICS {
        let row = labels().map(|labels| (labels, (metric.read)(&state.stats).as_f64()));
        match metric.kind {
            MetricKind::Counter => counters(encoder, metric.name, metric.help, row)?,
            MetricKind::Gauge => gauges(encoder, metric.name, metric.help, row)?,
        }
    }
    let call = state.began.map_or(Duration::ZERO, |began| began.elapsed());
    let help = "How long the all-reduce that is under way has taken so far";
    gauges(encoder, "call_seconds", help, labels().map(|labels| (labels, call.as_secs_f64())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use thc_support::openmetrics::{Family, parse, value};

    type Families = std::collections::BTreeMap<String, Family>;

    fn read(endpoint: &MetricsServer) -> Families {
        let mut stream = TcpStream::connect(endpoint.local()).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        parse(text.split_once("\r\n\r\n").unwrap().1)
    }

    /// Waits until the endpoint writes its text again.
    fn wait_until(endpoint: &MetricsServer, so: impl Fn(&Families) -> bool) -> Families {
        let started = Instant::now();
        loop {
            let families = read(endpoint);
            if so(&families) {
                return families;
            }
            assert!(started.elapsed() < Duration::from_secs(600), "{families:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Each field of the report has its metric, with its value.
    #[test]
    fn all_that_the_report_has_is_exported() {
        let metrics = RunMetrics::default();
        let endpoint = metrics.serve("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(read(&endpoint).values().all(|family| family.samples.is_empty()), "nothing is known yet");
        metrics.set_worker(5, 3);
        metrics.begin_call();
        let call = |families: &Families| {
            value(families, "thc_group_call_seconds", &[("thc_job", "5"), ("worker", "3")])
        };
        wait_until(&endpoint, |families| call(families).is_some_and(|seconds| seconds > 0.0));
        let stats = Stats {
            calls: 1,
            failed: 2,
            coordinates: 3,
            bytes_up: 4,
            bytes_down: 5,
            packets_up: 6,
            packets_down: 7,
            retransmissions: 8,
            timeouts: 9,
            nudged: 10,
            stragglers: 11,
            lost: 12,
            compression: Duration::from_secs(13),
            network: Duration::from_secs(14),
            waiting: Duration::from_secs(15),
            round_trip: Duration::from_secs(16),
            shortest_round_trip: Duration::from_secs(17),
            window: 18,
            decreases: 19,
            marks: 20,
            lost_coordinates: 21,
        };
        metrics.set_stats(stats);
        let families = wait_until(&endpoint, |families| call(families) == Some(0.0));
        let served = families.iter().filter(|(name, _)| *name != "thc_group_call_seconds");
        let served = served.map(|(name, family)| {
            assert_eq!(family.samples.len(), 1, "{name}");
            family.samples[0].1 as u64
        });
        let report = serde_json::to_value(stats).unwrap();
        let fields = report.as_object().unwrap().values().map(|field| field.as_f64().unwrap() as u64);
        assert_eq!(served.collect::<BTreeSet<_>>(), fields.collect());
        assert_eq!(value(&families, "thc_group_sent_bytes", &[("worker", "3")]), Some(4.0));
    }
}
