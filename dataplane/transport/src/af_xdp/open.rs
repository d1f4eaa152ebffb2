//! Opening an interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::bpf::{self, Attachment, BpfProgram, SocketMap};
use super::io::XdpIo;
use super::netlink::{Interface, Netlink};
use super::queue::{FRAME, Queue};
use super::shared::Shared;
use super::{XdpConfig, XdpError, channels, program};
use crate::link::frame::ETHERNET_LEN;
use crate::link::neighbours::Neighbours;
use crate::{Peer, TransportError};

/// How long a queue may still belong to a process that is ending, and how often to retry.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// Tries to find consecutive free ports when the kernel chooses the first.
const PORT_TRIES: usize = 64;

/// An open interface of the kernel: one endpoint with all of its queues, or one for each queue, with UDP ports in a row.
pub struct Xdp {
    shared: Arc<Shared>,
    /// Ports of the kernel, one for each endpoint.
    ports: Vec<UdpSocket>,
    queues: Vec<Queue>,
    first: SocketAddrV4,
}

impl Xdp {
    /// Opens the interface for `ports` endpoints on UDP ports in a row, the first of which is `listen`: port 0 lets the
    /// system choose, and 0.0.0.0 is the interface's first address.
    ///
    /// # Errors
    /// [`TransportError::Setting`] for settings that make no sense, [`TransportError::Xdp`] if the kernel
    /// refuses something, [`TransportError::AddressInUse`] for a port that is in use.
    pub fn open(config: &XdpConfig, listen: Peer, ports: u16) -> Result<Self, TransportError> {
        config.check()?;
        let (device, ports) = (config.device.as_str(), ports.max(1));
        let refused = |step| move |cause| XdpError::from_step(device, step, cause);
        let mut netlink = Netlink::open().map_err(refused("ask the kernel"))?;
        let interface = find(&mut netlink, device)?;
        let address = {
            let IpAddr::V4(asked) = listen.ip() else {
                let cause =
                    "AF_XDP speaks IPv4 here: give the interface's IPv4 address, or take io = \"udp\"";
                let cause = std::io::Error::new(std::io::ErrorKind::Unsupported, cause);
                return Err(TransportError::Bind { addr: listen, cause });
            };
            own_address(&mut netlink, &interface, asked)?
        };
        let queues = channels::count(device).map_err(refused("count queues"))?;
        let used = config.queues.map_or(queues, u32::from);
        if used > queues {
            return Err(XdpError::Queues { device: device.to_owned(), has: queues, asked: used }.into());
        }
        if ports > 1 && u32::from(ports) != used {
            let shards = u32::from(ports);
            return Err(XdpError::Shards { device: device.to_owned(), queues: used, shards }.into());
        }
        let ports = reserve(Peer::from((address, listen.port())), ports)?;
        let first = match ports.first().map(UdpSocket::local_addr) {
            Some(Ok(std::net::SocketAddr::V4(first))) => first,
            _ => return Err(TransportError::AddressNotAvailable { addr: listen }),
        };
        let sockets = SocketMap::new(used).map_err(refused("make a map of sockets"))?;
        let mut open = Vec::new();
        for number in 0..used {
            let queue = open_queue(interface.index, number, config)?;
            sockets.set(number, queue.as_fd()).map_err(refused("enter a socket"))?;
            open.push(queue);
        }
        let code = program::assemble(sockets.descriptor(), address, first.port(), ports.len() as u16);
        let program = BpfProgram::load(&code).map_err(refused("load an XDP program"))?;
        let attachment = attach(&program, config, &interface)?;
        let shared = Shared {
            mtu: FRAME.saturating_sub(ETHERNET_LEN).min(interface.mtu as usize),
            config: config.clone(),
            interface,
            queues,
            neighbours: Neighbours::new(&[]),
            netlink: Mutex::new(netlink),
            start: Instant::now(),
            _attachment: attachment,
            _sockets: sockets,
        };
        Ok(Xdp { shared: Arc::new(shared), ports, queues: open, first })
    }

    /// The endpoints.
    #[must_use]
    pub fn into_endpoints(self) -> Vec<XdpIo> {
        let Xdp { shared, ports, queues, first } = self;
        let local = |shard: u16| SocketAddrV4::new(*first.ip(), first.port() + shard);
        if ports.len() == 1 {
            let mut all = Some(queues);
            let mut endpoint =
                |port| XdpIo::new(Arc::clone(&shared), local(0), true, port, all.take().unwrap_or_default());
            return ports.into_iter().map(&mut endpoint).collect();
        }
        // Queue q is that of the ports which leave q when divided by their number: so both ends of a veth agree.
        let count = ports.len();
        let mut queues: Vec<Option<Queue>> = queues.into_iter().map(Some).collect();
        let endpoint = |(shard, port): (u16, UdpSocket)| {
            let at = local(shard);
            let queue = queues[usize::from(at.port()) % count].take();
            XdpIo::new(Arc::clone(&shared), at, shard == 0, port, queue.into_iter().collect())
        };
        (0u16..).zip(ports).map(endpoint).collect()
    }
}

