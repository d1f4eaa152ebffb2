//! Failures of DPDK, and what a user can do about them.

use std::ffi::CStr;

/// A failure of DPDK or of a device.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// DPDK's environment did not start.
    #[error("DPDK did not start: {cause}; its messages above say more. Arguments: {arguments}")]
    Eal {
        /// DPDK's message.
        cause: String,
        /// The arguments with which it was started.
        arguments: String,
    },
    /// The process is not root, or may not open a file that DPDK needs.
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
    /// A file that DPDK needs is hidden from the process, in which case DPDK would end the process.
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
        /// The kind of setting that differs.
        what: &'static str,
    },
    /// An argument contains a zero byte.
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
        /// The device, as the configuration names it.
        device: String,
        /// DPDK's message.
        cause: String,
    },
    /// A device is already open in this process.
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
        /// DPDK's message.
        cause: String,
    },
    /// A device has too few queues.
    #[error("device {device} has {max} queue(s) and {queues} are wanted: use at most {max} shards on it")]
    Queues {
        /// The device.
        device: String,
        /// The number that was requested.
        queues: u16,
        /// The number that the device has.
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
        /// The number that was requested.
        queues: u16,
    },
    /// The MTU is beyond what the device can carry.
    #[error(
        "device {device} carries packets up to {max} bytes and {mtu} are wanted: lower mtu, or raise the device's"
    )]
    Mtu {
        /// The device.
        device: String,
        /// The requested MTU.
        mtu: u16,
        /// The largest MTU that the device supports.
        max: u16,
    },
    /// DPDK has too little memory for packets.
    #[error("cannot make a pool of {packets} packets: {cause}; give DPDK more memory or use fewer")]
    Pool {
        /// The number that was requested.
        packets: u32,
        /// DPDK's message.
        cause: String,
    },
}

/// DPDK's text for an error number, which may be positive or negative.
pub(crate) fn text(errno: i32) -> String {
    // SAFETY: `rte_strerror` takes any number. It returns a string that ends with zero and stays valid until the next
    // call on this thread, and this function copies it at once.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno.saturating_abs())) };
    text.to_string_lossy().into_owned()
}

/// Why DPDK does not open a device.
pub(crate) fn open_failure_text(errno: i32) -> String {
    match errno.saturating_abs() {
        // No bus has a driver of this name.
        libc::EFAULT => "no installed driver has this name".to_owned(),
        errno => text(errno),
    }
}

/// `rte_errno` of this thread.
pub(crate) fn errno() -> i32 {
    // SAFETY: reads a thread-local integer.
    unsafe { dpdk_sys::thc_errno() }
}
