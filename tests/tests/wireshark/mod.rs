//! The Wireshark dissector on captures of real all-reduces, against the protocol's own parser.
#![allow(clippy::unwrap_used, missing_docs)]

mod pcap;
mod tshark;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use pcap::Packet;
use thc_protocol::wire::{
    Ask, FLAG_MARK, FLAG_NUDGE, FLAG_ROOT, Form, HEADER_LEN, Header, Join, Kind, Leave, Mismatch, Norm,
    Nudge, Pending, Refused, Straggler, VERSION, Welcome,
};
use thc_protocol::{Lane, Policy};
use thc_tests::wiretap::Wiretap;
use thc_tests::{Ps, WorkerProcess, free_port, free_ports};

/// What a decoded packet shows, by the dissector's field names.
type Fields = BTreeMap<&'static str, Value>;

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Float(f64),
    Bytes(Vec<u8>),
}

impl Value {
    /// Whether tshark's text says the same.
    fn is(&self, text: &str) -> bool {
        match self {
            Value::Number(number) => {
                let shown = match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => text.parse(),
                };
                shown.ok() == Some(*number)
            }
            // Shown with six digits.
            Value::Float(float) => {
                text.parse::<f64>().is_ok_and(|shown| (shown - float).abs() <= 1e-5 * float.abs())
            }
            Value::Bytes(bytes) => {
                let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
                digits == bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            }
        }
    }
}

fn n(value: impl Into<u64>) -> Value {
    Value::Number(value.into())
}

fn norm_fields(norm: &Norm) -> Fields {
    BTreeMap::from([
        ("thc.norm.tag", n(norm.tag)),
        ("thc.norm.value", Value::Float(f64::from(f32::from_bits(norm.value)))),
        ("thc.norm.length", n(norm.length)),
        ("thc.norm.call", n(norm.call)),
        ("thc.norm.table", n(norm.table.0)),
        ("thc.norm.mode", n(norm.mode)),
        ("thc.norm.key", n(norm.key)),
    ])
}

