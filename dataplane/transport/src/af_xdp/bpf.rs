//! bpf(2): a map of sockets, a program, and its attachment to an interface.
//!
//! Each is a descriptor, and the kernel drops the object with the last descriptor, so the program is detached
//! however this process ends.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::program::Instruction;

/// Commands (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

/// `BPF_MAP_TYPE_XSKMAP`, `BPF_PROG_TYPE_XDP`, and `BPF_XDP`, the kind of attachment.
const MAP_OF_SOCKETS: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const TO_XDP: u32 = 37;
/// Flags of an attachment: above the driver, or in it. None: the kernel chooses.
pub const GENERIC: u32 = 1 << 1;
/// The program runs in the driver.
pub const NATIVE: u32 = 1 << 2;

/// The program's name in listings, such as those of `bpftool`.
const NAME: [u8; 16] = *b"thc_redirect\0\0\0\0";
/// The licence that the kernel is told. It requires the GPL only for certain helpers, which this program does
/// not use.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";
/// Room for what the verifier says of a program that it refuses.
const LOG: usize = 16 << 10;

/// The arguments of each command: the beginning of the kernel's `union bpf_attr`.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    program: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attached_to: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attached_to: u32,
    flags: u32,
}

/// One command. Its arguments may hold addresses, which must be those of live memory of the size that the
/// command states.
///
/// # Safety
/// `T` begins as the kernel's `union bpf_attr` does for this command, and addresses in it are as above.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the caller vouches for what `attributes` says; the kernel reads and writes no more of it than its size.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>() as libc::c_uint)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as libc::c_int) }
}

/// The same for commands that answer with a descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn open<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller vouches.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>().expose_provenance() as u64
}

/// AF_XDP sockets by queue.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// With room for so many queues.
    pub fn new(queues: u32) -> io::Result<SocketMap> {
        let mut attributes = MapCreate { kind: MAP_OF_SOCKETS, key: 4, value: 4, entries: queues };
        // SAFETY: the first fields of a map's creation; there are no addresses.
        unsafe { open(MAP_CREATE, &mut attributes) }.map(SocketMap)
    }

    /// Has what comes to a queue go to this socket.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let mut attributes = MapUpdate {
            map: self.descriptor().cast_unsigned(),
            zero: 0,
            key: address(&raw const queue),
            value: address(&raw const socket),
            flags: 0,
        };
        // SAFETY: both addresses are of numbers of the four bytes that this map's keys and values have, and they live.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(drop)
    }

    /// What a program names it by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A program that the kernel has checked.
#[derive(Debug)]
pub struct BpfProgram(OwnedFd);

/// A program on an interface, until this is dropped.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
}

impl BpfProgram {
    /// Loads a program. The error has the verifier's message, if the verifier refuses it.
    pub fn load(instructions: &[Instruction]) -> io::Result<BpfProgram> {
        let mut log = [0u8; LOG];
        let mut attributes = ProgramLoad {
            kind: XDP_PROGRAM,
            instructions: instructions.len() as u32,
            program: address(instructions),
            licence: address(LICENCE),
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel: 0,
            flags: 0,
            name: NAME,
            interface: 0,
            attached_to: TO_XDP,
        };
        // SAFETY: the first fields of a program's loading; the slices are as long as they say, the licence ends in zero.
        match unsafe { open(PROGRAM_LOAD, &mut attributes) } {
            Ok(descriptor) => return Ok(BpfProgram(descriptor)),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(_) => {}
        }
        (attributes.log_level, attributes.log_size, attributes.log) = (1, LOG as u32, address(&raw mut log));
        // SAFETY: as before, and the log has the size that is said.
        unsafe { open(PROGRAM_LOAD, &mut attributes) }.map(BpfProgram).map_err(|error| {
            let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            io::Error::new(error.kind(), format!("{error} {}", said.trim()))
        })
    }

    /// Attaches it to an interface, by its index; `flags` are [`GENERIC`], [`NATIVE`] or 0.
    pub fn attach(&self, interface: u32, flags: u32) -> io::Result<Attachment> {
        let program = self.0.as_raw_fd().cast_unsigned();
        let mut attributes = LinkCreate { program, interface, attached_to: TO_XDP, flags };
        // SAFETY: the first fields of a link's creation; there are no addresses.
        unsafe { open(LINK_CREATE, &mut attributes) }.map(|link| Attachment { _link: link })
    }

    /// Runs it for a frame as if the frame had come to queue 0, and returns its verdict.
    #[cfg(test)]
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        const PROGRAM_TEST_RUN: libc::c_int = 10;
        #[repr(C)]
        struct TestRun {
            program: u32,
            answer: u32,
            length_in: u32,
            length_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
        }
        let mut attributes = TestRun {
            program: self.0.as_raw_fd().cast_unsigned(),
            answer: 0,
            length_in: frame.len() as u32,
            length_out: 0,
            data_in: address(frame),
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the first fields of a test run; the frame is as long as that says, and nothing is written back.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes) }?;
        Ok(attributes.answer)
    }
}
