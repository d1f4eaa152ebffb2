//! The aggregator: packets from anywhere, and configuration that changes in between.
//!
//! The model and the server's vector kernels get the same; they must do the same. Beside them a ledger notes what
//! each slot was given by packets that were let in, and adds it up in its own way: every result must be that sum.

use arbitrary::{Arbitrary, Unstructured};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::aggregator::{
    Aggregator, DropReason, Endpoint, Event, JobConfig, Kernels, Level, Lookup, Outcome, Scalar, Shard, Sink,
};
use thc_protocol::wire::{FLAG_NUDGE, Form, HEADER_LEN, Header, Kind, Norm, RAW_LEN};
use thc_protocol::{Cookie, Ecn, JobId, Lane, Round, SlotId, TableId, WorkerId};
use thc_ps::Simd;

use crate::Random;

const JOBS: [JobId; 3] = [JobId(0), JobId(7), JobId(65535)];
const MEMORY: usize = 1 << 20;

pub fn run(data: &[u8]) {
    let _ = history(&mut Unstructured::new(data));
}

/// What was sent: whether as copies to all, to whom, and which bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sent(Vec<(bool, Vec<Endpoint>, Vec<u8>)>);

impl Sink for Sent {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push((false, vec![to], packet.to_vec()));
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        assert!(!members.is_empty());
        self.0.push((true, members.to_vec(), packet.to_vec()));
    }
}

/// What a slot was given in its round.
#[derive(Clone, Debug)]
struct Given {
    round: Round,
    kind: Kind,
    /// Of the first packet.
    table: TableId,
    workers: Vec<WorkerId>,
    /// Sums of coordinates, or the norm's maximum.
    sums: Vec<u64>,
    /// The first packet's payload.
    first: Vec<u8>,
    /// Once complete.
    result: Option<Vec<u8>>,
}

/// What is known of a job.
struct Ledger {
    config: JobConfig,
    slots: BTreeMap<(bool, u16), Given>,
    packets: u64,
    bytes: u64,
}

struct Plant {
    model: Aggregator<Scalar>,
    server: Aggregator<Simd>,
    shard: Shard,
    tables: BTreeMap<u8, Lookup>,
    jobs: BTreeMap<u16, Ledger>,
    /// Packets of no job.
    homeless: u64,
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 4000)))
}

fn history(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let count = if input.ratio(1, 8)? { 2 } else { 1 };
    let shard = Shard { index: input.int_in_range(0..=count - 1)?, count };
    let mut plant = Plant {
        model: Aggregator::new(shard, MEMORY),
        server: Aggregator::new(shard, MEMORY),
        shard,
        tables: BTreeMap::new(),
        jobs: BTreeMap::new(),
        homeless: 0,
    };
    // Something to begin with, so that no input is spent on it.
    let values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    plant.table(TableId(1), Lookup { form: Form::USUAL, values });
    let workers = input.int_in_range(1..=4)?;
    plant.job(JobConfig {
        skip: input.arbitrary()?,
        data_slots: 4,
        norm_slots: 2,
        ..JobConfig::new(JOBS[0], Cookie(1), workers, vec![TableId(1)])
    });
    (0..workers).for_each(|worker| plant.member(JOBS[0], WorkerId(worker), Some(endpoint(worker))));
    for step in 0u32.. {
        if input.is_empty() {
            break;
        }
        if input.ratio(1, 6)? {
            plant.configure(input)?;
        } else {
            plant.send(input)?;
        }
        if step % 16 == 0 {
            plant.check();
        }
    }
    plant.check();
    Ok(())
}