/// What the protocol's own parser finds in a packet.
fn decode(packet: &[u8]) -> Fields {
    let (header, payload) = Header::parse(packet).unwrap();
    let lists = matches!(header.kind, Kind::Welcome | Kind::Description);
    let fits = |form: Form| header.kind.payload_len(form) == payload.len();
    let sums = [Lane::Bits8, Lane::Bits16];
    let racks = Form::ALL.into_iter().flat_map(|form| sums.map(|sums| form.in_racks(sums))).flatten();
    let all = (4..=16).flat_map(|lane| [4, 8].map(|width| Form::with_sums(width, lane))).flatten();
    let all = all.chain(Form::ALL);
    let mut forms = all.chain(racks.flat_map(|(rack, root)| [rack, root]));
    assert!(lists || forms.any(fits), "{header:?} with {} bytes", payload.len());
    let mut fields = BTreeMap::from([
        ("thc.version", n(packet[0])),
        ("thc.kind", n(header.kind as u8)),
        ("thc.flags", n(header.flags)),
        ("thc.flags.nudge", n(header.flags & FLAG_NUDGE)),
        ("thc.flags.root", n(u8::from(header.flags & FLAG_ROOT != 0))),
        ("thc.flags.mark", n(u8::from(header.flags & FLAG_MARK != 0))),
        ("thc.workers", n(header.num_workers)),
        ("thc.job", n(header.job.0)),
        ("thc.worker", n(header.worker.0)),
        ("thc.table", n(header.table.0)),
        ("thc.cookie", n(header.cookie.0)),
        ("thc.round", n(header.round.0)),
        ("thc.slot", n(header.slot.0)),
        ("thc.count", n(header.count)),
    ]);
    match header.kind {
        Kind::Norm | Kind::NormResult => fields.extend(norm_fields(&Norm::parse(payload).unwrap())),
        Kind::Data => fields.extend([("thc.data.indices", Value::Bytes(payload.to_vec()))]),
        Kind::Result => fields.extend([("thc.result.sums", Value::Bytes(payload.to_vec()))]),
        Kind::Raw | Kind::RawResult => {
            fields.extend([("thc.raw.integers", Value::Bytes(payload.to_vec()))]);
        }
        Kind::Straggler => {
            let straggler = Straggler::parse(payload).unwrap();
            fields.insert("thc.straggler.kind", n(straggler.kind as u8));
            fields.insert("thc.straggler.round", n(straggler.current.0));
        }
        // The first of the two is the slot's.
        Kind::Mismatch => fields.extend(norm_fields(&Mismatch::parse(payload).unwrap().slot)),
        Kind::Nudge => {
            let nudge = Nudge::parse(payload).unwrap();
            fields.insert("thc.nudge.kind", n(nudge.kind as u8));
            fields.insert("thc.nudge.seen", n(nudge.seen));
        }
        Kind::Join => {
            let join = Join::parse(payload).unwrap();
            fields.insert("thc.join.nonce", n(join.nonce));
            fields.insert("thc.join.session", n(join.session.0));
            fields.insert("thc.join.ends", n(u32::from(join.ends)));
            fields.insert("thc.join.fingerprint", n(join.fingerprint));
            fields.insert("thc.join.definitions", n(join.definitions));
        }
        Kind::Leave => fields.extend([("thc.leave.nonce", n(Leave::parse(payload).unwrap().nonce))]),
        Kind::Pending => {
            fields.extend([("thc.pending.joined", n(Pending::parse(payload).unwrap().joined))]);
        }
        Kind::Refused => {
            let refused = Refused::parse(payload).unwrap();
            fields.insert("thc.refused.reason", n(refused.reason as u8));
            fields.insert("thc.refused.worker", n(refused.worker.0));
        }
        Kind::Ask => fields.extend([("thc.ask.nonce", n(Ask::parse(payload).unwrap().nonce))]),
        Kind::Welcome | Kind::Description => {
            let welcome = Welcome::parse(payload).unwrap();
            let first = welcome.tables.first();
            fields.extend([
                ("thc.welcome.session", n(welcome.session.0)),
                ("thc.welcome.data_slots", n(welcome.data_slots)),
                ("thc.welcome.norm_slots", n(welcome.norm_slots)),
                ("thc.welcome.quorum", n(welcome.quorum)),
                ("thc.welcome.lane", n(first.form.sums())),
                ("thc.welcome.policy", n(u8::from(welcome.policy == Policy::BestEffort))),
                ("thc.welcome.shards", n(welcome.shards)),
                ("thc.welcome.deadline", n(welcome.deadline.as_micros() as u64)),
                ("thc.welcome.table", n(first.id.0)),
                ("thc.welcome.bits", n(first.bits)),
                ("thc.welcome.granularity", n(first.granularity)),
                ("thc.welcome.fraction", Value::Float(first.fraction)),
                ("thc.welcome.values", Value::Bytes(first.values.to_vec())),
                ("thc.welcome.seed", n(welcome.job_seed)),
                ("thc.welcome.nonce", n(welcome.nonce)),
                ("thc.welcome.t_p", Value::Float(first.t_p)),
                ("thc.welcome.fingerprint", n(welcome.fingerprint())),
                ("thc.welcome.block", n(welcome.block)),
                ("thc.welcome.workers", n(welcome.workers)),
                ("thc.welcome.credit", n(welcome.credit)),
                ("thc.welcome.features", n(u32::from_be_bytes(*payload[88..].first_chunk().unwrap()))),
                ("thc.welcome.marks", n(u8::from(welcome.marks))),
                ("thc.welcome.width", n(first.form.width())),
                ("thc.welcome.tables", n(welcome.tables.len() as u8 - 1)),
                ("thc.welcome.shares", n(welcome.shares.as_slice().len() as u8)),
            ]);
        }
        Kind::Bye => {}
    }
    if let Some(rack) = Welcome::parse(payload).and_then(|welcome| welcome.rack) {
        fields.extend([
            ("thc.welcome.racks", n(rack.racks)),
            ("thc.welcome.rack", n(rack.rack.0)),
            ("thc.welcome.all_workers", n(rack.workers)),
            ("thc.welcome.all_quorum", n(rack.quorum)),
            ("thc.welcome.first", n(rack.first.0)),
            ("thc.welcome.layout", n(rack.layout)),
        ]);
    }
    fields
}

