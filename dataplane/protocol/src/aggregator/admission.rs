//! The packets that P7 let in last.
//!
//! A worker's packets differ in round, slot and payload, and in little else. The rest of what P7 checks
//! depends on the first 12 bytes of the header, on the length, on the packet's source, and on the
//! aggregator's configuration. So a packet that agrees in these with the last one of its worker that was let
//! in needs no lookup of job, member and table.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use super::job::UNUSED;
use super::{Endpoint, Lookup};
use crate::wire::{BEFORE_ROUND, Form, HEADER_LEN, Header, Kind};
use crate::{Cookie, JobId, MAX_WORKERS, WorkerId};

/// A packet that was let in.
#[derive(Clone, Copy)]
pub(super) struct Admission {
    head: [u8; BEFORE_ROUND],
    /// No packet is as long as what stands for none.
    len: usize,
    from: Endpoint,
    /// The job's place.
    pub place: u32,
    header: Header,
    /// The bit that packets with this pass add to `seen`.
    pub bit: u64,
    /// The kind of its slot's result.
    pub result: Kind,
    /// The table of DATA.
    pub table: Lookup,
    /// Length of its slot's header and lanes.
    pub slot_len: usize,
    /// Length of its slot's result, header included: less if sums travel in fewer bits.
    pub answer_len: usize,
}

impl Admission {
    const NONE: Admission = Admission {
        head: [0; BEFORE_ROUND],
        len: usize::MAX,
        from: Endpoint { ingress: 0, addr: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)) },
        place: UNUSED,
        header: Header::new(Kind::Norm, 0, JobId(0), WorkerId(0), Cookie(0)),
        bit: 0,
        result: Kind::NormResult,
        table: Lookup { form: Form::USUAL, values: [0; 16] },
        slot_len: 0,
        answer_len: 0,
    };

    /// The admission of a packet that P7 has let in, which therefore has a header.
    pub fn new(
        from: Endpoint,
        packet: &[u8],
        header: &Header,
        place: u32,
        result: Kind,
        table: Lookup,
    ) -> Admission {
        let head = packet.first_chunk().copied().unwrap_or_default();
        let answer_len = HEADER_LEN + result.payload_len(table.form);
        let slot_len = if result == Kind::Result { HEADER_LEN + table.form.lanes_len() } else { answer_len };
        Admission {
            head,
            len: packet.len(),
            from,
            place,
            header: *header,
            bit: header.worker.bit(),
            result,
            slot_len,
            answer_len,
            table,
        }
    }

    /// Returns whether a packet is like this one but for slot, round and payload.
    #[inline(always)]
    pub fn fits(&self, from: Endpoint, head: &[u8; HEADER_LEN], len: usize) -> bool {
        self.head == head[..BEFORE_ROUND] && self.from == from && self.len == len
    }

    /// The header of a packet that is like this one.
    #[inline]
    pub fn header(&self, head: &[u8; HEADER_LEN]) -> Header {
        let (round, slot) = Header::place_of(head);
        Header { round, slot, ..self.header }
    }

    /// The header of a packet that is like this one, with another round and slot.
    #[inline(always)]
    pub fn template(&self) -> &Header {
        &self.header
    }
}

/// Jobs whose numbers follow each other, of which none takes another's places.
const JOBS: usize = 4;

/// One for each number of a worker in each of [`JOBS`] jobs.
pub(super) struct Admissions([Admission; JOBS * MAX_WORKERS]);

impl Admissions {
    pub const NONE: Admissions = Admissions([Admission::NONE; JOBS * MAX_WORKERS]);

    #[inline(always)]
    fn place(head: &[u8; HEADER_LEN]) -> usize {
        let (job, worker) = (usize::from(head[5]), usize::from(head[6]));
        job % JOBS * MAX_WORKERS + worker % MAX_WORKERS
    }

    /// Returns where the pass of a packet is, if it has one.
    #[inline(always)]
    pub fn get(&self, head: &[u8; HEADER_LEN]) -> &Admission {
        &self.0[Self::place(head)]
    }

    /// Keeps the pass of the packet with this header.
    pub fn keep(&mut self, head: &[u8; HEADER_LEN], pass: Admission) {
        self.0[Self::place(head)] = pass;
    }
}
