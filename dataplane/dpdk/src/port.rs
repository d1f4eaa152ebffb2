//! A device that is open and started.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use dpdk_sys as ffi;

use crate::device::{OpenDevice, control};
use crate::error::{DpdkError, open_failure_text, text};
use crate::queue::{RxQueue, TxQueue};
use crate::steering::{self, Steering};
use crate::{Eal, Mempool, memif};

/// The settings of a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The device: a virtual device with its arguments, a PCI address, or the name of an existing device.
    pub device: String,
    /// The number of descriptors of each ring, which a device may round.
    pub descriptors: u16,
    /// The largest IPv4 packet in bytes.
    pub mtu: u16,
    /// The MAC address to set.
    pub mac: Option<[u8; 6]>,
    /// True if the device should fill in and check IPv4 and UDP checksums, if it can do all of that.
    pub checksums: bool,
    /// The UDP port of the first queue. Queue q has this port plus q.
    pub first_udp_port: u16,
}

/// The properties of an open port.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The device's name.
    pub name: String,
    /// The name of the device's driver.
    pub driver: String,
    /// The device's MAC address.
    pub mac: [u8; 6],
    /// The largest IPv4 packet in bytes.
    pub mtu: u16,
    /// The number of queue pairs in use.
    pub queues: u16,
    /// The way in which UDP ports find their queues.
    pub steering: Steering,
    /// True if the device fills in checksums.
    pub tx_checksum: bool,
    /// True if the device checks checksums.
    pub rx_checksum: bool,
    /// True if the device sends packets of several segments.
    pub multi_segment: bool,
    /// The number of descriptors of each receive ring.
    pub rx_descriptors: u16,
    /// The device's NUMA node, if it has one.
    pub numa: Option<u32>,
}

/// Counters that a device keeps itself. A counter that it lacks stays 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped because a receive ring was full.
    pub missed: u64,
    /// Packets dropped because they were damaged.
    pub receive_errors: u64,
    /// Packets dropped because there was no buffer for them.
    pub no_buffer: u64,
    /// Packets that could not be sent.
    pub send_errors: u64,
}

/// A started device. It is stopped and closed when the port and all its queues are dropped.
pub struct Port {
    shared: Arc<OpenDevice>,
    info: PortInfo,
}

impl Port {
    /// Opens a device with one queue pair per pool and starts it.
    ///
    /// # Errors
    /// [`DpdkError::Device`], [`DpdkError::InUse`], [`DpdkError::Queues`], [`DpdkError::NoSteering`],
    /// [`DpdkError::Mtu`] or [`DpdkError::Setting`].
    pub fn open(
        _: &Eal,
        config: &PortConfig,
        pools: &[Mempool],
    ) -> Result<(Port, Vec<(RxQueue, TxQueue)>), DpdkError> {
        let name = config.device.split(',').next().unwrap_or_default().to_owned();
        let mut shared = {
            let mut names = control();
            if names.contains(&name) {
                return Err(DpdkError::InUse { device: name });
            }
            let id = find(&name, &config.device)?;
            names.insert(name.clone());
            OpenDevice {
                id,
                name: name.clone(),
                device: std::ptr::null_mut(),
                started: false,
                _pools: pools.to_vec(),
            }
        };
        let setup = Setup { name: &name, id: shared.id, config, queues: pools.len() as u16 };
        let info = setup.info()?;
        shared.device = info.device;
        let info = setup.configure(&info, pools, &mut shared.started)?;
        let shared = Arc::new(shared);
        let queues = (0..info.queues)
            .map(|queue| {
                let (rx, tx) = (Arc::clone(&shared), Arc::clone(&shared));
                (RxQueue { port: rx, queue, live: true }, TxQueue { port: tx, queue, live: true })
            })
            .collect();
        Ok((Port { shared, info }, queues))
    }

    /// The properties of the port.
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Returns whether the link is up, and its speed in Mbit/s (0: unknown).
    pub fn link(&self) -> (bool, u32) {
        let mut link = ffi::rte_eth_link::default();
        // SAFETY: the port is open; `link` is written and then read.
        unsafe {
            if ffi::rte_eth_link_get_nowait(self.shared.id, &raw mut link) != 0 {
                return (false, 0);
            }
            let speed = ffi::thc_link_speed(&raw const link);
            (ffi::thc_link_up(&raw const link) != 0, if speed == u32::MAX { 0 } else { speed })
        }
    }

    /// Makes a memif client try again to reach its server, if that has not started or has ended. Returns whether the
    /// client reached it. Other devices find their links by themselves. `rx` and `tx` must be the halves of the port's
    /// only queue, so that no thread uses it meanwhile. For a port with several queues this does nothing.
    pub fn reconnect(&self, rx: &mut RxQueue, tx: &mut TxQueue) -> bool {
        let ours = |port: &Arc<OpenDevice>| Arc::ptr_eq(port, &self.shared);
        if self.info.queues != 1 || self.info.driver != memif::DRIVER || !ours(&rx.port) || !ours(&tx.port) {
            return false;
        }
        let _alone = control();
        // SAFETY: the port is open, and its only queue is borrowed here, so no thread polls it while it is stopped. Its
        // queues stay configured.
        let started = unsafe {
            ffi::rte_eth_dev_stop(self.shared.id);
            ffi::rte_eth_dev_start(self.shared.id) == 0
        };
        (rx.live, tx.live) = (started, started);
        started
    }

