//! The switch program's counters, computed from the counts of the shards.

use std::collections::BTreeMap;

use p4runtime_proto::v1::{CounterData, CounterEntry, Entity, Index, entity};
use thc_protocol::aggregator::{DropReason, Event, JobCounters, WorkerCounters};
use thc_protocol::{MAX_WORKERS, WorkerId};
use tonic::Code;

use super::refusal::{Refusal, refuse};
use crate::rows::{Counter, CounterKind, Program};
use crate::state::ShardReport;
use crate::stats::merge_job;

/// Bits of worker, event, reason and answer in an index.
const WORKER_BITS: u32 = 7;
const EVENT_BITS: u32 = 3;
const REASON_BITS: u32 = 4;
const ANSWER_BITS: u32 = 2;
/// Bytes of a frame before the protocol's header: Ethernet, IPv4 and UDP.
const HEADERS: u64 = 42;
/// Drops of packets that belong to no job.
const CARRIER: usize = 4;

/// Packets and bytes.
type Cell = (i64, i64);

/// The counts of all shards at one moment.
#[derive(Debug, Default)]
pub struct Readings {
    jobs: BTreeMap<u16, JobCounters>,
    carrier: [u64; CARRIER],
}

impl Readings {
    /// The readings of these reports.
    #[must_use]
    pub fn from_reports(reports: &[ShardReport]) -> Readings {
        let jobs = (0..Program::get().indices).filter_map(|index| Some((index, merge_job(reports, index)?)));
        let mut carrier = [0; CARRIER];
        for report in reports {
            carrier.iter_mut().zip(report.globals.drops).for_each(|(sum, drops)| *sum += drops);
        }
        Readings { jobs: jobs.collect(), carrier }
    }

    fn worker(&self, place: u32) -> Option<&WorkerCounters> {
        let worker = place & ((1 << WORKER_BITS) - 1);
        // One set of cells for all numbers from 64 on.
        let worker = u8::try_from(worker).ok().filter(|&worker| usize::from(worker) <= MAX_WORKERS)?;
        self.jobs.get(&((place >> WORKER_BITS) as u16)).map(|job| job.worker(WorkerId(worker)))
    }

    fn cell(&self, kind: CounterKind, index: u32) -> Cell {
        let low = |bits: u32| (index & ((1 << bits) - 1)) as usize;
        let packets = |count: Option<u64>| (count.unwrap_or(0) as i64, 0);
        match kind {
            CounterKind::Packets => self.worker(index).map_or((0, 0), |worker| {
                (worker.packets as i64, (worker.bytes + HEADERS * worker.packets) as i64)
            }),
            CounterKind::Drops => {
                let worker = self.worker(index >> REASON_BITS);
                let reason = low(REASON_BITS);
                let known = (CARRIER..DropReason::ALL.len()).contains(&reason);
                packets(worker.filter(|_| known).map(|worker| worker.drops[reason]))
            }
            CounterKind::Events => {
                let worker = self.worker(index >> EVENT_BITS);
                let event = low(EVENT_BITS);
                packets(worker.filter(|_| event < Event::ALL.len()).map(|worker| worker.events[event]))
            }
            CounterKind::Carrier => packets(self.carrier.get(index as usize).copied()),
            CounterKind::Answers => {
                let job = self.jobs.get(&((index >> ANSWER_BITS) as u16));
                let answer = low(ANSWER_BITS);
                packets(job.and_then(|job| [job.results, job.resent, job.nudges].get(answer).copied()))
            }
        }
    }
}

/// The cells of counters that a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    counter: Option<u32>,
    index: Option<u32>,
}

impl Query {
    /// The query of a request's entry; without a counter it is for all counters, without an index for all cells.
    pub fn parse(program: &Program, entry: &CounterEntry) -> Result<Query, Refusal> {
        if entry.counter_id == 0 {
            return match entry.index {
                None => Ok(Query { counter: None, index: None }),
                Some(_) => refuse(Code::InvalidArgument, "an index needs a counter_id"),
            };
        }
        let counter = counter_of(program, entry.counter_id)?;
        let index = entry.index.map(|Index { index }| index);
        let index = match index {
            Some(index) if index < 0 => return refuse(Code::InvalidArgument, "the index is negative"),
            Some(index) => match u32::try_from(index).ok().filter(|&index| index < counter.size) {
                Some(index) => Some(index),
                None => return refuse(Code::OutOfRange, format!("the counter has {} cells", counter.size)),
            },
            None => None,
        };
        Ok(Query { counter: Some(entry.counter_id), index })
    }

    /// Counters and their cells.
    pub fn cells(self, program: &Program) -> impl Iterator<Item = (u32, Counter, u32)> {
        let counters =
            program.counters.iter().filter(move |(id, _)| self.counter.is_none_or(|wanted| **id == wanted));
        counters.flat_map(move |(&id, &counter)| {
            let range = self.index.map_or(0..counter.size, |index| index..index + 1);
            range.map(move |index| (id, counter, index))
        })
    }
}

