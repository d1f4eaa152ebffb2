//! Packets that pass between levels: from the root through a rack to its members (P36 passed on), and MISMATCH of a rack
//! through its root (P37 roots).

use super::job::Job;
use super::level::port_of;
use super::{Aggregator, DropReason, Endpoint, Event, Kernels, Level, Outcome, Sink};
use crate::wire::{FLAG_MARK, FLAG_ROOT, Form, Header, Kind, MAX_PACKET};
use crate::{Ecn, WorkerId};

/// Kinds of packets whose slots a packet of a root's can be about.
fn concerned_kinds(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::NormResult | Kind::Mismatch => &[Kind::Norm],
        Kind::Result | Kind::RawResult => &[Kind::Data],
        Kind::Straggler | Kind::Nudge => &[Kind::Norm, Kind::Data],
        _ => &[],
    }
}

impl Job {
    /// Checks a packet from the root, or one that claims to be, before it goes to all members (P36); `form` is that of
    /// a RESULT's table.
    fn admit_from_root(
        &self,
        from: Endpoint,
        header: &Header,
        payload: &[u8],
        form: Option<Form>,
    ) -> Result<(), DropReason> {
        let Level::Rack { racks, root, ports, .. } = self.config.level else { return Err(DropReason::Kind) };
        if header.cookie != self.config.cookie {
            return Err(DropReason::Cookie);
        }
        if !port_of(root, ports, header.slot).admits(&from) {
            return Err(DropReason::Source);
        }
        if header.num_workers != racks.count {
            return Err(DropReason::Workers);
        }
        let form = if header.kind == Kind::Result { form } else { Some(Form::USUAL) };
        if form.is_some_and(|form| payload.len() != header.kind.payload_len(form)) {
            return Err(DropReason::Length);
        }
        if !concerned_kinds(header.kind).iter().any(|&kind| self.slots.get(kind, header.slot).is_some()) {
            return Err(DropReason::Slot);
        }
        form.map(|_| ()).ok_or(DropReason::Table)
    }
}

impl<K: Kernels> Aggregator<K> {
    /// Passes on a packet of a kind that no slot takes; `None` if this aggregator does not.
    #[inline]
    pub(super) fn relay(
        &mut self,
        from: Endpoint,
        ecn: Ecn,
        packet: &[u8],
        sink: &mut impl Sink,
    ) -> Option<Outcome> {
        // Nearly all packets are of other kinds.
        if packet.get(1).is_none_or(|&kind| kind <= Kind::Raw as u8) {
            None
        } else {
            self.pass_on(from, ecn, packet, sink)
        }
    }

    #[inline(never)]
    fn pass_on(&mut self, from: Endpoint, ecn: Ecn, packet: &[u8], sink: &mut impl Sink) -> Option<Outcome> {
        let (header, payload) = Header::parse(packet).ok()?;
        if concerned_kinds(header.kind).is_empty() {
            return None;
        }
        let form = self.table(header.table).map(|table| table.form);
        let place = self.index[usize::from(header.job.0)];
        let job = self.jobs.get_mut(place as usize)?.as_mut()?;
        let (flags, ecn, end) = match job.config.level {
            Level::Only => return None,
            // P37 roots: all other packets are the root's own.
            Level::Root(_) if header.kind != Kind::Mismatch => return None,
            Level::Root(_) => (0, Ecn::NotEct, job.admit_mismatch(from, &header, payload)),
            Level::Rack { .. } => {
                // The job may not have the table that others have.
                let form = form.filter(|_| job.config.tables.contains(&header.table));
                let flags = FLAG_ROOT | header.flags & FLAG_MARK;
                (flags, ecn, job.admit_from_root(from, &header, payload, form))
            }
        };
        let from_root = flags & FLAG_ROOT != 0;
        let worker = if from_root { WorkerId::NONE } else { header.worker };
        if let Err(reason) = end {
            job.counters.count(worker, packet.len(), Err(reason));
            return Some(Outcome::Dropped(reason));
        }
        let mut copy = [0; MAX_PACKET];
        // P7.9 bounds it.
        let copy = copy.get_mut(..packet.len())?;
        copy.copy_from_slice(packet);
        Header::set_flags(copy, flags);
        job.receivers.answer_all(ecn, copy, sink);
        if from_root {
            job.counters.pass(packet.len());
            return Some(Outcome::Passed);
        }
        job.counters.count(worker, packet.len(), Ok(Event::Mismatch));
        Some(Outcome::Handled(Event::Mismatch))
    }
}
