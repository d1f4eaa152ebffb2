//! The worker's state machine: any packets at any time. Events belong to calls, each packet's result comes once, and
//! no call waits for ever.

use arbitrary::Unstructured;
use std::collections::BTreeSet;
use std::time::Duration;
use thc_protocol::wire::{
    Choice, Form, HEADER_LEN, Header, Kind, Mismatch, Norm, Nudge, Straggler, Table, Tables,
};
use thc_protocol::worker::{CallError, CallSpec, Events, PacketId, Parameters, PartSpec, Tx, Worker};
use thc_protocol::{Cookie, Ecn, JobId, Policy, Round, SlotId, TableId, WorkerId};

const TIMEOUT: Duration = Duration::from_secs(5);

pub fn run(data: &[u8]) {
    let _ = history(&mut Unstructured::new(data));
}

/// A call as it was submitted: packets and norms by partition.
#[derive(Clone, Debug)]
struct Call {
    packets: Vec<u32>,
    norms: Vec<u32>,
}

#[derive(Default)]
struct Record {
    calls: Vec<Call>,
    normed: BTreeSet<u64>,
    failed: BTreeSet<u64>,
    done: BTreeSet<(u64, u32, u32)>,
    may_lose: bool,
    over: bool,
}

impl Record {
    fn place(&mut self, place: PacketId) {
        assert!(!self.over, "an event after the session's end");
        let call = &self.calls[place.call as usize];
        assert!(place.packet < call.packets[place.partition as usize]);
        assert!(self.normed.contains(&place.call), "data before norms");
        assert!(self.done.insert((place.call, place.partition, place.packet)), "{place:?} twice");
    }
}

impl Events for Record {
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        assert!(!self.over);
        assert_eq!(maxima.count(), self.calls[call as usize].packets.len());
        assert!(!self.failed.contains(&call));
        assert!(self.normed.insert(call), "norms of {call} twice");
    }

    fn result(&mut self, place: PacketId, _: &Header, sums: &[u8]) {
        assert!(matches!(sums.len(), 512 | 1024 | 896 | 576));
        self.place(place);
    }

    fn packet_lost(&mut self, place: PacketId, _: Option<&[u8]>) {
        assert!(self.may_lose);
        self.place(place);
    }

    fn packet_late(&mut self, place: PacketId, _: Option<&[u8]>) {
        assert!(self.may_lose);
        assert!(self.done.contains(&(place.call, place.partition, place.packet)), "late without a result");
    }

    fn call_failed(&mut self, call: u64, _: CallError) {
        assert!(!self.over && !self.normed.contains(&call));
        assert!(self.failed.insert(call));
    }
}

#[derive(Default)]
struct Sent {
    /// The last ones, whole.
    packets: Vec<Vec<u8>>,
    count: u64,
}

impl Tx for Sent {
    fn send(&mut self, _: u8, contents: &[u8], segment: usize) {
        assert!(segment > HEADER_LEN && contents.len().is_multiple_of(segment));
        for packet in contents.chunks_exact(segment) {
            self.count += 1;
            if self.packets.len() == 32 {
                self.packets.remove(0);
            }
            // The header says which packet it was.
            self.packets.push(packet[..HEADER_LEN].to_vec());
        }
    }
}

fn parameters(input: &mut Unstructured<'_>) -> arbitrary::Result<Parameters> {
    let workers = input.int_in_range(1..=4)?;
    Ok(Parameters {
        job: JobId(7),
        cookie: Cookie(1),
        worker: WorkerId(input.int_in_range(0..=workers - 1)?),
        workers,
        quorum: if input.ratio(1, 4)? { input.int_in_range(1..=workers)? } else { workers },
        data_slots: 2 << input.int_in_range(0..=4)?,
        norm_slots: 2 << input.int_in_range(0..=2)?,
        credit: 0,
        first_window: 64,
        policy: if input.ratio(1, 4)? { Policy::BestEffort } else { Policy::Reliable },
        deadline: Duration::from_millis(50),
        tables: tables(input)?,
        shards: input.int_in_range(1..=2)?,
        timeout: TIMEOUT,
        patience: Duration::ZERO,
        min_rto: Duration::from_millis(1),
        max_rto: Duration::from_millis(400),
        first_seq: if input.ratio(1, 8)? { (1 << 40) - 16 } else { 0 },
        rack: None,
        marks: false,
    })
}

