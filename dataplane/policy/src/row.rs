//! Measures of how well communication is hidden behind computing (AQGB, section 3): ROW, OSF and the time that workers wait.

/// The parts of a worker's step, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Time of computing.
    pub computing: f64,
    /// Time from the first byte of the step's gradients to the last one, including pauses (T_update).
    pub updating: f64,
    /// The part of that time in which the worker also computed.
    pub updating_hidden: f64,
    /// Time of computing while gradients travelled (T_overlap).
    pub hidden: f64,
    /// Time of waiting for gradients with nothing to compute (T_wait).
    pub waiting: f64,
}

impl Overlap {
    /// T_overlap / T_wait (Eq. 1). The result is infinite if the worker never waited, and NaN if nothing travelled either.
    #[must_use]
    pub fn row(&self) -> f64 {
        self.hidden / self.waiting
    }

    /// T_comp / (T_comp + T_update − T_overlap) (section 3.1), where T_overlap is the part of T_update in which the worker
    /// computed. The result is NaN for an empty step.
    #[must_use]
    pub fn osf(&self) -> f64 {
        self.computing / (self.computing + self.updating - self.updating_hidden)
    }
}

/// ROW of a group: the shortest overlap divided by the longest wait (Eq. 2). `None` for a group without workers.
#[must_use]
pub fn group(workers: &[Overlap]) -> Option<f64> {
    let hidden = workers.iter().map(|worker| worker.hidden).reduce(f64::min)?;
    let waiting = workers.iter().map(|worker| worker.waiting).reduce(f64::max)?;
    Some(hidden / waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_and_of_many() {
        let one =
            Overlap { computing: 1.5, updating: 1.0, updating_hidden: 0.75, hidden: 0.5, waiting: 0.25 };
        assert!((one.row() - 2.0).abs() < 1e-12);
        assert!((one.osf() - 1.5 / 1.75).abs() < 1e-12);
        let other = Overlap { hidden: 0.9, waiting: 0.5, ..one };
        assert_eq!(group(&[one, other]), Some(1.0));
        assert_eq!(group(&[Overlap { waiting: 0.0, ..one }]), Some(f64::INFINITY));
        assert_eq!(group(&[]), None);
    }
}
