//! Nanoseconds per packet of the aggregator with the server's kernels against the model's, packets
//! handed over from memory: no device, no system call.
//!
//! Both take turns in one process and the median of the turns counts, so that other load on the
//! machine meets both alike. Before anything is timed, both must have given the same packets out.
//! Results go to `bench/ps.json` in the target directory and to the terminal. Without `--bench`
//! (as `cargo test --benches` calls it) the turns are few and nothing is written.

use std::error::Error;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use thc_bench::{is_measuring, median};
use thc_protocol::aggregator::{Aggregator, Endpoint, Kernels, Outcome, Scalar, Sink};
use thc_protocol::wire::{Form, HEADER_LEN, Kind, MAX_PACKET};
use thc_protocol::{Ecn, JobId, Lane};
use thc_ps::Simd;

mod setting;
use setting::{JOB, header};

const WORKERS: u8 = 4;
/// Half of the default slots: what workers have under way at most, so the lanes' working set.
const SLOTS: u16 = 512;

/// What is timed: a kind of packet in a form.
struct Case {
    name: &'static str,
    kind: Kind,
    form: Form,
    /// The ratio to reach.
    aim: f64,
}

/// DATA in this form.
const fn data(name: &'static str, width: u8, lane: Lane) -> Case {
    let Some(form) = Form::new(width, lane) else { panic!("there is no such form") };
    Case { name, kind: Kind::Data, form, aim: 4.0 }
}

const CASES: [Case; 7] = [
    data("DATA, 8-bit lanes", 4, Lane::Bits8),
    data("DATA, 16-bit lanes", 4, Lane::Bits16),
    data("DATA of 1-bit indices, 8-bit lanes", 1, Lane::Bits8),
    data("DATA of 2-bit indices, 8-bit lanes", 2, Lane::Bits8),
    data("DATA of 3-bit indices, 8-bit lanes", 3, Lane::Bits8),
    data("DATA of 8-bit indices, 16-bit lanes", 8, Lane::Bits16),
    // Plain additions, which the compiler makes vectors of in the model too.
    Case { name: "RAW", kind: Kind::Raw, form: Form::USUAL, aim: 2.0 },
];

/// The ratio below which the server would do better with the model: where a processor has no vector
/// kernels both are the same but for noise.
const FLOOR: f64 = 0.9;

fn endpoint(worker: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 5000 + u16::from(worker))))
}

/// Adds up what is sent, so that nothing can be left out.
#[derive(Default)]
struct Digest {
    packets: u64,
    sum: u64,
}

impl Sink for Digest {
    fn unicast(&mut self, _: Endpoint, _: Ecn, packet: &[u8]) {
        self.packets += 1;
        self.sum = self.sum.wrapping_add(u64::from(black_box(packet)[HEADER_LEN]));
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.unicast(members[0], Ecn::NotEct, packet);
    }
}

/// Keeps what is sent, for comparing.
#[derive(Default)]
struct Recorder(Vec<Vec<u8>>);

impl Sink for Recorder {
    fn unicast(&mut self, _: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.unicast(members[0], Ecn::NotEct, packet);
    }
}

fn aggregator<K: Kernels>(form: Form) -> Aggregator<K> {
    setting::aggregator(
        form,
        SLOTS,
        &std::array::from_fn::<_, { WORKERS as usize }, _>(|i| endpoint(i as u8)),
    )
}

/// One round of every slot: all packets of worker 0, then those of worker 1, and so on.
fn packets(case: &Case, round: u32) -> Vec<(Endpoint, Vec<u8>)> {
    let mut random = fastrand::Rng::with_seed(u64::from(round));
    let mut out = Vec::new();
    for worker in 0..WORKERS {
        for slot in 0..SLOTS {
            let header = header(case.kind, WORKERS, worker, round, slot);
            let payload: Vec<u8> = (0..case.kind.payload_len(case.form)).map(|_| random.u8(..)).collect();
            let mut bytes = [0; MAX_PACKET];
            out.push((endpoint(worker), header.emit_packet(&mut bytes, &payload).to_vec()));
        }
    }
    out
}

/// Moves packets to another round without building them anew.
fn advance(packets: &mut [(Endpoint, Vec<u8>)], round: u32) {
    for (_, packet) in packets {
        packet[12..16].copy_from_slice(&round.to_be_bytes());
    }
}

/// Nanoseconds per packet of one turn.
fn turn<K: Kernels>(
    aggregator: &mut Aggregator<K>,
    packets: &[(Endpoint, Vec<u8>)],
    sink: &mut Digest,
) -> Result<f64, String> {
    let start = Instant::now();
    let mut handled = 0;
    for (from, packet) in packets {
        handled += usize::from(matches!(aggregator.handle(*from, packet, sink), Outcome::Handled(_)));
    }
    let took = start.elapsed().as_nanos() as f64 / packets.len() as f64;
    if handled != packets.len() {
        return Err(format!("only {handled} of {} packets were let in", packets.len()));
    }
    Ok(took)
}

