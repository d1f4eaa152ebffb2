//! How much a switch program has room for, as its P4Info says.

use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info::P4InfoError;

/// Numbers of workers that have counters of their own, as a power of two.
pub const WORKER_BITS: u32 = 7;

/// Room on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Data slots of all jobs together.
    pub data_slots: u32,
    /// Norm slots of all jobs together.
    pub norm_slots: u32,
    /// Jobs at a time.
    pub jobs: u32,
    /// Lookup tables at a time.
    pub tables: u32,
}

impl Capacity {
    /// Of this program.
    ///
    /// # Errors
    /// [`P4InfoError::Missing`] if it is not THC's.
    pub fn of(info: &P4Info) -> Result<Capacity, P4InfoError> {
        let size = |size: i64| u32::try_from(size).unwrap_or(0);
        let counted = size(info.counter("packets")?.size) >> WORKER_BITS;
        // A slot is a cell for each pass.
        let passes = size(info.table("passes")?.size).max(1);
        Ok(Capacity {
            data_slots: size(info.register("heads")?.size.into()) / passes,
            norm_slots: size(info.register("tags")?.size.into()),
            jobs: counted.min(size(info.table("jobs")?.size)),
            // The number 0 is none.
            tables: size(info.table("lookup")?.size).min(255),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn of_the_program() {
        let info =
            p4runtime_proto::p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap();
        let capacity = Capacity::of(&info).unwrap();
        assert_eq!((capacity.data_slots, capacity.norm_slots, capacity.tables), (1024, 1024, 255));
        assert!(capacity.jobs.is_power_of_two() && capacity.jobs >= 16, "{capacity:?}");
    }

    #[test]
    fn another_program_is_named() {
        let error = Capacity::of(&P4Info::default()).unwrap_err().to_string();
        assert!(error.contains("packets"), "{error}");
    }
}