    /// The counters that the device keeps.
    pub fn stats(&self) -> PortStats {
        let mut stats = ffi::rte_eth_stats::default();
        // SAFETY: the port is open; `stats` is written.
        if unsafe { ffi::rte_eth_stats_get(self.shared.id, &raw mut stats) } != 0 {
            return PortStats::default();
        }
        PortStats {
            received: stats.ipackets,
            sent: stats.opackets,
            missed: stats.imissed,
            receive_errors: stats.ierrors,
            no_buffer: stats.rx_nombuf,
            send_errors: stats.oerrors,
        }
    }
}

/// Finds the port of a device, and creates the device if it does not exist.
fn find(name: &str, device: &str) -> Result<u16, DpdkError> {
    let c_string = |s: &str| CString::new(s).map_err(|_| DpdkError::Text { text: s.to_owned() });
    let (c_name, c_device) = (c_string(name)?, c_string(device)?);
    let mut id = u16::MAX;
    memif::remove_stale_socket(device);
    let failed = |cause| DpdkError::Device { device: device.to_owned(), cause };
    // SAFETY: DPDK copies the strings, which end with zero, and writes `id`. The caller holds CONTROL.
    unsafe {
        if ffi::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) == 0 {
            return Ok(id);
        }
        let result = ffi::rte_dev_probe(c_device.as_ptr());
        if result != 0 {
            return Err(failed(open_failure_text(result)));
        }
        if ffi::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut id) != 0 {
            return Err(failed("its driver created no network port".to_owned()));
        }
    }
    Ok(id)
}

fn driver_of(info: &ffi::rte_eth_dev_info) -> String {
    if info.driver_name.is_null() {
        return String::new();
    }
    // SAFETY: the driver's name is a static string that ends with zero.
    unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned()
}

/// A port that is being configured.
struct Setup<'a> {
    name: &'a str,
    id: u16,
    config: &'a PortConfig,
    queues: u16,
}

