//! The job of all benchmarks of the server, its packets, and the server as a shard has it.

use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Kernels, Lookup, Outcome, Shard, Sink};
use thc_protocol::wire::{Form, Header, Kind};
use thc_protocol::{Cookie, Ecn, JobId, Round, SlotId, TableId, WorkerId};
use thc_ps::{PacketHandler, Simd};
use thc_transport::Origin;

pub const JOB: JobId = JobId(1);
/// The values of the job's table, unless its indices are values.
pub const TABLE: [u8; 16] = [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30];

/// An aggregator with the job, a table of this form and these workers.
pub fn aggregator<K: Kernels>(form: Form, data_slots: u16, members: &[Endpoint]) -> Aggregator<K> {
    let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 30);
    let values = if form.is_identity() { [0; 16] } else { TABLE };
    aggregator.install_table(TableId(1), Lookup { form, values }).expect("the table fits");
    let workers = members.len() as u8;
    let job = JobConfig {
        data_slots: u32::from(data_slots),
        norm_slots: 2,
        ..JobConfig::new(JOB, Cookie(7), workers, vec![TableId(1)])
    };
    aggregator.install_job(job).expect("there is room for the job");
    for (number, &member) in (0..).zip(members) {
        aggregator.set_member(JOB, WorkerId(number), member).expect("the job has so many workers");
    }
    aggregator
}

/// The header of a worker's DATA or RAW packet.
pub fn header(kind: Kind, num_workers: u8, worker: u8, round: u32, slot: u16) -> Header {
    Header {
        table: TableId(u8::from(kind == Kind::Data)),
        round: Round(round),
        slot: SlotId(slot),
        ..Header::new(kind, num_workers, JOB, WorkerId(worker), Cookie(7))
    }
}

/// The aggregator behind a port, which counts what it handles.
#[allow(dead_code, reason = "one benchmark has packets from memory")]
pub struct AtPort {
    pub aggregator: Aggregator<Simd>,
    pub handled: usize,
}

impl PacketHandler for AtPort {
    #[inline]
    fn handle(&mut self, Origin { from, ecn, .. }: Origin, packet: &[u8], sink: &mut impl Sink) {
        let outcome = self.aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), packet, sink);
        self.handled += usize::from(matches!(outcome, Outcome::Handled(_)));
    }

    #[inline]
    fn prefetch(&self, packet: &[u8]) {
        self.aggregator.prefetch(packet);
    }
}