impl Plant {
    fn configure(&mut self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let job = *input.choose(&JOBS)?;
        let table = TableId(input.int_in_range(0..=3)?);
        match input.int_in_range(0..=11u8)? {
            0 | 1 => {
                let mut values = [0; 16];
                match input.arbitrary()? {
                    true => values.iter_mut().zip(0u8..).for_each(|(value, place)| *value = place * 4),
                    false => Random::new(input.arbitrary::<u16>()?.into()).fill(&mut values),
                }
                // And of what travels in fewer bits (P44).
                let fewer = [7, 9].map(|lane| Form::with_sums(4, lane)).into_iter().flatten();
                let forms: Vec<Form> = Form::ALL.into_iter().chain(fewer).collect();
                let form = *input.choose(&forms)?;
                if form.is_identity() {
                    values = [0; 16];
                }
                self.table(table, Lookup { form, values });
            }
            2 => {
                let done = self.model.remove_table(table);
                assert_eq!(done, self.server.remove_table(table));
                if done.is_ok() {
                    self.tables.remove(&table.0);
                }
            }
            3..=5 => {
                let slots = |input: &mut Unstructured<'_>| {
                    Ok(match input.int_in_range(0..=9u8)? {
                        0 => u32::arbitrary(input)?,
                        1 => 65536,
                        number => 2 * u32::from(number / 2),
                    })
                };
                let mut tables = Vec::new();
                for _ in 0..input.int_in_range(0..=2)? {
                    tables.push(TableId(input.int_in_range(0..=3)?));
                }
                let config = JobConfig {
                    job,
                    cookie: Cookie(input.int_in_range(0..=2)?),
                    workers: if input.ratio(1, 8)? {
                        input.arbitrary()?
                    } else {
                        input.int_in_range(1..=4)?
                    },
                    quorum: input.int_in_range(0..=4)?,
                    skip: input.arbitrary()?,
                    data_slots: slots(input)?,
                    norm_slots: slots(input)?,
                    tables,
                    level: Level::Only,
                };
                self.job(config);
            }
            6 => {
                let done = self.model.remove_job(job);
                assert_eq!(done, self.server.remove_job(job));
                assert_eq!(done, self.jobs.remove(&job.0).is_some());
            }
            7 => {
                let to = input.arbitrary::<bool>()?.then(|| endpoint(9));
                let (worker, copies) = (WorkerId(input.int_in_range(0..=4)?), input.arbitrary()?);
                let done = self.model.set_receiver(job, worker, to, copies);
                assert_eq!(done, self.server.set_receiver(job, worker, to, copies));
            }
            8 => {
                self.model.forget_slots();
                self.server.forget_slots();
                self.jobs.values_mut().for_each(|ledger| ledger.slots.clear());
            }
            9 => {
                assert_eq!(self.model.take_counters(job), self.server.take_counters(job));
                if let Some(ledger) = self.jobs.get_mut(&job.0) {
                    (ledger.packets, ledger.bytes) = (0, 0);
                }
            }
            _ => {
                let place =
                    if input.ratio(1, 4)? { None } else { Some(endpoint(input.int_in_range(0..=4)?)) };
                self.member(job, WorkerId(input.int_in_range(0..=5)?), place);
            }
        }
        Ok(())
    }

    fn table(&mut self, id: TableId, table: Lookup) {
        let done = self.model.install_table(id, table);
        assert_eq!(done, self.server.install_table(id, table));
        if done.is_ok() {
            self.tables.insert(id.0, table);
        }
    }

    fn job(&mut self, config: JobConfig) {
        let done = self.model.install_job(config.clone());
        assert_eq!(done, self.server.install_job(config.clone()));
        if done.is_err() {
            return;
        }
        match self.jobs.get_mut(&config.job.0) {
            Some(ledger) => {
                if !ledger.config.same_slots(&config) {
                    ledger.slots.clear();
                }
                ledger.config = config;
            }
            None => {
                let ledger = Ledger { slots: BTreeMap::new(), packets: 0, bytes: 0, config };
                self.jobs.insert(ledger.config.job.0, ledger);
            }
        }
    }

    fn member(&mut self, job: JobId, worker: WorkerId, place: Option<Endpoint>) {
        match place {
            Some(place) => {
                let done = self.model.set_member(job, worker, place);
                assert_eq!(done, self.server.set_member(job, worker, place));
                let known = self.jobs.get(&job.0).is_some_and(|ledger| worker.0 < ledger.config.workers);
                assert_eq!(done.is_ok(), known);
            }
            None => {
                self.model.remove_member(job, worker);
                self.server.remove_member(job, worker);
            }
        }
    }

    fn send(&mut self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let mut from = endpoint(input.int_in_range(0..=4)?);
        let packet = match input.int_in_range(0..=19u8)? {
            // Anything.
            0 => input.bytes(input.len().min(60))?.to_vec(),
            number => {
                let (mut packet, sender) = self.packet(input)?;
                if input.ratio(7, 8)? {
                    from = endpoint(sender.0);
                }
                match number {
                    1 => {
                        let at = input.choose_index(packet.len())?;
                        packet[at] ^= 1 << input.int_in_range(0..=7u8)?;
                    }
                    2 => packet.truncate(input.choose_index(packet.len())?),
                    _ => {}
                }
                packet
            }
        };
        self.give(from, &packet);
        Ok(())
    }

    /// A packet that makes sense, mostly.
    fn packet(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<(Vec<u8>, WorkerId)> {
        let job = if input.ratio(7, 8)? { JOBS[0] } else { *input.choose(&JOBS)? };
        let config = self.jobs.get(&job.0).map(|ledger| &ledger.config);
        let kind = *input.choose(&[Kind::Data, Kind::Data, Kind::Data, Kind::Norm, Kind::Norm, Kind::Raw])?;
        let header = Header {
            kind,
            flags: input.int_in_range(0..=1)?,
            num_workers: config.map_or(1, |config| config.workers),
            job,
            worker: WorkerId(input.int_in_range(0..=4)?),
            table: if kind == Kind::Data { TableId(input.int_in_range(1..=2)?) } else { TableId(0) },
            cookie: config.map_or(Cookie(0), |config| config.cookie),
            round: if input.ratio(1, 16)? {
                Round(input.arbitrary()?)
            } else {
                Round(input.int_in_range(0..=2)?)
            },
            slot: SlotId(input.int_in_range(0..=3)?),
            count: 0,
        };
        let seed: u8 = input.arbitrary()?;
        let payload = match kind {
            Kind::Norm => {
                let norm = Norm {
                    tag: 0,
                    value: f32::from(seed).to_bits(),
                    length: 1024,
                    call: u16::from(input.ratio(1, 16)?),
                    table: TableId(1),
                    mode: 0,
                    key: 0,
                };
                norm.with_tag(1).to_bytes().to_vec()
            }
            _ => {
                let form = self.tables.get(&header.table.0).map_or(Form::USUAL, |table| table.form);
                let mut payload = vec![seed; kind.payload_len(form)];
                Random::new(seed.into()).fill(&mut payload[..64]);
                payload
            }
        };
        let mut packet = vec![0; HEADER_LEN + payload.len()];
        header.emit_packet(&mut packet, &payload);
        Ok((packet, header.worker))
    }

    /// Gives one packet to both, and looks at what they make of it.
    fn give(&mut self, from: Endpoint, packet: &[u8]) {
        let (mut sent, mut other) = (Sent::default(), Sent::default());
        let outcome = self.model.handle(from, packet, &mut sent);
        assert_eq!(outcome, self.server.handle(from, packet, &mut other));
        assert_eq!(sent, other, "vector kernels answer as the model does");
        let Ok((header, payload)) = Header::parse(packet) else {
            assert!(matches!(outcome, Outcome::Dropped(_)) && sent.0.is_empty());
            self.homeless += 1;
            return;
        };
        let Some(ledger) = self.jobs.get_mut(&header.job.0).filter(|_| header.kind.result().is_some()) else {
            assert!(
                matches!(outcome, Outcome::Dropped(DropReason::Kind | DropReason::Job)),
                "{header:?} {outcome:?}"
            );
            assert!(sent.0.is_empty());
            self.homeless += 1;
            return;
        };
        ledger.packets += 1;
        ledger.bytes += packet.len() as u64;
        // P16: at most one packet for each member.
        assert!(sent.0.len() <= 1, "{sent:?}");
        let event = match outcome {
            Outcome::Dropped(_) => {
                assert!(sent.0.is_empty());
                return;
            }
            Outcome::Passed => panic!("there is no root"),
            Outcome::Handled(event) => event,
        };
        // What P7 promises of whatever was let in.
        let config = &ledger.config;
        assert_eq!((header.cookie, header.num_workers), (config.cookie, config.workers));
        assert!(header.worker.0 < config.workers && self.shard.serves(header.slot));
        assert!(header.kind != Kind::Data || config.tables.contains(&header.table));
        let table = self.tables.get(&header.table.0);
        let form = table.map_or(Form::USUAL, |table| table.form);
        assert_eq!(payload.len(), header.kind.payload_len(form));
        ledger.note(event, &header, payload, table);
        ledger.check_answer(event, &header, form, &sent);
    }

    /// Counters add up, memory stays in bounds.
    fn check(&self) {
        let mut memory = 0;
        for ledger in self.jobs.values() {
            memory += ledger.config.memory(self.shard);
            let counters = self.model.job_counters(ledger.config.job).expect("a job has counters");
            let of = |worker| counters.worker(WorkerId(worker));
            let (mut packets, mut bytes, mut ended) = (0, 0, 0);
            for worker in 0..=64 {
                packets += of(worker).packets;
                bytes += of(worker).bytes;
                ended += of(worker).events.iter().sum::<u64>() + of(worker).drops.iter().sum::<u64>();
            }
            assert_eq!((packets, bytes, ended), (ledger.packets, ledger.bytes, ledger.packets));
        }
        assert!(memory <= MEMORY);
        assert_eq!(self.model.jobs().count(), self.jobs.len());
        assert_eq!(self.model.counters().drops.iter().sum::<u64>(), self.homeless);
        assert_eq!(self.model.counters(), self.server.counters());
    }
}

