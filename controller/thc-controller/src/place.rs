//! Where jobs lie in a switch.

use crate::error::ControllerError;
use thc_ps::JobSetup;

/// Data slots of the switch program (`DATA_SLOTS` in p4/shared).
pub const DATA_SLOTS: u32 = 1024;
/// Norm slots of the switch program (`NORM_SLOTS`).
pub const NORM_SLOTS: u32 = 1024;
/// Jobs that have counters of their own.
pub const MAX_JOBS: usize = 16;

/// A job and its place.
#[derive(Clone, Debug)]
pub struct PlacedJob {
    /// The job.
    pub setup: JobSetup,
    /// Selects its counters.
    pub index: u8,
    /// Its first data slot.
    pub data_base: u32,
    /// Its first norm slot.
    pub norm_base: u32,
    /// Its multicast group.
    pub group: u16,
}

/// Places jobs one behind the other.
///
/// # Errors
/// [`ControllerError::Jobs`], [`ControllerError::Slots`], and [`ControllerError::Value`] for lanes that the
/// program does not have.
pub fn place(jobs: &[JobSetup]) -> Result<Vec<PlacedJob>, ControllerError> {
    if jobs.len() > MAX_JOBS {
        return Err(ControllerError::Jobs { wanted: jobs.len(), there: MAX_JOBS });
    }
    let total = |slots: fn(&JobSetup) -> u32| jobs.iter().map(slots).fold(0, u32::saturating_add);
    let checks = [
        ("data", total(|job| job.config.data_slots), DATA_SLOTS),
        ("norm", total(|job| job.config.norm_slots), NORM_SLOTS),
    ];
    for (kind, wanted, there) in checks {
        if wanted > there {
            return Err(ControllerError::Slots { kind, wanted, there });
        }
    }
    let (mut data_base, mut norm_base) = (0, 0);
    let mut placed = Vec::with_capacity(jobs.len());
    for (index, setup) in (0u8..).zip(jobs) {
        if setup.config.lane != thc_protocol::Lane::Bits8 {
            return Err(ControllerError::Value {
                key: format!("job {}: lane", setup.config.job),
                value: setup.config.lane.bits().to_string(),
                mend:
                    "the switch program adds in lanes of 8 bits; use fewer workers or a smaller granularity"
                        .to_owned(),
            });
        }
        placed.push(PlacedJob {
            setup: setup.clone(),
            index,
            data_base,
            norm_base,
            group: u16::from(index) + 1,
        });
        data_base += setup.config.data_slots;
        norm_base += setup.config.norm_slots;
    }
    Ok(placed)
}
