//! Metrics as OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, text as openmetrics,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The names and values of a sample's labels.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// Returns what `write` writes by [`counters`] and [`gauges`], as OpenMetrics text. All names begin with `prefix` and `_`.
///
/// # Errors
/// The errors of `write`. Writing to memory cannot fail.
pub fn text(
    prefix: &str,
    write: impl Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(Written(write)));
    let mut text = String::new();
    openmetrics::encode(&mut text, &registry)?;
    Ok(text)
}

struct Written<F>(F);

impl<F> fmt::Debug for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
    }
}

impl<F> Collector for Written<F>
where
    F: Fn(&mut DescriptorEncoder<'_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0(&mut encoder)
    }
}

/// Writes a counter with its samples, whose names end in `_total`.
///
/// # Errors
/// The encoder's errors.
pub fn counters<const N: usize, V: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels<N>, V)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in rows {
        ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Writes a gauge with its samples.
///
/// # Errors
/// The encoder's errors.
pub fn gauges<const N: usize, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels<N>, V)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}
