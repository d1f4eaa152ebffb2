//! Counters of frames.

use super::frame::Foreign;

/// Declares the counters and their names once.
macro_rules! counts {
    ($(#[$meta:meta])* pub struct $name:ident[$count:literal] { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: u64),* }

        impl $name {
            /// All of them by their names.
            pub fn by_name(&self) -> [(&'static str, u64); $count] {
                [$((stringify!($field), self.$field)),*]
            }
        }
    };
}

counts! {
    /// The frames that were not datagrams for this endpoint, and the datagrams that were not sent.
    pub struct FrameCounts[19] {
        /// ARP requests for this endpoint's address, answered.
        arp_answered,
        /// ARP answers and other ARP packets taken note of.
        arp_seen,
        /// ARP requests sent.
        arp_asked,
        /// ICMP echo requests answered.
        echo_answered,
        /// Frames for another MAC address.
        other_host,
        /// Frames with a VLAN tag.
        vlan,
        /// Frames that are neither IPv4 nor ARP.
        ethertype,
        /// Frames shorter than their headers say, or than any header.
        truncated,
        /// IPv4 headers that are malformed or whose checksum is wrong.
        ip_header,
        /// IPv4 packets with options, which THC's do not have.
        ip_options,
        /// IPv4 fragments.
        fragments,
        /// IPv4 packets for another address.
        other_address,
        /// IPv4 packets that are no UDP.
        protocol,
        /// Datagrams for another UDP port.
        other_port,
        /// Datagrams whose UDP checksum or length is wrong.
        udp,
        /// Frames in several segments that were put together by copying.
        joined,
        /// Datagrams not sent because no address on the link was known for the receiver.
        unresolved,
        /// Datagrams not sent because the device's send ring stayed full.
        ring_full,
        /// Datagrams not sent because all packet buffers were in use.
        no_buffer,
    }
}

impl FrameCounts {
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
