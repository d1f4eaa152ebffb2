//! BMv2's file interface: what it reads comes through a FIFO per port, so that packets can be written
//! when the switch is configured; what it sends lies in a file per port.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

/// magic (microseconds), version 2.4, zone, accuracy, longest packet, Ethernet.
fn file_header() -> Vec<u8> {
    [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65535, 1].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A port's input. BMv2 takes the packet with the earliest time of all ports, and waits until every port
/// has one: a port whose packets are all taken stops the others.
pub struct Input {
    bytes: Sender<Vec<u8>>,
}

impl Input {
    /// Makes the FIFO `{dir}/{port}_in.pcap`. The file's header is in it as soon as somebody reads.
    pub fn new(dir: &Path, port: u16) -> Input {
        let path = dir.join(format!("{port}_in.pcap"));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (bytes, packets) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            let mut fifo = OpenOptions::new().write(true).open(path).unwrap();
            if fifo.write_all(&file_header()).is_err() {
                return;
            }
            // Ends when the input or the switch is gone.
            while let Ok(packet) = packets.recv() {
                if fifo.write_all(&packet).is_err() {
                    return;
                }
            }
        });
        Input { bytes }
    }

    /// A packet; `time` orders it among the packets of all ports.
    pub fn send(&self, time: u64, frame: &[u8]) {
        let len = frame.len() as u32;
        let head = [(time / 1_000_000) as u32, (time % 1_000_000) as u32, len, len];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(frame);
        self.bytes.send(bytes).unwrap();
    }
}

/// A port's output.
pub struct Output {
    path: PathBuf,
    file: Option<File>,
    /// What has been read and not been taken.
    bytes: Vec<u8>,
    /// Whether the file's header is behind us.
    begun: bool,
}

impl Output {
    /// The file `{dir}/{port}_out.pcap`, which need not exist yet.
    pub fn new(dir: &Path, port: u16) -> Output {
        let path = dir.join(format!("{port}_out.pcap"));
        Output { path, file: None, bytes: Vec::new(), begun: false }
    }

    /// The packets that have been written completely since the last call.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        file.read_to_end(&mut self.bytes).unwrap();
        let mut at = 0;
        if !self.begun {
            if self.bytes.len() < 24 {
                return Vec::new();
            }
            (self.begun, at) = (true, 24);
        }
        let mut frames = Vec::new();
        while let Some(head) = self.bytes.get(at..at + 16) {
            let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
            let Some(frame) = self.bytes.get(at + 16..at + 16 + len) else { break };
            frames.push(frame.to_vec());
            at += 16 + len;
        }
        self.bytes.drain(..at);
        frames
    }
}
