//! Somebody who knows the job and its cookie, and nothing of its sessions.

use crate::plan::{COOKIE, JOB};
use crate::server::{MAX_SHARDS, address};
use fastrand::Rng;
use std::net::SocketAddr;
use thc_protocol::wire::{HEADER_LEN, Header, Join, Kind, Leave};
use thc_protocol::{Cookie, Round, SlotId, TableId, WorkerId};
use thc_support::{SimIo, kinds};
use thc_transport::PacketIo;

/// Sends something to the server or to a worker.
pub fn send(rng: &mut Rng, io: &mut SimIo, workers: &[SocketAddr], fingerprint: u64) {
    let mut packet = [0; 128];
    let header = Header {
        kind: if rng.u8(..3) > 0 { Kind::Join } else { kinds()[rng.usize(..kinds().len())] },
        flags: rng.u8(..2),
        num_workers: workers.len() as u8,
        job: JOB,
        worker: WorkerId(rng.u8(..workers.len() as u8 + 1)),
        table: TableId(rng.u8(..3)),
        cookie: if rng.u8(..4) > 0 { COOKIE } else { Cookie(rng.u32(..)) },
        round: Round(rng.u32(..3)),
        slot: SlotId(rng.u16(..4)),
        count: rng.u16(..3),
    };
    let body = match header.kind {
        Kind::Join => {
            let session = if rng.u8(..4) == 0 { Cookie(rng.u32(..)) } else { Cookie(0) };
            let fingerprint = if rng.bool() { fingerprint } else { 0 };
            Join { nonce: rng.u64(..), session, ends: rng.bool(), fingerprint, definitions: rng.u64(..2) }
                .to_bytes()
                .to_vec()
        }
        Kind::Leave => Leave { nonce: rng.u64(..) }.to_bytes().to_vec(),
        _ => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
    };
    let bytes = header.emit_packet(&mut packet[..HEADER_LEN + body.len()], &body);
    let to =
        if rng.u8(..4) > 0 { address(rng.u8(..MAX_SHARDS)) } else { workers[rng.usize(..workers.len())] };
    io.send_run(to, bytes, bytes.len()).unwrap();
    // What it is answered is of no use to it.
    io.recv_burst(&mut |_, _| ()).unwrap();
}
