#![allow(clippy::unwrap_used)]
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::bpf::{BpfProgram, SocketMap};
use super::*;
use crate::Peer;
use crate::frame::{Datagram, mac_of};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
const FIRST: u16 = 9000;
const PORTS: u16 = 3;
/// What the helper answers for a queue without a socket is what the program gives it.
const OURS: u32 = PASS;
/// A map that is none, for looking at instructions alone.
const NO_MAP: i32 = 7;

fn frame(to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (Peer::from(([10, 77, 0, 1], 5000)), Peer::from(to));
    Datagram { from: (mac_of(from.ip()), from), to: (mac_of(to.ip()), to), ecn: 2, payload }.frame()
}

/// The program in an interpreter of our own: whether it calls the helper.
fn is_ours(frame: &[u8]) -> bool {
    let program = assemble(NO_MAP, OWN, FIRST, PORTS);
    let mut registers = [0u64; 11];
    let mut at = 0usize;
    // Frames lie at 1000, and the context is known by its places alone.
    let base = 1000u64;
    loop {
        let Instruction { code, registers: pair, offset, immediate } = program[at];
        let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
        let number = i64::from(immediate).cast_unsigned();
        let mut jump = false;
        match code {
            code::LOAD_8 | code::LOAD_16 | code::LOAD_32 if from == 1 => {
                registers[to] = match offset {
                    DATA => base,
                    DATA_END => base + frame.len() as u64,
                    QUEUE => 0,
                    other => panic!("place {other} of the context"),
                };
            }
            code::LOAD_8 | code::LOAD_16 | code::LOAD_32 => {
                let place = (registers[from] - base) as usize + offset as usize;
                let width = match code {
                    code::LOAD_8 => 1,
                    code::LOAD_16 => 2,
                    _ => 4,
                };
                let mut bytes = [0; 8];
                bytes[..width].copy_from_slice(&frame[place..place + width]);
                registers[to] = u64::from_le_bytes(bytes);
            }
            code::LOAD_WIDE => {
                assert_eq!((from, immediate), (usize::from(MAP_DESCRIPTOR), NO_MAP));
                at += 1;
            }
            code::MOVE => registers[to] = number,
            code::MOVE_REGISTER => registers[to] = registers[from],
            code::ADD => registers[to] = registers[to].wrapping_add(number),
            code::AND => registers[to] &= number,
            code::TO_BIG_ENDIAN => registers[to] = u64::from((registers[to] as u16).swap_bytes()),
            code::JUMP_DIFFERENT => jump = registers[to] != number,
            code::JUMP_DIFFERENT_32 => jump = registers[to] as u32 != immediate.cast_unsigned(),
            code::JUMP_AT_LEAST => jump = registers[to] >= number,
            code::JUMP_GREATER_REGISTER => jump = registers[to] > registers[from],
            code::CALL => return true,
            code::EXIT => {
                assert_eq!(registers[0], u64::from(PASS));
                return false;
            }
            other => panic!("instruction {other:#x}"),
        }
        at += 1;
        if jump {
            at = (at as i64 + i64::from(offset)) as usize;
        }
    }
}

/// Frames, and whether each is ours.
fn frames() -> Vec<(&'static str, Vec<u8>, bool)> {
    let own = |port| SocketAddrV4::new(OWN, port);
    let good = frame(own(FIRST), &[7; 100]);
    let changed = |place: usize, value: u8| {
        let mut other = good.clone();
        other[place] = value;
        other
    };
    let mut all = vec![
        ("the first port", good.clone(), true),
        ("the last port", frame(own(FIRST + PORTS - 1), &[]), true),
        ("the longest", frame(own(FIRST + 1), &[1; 1072]), true),
        ("a port below", frame(own(FIRST - 1), &[7; 100]), false),
        ("a port above", frame(own(FIRST + PORTS), &[7; 100]), false),
        ("port 0", frame(own(0), &[7; 100]), false),
        ("the highest port", frame(own(u16::MAX), &[7; 100]), false),
        ("another address", frame(SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 201), FIRST), &[7; 100]), false),
        ("ARP", changed(13, 6), false),
        ("IPv6", [&[0x86, 0xdd][..], &[0x60; 60]].concat(), false),
        ("a VLAN", changed(12, 0x81), false),
        ("options", changed(VERSION as usize, 0x46), false),
        ("TCP", changed(PROTOCOL as usize, 6), false),
        ("ICMP", changed(PROTOCOL as usize, 1), false),
        ("a first fragment", changed(FRAGMENT as usize, 0x20), false),
        ("a later fragment", changed(FRAGMENT as usize + 1, 8), false),
        ("one that must not be a fragment", changed(FRAGMENT as usize, 0x40), true),
        ("with marks of congestion", changed(15, 3), true),
        // Found wrong later, and counted.
        ("a wrong checksum", changed(25, 0x55), true),
    ];
    all.extend((0..HEADERS as usize).map(|len| ("a piece", good[..len].to_vec(), false)));
    all.push(("headers alone", good[..HEADERS as usize].to_vec(), true));
    all
}

#[test]
fn only_whole_datagrams_for_our_ports_are_ours() {
    for (what, frame, ours) in frames() {
        assert_eq!(is_ours(&frame), ours, "{what}: {frame:02x?}");
    }
}

#[test]
fn every_port_is_told_from_the_others() {
    for port in 0..=u16::MAX {
        let ours = (FIRST..FIRST + PORTS).contains(&port);
        assert_eq!(is_ours(&frame(SocketAddrV4::new(OWN, port), &[])), ours, "port {port}");
    }
}

/// The kernel's verifier takes it, and frames run through it. Without sockets all go to the kernel.
#[test]
fn the_kernel_takes_it() {
    let loaded =
        SocketMap::new(4).and_then(|map| BpfProgram::load(&assemble(map.descriptor(), OWN, FIRST, PORTS)));
    let program = match loaded {
        Ok(program) => program,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            println!("not run: bpf(2): {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for (what, frame, _) in frames() {
        match program.run(&frame) {
            Ok(answer) => assert_eq!(answer, OURS, "{what}"),
            // Shorter than an Ethernet header.
            Err(error) => {
                assert!(frame.len() < 14 && error.kind() == io::ErrorKind::InvalidInput, "{what}: {error}");
            }
        }
    }
}

#[test]
fn what_the_verifier_refuses_is_an_error_with_its_words() {
    if SocketMap::new(1).is_err() {
        println!("not run: bpf(2) makes no maps here");
        return;
    }
    let error = BpfProgram::load(&[instruction(code::EXIT, 0, 0, 0, 0)]).unwrap_err().to_string();
    assert!(error.contains("R0"), "{error}");
}
