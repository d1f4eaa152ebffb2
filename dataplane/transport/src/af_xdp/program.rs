//! The program that the kernel runs for each frame that an interface receives: datagrams for our ports go to our
//! sockets, everything else goes on to the kernel.
//!
//! It is a few instructions long and depends on the address and the ports, so it is assembled here and needs
//! no compiler. [`frame::parse`](crate::link::frame::parse) checks again what it lets through; it only has to
//! leave to the kernel whatever may be for somebody else.

use std::net::Ipv4Addr;

/// What the program answers for frames that are not ours (`XDP_PASS`).
pub const PASS: u32 = 2;
/// The helper that hands a frame to a socket of a map (`bpf_redirect_map`).
const REDIRECT_MAP: i32 = 51;

/// Places in the context (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Places in a frame.
const ETHERTYPE: i16 = 12;
const VERSION: i16 = 14;
const FRAGMENT: i16 = 20;
const PROTOCOL: i16 = 23;
const ADDRESS: i16 = 30;
const PORT: i16 = 36;
/// Bytes of all headers.
const HEADERS: i32 = 42;

/// An instruction, as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// The destination in the lower half, the source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// What an instruction does: its class, size or operation, and where its operand comes from (linux/bpf.h).
mod code {
    /// Loads from memory.
    pub const LOAD_8: u8 = 0x71;
    pub const LOAD_16: u8 = 0x69;
    pub const LOAD_32: u8 = 0x61;
    /// A number of 64 bits, or a map: two instructions.
    pub const LOAD_WIDE: u8 = 0x18;
    /// Moves 64 bits.
    pub const MOVE: u8 = 0xb7;
    pub const MOVE_REGISTER: u8 = 0xbf;
    pub const ADD: u8 = 0x07;
    pub const AND: u8 = 0x57;
    /// From the network's byte order.
    pub const TO_BIG_ENDIAN: u8 = 0xdc;
    /// Jumps if the destination is different, or greater or equal, or greater.
    pub const JUMP_DIFFERENT: u8 = 0x55;
    pub const JUMP_DIFFERENT_32: u8 = 0x56;
    pub const JUMP_AT_LEAST: u8 = 0x35;
    pub const JUMP_GREATER_REGISTER: u8 = 0x2d;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}

/// The source of [`code::LOAD_WIDE`] that makes its number the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;
/// The offset of jumps to the end, until it is known.
const TO_THE_END: i16 = i16::MAX;

fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: source << 4 | destination, offset, immediate }
}

/// The program for datagrams to `address` and to `ports` ports from `first` on. `map` is the descriptor of the map that
/// has our sockets by queue.
pub fn assemble(map: i32, address: Ipv4Addr, first: u16, ports: u16) -> Vec<Instruction> {
    let load = |code, destination, offset| instruction(code, destination, 3, offset, 0);
    let unless = |code, value| instruction(code, 5, 0, TO_THE_END, value);
    // As the processor loads what is in the network's byte order.
    let as_loaded = |value: u16| i32::from(value.to_be());
    let mut program = vec![
        // r2 is where the frame ends, r3 where it begins.
        instruction(code::LOAD_32, 2, 1, DATA_END, 0),
        instruction(code::LOAD_32, 3, 1, DATA, 0),
        instruction(code::MOVE, 0, 0, 0, PASS as i32),
        instruction(code::MOVE_REGISTER, 4, 3, 0, 0),
        instruction(code::ADD, 4, 0, 0, HEADERS),
        instruction(code::JUMP_GREATER_REGISTER, 4, 2, TO_THE_END, 0),
        load(code::LOAD_16, 5, ETHERTYPE),
        unless(code::JUMP_DIFFERENT, as_loaded(0x0800)),
        // Version 4, five words of header.
        load(code::LOAD_8, 5, VERSION),
        unless(code::JUMP_DIFFERENT, 0x45),
        load(code::LOAD_8, 5, PROTOCOL),
        unless(code::JUMP_DIFFERENT, 17),
        // No fragment: only the first has ports, and the kernel puts them together.
        load(code::LOAD_16, 5, FRAGMENT),
        instruction(code::AND, 5, 0, 0, as_loaded(0x3fff)),
        unless(code::JUMP_DIFFERENT, 0),
        load(code::LOAD_32, 5, ADDRESS),
        unless(code::JUMP_DIFFERENT_32, address.to_bits().to_be().cast_signed()),
        load(code::LOAD_16, 5, PORT),
        instruction(code::TO_BIG_ENDIAN, 5, 0, 0, 16),
        // Smaller ports become very large numbers.
        instruction(code::ADD, 5, 0, 0, -i32::from(first)),
        unless(code::JUMP_AT_LEAST, i32::from(ports)),
        instruction(code::LOAD_32, 2, 1, QUEUE, 0),
        instruction(code::LOAD_WIDE, 1, MAP_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        // The answer for a queue that has no socket.
        instruction(code::MOVE, 3, 0, 0, PASS as i32),
        instruction(code::CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(code::EXIT, 0, 0, 0, 0),
    ];
    let end = program.len() as i16 - 1;
    for (place, instruction) in (0..).zip(&mut program) {
        if instruction.offset == TO_THE_END {
            instruction.offset = end - place - 1;
        }
    }
    program
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
