//! How much a switch program has room for, as its P4Info says.

use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info::P4InfoError;
use std::fmt;
use thc_protocol::wire::Form;

/// Numbers of workers that have counters of their own, as a power of two.
pub const WORKER_BITS: u32 = 7;

/// The forms of packets that a program does (P2): bit i is the i-th of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms(u16);

impl Forms {
    /// As the annotation `@forms("2/4 4/8")` of `lookup` says; of a program without, the usual one.
    #[must_use]
    pub fn of(info: &P4Info) -> Forms {
        let said = info.table("lookup").ok().and_then(|table| table.annotation("forms"));
        let usual = Form::USUAL.to_string();
        let has = |form: &Form| said.unwrap_or(&usual).split(' ').any(|name| name == form.to_string());
        let bits = Form::ALL.iter().zip(0..).filter(|(form, _)| has(form)).map(|(_, place)| 1 << place);
        Forms(bits.sum())
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(self, form: Form) -> bool {
        self.iter().any(|one| one == form)
    }

    fn iter(self) -> impl Iterator<Item = Form> {
        Form::ALL
            .into_iter()
            .zip(0..)
            .filter(move |(_, place)| self.0 >> place & 1 == 1)
            .map(|(form, _)| form)
    }
}

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|form| form.to_string()).collect();
        f.write_str(&names.join(", "))
    }
}

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
    /// What packets it does, if that is known: a target says so when it is there.
    pub forms: Option<Forms>,
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
            forms: Some(Forms::of(info)),
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
        let forms = capacity.forms.unwrap();
        assert_eq!(forms.to_string(), "2/4, 4/8, 8/16");
        assert!(forms.contains(Form::USUAL) && !Forms(0).contains(Form::USUAL));
        assert_eq!(Forms::of(&P4Info::default()).to_string(), "4/8");
        assert!(capacity.jobs.is_power_of_two() && capacity.jobs >= 16, "{capacity:?}");
    }

    #[test]
    fn another_program_is_named() {
        let error = Capacity::of(&P4Info::default()).unwrap_err().to_string();
        assert!(error.contains("packets"), "{error}");
    }
}