fn counter_of(program: &Program, id: u32) -> Result<Counter, Refusal> {
    match program.counters.get(&id) {
        Some(counter) => Ok(*counter),
        None => refuse(Code::InvalidArgument, format!("there is no counter {id}: take ids from the P4Info")),
    }
}

/// A cell as it is read: what was counted since `base`.
pub fn cell_entity(now: &Readings, base: &Readings, (id, counter, index): (u32, Counter, u32)) -> Entity {
    let (now, base) = (now.cell(counter.kind, index), base.cell(counter.kind, index));
    let entry = CounterEntry {
        counter_id: id,
        index: Some(Index { index: index.into() }),
        data: Some(CounterData { packet_count: now.0 - base.0, byte_count: now.1 - base.1 }),
    };
    Entity { entity: Some(entity::Entity::CounterEntry(entry)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Scalar, Shard, Sink};
    use thc_protocol::wire::{Header, Kind};
    use thc_protocol::{Cookie, Ecn, JobId};

    struct Nowhere;

    impl Sink for Nowhere {
        fn unicast(&mut self, _: Endpoint, _: Ecn, _: &[u8]) {}
        fn multicast(&mut self, _: JobId, _: &[Endpoint], _: Ecn, _: &[u8]) {}
    }

    /// A report of a job with one worker that has sent a RAW packet twice, one with a wrong cookie, and one
    /// byte of no job; under index 3.
    fn report() -> ShardReport {
        let mut aggregator: Aggregator<Scalar> = Aggregator::new(Shard::WHOLE, 1 << 20);
        let at = Endpoint::udp("10.0.0.1:9".parse().unwrap());
        let config =
            JobConfig { data_slots: 2, norm_slots: 2, ..JobConfig::new(JobId(7), Cookie(5), 1, Vec::new()) };
        aggregator.install_job(config).unwrap();
        aggregator.set_member(JobId(7), WorkerId(0), at).unwrap();
        let header = Header::new(Kind::Raw, 1, JobId(7), WorkerId(0), Cookie(5));
        for cookie in [5, 5, 6] {
            let mut packet = [0; 1044];
            let packet =
                Header { cookie: Cookie(cookie), ..header }.emit_packet(&mut packet, &[0; 1024]).to_vec();
            aggregator.handle(at, &packet, &mut Nowhere);
        }
        aggregator.handle(at, &[1], &mut Nowhere);
        ShardReport {
            jobs: BTreeMap::from([(3, aggregator.job_counters(JobId(7)).unwrap().clone())]),
            globals: *aggregator.counters(),
            ..ShardReport::default()
        }
    }

    fn id(kind: CounterKind) -> u32 {
        *Program::get().counters.iter().find(|(_, counter)| counter.kind == kind).unwrap().0
    }

    #[test]
    fn cells_are_where_the_switch_program_has_them() {
        // Two shards that have seen the same.
        let now = Readings::from_reports(&[report(), report()]);
        let worker = 3 << 7;
        assert_eq!(now.cell(CounterKind::Packets, worker), (6, 6 * (1044 + 42)));
        assert_eq!(now.cell(CounterKind::Events, worker << 3 | Event::Opened as u32), (2, 0));
        assert_eq!(now.cell(CounterKind::Events, worker << 3 | Event::Duplicate as u32), (2, 0));
        assert_eq!(now.cell(CounterKind::Drops, worker << 4 | DropReason::Cookie as u32), (2, 0));
        assert_eq!(now.cell(CounterKind::Carrier, DropReason::Short as u32), (2, 0));
        assert_eq!(now.cell(CounterKind::Answers, 3 << 2), (2, 0));
        assert_eq!(now.cell(CounterKind::Answers, 3 << 2 | 1), (2, 0));
        // All others are 0, up to the last.
        let all = Query { counter: None, index: None };
        let cells: Vec<_> = all.cells(Program::get()).collect();
        let sizes: u32 = Program::get().counters.values().map(|counter| counter.size).sum();
        assert_eq!(cells.len(), sizes as usize);
        let full = cells.iter().filter(|&&(_, counter, index)| now.cell(counter.kind, index) != (0, 0));
        assert_eq!(full.count(), 7);
    }

    #[test]
    fn indices_are_checked() {
        let program = Program::get();
        let entry = |counter_id, index: Option<i64>| CounterEntry {
            counter_id,
            index: index.map(|index| Index { index }),
            data: None,
        };
        let code = |entry: &CounterEntry| Query::parse(program, entry).unwrap_err().code;
        let packets = id(CounterKind::Packets);
        assert_eq!(code(&entry(packets, Some(-1))), Code::InvalidArgument);
        let cells = i64::from(Program::get().indices) << WORKER_BITS;
        assert_eq!(code(&entry(packets, Some(cells))), Code::OutOfRange);
        assert_eq!(code(&entry(packets, Some(i64::MAX))), Code::OutOfRange);
        assert_eq!(code(&entry(1, None)), Code::InvalidArgument);
        assert_eq!(code(&entry(0, Some(1))), Code::InvalidArgument);
        assert!(Query::parse(program, &entry(packets, Some(cells - 1))).is_ok());
    }
}