/// Where a packet's time goes: nanoseconds of checking, of adding, and of results, per packet of four workers.
///
/// Packets of a round too far ahead, which P7 drops behind all other checks of its own, cost the checking. Those of three workers of four are checked and added
/// and complete nothing. With the fourth worker's there is a result for every four packets.
fn split(turns: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let case = &CASES[0];
    let mut all = packets(case, 0);
    let three = all.len() / 4 * 3;
    let mut times = [const { Vec::new() }; 3];
    let mut aggregators = [const { None }; 3];
    for aggregator in &mut aggregators {
        *aggregator = Some(self::aggregator::<Simd>(case.form));
    }
    // The slots must hold a round to be ahead of.
    for (from, packet) in &all {
        for aggregator in aggregators.iter_mut().flatten() {
            aggregator.handle(*from, packet, &mut Digest::default());
        }
    }
    let mut ahead = all.clone();
    advance(&mut ahead, 5);
    let mut sink = Digest::default();
    for round in 0..=turns {
        advance(&mut all, round as u32 + 1);
        let runs = [ahead.as_slice(), &all[..three], &all];
        for (place, (packets, aggregator)) in runs.into_iter().zip(&mut aggregators).enumerate() {
            let aggregator = aggregator.as_mut().ok_or("no aggregator")?;
            let start = Instant::now();
            for (from, packet) in packets {
                black_box(aggregator.handle(*from, packet, &mut sink));
            }
            if round > 0 {
                times[place].push(start.elapsed().as_nanos() as f64 / packets.len() as f64);
            }
        }
    }
    if sink.packets != (turns as u64 + 1) * u64::from(SLOTS) {
        return Err(format!("{} results instead of one per slot and round", sink.packets).into());
    }
    let [checked, added, whole] = times.map(median);
    Ok([checked, added - checked, whole - added])
}

/// Three rounds through both: every packet sent and every counter must be equal.
fn check(case: &Case) -> Result<(), Box<dyn Error>> {
    let (mut model, mut server) = (aggregator::<Scalar>(case.form), aggregator::<Simd>(case.form));
    let (mut expected, mut got) = (Recorder::default(), Recorder::default());
    for round in 0..3 {
        for (from, packet) in packets(case, round) {
            model.handle(from, &packet, &mut expected);
            server.handle(from, &packet, &mut got);
        }
    }
    if expected.0.len() != 3 * usize::from(SLOTS) {
        return Err(format!("{}: {} results instead of {}", case.name, expected.0.len(), 3 * SLOTS).into());
    }
    if expected.0 != got.0 || model.job_counters(JOB) != server.job_counters(JOB) {
        return Err(format!("{}: the server's kernels give other results than the model", case.name).into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let measure = is_measuring();
    let turns = if measure { 400 } else { 3 };
    let mut results = Vec::new();
    println!("{WORKERS} workers, {SLOTS} slots, {turns} turns, median");
    for case in &CASES {
        check(case)?;
        let (mut model, mut server) = (aggregator::<Scalar>(case.form), aggregator::<Simd>(case.form));
        let mut packets = packets(case, 0);
        let (mut slow, mut fast) = (Vec::with_capacity(turns), Vec::with_capacity(turns));
        let (mut expected, mut got) = (Digest::default(), Digest::default());
        for round in 0..=turns {
            advance(&mut packets, round as u32);
            let took = [turn(&mut model, &packets, &mut expected)?, turn(&mut server, &packets, &mut got)?];
            // The first turn warms up.
            if round > 0 {
                slow.push(took[0]);
                fast.push(took[1]);
            }
        }
        if (expected.packets, expected.sum) != (got.packets, got.sum) {
            return Err(format!("{}: other packets were sent than by the model", case.name).into());
        }
        let (slow, fast) = (median(slow), median(fast));
        println!(
            "{:<20} model {slow:>7.1} ns/packet, server {fast:>7.1} ns/packet, {:>5.2}x",
            case.name,
            slow / fast
        );
        results.push(serde_json::json!({
            "name": format!("ps {}: server's kernels over the model's, packets per second", case.name),
            "ratio": slow / fast,
            "better": "higher",
            "aim": case.aim,
            "floor": FLOOR,
            "detail": format!("model {slow:.0} ns/packet, server {fast:.0} ns/packet"),
        }));
    }
    let [checked, added, result] = split(turns)?;
    let whole = checked + added + result;
    println!(
        "DATA, 8-bit lanes: {whole:.1} ns/packet = parse and check {checked:.1}, look up and add {added:.1}, \
         result {result:.1}; {:.1} million packets/s",
        1e3 / whole
    );
    results.push(serde_json::json!({
        "name": "ps DATA, 8-bit lanes: packets per second and core over 10 million",
        "ratio": 100.0 / whole,
        "better": "higher",
        "aim": 1.0,
        "floor": 0.25,
        "detail": format!(
            "{whole:.1} ns/packet: parse and check {checked:.1}, look up and add {added:.1}, result {result:.1}"
        ),
    }));
    if measure {
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "ps", &results)?;
    }
    Ok(())
}