/// The coordinates of a payload, by the definition of P2 and P6.
fn coordinates(header: &Header, payload: &[u8], table: Option<&Lookup>) -> Vec<u64> {
    match header.kind {
        Kind::Norm => vec![u64::from(u32::from_be_bytes(payload[4..8].try_into().unwrap()))],
        Kind::Raw => payload
            .chunks_exact(4)
            .map(|word| u64::from(u32::from_be_bytes(word.try_into().unwrap())))
            .collect(),
        _ => {
            let &Lookup { form, values } = table.expect("DATA names an installed table");
            let width = usize::from(form.width());
            let bit = |at: usize| usize::from(payload[at / 8] >> (7 - at % 8) & 1);
            let index = |i: usize| (i * width..(i + 1) * width).fold(0, |index, at| index << 1 | bit(at));
            let value = |index| if form.is_identity() { index as u64 } else { u64::from(values[index]) };
            (0..form.coordinates()).map(|i| value(index(i))).collect()
        }
    }
}

impl Ledger {
    fn note(&mut self, event: Event, header: &Header, payload: &[u8], table: Option<&Lookup>) {
        let key = (header.kind == Kind::Norm, header.slot.0);
        match event {
            Event::Opened => {
                let before = self.slots.get(&key).map(|given| given.round);
                assert!(before.is_none_or(|before| header.round.newer_than(before)), "an older round");
                // P9: one round after the other, unless workers may skip some or somebody asks for help.
                let next = before.is_none_or(|before| header.round == before.next());
                assert!(next || self.config.skip || header.flags & FLAG_NUDGE != 0, "too far ahead");
                let given = Given {
                    round: header.round,
                    kind: header.kind,
                    table: header.table,
                    workers: vec![header.worker],
                    sums: coordinates(header, payload, table),
                    first: payload.to_vec(),
                    result: None,
                };
                self.slots.insert(key, given);
            }
            Event::Added => {
                let given = self.slots.get_mut(&key).expect("added to a slot that is open");
                assert!(!given.workers.contains(&header.worker), "added twice");
                assert!(given.result.is_none(), "added to a complete slot");
                given.workers.push(header.worker);
                assert_eq!(given.round, header.round);
                assert_eq!(given.kind, header.kind, "P14: one kind a round");
                assert!(given.kind == Kind::Norm || given.table == header.table, "P14: one table a round");
                for (sum, value) in given.sums.iter_mut().zip(coordinates(header, payload, table)) {
                    *sum = if header.kind == Kind::Norm { value.max(*sum) } else { *sum + value };
                }
            }
            Event::Duplicate => assert!(self.slots[&key].workers.contains(&header.worker)),
            Event::Late => {
                assert!(self.slots[&key].result.is_some());
                assert!(!self.slots[&key].workers.contains(&header.worker));
            }
            Event::Stale | Event::Mismatch => assert!(self.slots.contains_key(&key)),
        }
    }

