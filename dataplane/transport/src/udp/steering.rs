//! Which of several sockets of one port takes a datagram: a small program that the kernel runs (`SO_ATTACH_REUSEPORT_CBPF`).
//!
//! Without one, a hash of the addresses chooses, which also keeps the datagrams of one sender in order, but deals senders out unevenly.

use std::net::IpAddr;

use crate::Peer;

/// The IP header, wherever the program's data begin (`SKF_NET_OFF`).
const IP: u32 = libc::SKF_NET_OFF as u32;
/// The offsets of the sender's address in IPv4 and of the UDP header: THC's datagrams have no options.
const V4_SOURCE: u32 = IP + 12;
const V4_UDP: u32 = IP + 20;
const V6_SOURCE: u32 = IP + 8;
const V6_UDP: u32 = IP + 40;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A program by which the datagrams of the i-th sender go to socket i mod `sockets`, and those of others to the first.
pub(super) fn program(senders: &[Peer], sockets: usize) -> Vec<libc::sock_filter> {
    let mut program = Vec::new();
    for (i, sender) in senders.iter().enumerate() {
        let (version, words, udp) = match sender.ip() {
            IpAddr::V4(address) => (4, vec![(V4_SOURCE, address.to_bits())], V4_UDP),
            IpAddr::V6(address) => {
                let words = address.to_bits().to_be_bytes();
                let words = words
                    .chunks_exact(4)
                    .map(|word| word.iter().fold(0, |all, &byte| all << 8 | u32::from(byte)));
                (6, (V6_SOURCE..).step_by(4).zip(words).collect(), V6_UDP)
            }
        };
        let mut loads: Vec<_> = words.into_iter().map(|(at, word)| (LOAD_WORD, at, word)).collect();
        loads.push((LOAD_HALF, udp, sender.port().into()));
        // Behind the last comparison there is one instruction more.
        let end = 3 + 2 * loads.len() + 1;
        let mut own = vec![instruction(LOAD_BYTE, 0, IP), instruction(SHIFT_RIGHT, 0, 4)];
        own.push(instruction(JUMP_IF_EQUAL, end - 3, version));
        for (load, at, value) in loads {
            own.push(instruction(load, 0, at));
            own.push(instruction(JUMP_IF_EQUAL, end - own.len() - 1, value));
        }
        own.push(instruction(RETURN, 0, (i % sockets) as u32));
        program.append(&mut own);
    }
    program.push(instruction(RETURN, 0, 0));
    program
}

/// An instruction; a comparison skips `otherwise` instructions if it fails.
fn instruction(code: u16, otherwise: usize, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: otherwise as u8, k }
}
