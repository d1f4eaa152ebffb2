//! One queue of an interface: a socket, the memory that it shares with the kernel, and the four rings between both.
//!
//! The memory is cut into frames. At any time each frame is in one place: free; in the fill ring, for the kernel to
//! receive into; in the receive ring; being handled; in the send ring; or in the completion ring. There are
//! as many frames for receiving as the rings have entries, and as many for sending, so that neither can take
//! the other's.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use xdp::slab::Slab;
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, Umem, UmemCfgBuilder};
use xdp::{CompletionRing, Packet, RingConfigBuilder, RxRing, WakableFillRing, WakableTxRing};

use super::config::{BURST, frames};
use super::ring_page::RingPage;
use super::{XdpConfig, XdpError};

/// Bytes that a frame holds: 2 KiB less the room that the kernel keeps in front.
pub const FRAME: usize = 2048 - 256;
/// How long to wait for a full send ring before a datagram counts as lost.
const PATIENCE: Duration = Duration::from_millis(5);
/// Bytes of kernel memory that a frame takes while it is being sent by copying.
const COPY: usize = 4096;

/// An open queue.
pub struct Queue {
    received: Burst,
    sending: Burst,
    /// Frames that the kernel has for sending.
    under_way: usize,
    /// Most of them.
    most: usize,
    /// The ring stayed full: until something leaves it, nobody waits for it.
    stuck: bool,
    fill: WakableFillRing,
    receive: RxRing,
    send: WakableTxRing,
    completion: CompletionRing,
    fill_page: RingPage,
    send_page: RingPage,
    socket: XdpSocket,
    /// Behind the rings and the socket: it must go last.
    umem: Umem,
}

// SAFETY: what cannot be sent by itself are the packets of the two bursts, which point into `umem`. They move with it,
// and nobody else has any.
unsafe impl Send for Queue {}

/// Frames, the oldest in front.
struct Burst(VecDeque<Packet>);

impl Slab for Burst {
    fn available(&self) -> usize {
        BURST - self.0.len()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push_front(&mut self, packet: Packet) -> Option<Packet> {
        if self.0.len() == BURST {
            return Some(packet);
        }
        self.0.push_back(packet);
        None
    }

    fn pop_back(&mut self) -> Option<Packet> {
        self.0.pop_front()
    }
}

impl Queue {
    /// Opens a queue of an interface, by their numbers.
    pub fn open(interface: u32, queue: u32, config: &XdpConfig) -> Result<Queue, XdpError> {
        let device = config.device.as_str();
        let refused =
            |step: &'static str| move |cause: io::Error| XdpError::from_queue(device, queue, step, cause);
        let inner = |error: xdp::error::Error| io::Error::other(error.to_string());
        let length = config.descriptors;
        let most = length as usize;
        let umem = UmemCfgBuilder {
            frame_size: FrameSize::TwoK,
            frame_count: frames(length),
            ..UmemCfgBuilder::default()
        };
        let umem = umem.build().map_err(inner).and_then(Umem::map);
        let mut umem = umem.map_err(refused("set memory aside"))?;
        let rings = RingConfigBuilder {
            rx_count: length,
            tx_count: length,
            fill_count: length,
            completion_count: length,
        };
        let rings = rings.build().map_err(inner).map_err(refused("plan rings"))?;
        let mut socket = XdpSocketBuilder::new()
            .map_err(|error| XdpError::from_socket(device, queue, config.zero_copy, error))?;
        let (rings, mut flags) = socket
            .build_wakable_rings(&umem, rings)
            .map_err(|error| XdpError::from_socket(device, queue, config.zero_copy, error))?;
        if config.zero_copy {
            flags.force_zerocopy();
        } else {
            flags.force_copy();
        }
        let (fill_page, send_page) =
            RingPage::map_both(socket.as_raw_fd()).map_err(refused("look at rings"))?;
        super::ring_page::set_send_buffer(socket.as_raw_fd(), most * COPY)
            .map_err(refused("size buffers"))?;
        let (Some(receive), Some(send)) = (rings.rx_ring, rings.tx_ring) else {
            return Err(refused("make rings")(io::ErrorKind::Other.into()));
        };
        let mut fill = rings.fill_ring;
        // SAFETY: the memory goes after the socket, see the order of fields.
        let filled = unsafe { fill.enqueue(&mut umem, most, false) }.map_err(refused("fill rings"))?;
        debug_assert_eq!(filled, most);
        let socket = socket
            .bind(xdp::nic::NicIndex::new(interface), queue, flags)
            .map_err(|error| XdpError::from_socket(device, queue, config.zero_copy, error))?;
        Ok(Queue {
            received: Burst(VecDeque::with_capacity(BURST)),
            sending: Burst(VecDeque::with_capacity(BURST)),
            under_way: 0,
            most,
            stuck: false,
            fill,
            receive,
            send,
            completion: rings.completion_ring,
            fill_page,
            send_page,
            socket,
            umem,
        })
    }