    fn check_answer(&mut self, event: Event, header: &Header, form: Form, sent: &Sent) {
        let key = (header.kind == Kind::Norm, header.slot.0);
        let given = self.slots.get_mut(&key).expect("whatever is answered has a slot");
        let completes = matches!(event, Event::Opened | Event::Added)
            && given.workers.len() >= usize::from(self.config.quorum);
        let Some((to_all, to, bytes)) = sent.0.first() else {
            if completes {
                // Nobody gets copies; the slot is complete all the same. What it says is seen when somebody asks.
                given.result = Some(Vec::new());
            }
            return;
        };
        let (answer, body) = Header::parse(bytes).expect("what is sent is a packet");
        assert_eq!((answer.job, answer.slot, answer.cookie), (header.job, header.slot, header.cookie));
        assert_eq!(body.len(), answer.kind.payload_len(form));
        assert!(*to_all || to.len() == 1);
        if completes {
            assert!(*to_all && Some(answer.kind) == header.kind.result());
            assert_eq!(usize::from(answer.count), given.workers.len());
            let expected = given.expected_payload(form);
            assert!(expected == body, "the result is the sum of what was let in");
            given.result = Some(bytes.clone());
            return;
        }
        match event {
            Event::Duplicate | Event::Late if given.result.is_some() => {
                assert!(!to_all && Some(answer.kind) == given.kind.result());
                match given.result.as_mut().unwrap() {
                    // The first copy that anybody gets.
                    first if first.is_empty() => first.clone_from(bytes),
                    first => assert!(first == bytes, "every copy of a result is the same"),
                }
                assert!(given.expected_payload(form) == body);
            }
            Event::Stale => assert!(!to_all && answer.kind == Kind::Straggler),
            Event::Mismatch => assert!(*to_all && answer.kind == Kind::Mismatch),
            _ => assert!(*to_all && answer.kind == Kind::Nudge),
        }
    }
}

impl Given {
    /// The payload of the result, as P2 and P3 have it.
    fn expected_payload(&self, form: Form) -> Vec<u8> {
        match self.kind {
            Kind::Norm => {
                let mut payload = self.first.clone();
                payload[4..8].copy_from_slice(&(self.sums[0] as u32).to_be_bytes());
                payload
            }
            Kind::Raw => {
                assert_eq!(self.first.len(), RAW_LEN);
                self.sums.iter().flat_map(|&sum| (sum as u32).to_be_bytes()).collect()
            }
            _ => {
                let max = u64::from(form.max_sum());
                assert!(self.sums.iter().all(|&sum| sum <= max), "a lane overflowed (P6)");
                let mut lanes: Vec<u8> = match form.lane() {
                    Lane::Bits4 => self.sums.chunks(2).map(|two| (two[0] << 4 | two[1]) as u8).collect(),
                    Lane::Bits8 => self.sums.iter().map(|&sum| sum as u8).collect(),
                    Lane::Bits16 => self.sums.iter().flat_map(|&sum| (sum as u16).to_be_bytes()).collect(),
                };
                if form.is_packed() {
                    Scalar::pack(form, &mut lanes);
                    lanes.truncate(form.result_len());
                }
                lanes
            }
        }
    }
}
