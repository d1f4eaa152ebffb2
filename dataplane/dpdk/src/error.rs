//! Failures of DPDK, and what a user can do about them.

use std::ffi::CStr;

/// A failure of DPDK or of a device.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum DpdkError {
    #[error("DPDK did not start: {cause}; its messages above say more. Arguments: {arguments}")]
    Eal { cause: String, arguments: String },
    #[error("DPDK needs rights that this process lacks: run it as root, or grant what docs/dpdk.md lists")]
    Permission,
    #[error(
        "{needed} MiB of hugepages are needed and {free} MiB are free: write a larger number to \
         /proc/sys/vm/nr_hugepages, or turn hugepages off (--dpdk-hugepages=false)"
    )]
    Hugepages { needed: u32, free: u64 },
    #[error(
        "{file} is hidden from this process, and DPDK reads it for hugepages: let it see all of /proc \
         (ProcSubset=all in a systemd unit), or turn hugepages off (--dpdk-hugepages=false)"
    )]
    Hidden { file: &'static str },
    #[error("DPDK runs in this process already with other {what}: use the same, or another process")]
    Differs { what: &'static str },
    #[error("{text:?} has a zero byte in it")]
    Text { text: String },
    #[error(
        "cannot open device {device}: {cause}; check its name and arguments, that its driver is installed, and that this \
         process has the rights (root, or those of docs/dpdk.md)"
    )]
    Device { device: String, cause: String },
    #[error("device {device} is in use in this process: give each endpoint devices of its own")]
    InUse { device: String },
    #[error(
        "device {device} found nobody at its socket: start the other end, the one with role=server, first, and check \
         that socket and id are the same"
    )]
    NoServer { device: String },
    #[error("device {device}: cannot set {what}: {cause}")]
    Setting { device: String, what: &'static str, cause: String },
    #[error("device {device} has {max} queue(s) and {queues} are wanted: use at most {max} shards on it")]
    Queues { device: String, queues: u16, max: u16 },
    #[error(
        "device {device} can send packets to {queues} queues neither by rules (rte_flow) nor by a hash of the UDP \
         port (RSS): use one shard on it"
    )]
    NoSteering { device: String, queues: u16 },
    #[error(
        "device {device} carries packets up to {max} bytes and {mtu} are wanted: lower mtu, or raise the device's"
    )]
    Mtu { device: String, mtu: u16, max: u16 },
    #[error("cannot make a pool of {packets} packets: {cause}; give DPDK more memory or use fewer")]
    Pool { packets: u32, cause: String },
}

/// DPDK's text for an error number, which may be positive or negative.
pub(crate) fn text(errno: i32) -> String {
    // SAFETY: `rte_strerror` takes any number. It returns a string that ends with zero and stays valid until the next
    // call on this thread, and this function copies it at once.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno.saturating_abs())) };
    text.to_string_lossy().into_owned()
}

/// Returns why DPDK does not open a device.
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