impl Setup<'_> {
    fn check(&self, what: &'static str, result: i32) -> Result<(), DpdkError> {
        if result == 0 {
            return Ok(());
        }
        Err(DpdkError::Setting { device: self.name.to_owned(), what, cause: text(result) })
    }

    fn info(&self) -> Result<ffi::rte_eth_dev_info, DpdkError> {
        let mut info = ffi::rte_eth_dev_info::default();
        // SAFETY: the port exists; `info` is written.
        self.check("information", unsafe { ffi::rte_eth_dev_info_get(self.id, &raw mut info) })?;
        Ok(info)
    }

    fn configure(
        &self,
        info: &ffi::rte_eth_dev_info,
        pools: &[Mempool],
        started: &mut bool,
    ) -> Result<PortInfo, DpdkError> {
        let device = || self.name.to_owned();
        let (queues, config) = (self.queues, self.config);
        let max = info.max_rx_queues.min(info.max_tx_queues);
        if queues > max {
            return Err(DpdkError::Queues { device: device(), queues, max });
        }
        if config.mtu > info.max_mtu {
            return Err(DpdkError::Mtu { device: device(), mtu: config.mtu, max: info.max_mtu });
        }
        let has = |capabilities: u64, wanted: &[ffi::eth_offload]| {
            let wanted = wanted.iter().fold(0, |all, &one| all | one);
            if capabilities & wanted == wanted { wanted } else { 0 }
        };
        let mut conf = ffi::rte_eth_conf::default();
        conf.rxmode.mtu = u32::from(config.mtu.max(info.min_mtu));
        if config.checksums {
            conf.rxmode.offloads =
                has(info.rx_offload_capa, &[ffi::OFFLOAD_RX_IPV4_CKSUM, ffi::OFFLOAD_RX_UDP_CKSUM]);
            conf.txmode.offloads =
                has(info.tx_offload_capa, &[ffi::OFFLOAD_TX_IPV4_CKSUM, ffi::OFFLOAD_TX_UDP_CKSUM]);
        }
        let (rx_checksum, tx_checksum) = (conf.rxmode.offloads != 0, conf.txmode.offloads != 0);
        let segments = has(info.tx_offload_capa, &[ffi::OFFLOAD_TX_MULTI_SEGS]);
        conf.txmode.offloads |= segments;
        let bits = steering::bits_for(queues);
        let mut key = steering::key(bits).to_vec();
        // Devices report 0 if they leave the length to DPDK.
        let key_len = if info.hash_key_size == 0 { key.len() } else { usize::from(info.hash_key_size) };
        let hashes = queues > 1
            && info.flow_type_rss_offloads & ffi::RSS_NONFRAG_IPV4_UDP != 0
            && info.reta_size.is_power_of_two()
            && (1 << bits..=steering::MAX_RETA).contains(&info.reta_size)
            && key_len >= key.len();
        if hashes {
            key.resize(key_len, 0);
            conf.rxmode.mq_mode = ffi::ETH_MQ_RX_RSS as _;
            conf.rx_adv_conf.rss_conf.rss_key = key.as_mut_ptr();
            conf.rx_adv_conf.rss_conf.rss_key_len = key.len() as u8;
            conf.rx_adv_conf.rss_conf.rss_hf = ffi::RSS_NONFRAG_IPV4_UDP;
        }
        // SAFETY: the port exists and is ours. DPDK copies what the pointers refer to, and `key` lives during the call.
        let result = unsafe { ffi::rte_eth_dev_configure(self.id, queues, queues, &raw const conf) };
        self.check("queues and offloads", result)?;
        let rx_ring = self.set_up_queues(pools)?;
        self.start(info)?;
        *started = true;
        let wished = config.mac.map(|mac| self.set_mac(mac)).transpose()?;
        let steering = self.steer(hashes, bits, info.reta_size)?;
        let mut mac = ffi::rte_ether_addr::default();
        // SAFETY: the port is open; `mac` is written.
        self.check("(reading) the MAC address", unsafe { ffi::rte_eth_macaddr_get(self.id, &raw mut mac) })?;
        // SAFETY: the port exists.
        let node = unsafe { ffi::rte_eth_dev_socket_id(self.id) };
        Ok(PortInfo {
            name: device(),
            driver: driver_of(info),
            mac: wished.unwrap_or(mac.addr_bytes),
            mtu: config.mtu,
            queues,
            steering,
            tx_checksum,
            rx_checksum,
            multi_segment: segments != 0,
            rx_descriptors: rx_ring,
            numa: u32::try_from(node).ok(),
        })
    }

    /// Sets up the queues of a configured port. Returns the descriptors of a receive ring.
    fn set_up_queues(&self, pools: &[Mempool]) -> Result<u16, DpdkError> {
        let (mut rx_ring, mut tx_ring) = (self.config.descriptors, self.config.descriptors);
        // SAFETY: the port exists, is configured and ours. Pools live as long as the port (`OpenDevice`).
        unsafe {
            let result = ffi::rte_eth_dev_adjust_nb_rx_tx_desc(self.id, &raw mut rx_ring, &raw mut tx_ring);
            self.check("descriptors", result)?;
            // The device's own NUMA node, where packets should lie too.
            let node = ffi::rte_eth_dev_socket_id(self.id).cast_unsigned();
            for (queue, pool) in (0..self.queues).zip(pools) {
                let rx =
                    ffi::rte_eth_rx_queue_setup(self.id, queue, rx_ring, node, std::ptr::null(), pool.raw());
                self.check("a receive queue", rx)?;
                let tx = ffi::rte_eth_tx_queue_setup(self.id, queue, tx_ring, node, std::ptr::null());
                self.check("a send queue", tx)?;
            }
        }
        Ok(rx_ring)
    }

    fn start(&self, info: &ffi::rte_eth_dev_info) -> Result<(), DpdkError> {
        // SAFETY: the port exists, is configured and not started.
        let result = unsafe { ffi::rte_eth_dev_start(self.id) };
        if result != 0 && driver_of(info) == memif::DRIVER {
            return Err(DpdkError::NoServer { device: self.name.to_owned() });
        }
        self.check("it to run", result)
    }

    /// Sets the MAC address. A device that keeps its own address must at least pass frames for the other one.
    fn set_mac(&self, mac: [u8; 6]) -> Result<[u8; 6], DpdkError> {
        let mut address = ffi::rte_ether_addr { addr_bytes: mac };
        // SAFETY: the port is started; `address` is copied.
        let result = unsafe { ffi::rte_eth_dev_default_mac_addr_set(self.id, &raw mut address) };
        // SAFETY: the port is started.
        if result == -libc::ENOTSUP && unsafe { ffi::rte_eth_promiscuous_enable(self.id) } == 0 {
            return Ok(mac);
        }
        self.check("the MAC address", result).map(|()| mac)
    }

    fn steer(&self, hashes: bool, bits: u32, table: u16) -> Result<Steering, DpdkError> {
        let (first, queues) = (self.config.first_udp_port, self.queues);
        if queues <= 1 {
            return Ok(Steering::OneQueue);
        }
        if steering::install_rules(self.id, first, queues) {
            return Ok(Steering::Flow);
        }
        if hashes && steering::fill_table(self.id, table, bits, first, queues) {
            return Ok(Steering::Rss);
        }
        Err(DpdkError::NoSteering { device: self.name.to_owned(), queues })
    }
}