/// One table, or two.
fn tables(input: &mut Unstructured<'_>) -> arbitrary::Result<Tables> {
    let mut table = |id| {
        let fewer = [7, 9].map(|lane| Form::with_sums(4, lane)).into_iter().flatten();
        let forms: Vec<Form> = Form::ALL.into_iter().chain(fewer).collect();
        let form = *input.choose(&forms)?;
        Ok(Table { id: TableId(id), bits: form.width(), form, ..Table::default() })
    };
    let (one, two) = (table(1)?, table(2)?);
    Ok(Tables::new(&[one, two]).expect("tables of two numbers"))
}

fn history(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let params = parameters(input)?;
    let mut worker = Worker::new(params, Duration::ZERO);
    if input.ratio(1, 4)? {
        worker.set_limit(input.int_in_range(0..=20)?);
    }
    let mut record = Record {
        may_lose: params.policy == Policy::BestEffort || params.quorum < params.workers,
        ..Record::default()
    };
    let mut sent = Sent::default();
    let (mut now, mut packets) = (Duration::ZERO, 0);
    while !input.is_empty() {
        match input.int_in_range(0..=10u8)? {
            0 if record.calls.len() < 6 => submit(input, now, &mut worker, &mut record, &mut sent)?,
            1 | 2 => while worker.fill(now, &mut sent, usize::MAX, |_, payload| payload.fill(0)) > 0 {},
            3 => {
                now += Duration::from_micros(1 << input.int_in_range(0..=20)?);
                worker.tick(now, &mut record, &mut sent);
                // Whoever waits is woken.
                let fills = worker.next_data().is_some();
                let waits = !fills && !worker.is_idle() && worker.failure().is_none();
                assert!(!waits || worker.deadline().is_some(), "a call waits for nothing: {worker:?}");
            }
            10 => {
                // What a kernel may merge: the same for slots in a row, and whatever else is as long.
                let packet = packet(input, &params, &sent)?;
                let mut run = packet.clone();
                for step in 1..input.int_in_range(1..=8u16)? {
                    let mut next = packet.clone();
                    if let Some(slot) = next.get_mut(16..18)
                        && input.ratio(7, 8)?
                    {
                        let first = u16::from_be_bytes([slot[0], slot[1]]);
                        slot.copy_from_slice(&first.wrapping_add(step).to_be_bytes());
                    }
                    run.extend(next);
                }
                worker.handle_run(now, Ecn::NotEct, &run, packet.len().max(1), &mut record, &mut sent);
            }
            _ => {
                let packet = packet(input, &params, &sent)?;
                packets += 1;
                // Writing a state takes long.
                let before = (packets % 32 == 0).then(|| (worker.stats().foreign, state(&worker)));
                worker.handle(now, &packet, &mut record, &mut sent);
                // P47: packets of the session that are wrong may count as signs of life and nothing else.
                let same = |(foreign, state): &(u64, String)| {
                    worker.stats().foreign == *foreign || *state == self::state(&worker)
                };
                assert!(before.as_ref().is_none_or(same), "{before:?}");
            }
        }
        record.over |= worker.failure().is_some();
    }
    silence(now, worker, record, sent);
    Ok(())
}

/// A worker's state but for the time of the last sign of life and for what it counts.
fn state(worker: &Worker) -> String {
    let text = format!("{worker:?}");
    let (before, rest) = text.split_once("heard: ").expect("it says when it heard something");
    let (_, after) = rest.split_once(", ").expect("other fields follow");
    let (after, _) = after.rsplit_once("foreign: ").expect("it counts these packets");
    before.to_owned() + after
}

/// Nothing comes any more: every call ends, by the time-out at the latest.
fn silence(mut now: Duration, mut worker: Worker, mut record: Record, mut sent: Sent) {
    let (end, before) = (now + TIMEOUT * 40, sent.count);
    worker.tick(now, &mut record, &mut sent);
    while !worker.is_idle() && worker.failure().is_none() {
        while worker.fill(now, &mut sent, usize::MAX, |_, payload| payload.fill(0)) > 0 {}
        let Some(deadline) = worker.deadline() else { break };
        now = deadline.max(now + Duration::from_micros(100));
        worker.tick(now, &mut record, &mut sent);
        assert!(now < end, "no end: {worker:?}");
    }
    assert!(sent.count - before < 100_000, "{} packets into silence", sent.count - before);
    let open = !worker.is_idle() && worker.failure().is_none();
    assert!(!open || worker.next_data().is_some(), "{worker:?}");
}

