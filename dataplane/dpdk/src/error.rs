//! What DPDK refuses, and what to do about it.

use std::ffi::CStr;

/// A failure of DPDK or of a device.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// The environment did not start.
    #[error("DPDK did not start: {cause}; its messages above say more. Arguments: {arguments}")]
    Eal {
        /// What DPDK says.
        cause: String,
        /// What it was started with.
        arguments: String,
    },
    /// Not root, or a file that root alone may open.
    #[error("DPDK needs rights that this process lacks: run it as root, or grant what docs/dpdk.md lists")]
    Permission,
    /// Too few free hugepages.
    #[error(
        "{needed} MiB of hugepages are needed and {free} MiB are free: write a larger number to \
         /proc/sys/vm/nr_hugepages, or turn hugepages off (--dpdk-hugepages=false)"
    )]
    Hugepages {
        /// MiB.
        needed: u32,
        /// MiB.
        free: u64,
    },
    /// DPDK would end the process over this.
    #[error(
        "{file} is hidden from this process, and DPDK reads it for hugepages: let it see all of /proc \
         (ProcSubset=all in a systemd unit), or turn hugepages off (--dpdk-hugepages=false)"
    )]
    Hidden {
        /// The file.
        file: &'static str,
    },
    /// DPDK runs once per process.
    #[error("DPDK runs in this process already with other {what}: use the same, or another process")]
    Differs {
        /// What is different.
        what: &'static str,
    },
    /// An argument with a zero byte in it.
    #[error("{text:?} has a zero byte in it")]
    Text {
        /// The argument.
        text: String,
    },
    /// A device cannot be found or opened.
    #[error(
        "cannot open device {device}: {cause}; check its name and arguments, that its driver is installed, and that this \
         process has the rights (root, or those of docs/dpdk.md)"
    )]
    Device {
        /// As given.
        device: String,
        /// What DPDK says.
        cause: String,
    },
    /// A device is open in this process.
    #[error("device {device} is in use in this process: give each endpoint devices of its own")]
    InUse {
        /// The device.
        device: String,
    },
    /// A memif client found no server.
    #[error(
        "device {device} found nobody at its socket: start the other end, the one with role=server, first, and check \
         that socket and id are the same"
    )]
    NoServer {
        /// The device.
        device: String,
    },
    /// A device refused a setting.
    #[error("device {device}: cannot set {what}: {cause}")]
    Setting {
        /// The device.
        device: String,
        /// The setting.
        what: &'static str,
        /// What DPDK says.
        cause: String,
    },
    /// A device has too few queues.
    #[error("device {device} has {max} queue(s) and {queues} are wanted: use at most {max} shards on it")]
    Queues {
        /// The device.
        device: String,
        /// As asked.
        queues: u16,
        /// What it has.
        max: u16,
    },
    /// A device cannot tell UDP ports apart.
    #[error(
        "device {device} can send packets to {queues} queues neither by rules (rte_flow) nor by a hash of the UDP \
         port (RSS): use one shard on it"
    )]
    NoSteering {
        /// The device.
        device: String,
        /// As asked.
        queues: u16,
    },
    /// The MTU is beyond what the device can carry.
    #[error(
        "device {device} carries packets up to {max} bytes and {mtu} are wanted: lower mtu, or raise the device's"
    )]
    Mtu {
        /// The device.
        device: String,
        /// As asked.
        mtu: u16,
        /// What it can.
        max: u16,
    },
    /// No memory for packets.
    #[error("cannot make a pool of {packets} packets: {cause}; give DPDK more memory or use fewer")]
    Pool {
        /// As asked.
        packets: u32,
        /// What DPDK says.
        cause: String,
    },
}

/// DPDK's text for an error number, given as it comes: positive or negative.
pub(crate) fn text(errno: i32) -> String {
    // SAFETY: `rte_strerror` takes any number and returns a string that ends with zero and lives until
    // the next call on this thread; it is copied at once.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno.saturating_abs())) };
    text.to_string_lossy().into_owned()
}

/// Why DPDK does not open a device.
pub(crate) fn open_failure_text(errno: i32) -> String {
    match errno.saturating_abs() {
        // No bus knows a driver by this name.
        libc::EFAULT => "no driver that is installed here has this name".to_owned(),
        errno => text(errno),
    }
}

/// `rte_errno` of this thread.
pub(crate) fn errno() -> i32 {
    // SAFETY: reads a thread-local integer.
    unsafe { dpdk_sys::thc_errno() }
}
