//! What became of frames.

use super::frame::Foreign;

/// What became of frames that were not datagrams for this endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// ARP requests for this endpoint's address, answered.
    pub arp_answered: u64,
    /// ARP answers and other ARP packets taken note of.
    pub arp_seen: u64,
    /// ARP requests sent.
    pub arp_asked: u64,
    /// ICMP echo requests answered.
    pub echo_answered: u64,
    /// Frames for another MAC address.
    pub other_host: u64,
    /// Frames with a VLAN tag.
    pub vlan: u64,
    /// Frames that are neither IPv4 nor ARP.
    pub ethertype: u64,
    /// Frames shorter than their headers say, or than any header.
    pub truncated: u64,
    /// IPv4 headers that are malformed or whose checksum is wrong.
    pub ip_header: u64,
    /// IPv4 packets with options: they are not THC's.
    pub ip_options: u64,
    /// IPv4 fragments.
    pub fragments: u64,
    /// IPv4 packets for another address.
    pub other_address: u64,
    /// IPv4 packets that are no UDP.
    pub protocol: u64,
    /// Datagrams for another UDP port.
    pub other_port: u64,
    /// Datagrams whose UDP checksum or length is wrong.
    pub udp: u64,
    /// Frames in several segments that were put together by copying.
    pub joined: u64,
    /// Datagrams not sent because no address on the link was known for the receiver.
    pub unresolved: u64,
    /// Datagrams not sent because the device's send ring stayed full.
    pub ring_full: u64,
    /// Datagrams not sent because all packet buffers were in use.
    pub no_buffer: u64,
}

impl FrameCounts {
    /// All of them by their names.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 19] {
        macro_rules! named {
            ($($name:ident),*) => { [$((stringify!($name), self.$name)),*] };
        }
        named!(
            arp_answered,
            arp_seen,
            arp_asked,
            echo_answered,
            other_host,
            vlan,
            ethertype,
            truncated,
            ip_header,
            ip_options,
            fragments,
            other_address,
            protocol,
            other_port,
            udp,
            joined,
            unresolved,
            ring_full,
            no_buffer
        )
    }

    /// Counts a frame that is dropped. ARP and echo requests are counted where they are handled.
    pub(crate) fn count(&mut self, other: Foreign) {
        let place = match other {
            Foreign::Arp | Foreign::Echo => return,
            Foreign::OtherHost => &mut self.other_host,
            Foreign::Vlan => &mut self.vlan,
            Foreign::Ethertype => &mut self.ethertype,
            Foreign::Truncated => &mut self.truncated,
            Foreign::IpHeader => &mut self.ip_header,
            Foreign::IpOptions => &mut self.ip_options,
            Foreign::Fragment => &mut self.fragments,
            Foreign::OtherAddress => &mut self.other_address,
            Foreign::Protocol => &mut self.protocol,
            Foreign::OtherPort => &mut self.other_port,
            Foreign::Udp => &mut self.udp,
        };
        *place += 1;
    }
}
