//! The threads that compute beside the engine's own.

use crate::WorkerError;
use std::sync::Arc;

/// Threads beside the engine's, if there are to be any.
pub(super) fn pool(threads: usize) -> Result<Option<Arc<rayon::ThreadPool>>, WorkerError> {
    if threads <= 1 {
        return Ok(None);
    }
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(threads - 1)
        .thread_name(|i| format!("thc-codec-{i}"))
        .build()
        .map_err(|error| WorkerError::Io(format!("cannot start {threads} threads: {error}")))?;
    Ok(Some(Arc::new(built)))
}
