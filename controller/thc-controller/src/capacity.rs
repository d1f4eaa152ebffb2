//! The capacity of a switch program, as its P4Info says.

use p4runtime_proto::config::P4Info;
use std::fmt;
use thc_config::job::credit::Room;
use thc_protocol::wire::Form;

/// Numbers of workers that have counters of their own, as a power of two.
pub const WORKER_BITS: u32 = 7;

/// The forms of packets that a program supports (P2): bit i stands for the i-th of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms(u16);

impl Forms {
    /// The forms that the annotation `@forms("2/4 4/8")` of `lookup` or `job_tables` names; for a program without it, the usual one.
    pub fn from_p4info(info: &P4Info) -> Forms {
        let tables = ["lookup", "job_tables"].map(|name| info.table(name).ok());
        let said = tables.iter().flatten().find_map(|table| table.annotation("forms"));
        let usual = Form::USUAL.to_string();
        let has = |form: &Form| said.unwrap_or(&usual).split(' ').any(|name| name == form.to_string());
        let bits = Form::ALL.iter().zip(0..).filter(|(form, _)| has(form)).map(|(_, place)| 1 << place);
        Forms(bits.sum())
    }

    /// Returns whether this is one of them.
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

/// Rows of a program's tables, or of a job in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows of `members`.
    pub members: u32,
    /// Rows of `addresses`.
    pub addresses: u32,
    /// Rows of `job_tables`.
    pub job_tables: u32,
    /// Rows of `roots`.
    pub roots: u32,
}

impl RowCounts {
    /// The counts with the tables' names.
    pub fn counts_by_name(&self) -> [(&'static str, u32); 4] {
        let RowCounts { members, addresses, job_tables, roots } = *self;
        [("members", members), ("addresses", addresses), ("job_tables", job_tables), ("roots", roots)]
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
    /// Rows of its tables for jobs.
    pub rows: RowCounts,
    /// The packets that it supports, if known: a connected target says so.
    pub forms: Option<Forms>,
}

/// The content of the annotation `@room("5461 64")` of `jobs`: packets that a port holds, and members for
/// which it is planned.
pub fn room(info: &P4Info) -> Option<Room> {
    info.table("jobs").ok()?.annotation("room")?.parse().ok()
}

/// Returns whether a program keeps the congestion marks of slots (P46): it has the register `marks`, on Tofino as an extern.
pub fn marks(info: &P4Info) -> bool {
    let registers = info.registers.iter().filter_map(|register| register.preamble.as_ref());
    let externs = info.externs.iter().flat_map(|kind| &kind.instances);
    let externs = externs.filter_map(|instance| instance.preamble.as_ref());
    registers.chain(externs).any(|preamble| preamble.alias == "marks")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_keep_marks_say_so() {
        let programs: [&[u8]; 3] = [
            include_bytes!("../../../p4/build/thc.p4info.txtpb"),
            include_bytes!("../../../p4/build/tofino/tofino.p4info.txtpb"),
            include_bytes!("../../../p4/build/tofino/tofino2.p4info.txtpb"),
        ];
        for program in programs {
            let mut info = p4runtime_proto::p4info::parse(program).unwrap();
            assert!(marks(&info));
            info.registers.clear();
            info.externs.clear();
            assert!(!marks(&info));
        }
    }

    #[test]
    fn forms_are_what_the_annotation_says() {
        let info =
            p4runtime_proto::p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap();
        let forms = Forms::from_p4info(&info);
        assert_eq!(forms.to_string(), "2/4, 4/8, 8/16");
        assert!(forms.contains(Form::USUAL) && !Forms(0).contains(Form::USUAL));
        assert_eq!(Forms::from_p4info(&P4Info::default()).to_string(), "4/8");
    }
}