    /// Hands up to a burst of received frames to `f`, in their order, and gives them back to the kernel. Returns how
    /// many there were.
    #[inline]
    pub fn receive(&mut self, f: &mut impl FnMut(&[u8])) -> usize {
        // SAFETY: the packets go back to the memory below, before it can go.
        let count = unsafe { self.receive.recv(&self.umem, &mut self.received) };
        if count == 0 {
            return 0;
        }
        for packet in &self.received.0 {
            f(packet);
        }
        for packet in self.received.0.drain(..) {
            self.umem.free_packet(packet);
        }
        // There is room: what was received has left it. And no wake-up is asked for, so that nothing can fail.
        // SAFETY: the memory goes after the socket, see the order of fields.
        let _ = unsafe { self.fill.enqueue(&mut self.umem, count, false) };
        fence(Ordering::SeqCst);
        if self.fill_page.needs_wakeup() {
            self.fill_page.wake_receiver();
        }
        count
    }

    /// Bytes, with arbitrary content, of a frame that is sent with the next [`flush`](Self::flush). `None` if
    /// the send ring stays full.
    #[inline]
    pub fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.sending.0.len() == BURST {
            self.submit();
        }
        if self.under_way + self.sending.0.len() >= self.most && !self.make_room() {
            return None;
        }
        // SAFETY: it goes to the send ring, or stays in the burst, which goes with the memory.
        let mut packet = unsafe { self.umem.alloc() }?;
        if packet.adjust_tail(i32::try_from(len).ok()?).is_err() {
            self.umem.free_packet(packet);
            return None;
        }
        self.sending.0.push_back(packet);
        self.sending.0.back_mut().map(|packet| &mut **packet)
    }

    /// Has the kernel send all frames that were begun. Returns whether that took a system call.
    ///
    /// # Errors
    /// If the interface is gone.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        self.submit();
        self.reclaim();
        if self.under_way == 0 { Ok(false) } else { self.kick() }
    }

    /// Puts the frames that were begun into the send ring.
    #[inline]
    fn submit(&mut self) {
        if self.sending.0.is_empty() {
            return;
        }
        // The ring is as long as frames may be under way, and no wake-up is asked for: nothing can fail.
        // SAFETY: the memory goes after the socket, see the order of fields.
        let sent = unsafe { self.send.send(&mut self.sending, false) };
        self.under_way += sent.unwrap_or(0);
    }

    /// Takes back what has been sent.
    #[inline]
    fn reclaim(&mut self) {
        self.under_way -= self.completion.dequeue(&mut self.umem, self.under_way);
    }

    /// Wakes the kernel as long as that advances the send ring: in copy mode a call takes up to 32 frames.
    fn kick(&mut self) -> io::Result<bool> {
        let mut called = false;
        fence(Ordering::SeqCst);
        loop {
            let before = self.send_page.unsent_count();
            if before == 0 || !self.send_page.needs_wakeup() {
                return Ok(called);
            }
            called = true;
            self.send_page.wake_sender()?;
            if self.send_page.unsent_count() == before {
                return Ok(called);
            }
        }
    }

    /// The ring is full: waits a moment for it. Returns whether there is room then.
    #[cold]
    fn make_room(&mut self) -> bool {
        self.submit();
        let since = Instant::now();
        loop {
            let before = self.under_way;
            if self.kick().is_err() {
                return false;
            }
            self.reclaim();
            if self.under_way < before {
                self.stuck = false;
            }
            if self.under_way < self.most {
                return true;
            }
            if self.stuck || since.elapsed() >= PATIENCE {
                self.stuck = true;
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Frames that the kernel dropped because there was no room for them.
    pub fn overflows(&self) -> u64 {
        let stats = self.socket.statistics();
        stats.map_or(0, |stats| stats.rx_dropped + stats.rx_ring_full + stats.rx_fill_ring_empty_descs)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open as long as it lives, which the lifetime says.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}
