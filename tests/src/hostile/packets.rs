//! What a hostile sender sends: everything that it can know, and everything that it can make up.

use crate::COOKIE_NUMBER;
use crate::wiretap::Frame;
use fastrand::Rng;
use std::net::SocketAddr;
use std::time::Duration;
use thc_protocol::session::Joiner;
use thc_protocol::wire::{FLAG_NUDGE, Form, HEADER_LEN, Header, Kind, Mode, Norm, Welcome};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};
use thc_transport::frame::Datagram;

/// The longest datagram.
const LONGEST: usize = 1500;

/// What a sender knows that has seen the session begin: all but the means to send from a member's address.
#[derive(Clone, Debug)]
pub struct Known {
    /// Where the server is.
    pub server: SocketAddr,
    /// Where workers are.
    pub workers: Vec<SocketAddr>,
    /// Their number.
    pub count: u8,
    /// WELCOME, but for the nonce.
    pub welcome: Welcome,
    /// The last WELCOME, header included.
    pub packet: Vec<u8>,
}

impl Known {
    /// From the frames between a server and its workers.
    ///
    /// # Errors
    /// If they have no WELCOME.
    pub fn parse_frames(frames: &[Frame], server: SocketAddr) -> Result<Known, String> {
        let mut known: Option<Known> = None;
        let mut workers = Vec::new();
        for frame in frames {
            let Ok(datagram) = Datagram::parse(&frame.bytes) else { continue };
            if let Ok((header, payload)) = Header::parse(datagram.payload)
                && header.kind == Kind::Welcome
                && let Some(welcome) = Welcome::parse(payload)
            {
                workers.push(datagram.to.1);
                let packet = datagram.payload.to_vec();
                known = Some(Known {
                    server,
                    workers: workers.clone(),
                    count: header.num_workers,
                    welcome,
                    packet,
                });
            }
        }
        known.ok_or_else(|| "no WELCOME was seen".to_owned())
    }
}

/// Makes packets.
#[derive(Debug)]
pub struct Packets {
    known: Known,
    rng: Rng,
    made: u64,
}

impl Packets {
    /// With a seed.
    #[must_use]
    pub fn new(known: Known, seed: u64) -> Packets {
        Packets { known, rng: Rng::with_seed(seed), made: 0 }
    }

    /// What it knows.
    #[must_use]
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// The next packet, and to whom.
    pub fn next(&mut self, packet: &mut Vec<u8>) -> SocketAddr {
        packet.clear();
        self.made += 1;
        let server = self.known.server;
        match self.rng.u8(..16) {
            // Every kind byte in turn, known or not, of any length.
            0..3 => {
                self.any_kind(packet);
                server
            }
            3..8 => {
                self.upstream(packet);
                server
            }
            8..10 => {
                self.upstream(packet);
                self.cut_or_lengthened(packet);
                server
            }
            10..12 => {
                self.write_join(packet);
                server
            }
            12 => {
                self.write_leave(packet);
                server
            }
            13 => {
                self.downstream(packet);
                server
            }
            _ => {
                self.downstream(packet);
                let worker = self.rng.usize(..self.known.workers.len());
                self.known.workers[worker]
            }
        }
    }

    fn cookie(&mut self) -> Cookie {
        match self.rng.u8(..4) {
            0 | 1 => self.known.welcome.session,
            2 => Cookie(COOKIE_NUMBER),
            _ => Cookie(self.rng.u32(..)),
        }
    }

    fn header(&mut self, kind: Kind) -> Header {
        let (rng, slots) = (&mut self.rng, self.known.welcome.data_slots);
        let job = if rng.u8(..8) == 0 { rng.u16(..) } else { 1 };
        let worker = if rng.u8(..8) == 0 { rng.u8(..) } else { rng.u8(..self.known.count) };
        let num_workers = if rng.u8(..8) == 0 { rng.u8(..) } else { self.known.count };
        let table = if rng.u8(..8) == 0 { rng.u8(..) } else { self.known.welcome.tables.first().id.0 };
        let slot = if rng.u8(..8) == 0 { rng.u16(..) } else { rng.u32(..slots) as u16 };
        let round = match rng.u8(..4) {
            0 => rng.u32(..),
            1 => rng.u32(..1 << 20),
            2 => rng.u32(..64),
            _ => (1 << 31) - 2 + rng.u32(..4),
        };
        let flags = match rng.u8(..4) {
            0 => FLAG_NUDGE,
            1 => rng.u8(..),
            _ => 0,
        };
        Header {
            kind,
            flags,
            num_workers,
            job: JobId(job),
            worker: WorkerId(worker),
            table: TableId(table),
            cookie: self.cookie(),
            round: Round(round),
            slot: SlotId(slot),
            count: 0,
        }
    }

