//! Packets find the queue of their UDP port by rules, or by a hash of that port alone.

use dpdk_sys as ffi;
use std::ptr;

/// The way in which packets find the queue of their UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// There is one queue.
    OneQueue,
    /// By rules for the destination port (rte_flow).
    Flow,
    /// By a hash of the destination port (RSS).
    Rss,
}

/// Length of the hash key, which every device with RSS supports.
pub(crate) const KEY_LEN: usize = 40;
/// Entries of the largest indirection table that this crate fills in.
pub(crate) const MAX_RETA: u16 = 2048;

/// Bits that RSS hashes for UDP over IPv4: two addresses and two ports.
const HASHED_BITS: usize = 96;

/// The number of bits that distinguish `queues` consecutive ports.
pub(crate) fn bits_for(queues: u16) -> u32 {
    queues.max(1).next_power_of_two().trailing_zeros()
}

/// Makes a Toeplitz key with a single bit set.
///
/// Input bit i contributes key bits i … i + 31 to the hash. With key bit k alone, it contributes 2^(31 − k + i), if
/// k − 31 ≤ i ≤ k. With k = 95 + 31 − (bits − 1) only the last `bits` of the 96 input bits, which are the lowest
/// of the destination port, reach the hash, the lowest of them with the greatest weight: the hash is those bits reversed.
pub(crate) fn key(bits: u32) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let bit = HASHED_BITS - 1 + 31 - (bits.max(1) as usize - 1);
    key[bit / 8] = 0x80 >> (bit % 8);
    key
}

/// The queue of a hash value modulo 2^bits, if queue q has the port `first` + q.
pub(crate) fn queue_of(hash: u32, bits: u32, first: u16, queues: u16) -> u16 {
    let bits = bits.max(1);
    let low = hash.reverse_bits() >> (32 - bits);
    let queue = low.wrapping_sub(u32::from(first)) & ((1 << bits) - 1);
    if queue < u32::from(queues) { queue as u16 } else { 0 }
}

/// Gives the device a rule for each queue. Returns false, and removes the rules, if it refuses one.
///
/// Most drivers conclude from the pattern that UDP is meant. Some require the protocol in the IPv4 header as well.
pub(crate) fn install_rules(port: u16, first: u16, queues: u16) -> bool {
    [false, true].into_iter().any(|named| {
        let installed = (0..queues).all(|queue| install_rule(port, first.wrapping_add(queue), queue, named));
        if !installed {
            let mut error = ffi::rte_flow_error::default();
            // SAFETY: the port exists; `error` is written.
            unsafe { ffi::rte_flow_flush(port, &raw mut error) };
        }
        installed
    })
}

fn install_rule(port: u16, udp_port: u16, queue: u16, named: bool) -> bool {
    let mut attributes = ffi::rte_flow_attr::default();
    attributes.set_ingress(1);
    let mut ip_spec = ffi::rte_flow_item_ipv4::default();
    let mut ip_mask = ffi::rte_flow_item_ipv4::default();
    // SAFETY: both items are ours, and one field of each is written.
    unsafe {
        ffi::thc_flow_protocol(&raw mut ip_spec, libc::IPPROTO_UDP as u8);
        ffi::thc_flow_protocol(&raw mut ip_mask, u8::MAX);
    }
    let mut spec = ffi::rte_flow_item_udp::default();
    spec.hdr.dst_port = udp_port.to_be();
    let mut mask = ffi::rte_flow_item_udp::default();
    mask.hdr.dst_port = u16::MAX;
    let item = |type_, spec, mask| ffi::rte_flow_item { type_, spec, last: ptr::null(), mask };
    let any = |type_| item(type_, ptr::null(), ptr::null());
    let pattern = [
        any(ffi::RTE_FLOW_ITEM_TYPE_ETH),
        if named {
            let (spec, mask) = (&raw const ip_spec, &raw const ip_mask);
            item(ffi::RTE_FLOW_ITEM_TYPE_IPV4, spec.cast(), mask.cast())
        } else {
            any(ffi::RTE_FLOW_ITEM_TYPE_IPV4)
        },
        item(ffi::RTE_FLOW_ITEM_TYPE_UDP, (&raw const spec).cast(), (&raw const mask).cast()),
        any(ffi::RTE_FLOW_ITEM_TYPE_END),
    ];
    let target = ffi::rte_flow_action_queue { index: queue };
    let actions = [
        ffi::rte_flow_action { type_: ffi::RTE_FLOW_ACTION_TYPE_QUEUE, conf: (&raw const target).cast() },
        ffi::rte_flow_action { type_: ffi::RTE_FLOW_ACTION_TYPE_END, conf: ptr::null() },
    ];
    let mut error = ffi::rte_flow_error::default();
    // SAFETY: pattern and actions end with END, and what they point to lives during the calls. The device copies it.
    unsafe {
        ffi::rte_flow_validate(
            port,
            &raw const attributes,
            pattern.as_ptr(),
            actions.as_ptr(),
            &raw mut error,
        ) == 0
            && !ffi::rte_flow_create(
                port,
                &raw const attributes,
                pattern.as_ptr(),
                actions.as_ptr(),
                &raw mut error,
            )
            .is_null()
    }
}

/// Fills the indirection table so that each port's hash leads to its queue. Returns whether the device accepted it.
pub(crate) fn fill_table(port: u16, entries: u16, bits: u32, first: u16, queues: u16) -> bool {
    let group = ffi::ETH_RETA_GROUP as usize;
    let mut table = [ffi::rte_eth_rss_reta_entry64::default(); MAX_RETA as usize / 64];
    for hash in 0..usize::from(entries) {
        let part = &mut table[hash / group];
        part.mask |= 1 << (hash % group);
        part.reta[hash % group] = queue_of(hash as u32, bits, first, queues);
    }
    // SAFETY: the table has `entries` entries, which the caller has checked to be at most MAX_RETA.
    unsafe { ffi::rte_eth_dev_rss_reta_update(port, table.as_mut_ptr(), entries) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash as devices compute it, from its definition.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], i: usize| bytes.get(i / 8).is_some_and(|byte| byte & (0x80 >> (i % 8)) != 0);
        let mut hash = 0;
        for i in 0..input.len() * 8 {
            if bit(input, i) {
                for j in 0..32 {
                    hash ^= u32::from(bit(key, i + j)) << (31 - j);
                }
            }
        }
        hash
    }

    #[test]
    fn known_hash() {
        // Microsoft's verification suite: 66.9.149.187:2794 to 161.142.100.80:1766 under its well-known key.
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(toeplitz(&key, &input), 0x51cc_c178);
    }

    #[test]
    fn every_port_finds_its_queue_whoever_sends() {
        let mut seed = 1u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 8
        };
        for queues in 2..=64u16 {
            for first in [9000, 1, 4095, 65_535 - queues] {
                let bits = bits_for(queues);
                let key = key(bits);
                for queue in 0..queues {
                    let port = first + queue;
                    let mut input = [0; 12];
                    for byte in &mut input[..10] {
                        *byte = random() as u8;
                    }
                    input[10..].copy_from_slice(&port.to_be_bytes());
                    for entries in [64, 128, 512, 2048] {
                        let index = toeplitz(&key, &input) % entries;
                        assert_eq!(
                            queue_of(index, bits, first, queues),
                            queue,
                            "{queues} from {first}: {port}"
                        );
                    }
                }
            }
        }
    }
}
