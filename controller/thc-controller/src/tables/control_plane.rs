//! Table `control_plane`: the kinds of packets that go to the controller.

use super::Row;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Key: the kind's number (P2).
    pub kind: u8,
    /// The controller's port.
    pub port: u16,
}

impl Row for ControlPlane {
    const TABLE: &'static str = "control_plane";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("kind", self.kind.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        ("to_control", vec![("port", self.port.into())])
    }
}
