//! The 20 bytes in front of every packet (P1 header).

use super::Kind;
use super::layout::Value;
use crate::{Cookie, JobId, Round, SlotId, TableId, WorkerId};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 20;
/// Bytes of it before the round.
pub const BEFORE_ROUND: usize = 12;
/// The protocol's version.
pub const VERSION: u8 = 3;
/// Flag: pass this packet's slot on to all members (P17 NUDGE).
pub const FLAG_NUDGE: u8 = 1;
/// Flag: a rack passes on what its root has sent (P36 passed on).
pub const FLAG_ROOT: u8 = 2;
/// Flag: packets of this sum met congestion (P46 marks).
pub const FLAG_MARK: u8 = 4;

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the packet.
    pub kind: Kind,
    /// [`FLAG_NUDGE`] upstream, [`FLAG_ROOT`] downstream, [`FLAG_MARK`] both ways, or 0; other bits are ignored.
    pub flags: u8,
    /// The job's number of workers.
    pub num_workers: u8,
    /// The job.
    pub job: JobId,
    /// Upstream the sender; downstream [`WorkerId::NONE`] or the worker that the packet names.
    pub worker: WorkerId,
    /// Lookup table of DATA.
    pub table: TableId,
    /// The session's secret.
    pub cookie: Cookie,
    /// Use count of the slot.
    pub round: Round,
    /// The slot.
    pub slot: SlotId,
    /// Downstream, and from a rack to its root: how many workers are in the sum.
    pub count: u16,
}

/// The reason why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer than [`HEADER_LEN`] bytes.
    #[error("packet of {0} bytes is shorter than the header's 20")]
    Short(usize),
    /// Another version of the protocol.
    #[error("the packet has protocol version {0}, and this program version {VERSION}")]
    Version(u8),
    /// A kind byte that means nothing.
    #[error("unknown packet kind {0:#04x}")]
    Kind(u8),
}

/// The value at an offset of a header, in which no field goes beyond the end.
#[inline(always)]
fn field<T: Value + Default>(head: &[u8; HEADER_LEN], offset: usize) -> T {
    T::read(&head[offset..]).unwrap_or_default()
}

impl Header {
    /// A header without flags, table, round, slot or count: what a packet of a session or of a NORM carries.
    #[inline]
    pub const fn new(kind: Kind, num_workers: u8, job: JobId, worker: WorkerId, cookie: Cookie) -> Header {
        Header {
            kind,
            flags: 0,
            num_workers,
            job,
            worker,
            table: TableId(0),
            cookie,
            round: Round(0),
            slot: SlotId(0),
            count: 0,
        }
    }

    /// Splits a packet into header and payload. The payload's length is not checked here.
    ///
    /// # Errors
    /// [`HeaderError`], in the order of P7.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Header, &[u8]), HeaderError> {
        let Some((head, payload)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Short(packet.len()));
        };
        if head[0] != VERSION {
            return Err(HeaderError::Version(head[0]));
        }
        let kind = Kind::from_byte(head[1]).ok_or(HeaderError::Kind(head[1]))?;
        let header = Header {
            kind,
            flags: head[2],
            num_workers: head[3],
            job: field(head, 4),
            worker: WorkerId(head[6]),
            table: TableId(head[7]),
            cookie: field(head, 8),
            round: field(head, 12),
            slot: field(head, 16),
            count: u16::from_le_bytes([head[18], head[19]]),
        };
        Ok((header, payload))
    }

    /// Round and slot of a packet with this header.
    #[inline(always)]
    pub fn place_of(head: &[u8; HEADER_LEN]) -> (Round, SlotId) {
        (field(head, 12), field(head, 16))
    }

    /// Returns how many packets of `segment` bytes, from the first on, have headers that differ only in their slots,
    /// which are consecutive.
    pub fn slots_in_row(packets: &[u8], segment: usize) -> usize {
        let Some(first) = packets.first_chunk::<HEADER_LEN>() else { return 0 };
        let slots = field(first, 16)..=u16::MAX;
        let follows = |(packet, slot): &(&[u8], u16)| {
            packet[..16] == first[..16]
                && packet[16..18] == slot.to_be_bytes()
                && packet[18..20] == first[18..]
        };
        packets.chunks_exact(segment.max(HEADER_LEN)).zip(slots).take_while(follows).count()
    }

    /// Returns whether the headers of two packets name the same job, kind, slot and round, so that handling them one
    /// after the other pays.
    #[inline]
    pub fn name_one_slot(a: &[u8], b: &[u8]) -> bool {
        let (Some(a), Some(b)) = (a.first_chunk::<HEADER_LEN>(), b.first_chunk::<HEADER_LEN>()) else {
            return false;
        };
        a[12..18] == b[12..18] && a[1] == b[1] && a[4..6] == b[4..6]
    }

    /// Returns how many workers are in a packet with this header.
    #[inline(always)]
    pub fn count_of(head: &[u8; HEADER_LEN]) -> u16 {
        u16::from_le_bytes([head[18], head[19]])
    }

    /// Writes the header to the first 20 bytes of `to`.
    ///
    /// # Panics
    /// If `to` is shorter than the header.
    #[inline]
    pub fn emit(&self, to: &mut [u8]) {
        let head = &mut to[..HEADER_LEN];
        head[..4].copy_from_slice(&[VERSION, self.kind as u8, self.flags, self.num_workers]);
        self.job.write(&mut head[4..]);
        head[6] = self.worker.0;
        head[7] = self.table.0;
        self.cookie.write(&mut head[8..]);
        self.round.write(&mut head[12..]);
        self.slot.write(&mut head[16..]);
        // The one number whose upper byte comes second: P1.
        head[18..20].copy_from_slice(&self.count.to_le_bytes());
    }

    /// Returns whether a packet that has been written is DATA or RAW.
    #[inline]
    pub fn is_of_data(packet: &[u8]) -> bool {
        packet.get(1).is_some_and(|&kind| kind == Kind::Data as u8 || kind == Kind::Raw as u8)
    }

    /// Changes the flags of a packet that has been written.
    ///
    /// # Panics
    /// If `packet` is shorter than the header.
    pub fn set_flags(packet: &mut [u8], flags: u8) {
        packet[..HEADER_LEN][2] = flags;
    }

    /// Writes the header and a payload to the front of `to`; returns the packet.
    ///
    /// # Panics
    /// If `to` is shorter than both together.
    #[inline]
    pub fn emit_packet<'a>(&self, to: &'a mut [u8], payload: &[u8]) -> &'a [u8] {
        let packet = &mut to[..HEADER_LEN + payload.len()];
        self.emit(packet);
        packet[HEADER_LEN..].copy_from_slice(payload);
        packet
    }
}
