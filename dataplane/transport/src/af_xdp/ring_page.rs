//! What the crate `xdp` lacks for a socket: reading the flags and positions of its rings, and waking the
//! kernel.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a ring that are mapped: its places and flags lie in front.
const PAGE: usize = 4096;

/// The front of a ring that a process fills: the positions of both sides, and whether the kernel wants to be
/// woken.
pub struct RingPage {
    socket: RawFd,
    page: NonNull<u8>,
    producer: usize,
    consumer: usize,
    flags: usize,
}

// SAFETY: the page is memory that other threads may read, and only atomics do.
unsafe impl Send for RingPage {}

impl RingPage {
    /// Maps the pages of a socket's fill ring and send ring, which must be there.
    pub fn map_both(socket: RawFd) -> io::Result<(RingPage, RingPage)> {
        let mut offsets = MaybeUninit::<libc::xdp_mmap_offsets>::zeroed();
        let mut len = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `len` bytes, which are there.
        let answer = unsafe {
            libc::getsockopt(
                socket,
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                offsets.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: numbers, and zero where the kernel wrote nothing.
        let offsets = unsafe { offsets.assume_init() };
        if (len as usize) < size_of::<libc::xdp_mmap_offsets>() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel knows no wake-ups (5.4 does)",
            ));
        }
        let fill = RingPage::map(socket, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, &offsets.fr)?;
        let send = RingPage::map(socket, libc::XDP_PGOFF_TX_RING, &offsets.tx)?;
        Ok((fill, send))
    }

    fn map(socket: RawFd, at: libc::off_t, offsets: &libc::xdp_ring_offset) -> io::Result<RingPage> {
        let [producer, consumer, flags] =
            [offsets.producer, offsets.consumer, offsets.flags].map(|offset| offset as usize);
        if [producer, consumer, flags].iter().any(|&offset| offset + 4 > PAGE || offset % 4 != 0) {
            return Err(io::Error::other("the kernel has rings of another shape"));
        }
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, wherever there is room.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, shared, socket, at) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RingPage { socket, page, producer, consumer, flags })
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: it lies in the page and is aligned, as was checked; the kernel writes it as a whole.
        unsafe { AtomicU32::from_ptr(self.page.as_ptr().add(offset).cast()) }
    }

    /// Whether the kernel goes on only when it is woken.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Entries that the kernel has not taken yet.
    #[inline]
    pub fn unsent_count(&self) -> u32 {
        let taken = self.word(self.consumer).load(Ordering::Acquire);
        self.word(self.producer).load(Ordering::Relaxed).wrapping_sub(taken)
    }

    /// Has the kernel look at the send ring.
    ///
    /// # Errors
    /// If it can never work again. That the kernel takes nothing now is not an error.
    pub fn wake_sender(&self) -> io::Result<()> {
        // SAFETY: no bytes are sent, so no memory is read.
        let answer = unsafe {
            libc::sendto(self.socket, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if answer >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => Ok(()),
            _ => Err(error),
        }
    }

    /// Has the kernel look at the fill ring. A failure is found when waiting for the socket.
    pub fn wake_receiver(&self) {
        let nothing = std::ptr::null_mut();
        // SAFETY: room for no bytes, so no memory is written.
        unsafe {
            libc::recvfrom(self.socket, nothing, 0, libc::MSG_DONTWAIT, nothing.cast(), nothing.cast())
        };
    }
}

impl Drop for RingPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not used any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

/// Gives a socket so many bytes of kernel memory for sending, more than unprivileged users may have.
pub fn set_send_buffer(socket: RawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2);
    // SAFETY: the option is a number of that size.
    let answer = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sockets that are waited for together.
pub struct Sockets(Vec<libc::pollfd>);

impl Sockets {
    /// The set of these descriptors, which must stay open as long as they are waited for.
    pub fn new<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> Sockets {
        let entry =
            |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Sockets(sockets.map(entry).collect())
    }

    /// Waits until one has received something, at most so long. Returns whether one has.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let (count, no_mask) = (self.0.len() as libc::nfds_t, std::ptr::null());
        // SAFETY: as many entries as are said, a time that lives, no mask of signals.
        match unsafe { libc::ppoll(self.0.as_mut_ptr(), count, &raw const timeout, no_mask) } {
            0 => Ok(false),
            ready if ready > 0 => {
                match self.0.iter().find(|entry| entry.revents & libc::POLLIN == 0 && entry.revents != 0) {
                    Some(_) => Err(io::Error::other("its interface is gone")),
                    None => Ok(true),
                }
            }
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}
