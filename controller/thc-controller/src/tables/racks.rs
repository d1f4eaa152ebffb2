//! Table `racks`: the jobs in which the switch is a rack (P34).

use super::Row;

/// A rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rack {
    /// Key: the job's number.
    pub job: u16,
    /// Its number among the racks.
    pub rack: u8,
    /// How many racks there are.
    pub racks: u8,
    /// The port behind which the root is.
    pub port: u16,
}

impl Row for Rack {
    const TABLE: &'static str = "racks";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params =
            vec![("rack", self.rack.into()), ("racks", self.racks.into()), ("port", self.port.into())];
        ("set_rack", params)
    }
}