/// Every field of every packet, and none that the packet does not have. Returns the kinds that were there.
fn check_fields(file: &Path, packets: &[Packet]) -> HashSet<Kind> {
    let expected: Vec<Fields> = packets.iter().map(|packet| decode(&packet.bytes)).collect();
    let mut names: Vec<&str> = expected.iter().flat_map(|fields| fields.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = tshark::fields(file, &names);
    assert_eq!(packets.last().map(|packet| packet.frame), Some(shown.len()));
    let mut rest = packets.iter().zip(&expected).peekable();
    for (frame, row) in (1..).zip(&shown) {
        let here: Vec<&Fields> =
            std::iter::from_fn(|| rest.next_if(|(packet, _)| packet.frame == frame)).map(|it| it.1).collect();
        for (name, values) in names.iter().zip(row) {
            let expected: Vec<&Value> = here.iter().filter_map(|fields| fields.get(name)).collect();
            // Each packet of a frame may have a field several times; the first counts.
            let times = if expected.is_empty() { 0 } else { values.len() / expected.len() };
            let same = values.len() == times * expected.len() && (times > 0 || expected.is_empty());
            let firsts = values.iter().step_by(times.max(1));
            let same = same && expected.iter().zip(firsts).all(|(value, text)| value.is(text));
            assert!(same, "frame {frame}: {name} is {values:?}, not {expected:?}");
        }
    }
    packets.iter().map(|packet| Header::parse(&packet.bytes).unwrap().0.kind).collect()
}

/// Frames, from 1, with a packet that some endpoint has sent before: the retransmissions.
fn sent_again(packets: &[Packet]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut frames = Vec::new();
    for packet in packets {
        let (header, _) = Header::parse(&packet.bytes).unwrap();
        let aggregated = header.kind.result().is_some();
        let key = (packet.from, header.kind, header.cookie.0, header.round, header.slot);
        if aggregated && !seen.insert(key) {
            frames.push(packet.frame);
        }
    }
    frames.dedup();
    frames
}

/// A tap of these ports, if that and tshark can be used here.
fn tap(ports: std::ops::RangeInclusive<u16>) -> Option<Wiretap> {
    if !tshark::is_here() {
        return None;
    }
    Wiretap::open(ports).inspect_err(|reason| println!("not run: {reason}")).ok()
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[test]
fn a_real_all_reduce_is_decoded() {
    // Not the dissector's ports: so recognising packets is tested too.
    let port = free_ports(2);
    let Some(tap) = tap(port..=port + 1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ps.pcap");
    let ps = Ps::start_on(None, at(port), 3, &["--shards", "2"]);
    let lossy = ["--coordinates", "150000", "--inject", "loss=0.05,duplicate=0.02", "--repeat", "2"];
    let workers = [
        WorkerProcess::start(ps.addr, 0, &lossy),
        WorkerProcess::start(ps.addr, 1, &["--coordinates", "150000", "--repeat", "2"]),
        WorkerProcess::start(ps.addr, 2, &lossy),
    ];
    for end in workers.map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    let frames = tap.finish();
    pcap::write(&file, &frames);

    let packets = pcap::packets(&frames);
    assert!(packets.len() > frames.len(), "some datagrams have several packets");
    let kinds = check_fields(&file, &packets);
    for kind in [
        Kind::Join,
        Kind::Welcome,
        Kind::Norm,
        Kind::NormResult,
        Kind::Data,
        Kind::Result,
        Kind::Leave,
        Kind::Bye,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    let again = sent_again(&packets);
    assert!(!again.is_empty(), "5 % of some 900 packets were lost");
    assert_eq!(tshark::frames(&file, "thc.retransmission", &[]), again);
    // On the second pass every DATA that got through knows its RESULT.
    let data = tshark::frames(&file, "thc.kind == 0x02", &[]);
    let answered = tshark::frames(&file, "thc.kind == 0x02 && thc.response_in", &["-2"]);
    assert_eq!(data, answered);
    assert!(
        tshark::frames(&file, "_ws.malformed || thc.bad_length || thc.bad_kind || thc.short", &[]).is_empty()
    );
    // A packet's place in its stream (P8), shown once WELCOME was seen.
    let rows = tshark::fields(&file, &["thc.kind", "thc.round", "thc.slot", "thc.seq"]);
    let mut placed = 0;
    for row in &rows {
        for (packet, kind) in row[0].iter().enumerate() {
            let slots = match &kind[..] {
                "0x01" | "0x11" => 64,
                "0x02" | "0x12" => 1024,
                _ => continue,
            };
            let number = |column: usize| row[column][packet].parse::<u64>().unwrap();
            assert_eq!(number(3), number(1) * slots + number(2), "{row:?}");
            placed += 1;
        }
    }
    assert!(placed > 900, "{placed}");
}

#[test]
fn uncompressed_and_wide_lanes_are_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ps.pcap");
    // The second and third are packed (P44).
    for lane in ["16", "5", "11"] {
        let port = free_port();
        let Some(tap) = tap(port..=port) else { return };
        let ps = Ps::start_on(None, at(port), 1, &["--lane", lane]);
        for mode in ["raw", "thc"] {
            let end = WorkerProcess::start(ps.addr, 0, &["--coordinates", "5000", "--mode", mode]).finish();
            assert_eq!(end.code, Some(0), "{end:?}");
        }
        let frames = tap.finish();
        pcap::write(&file, &frames);
        let kinds = check_fields(&file, &pcap::packets(&frames));
        for kind in [Kind::Raw, Kind::RawResult, Kind::Data, Kind::Result] {
            assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
        }
    }
}

#[test]
fn racks_and_their_root_are_decoded() {
    let first = free_ports(2);
    let [Some(root_tap), Some(rack_tap)] = [first, first + 1].map(|port| tap(port..=port)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let files = ["root.pcap", "rack.pcap"].map(|name| dir.path().join(name));
    let [root, rack] = [at(first), at(first + 1)];
    let table = ["--racks", "1", "--granularity", "30", "--fraction", "1/32", "--lane", "16"];
    let _root = Ps::listen_at(root, &table);
    let root_text = root.to_string();
    let _rack = Ps::listen_at(rack, &[&table[..], &["--rack", "0", "--root", &root_text]].concat());
    let end = WorkerProcess::start(rack, 0, &["--coordinates", "5000"]).finish();
    assert_eq!(end.code, Some(0), "{end:?}");
    for (file, tap) in files.iter().zip([root_tap, rack_tap]) {
        let frames = tap.finish();
        pcap::write(file, &frames);
        let kinds = check_fields(file, &pcap::packets(&frames));
        for kind in [Kind::Norm, Kind::Data, Kind::Result, Kind::Welcome] {
            assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
        }
    }
    assert!(!tshark::frames(&files[0], "thc.kind == 2 && thc.count == 1", &[]).is_empty());
    assert!(!tshark::frames(&files[1], "thc.kind == 0x12 && thc.flags.root", &[]).is_empty());
}

#[test]
fn workers_that_disagree_and_strangers_are_decoded() {
    let port = free_port();
    let Some(tap) = tap(port..=port) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ps.pcap");
    let ps = Ps::start_on(None, at(port), 2, &[]);
    let stranger = WorkerProcess::start(ps.addr, 0, &["--coordinates", "10", "--cookie", "0x99"]).finish();
    assert_eq!(stranger.code, Some(1), "{stranger:?}");
    let workers = [
        WorkerProcess::start(ps.addr, 0, &["--coordinates", "30000"]),
        WorkerProcess::start(ps.addr, 1, &["--coordinates", "31000"]),
    ];
    for end in workers.map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(1), "{end:?}");
    }
    let frames = tap.finish();
    pcap::write(&file, &frames);
    let kinds = check_fields(&file, &pcap::packets(&frames));
    for kind in [Kind::Mismatch, Kind::Refused] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    assert!(!tshark::frames(&file, "thc.mismatches", &[]).is_empty());
    assert!(!tshark::frames(&file, "thc.is_refused && thc.refused.reason == 2", &[]).is_empty());
    // Both payloads of a MISMATCH are there.
    let lengths = tshark::frames(
        &file,
        "thc.kind == 0x15 && thc.norm.length == 30000 && thc.norm.length == 31000",
        &[],
    );
    assert!(!lengths.is_empty());
}

/// Packets as they should not be, to a port of thc-ps and to another one.
#[test]
fn broken_packets_are_marked() {
    if !tshark::is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.pcap");
    let from = "10.0.0.2:4000".parse().unwrap();
    let mut frames = Vec::new();
    let packet = |kind: u8, payload: usize| {
        let mut packet = vec![0; HEADER_LEN + payload];
        packet[..4].copy_from_slice(&[VERSION, kind, 0, 2]);
        packet
    };
    let known = "10.0.0.1:9000".parse().unwrap();
    let mut send = |to, packet: &[u8]| {
        frames.push(pcap::frame(from, to, packet));
        frames.len()
    };
    let mut bad = Vec::new();
    for kind in thc_support::kinds() {
        let right = kind.payload_len(Form::USUAL);
        send(known, &packet(kind as u8, right));
        bad.push(send(known, &packet(kind as u8, right + 1)));
        if right > 0 {
            bad.push(send(known, &packet(kind as u8, right - 1)));
            bad.push(send(known, &packet(kind as u8, 0)));
        }
    }
    let mut other_version = packet(1, 20);
    other_version[0] = 1;
    let version = send(known, &other_version);
    let kind = send(known, &packet(0x55, 20));
    let short = send(known, &packet(1, 20)[..19]);
    let mut nan = packet(1, 20);
    nan[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&0x7FC0_0005_u32.to_be_bytes());
    let not_finite = send(known, &nan);
    let damaged = [1_u32, 0x7C80_0001, 0x7F80_0000, 0x8000_0000, 0x7FC0_0100].map(|value| {
        nan[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&value.to_be_bytes());
        send(known, &nan)
    });
    // Elsewhere only what is whole is taken for THC.
    let elsewhere = "10.0.0.1:7777".parse().unwrap();
    let whole = send(elsewhere, &packet(0x02, 512));
    let foreign = [send(elsewhere, &packet(0x02, 511)), send(elsewhere, &other_version)];

    pcap::write(&file, &frames);
    assert_eq!(tshark::frames(&file, "thc.bad_length", &[]), bad);
    assert_eq!(tshark::frames(&file, "thc.bad_version", &[]), [version]);
    assert_eq!(tshark::frames(&file, "thc.bad_kind", &[]), [kind]);
    assert_eq!(tshark::frames(&file, "thc.short", &[]), [short]);
    assert_eq!(tshark::frames(&file, "thc.norm.nan_worker == 5", &[]), [not_finite]);
    assert_eq!(tshark::frames(&file, "thc.not_finite", &[]), [not_finite]);
    assert_eq!(tshark::frames(&file, "thc.bad_norm", &[]), damaged);
    assert_eq!(tshark::frames(&file, "!thc", &[]), foreign);
    assert_eq!(tshark::frames(&file, "thc && udp.port == 7777", &[]), [whole]);
    assert_eq!(tshark::frames(&file, "_ws.lua.error", &[]), [0; 0]);
    // The ports are a preference.
    let moved = ["-o", "thc.ports:7777", "-o", "thc.heuristic:FALSE"];
    let at_7777 = tshark::frames(&file, "thc", &moved);
    assert_eq!(at_7777, [whole, foreign[0], foreign[1]]);
}
