//! What goes over the loopback interface, as a capture program sees it.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, eth, recv, socket};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thc_transport::frame::Datagram;

/// Bytes of the largest frame of the loopback interface.
const LARGEST: usize = 1 << 17;
/// Bytes of frames that the kernel keeps until the thread takes them.
const BUFFER: usize = 64 << 20;
/// In this time the thread reads more than `BUFFER` holds.
const DRAIN: Duration = Duration::from_secs(1);

/// A frame and the time since 1970 when it was read.
#[derive(Debug)]
pub struct Frame {
    /// Since 1970.
    pub time: Duration,
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// An open tap. It sees packets of kernel UDP over IPv4.
#[derive(Debug)]
pub struct Wiretap {
    thread: JoinHandle<std::io::Result<Vec<Frame>>>,
    stop: Arc<AtomicBool>,
}

impl Wiretap {
    /// Begins to keep the datagrams from and to these UDP ports.
    ///
    /// # Errors
    /// If the kernel refuses, as it does without CAP_NET_RAW and CAP_NET_ADMIN.
    pub fn open(ports: RangeInclusive<u16>) -> Result<Wiretap, String> {
        // A socket of one protocol gets only what arrives: a frame of the loopback interface comes once.
        let opened = socket(AddressFamily::PACKET, SocketType::RAW, Some(eth::IP)).and_then(|tap| {
            set_socket_recv_buffer_size_force(&tap, BUFFER)?;
            set_socket_timeout(&tap, Timeout::Recv, Some(Duration::from_millis(20)))?;
            Ok(tap)
        });
        let tap =
            opened.map_err(|error| format!("packets of lo cannot be read: {error}; that needs root"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(&tap, &ports, &stopping));
        Ok(Wiretap { thread, stop })
    }

    /// All frames up to now, in order.
    ///
    /// # Panics
    /// If the socket failed.
    #[must_use]
    pub fn finish(self) -> Vec<Frame> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the thread of a tap").expect("a packet socket")
    }
}

/// Reads until `stop` is set and nothing is left. Where packets keep coming, it reads for [`DRAIN`] longer.
fn read(tap: &OwnedFd, ports: &RangeInclusive<u16>, stop: &AtomicBool) -> std::io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut buffer = vec![0; LARGEST];
    let mut stopped_at: Option<Instant> = None;
    loop {
        let stopping = stop.load(Ordering::SeqCst);
        if stopping && stopped_at.get_or_insert_with(Instant::now).elapsed() > DRAIN {
            return Ok(frames);
        }
        match recv(tap, &mut buffer[..], RecvFlags::empty()) {
            Ok((len, _)) => {
                let wanted = Datagram::parse(&buffer[..len]).is_ok_and(|datagram| {
                    let ends = [datagram.from.1, datagram.to.1];
                    ends.iter().all(|end| end.ip().is_loopback())
                        && ends.iter().any(|end| ports.contains(&end.port()))
                });
                if wanted {
                    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    frames.push(Frame { time, bytes: buffer[..len].to_vec() });
                }
            }
            Err(Errno::AGAIN) if stopping => return Ok(frames),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