    /// A header and a payload of the kind's length.
    fn write_header(&mut self, kind: Kind, packet: &mut Vec<u8>) {
        let header = self.header(kind);
        packet.resize(HEADER_LEN + kind.payload_len(Form::USUAL), 0);
        self.rng.fill(&mut packet[HEADER_LEN..]);
        header.emit(packet);
    }

    fn any_kind(&mut self, packet: &mut Vec<u8>) {
        let header = self.header(Kind::Data);
        packet.resize(HEADER_LEN, 0);
        header.emit(packet);
        packet[1] = self.made as u8;
        self.cut_or_lengthened(packet);
    }

    fn cut_or_lengthened(&mut self, packet: &mut Vec<u8>) {
        let before = packet.len();
        let len = self.rng.usize(..=LONGEST);
        packet.resize(len, 0);
        if len > before {
            self.rng.fill(&mut packet[before..]);
        }
    }

    fn upstream(&mut self, packet: &mut Vec<u8>) {
        let kind = [Kind::Norm, Kind::Data, Kind::Raw][self.rng.usize(..3)];
        self.write_header(kind, packet);
        if kind == Kind::Norm {
            let value = match self.rng.u8(..4) {
                0 => f32::INFINITY.to_bits(),
                1 => 0x7FC0_0000 | self.rng.u32(..256),
                _ => self.rng.u32(..),
            };
            let norm = Norm {
                tag: 0,
                value,
                length: self.rng.u32(..),
                call: self.rng.u16(..),
                table: self.known.welcome.tables.first().id,
                mode: if self.rng.bool() { Mode::Compressed as u8 } else { self.rng.u8(..) },
                key: self.rng.u32(..4),
            };
            packet[HEADER_LEN..].copy_from_slice(&norm.with_tag(1).to_bytes());
        }
    }

    /// JOIN, as a worker makes it.
    fn write_join(&mut self, packet: &mut Vec<u8>) {
        let header = self.header(Kind::Join);
        let cookie = if self.rng.bool() { Cookie(COOKIE_NUMBER) } else { header.cookie };
        let mut buffer = [0; 256];
        let nonce = if self.rng.u8(..4) == 0 { self.known.welcome.nonce } else { self.rng.u64(..) };
        let mut joiner = Joiner::new(header.job, header.worker, cookie, nonce, 0, Duration::ZERO);
        packet.extend_from_slice(joiner.poll(Duration::ZERO, &mut buffer).unwrap_or_default());
        // The session that it claims, and what follows (P22).
        match self.rng.u8(..4) {
            0 => self.rng.fill(&mut packet[HEADER_LEN + 8..]),
            1 => packet[HEADER_LEN + 8..][..4].copy_from_slice(&self.known.welcome.session.0.to_be_bytes()),
            _ => {}
        }
    }

    fn write_leave(&mut self, packet: &mut Vec<u8>) {
        self.write_header(Kind::Leave, packet);
        if self.rng.bool() {
            packet[HEADER_LEN..].copy_from_slice(&self.known.welcome.nonce.to_be_bytes());
        }
    }

    /// What only a server sends.
    fn downstream(&mut self, packet: &mut Vec<u8>) {
        let down: Vec<Kind> =
            thc_support::kinds().into_iter().filter(|&kind| kind as u8 & 0x10 != 0).collect();
        let kind = down[self.rng.usize(..down.len())];
        self.write_header(kind, packet);
        match kind {
            // The one that was sent, with another session.
            Kind::Welcome => {
                packet.clear();
                packet.extend_from_slice(&self.known.packet);
                if self.rng.bool() {
                    self.rng.fill(&mut packet[HEADER_LEN..][..4]);
                }
            }
            // The session is re-forming.
            Kind::Refused => packet[HEADER_LEN..].copy_from_slice(&[5, 0, 0, 0]),
            Kind::Ask => packet[HEADER_LEN..].copy_from_slice(&self.known.welcome.nonce.to_be_bytes()),
            _ => {}
        }
        packet[18] = self.known.count;
    }
}
