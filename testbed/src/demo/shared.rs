//! placeholder
use super::plan::WorkerPlan;
use crate::error::Result;
/// placeholder
pub fn run(_: &WorkerPlan) -> Result<()> {
    Err(crate::error::Error::Orphaned)
}
