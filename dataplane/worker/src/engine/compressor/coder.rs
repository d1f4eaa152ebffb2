//! A table of a job with its quantizer.

use crate::WorkerError;
use thc_codec::error::CodecError;
use thc_codec::quantizer::Quantizer;
use thc_codec::table::LookupTable;
use thc_protocol::TableId;
use thc_protocol::wire::{Form, Table};

/// t_p of usable tables: with it every norm gives a normal range for every d, and estimates whose norm is finite (P5).
pub(super) const T_P: std::ops::RangeInclusive<f64> = 1.0 / 65536.0..=38.0;

/// A table of the job, and what quantizes onto it.
pub(super) struct Coder {
    pub id: TableId,
    pub table: LookupTable,
    pub quantizer: Quantizer,
    pub form: Form,
}

impl Coder {
    pub(super) fn new(wire: &Table, workers: u16) -> Result<Coder, WorkerError> {
        let unusable = |reason: String| WorkerError::Unusable { reason };
        let &Table { id, bits, form, granularity, fraction, t_p, values } = wire;
        let identity: Vec<u8> = (0..=u8::MAX).collect();
        let values = if form.is_identity() { &identity[..] } else { &values[..1 << bits.min(4)] };
        let unused = if form.is_identity() { &wire.values[..] } else { &wire.values[values.len()..] };
        if unused.iter().any(|&value| value != 0) {
            let last = values.len() - 1;
            return Err(unusable(format!(
                "table {id} of {bits} bits has values behind its last index, {last}"
            )));
        }
        let table = LookupTable::with_threshold(values, fraction, t_p)
            .map_err(|error| unusable(format!("table {id}: {error}")))?;
        if table.granularity() != granularity {
            return Err(unusable(format!(
                "table {id} ends with {}, but its granularity is {granularity}",
                table.granularity(),
            )));
        }
        let sum = u32::from(workers) * u32::from(granularity);
        if workers == 0 || sum > form.max_sum() {
            return Err(unusable(format!(
                "{workers} workers with granularity {granularity} overflow the {}-bit lanes of table {id}",
                form.sums()
            )));
        }
        if !T_P.contains(&t_p) {
            return Err(unusable(format!(
                "t_p = {t_p:e} of p = {fraction}: norms leave room from {:e} to {} (P5)",
                T_P.start(),
                T_P.end()
            )));
        }
        Coder::from_table(id, table, form).map_err(|error| unusable(format!("table {id}: {error}")))
    }

    pub(super) fn from_table(id: TableId, table: LookupTable, form: Form) -> Result<Coder, CodecError> {
        let quantizer = Quantizer::new(&table).with_width(form.width())?;
        Ok(Coder { id, table, quantizer, form })
    }
}