fn submit(
    input: &mut Unstructured<'_>,
    now: Duration,
    worker: &mut Worker,
    record: &mut Record,
    sent: &mut Sent,
) -> arbitrary::Result<()> {
    let mut call = Call { packets: Vec::new(), norms: Vec::new() };
    for _ in 0..input.int_in_range(0..=3)? {
        call.packets.push(input.int_in_range(1..=20)?);
        call.norms.push(match input.int_in_range(0..=7u8)? {
            0 => 0,
            1 => Norm::non_finite(worker.parameters().worker),
            number => f32::from(number).to_bits(),
        });
    }
    record.calls.push(call.clone());
    let length = call.packets.iter().sum::<u32>() * 1024;
    let mut parts = Vec::new();
    for (&packets, &norm) in call.packets.iter().zip(&call.norms) {
        let raw = input.ratio(1, 4)?;
        let id = TableId(if input.arbitrary()? { 1 } else { 2 });
        let choice = if raw { Choice::Raw } else { Choice::Table(id) };
        parts.push(PartSpec { choice, length, packets, norm });
    }
    let spec = CallSpec { key: 0, parts: &parts };
    let number = worker.submit(&spec);
    worker.send_norms(now, sent);
    assert_eq!(number, record.calls.len() as u64 - 1);
    Ok(())
}

/// What an aggregator might answer, mostly to something that was sent.
fn packet(input: &mut Unstructured<'_>, params: &Parameters, sent: &Sent) -> arbitrary::Result<Vec<u8>> {
    if input.ratio(1, 16)? {
        return Ok(input.bytes(input.len().min(60))?.to_vec());
    }
    let asked = match sent.packets.len() {
        0 => None,
        count => Header::parse(&sent.packets[count - 1 - input.choose_index(count)?]).ok(),
    };
    let asked = asked.map_or(
        Header {
            kind: Kind::Data,
            flags: 0,
            num_workers: params.workers,
            job: params.job,
            worker: params.worker,
            table: params.tables.first().id,
            cookie: params.cookie,
            round: Round(input.int_in_range(0..=2)?),
            slot: SlotId(input.int_in_range(0..=40)?),
            count: 0,
        },
        |(header, _)| header,
    );
    let kind = match input.int_in_range(0..=11u8)? {
        0 => Kind::Straggler,
        1 => Kind::Nudge,
        2 if input.ratio(1, 8)? => Kind::Mismatch,
        3 => *input.choose(&thc_support::kinds())?,
        _ => asked.kind.result().unwrap_or(Kind::Result),
    };
    let norm = Norm {
        tag: 0,
        value: match input.int_in_range(0..=9u8)? {
            0 => 0,
            1 => input.arbitrary()?,
            2 => Norm::non_finite(WorkerId(0)),
            number => f32::from(number).to_bits(),
        },
        length: 1,
        call: 0,
        table: TableId(1),
        mode: 0,
        key: 0,
    };
    let form = params.tables.place(asked.table).map_or(Form::USUAL, |place| params.tables[place].form);
    let body = match kind {
        Kind::Straggler => Straggler { kind: asked.kind, current: asked.round }.to_bytes().to_vec(),
        Kind::Nudge => Nudge { kind: asked.kind, seen: input.arbitrary::<u8>()?.into() }.to_bytes().to_vec(),
        Kind::Mismatch => Mismatch { slot: norm, refused: norm }.to_bytes().to_vec(),
        Kind::NormResult => norm.with_tag(1).to_bytes().to_vec(),
        kind => vec![input.arbitrary()?; kind.payload_len(form)],
    };
    let mut header = Header {
        kind,
        count: if input.ratio(1, 8)? { input.arbitrary()? } else { params.workers.into() },
        worker: if input.arbitrary()? { WorkerId::NONE } else { WorkerId(input.int_in_range(0..=3)?) },
        ..asked
    };
    if input.ratio(1, 16)? {
        header.round = Round(input.arbitrary()?);
    }
    let mut packet = vec![0; HEADER_LEN + body.len()];
    header.emit_packet(&mut packet, &body);
    if input.ratio(1, 16)? {
        let at = input.choose_index(packet.len())?;
        packet[at] ^= 1 << input.int_in_range(0..=7u8)?;
    }
    Ok(packet)
}
