//! The module `thc._native`: [`thc_worker::Group`] and [`thc_ps::Server`] as Python classes, and the policies of
//! [`thc_policy`].
//!
//! Nothing is decided here: arguments are read, the interpreter is let go, the library is called, and its
//! errors become the exceptions of `thc.errors`. What users see is the package `thc` in `python/thc`.
#![forbid(unsafe_code)]

mod adapt;
mod asynchronous;
mod collective;
mod errors;
mod group;
mod keys;
mod logs;
mod options;
mod packed;
mod process;
mod server;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_export]
    use super::adapt::{ThresholdTable, bytes_of, layerwise, lookup_table, table_error};
    #[pymodule_export]
    use super::asynchronous::{Model, ModelServer, default_shard};
    #[pymodule_export]
    use super::collective::{Collective, CollectiveCall};
    #[pymodule_export]
    use super::group::{Group, Handle, group_metrics};
    #[pymodule_export]
    use super::keys::{method_values, read_config};
    #[pymodule_export]
    use super::logs::set_log;
    #[pymodule_export]
    use super::packed::{Memory, Packed, PackedTensor};
    #[pymodule_export]
    use super::process::available_cores;
    #[pymodule_export]
    use super::server::{Reserved, Server};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::logs::begin();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
