//! What an AF_XDP endpoint is opened with.

use std::fmt;

use crate::TransportError;

/// Entries of each ring unless told otherwise.
const DESCRIPTORS: u32 = 2048;
/// Frames that are handled together, and that a send ring gets at once.
pub(super) const BURST: usize = 64;
/// Bytes of a frame, with the room that the kernel keeps in front.
const FRAME_SIZE: u64 = 2048;
/// The longest name that Linux gives an interface.
const LONGEST_NAME: usize = 15;
/// Queues that an endpoint may have.
const MOST_QUEUES: u16 = 128;

/// Settings of an [`Xdp`](crate::Xdp) endpoint. Start from [`XdpConfig::new`] and change what differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The kernel's interface, by name. The kernel keeps it, with its addresses.
    pub device: String,
    /// How many of its queues have a socket, from queue 0 on; `None`: all.
    pub queues: Option<u16>,
    /// Let the NIC write into the memory of this process, and read from it, without a copy. Its driver must
    /// support that.
    pub zero_copy: bool,
    /// Run the program above the driver (generic XDP), which works on every interface but takes longer.
    /// Otherwise the kernel runs it in the driver if the driver can.
    pub generic: bool,
    /// Entries of each of a queue's rings, a power of two. Each receiving and each sending entry has 2 KiB of memory.
    pub descriptors: u32,
    /// Fill in and check UDP checksums. IPv4 permits UDP without.
    pub checksums: bool,
}

impl XdpConfig {
    /// The defaults on an interface: all its queues, with copying, in the driver if possible, rings of 2048,
    /// checksums.
    #[must_use]
    pub fn new(device: &str) -> Self {
        let device = device.to_owned();
        Self {
            device,
            queues: None,
            zero_copy: false,
            generic: false,
            descriptors: DESCRIPTORS,
            checksums: true,
        }
    }

    /// Refuses settings that cannot work on any interface.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for the first that is wrong.
    pub fn check(&self) -> Result<(), TransportError> {
        let wrong = |key, value: &dyn fmt::Display, mend| {
            Err(TransportError::Setting { backend: "xdp", key, value: value.to_string(), mend })
        };
        let name = &self.device;
        if name.is_empty() {
            return wrong("device", &"missing", "name the interface that leads to the others, such as eth1");
        }
        if name.len() > LONGEST_NAME || name.contains(['/', ' ', ':', ',']) {
            return wrong(
                "device",
                &format!("{name:?}"),
                "name an interface of the kernel, as `ip link` lists them",
            );
        }
        if let Some(queues) = self.queues.filter(|queues| !(1..=MOST_QUEUES).contains(queues)) {
            return wrong("queues", &queues, "use 1 to 128");
        }
        if self.zero_copy && self.generic {
            return wrong("generic", &"true", "zero_copy is the driver's work: leave one of them out");
        }
        if !(64..=32768).contains(&self.descriptors) || !self.descriptors.is_power_of_two() {
            return wrong("descriptors", &self.descriptors, "use a power of two from 64 to 32768");
        }
        Ok(())
    }
}

impl XdpConfig {
    /// Bytes that a queue shares with the kernel, and that are locked.
    #[must_use]
    pub fn memory(&self) -> u64 {
        u64::from(frames(self.descriptors)) * FRAME_SIZE
    }
}

/// Frames of a queue: as many for receiving as its rings have entries, as many for sending, and two bursts
/// being handled.
pub(super) fn frames(descriptors: u32) -> u32 {
    2 * descriptors + 2 * BURST as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused_by_name() {
        XdpConfig::new("eth1").check().unwrap();
        let key = |change: fn(&mut XdpConfig)| {
            let mut config = XdpConfig::new("eth1");
            change(&mut config);
            match config.check() {
                Err(TransportError::Setting { backend: "xdp", key, .. }) => key,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(key(|c| c.device.clear()), "device");
        assert_eq!(key(|c| c.device = "0000:3b:00.0".into()), "device");
        assert_eq!(key(|c| c.device = "an interface's".into()), "device");
        assert_eq!(key(|c| c.queues = Some(0)), "queues");
        assert_eq!(key(|c| c.queues = Some(500)), "queues");
        assert_eq!(key(|c| (c.zero_copy, c.generic) = (true, true)), "generic");
        assert_eq!(key(|c| c.descriptors = 1000), "descriptors");
        assert_eq!(key(|c| c.descriptors = 32), "descriptors");
    }
}