/// Opens a queue. The kernel takes a moment to take it back from a process that has ended.
fn open_queue(interface: u32, number: u32, config: &XdpConfig) -> Result<Queue, XdpError> {
    let since = Instant::now();
    loop {
        match Queue::open(interface, number, config) {
            Err(XdpError::QueueTaken { .. }) if since.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// The interface of this name, if it can be used.
fn find(netlink: &mut Netlink, device: &str) -> Result<Interface, XdpError> {
    let all = netlink.interfaces().map_err(|cause| XdpError::from_step(device, "list interfaces", cause))?;
    let name = device.to_owned();
    let Some(interface) = all.iter().find(|interface| interface.name == device) else {
        let there: Vec<&str> = all
            .iter()
            .filter(|interface| interface.ethernet)
            .map(|interface| interface.name.as_str())
            .collect();
        return Err(XdpError::NoInterface { device: name, there: there.join(", ") });
    };
    if !interface.ethernet {
        return Err(XdpError::NotEthernet { device: name });
    }
    if !interface.up {
        return Err(XdpError::Down { device: name });
    }
    match interface.program {
        Some(program) => Err(XdpError::Occupied { device: name, program }),
        None => Ok(interface.clone()),
    }
}

/// The address asked for, or the first.
fn own_address(netlink: &mut Netlink, interface: &Interface, asked: Ipv4Addr) -> Result<Ipv4Addr, XdpError> {
    let device = interface.name.clone();
    let addresses = netlink
        .addresses(interface.index)
        .map_err(|cause| XdpError::from_step(&device, "list addresses", cause))?;
    match addresses.first() {
        None => Err(XdpError::NoAddress { device }),
        Some(&first) if asked.is_unspecified() => Ok(first),
        Some(_) if addresses.contains(&asked) => Ok(asked),
        Some(_) => {
            let has: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            Err(XdpError::OtherAddress { address: asked, device, has: has.join(" or ") })
        }
    }
}

/// Takes consecutive ports from the kernel, so that nobody else gets them and the kernel does not answer
/// datagrams that bypass the program with "port unreachable".
fn reserve(first: Peer, count: u16) -> Result<Vec<UdpSocket>, TransportError> {
    for _ in 0..if first.port() == 0 { PORT_TRIES } else { 1 } {
        match reserve_from(first, count) {
            Err(TransportError::AddressInUse { .. }) if first.port() == 0 => {}
            other => return other,
        }
    }
    Err(TransportError::AddressInUse { addr: first })
}

fn reserve_from(first: Peer, count: u16) -> Result<Vec<UdpSocket>, TransportError> {
    let bind = |addr: Peer| {
        let socket = UdpSocket::bind(addr).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        socket.map_err(|cause| match cause.kind() {
            std::io::ErrorKind::AddrInUse => TransportError::AddressInUse { addr },
            std::io::ErrorKind::PermissionDenied => TransportError::BindNotPermitted { addr },
            _ => TransportError::Bind { addr, cause },
        })
    };
    let mut ports = vec![bind(first)?];
    let base = ports[0].local_addr().map_or(first.port(), |at| at.port());
    for further in 1..count {
        // Past the last port there is none that is free.
        ports.push(bind(Peer::new(first.ip(), base.saturating_add(further)))?);
    }
    Ok(ports)
}

/// Attaches the program where the configuration wants it.
fn attach(program: &BpfProgram, config: &XdpConfig, interface: &Interface) -> Result<Attachment, XdpError> {
    let flags = match (config.generic, config.zero_copy) {
        (true, _) => bpf::GENERIC,
        (false, true) => bpf::NATIVE,
        (false, false) => 0,
    };
    let device = interface.name.clone();
    program.attach(interface.index, flags).map_err(|cause| match cause.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => XdpError::Occupied { device, program: 0 },
        Some(libc::ERANGE) => XdpError::Mtu { device, mtu: interface.mtu },
        Some(libc::EINVAL | libc::EOPNOTSUPP) if !config.generic && interface.mtu as usize > FRAME => {
            XdpError::Mtu { device, mtu: interface.mtu }
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) if config.zero_copy => XdpError::NoZeroCopy { device },
        _ => XdpError::from_step(&device, "attach an XDP program", cause),
    })
}
