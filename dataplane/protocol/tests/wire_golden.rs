//! Golden vectors: one packet of every kind, worked out from `docs/protocol.md` without this crate.
#![allow(missing_docs, clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use thc_protocol::wire::{
    Ask, Form, HEADER_LEN, Header, Join, Kind, Leave, MAX_PACKET, Mismatch, Norm, Nudge, Pending, Rack,
    RefuseReason, Refused, Shares, Straggler, Table, Tables, Welcome,
};
use thc_protocol::{Cookie, JobId, Lane, Policy, Rank, Round, SlotId, TableId, WorkerId};

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/wire.json")).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// A number of the vectors; those beyond 2^53 are strings.
fn number<T: TryFrom<u64>>(of: &Value, name: &str) -> T {
    let value = &of[name];
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    T::try_from(number.unwrap_or_else(|| panic!("{name} in {of}"))).ok().unwrap()
}

fn header(of: &Value) -> Header {
    Header {
        kind: Kind::from_byte(number(of, "kind")).unwrap(),
        flags: number(of, "flags"),
        num_workers: number(of, "num_workers"),
        job: JobId(number(of, "job")),
        worker: WorkerId(number(of, "worker")),
        table: TableId(number(of, "table")),
        cookie: Cookie(number(of, "cookie")),
        round: Round(number(of, "round")),
        slot: SlotId(number(of, "slot")),
        count: number(of, "count"),
    }
}

/// `partitions` is no field of packets, only part of their tags.
fn norm(of: &Value) -> Norm {
    let norm = Norm {
        tag: number(of, "tag"),
        value: number(of, "value"),
        length: number(of, "length"),
        call: number(of, "call"),
        table: TableId(number(of, "table")),
        mode: number(of, "mode"),
        key: number(of, "key"),
    };
    assert_eq!(norm.with_tag(number(of, "partitions")), norm);
    norm
}

fn table(of: &Value) -> Table {
    let mut values = [0; 16];
    for (to, from) in values.iter_mut().zip(of["values"].as_array().unwrap()) {
        *to = from.as_u64().unwrap() as u8;
    }
    Table {
        id: TableId(number(of, "table")),
        bits: number(of, "bits"),
        form: Form::with_sums(number(of, "width"), number(of, "lane")).unwrap(),
        granularity: number(of, "granularity"),
        fraction: of["fraction"].as_f64().unwrap(),
        t_p: of["t_p"].as_f64().unwrap(),
        values,
    }
}

fn welcome(of: &Value) -> Welcome {
    let tables: Vec<Table> = of["tables"].as_array().unwrap().iter().map(table).collect();
    Welcome {
        session: Cookie(number(of, "session")),
        data_slots: number(of, "data_slots"),
        norm_slots: number(of, "norm_slots"),
        quorum: number(of, "quorum"),
        policy: if number::<u8>(of, "policy") == 0 { Policy::Reliable } else { Policy::BestEffort },
        shards: number(of, "shards"),
        deadline: Duration::from_micros(number(of, "deadline_us")),
        tables: Tables::new(&tables).unwrap(),
        job_seed: number(of, "job_seed"),
        nonce: number(of, "nonce"),
        block: number(of, "block"),
        workers: number(of, "workers"),
        credit: number(of, "credit"),
        features: number::<u32>(of, "features"),
        shares: match of["shares"].as_array() {
            None => Shares::NONE,
            Some(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| row.as_str().unwrap().parse().unwrap()).collect();
                Shares::new(&rows, number(of, "shards")).unwrap()
            }
        },
        rack: of["rack"].is_object().then(|| {
            let of = &of["rack"];
            Rack {
                racks: number(of, "racks"),
                rack: WorkerId(number(of, "rack")),
                workers: number(of, "workers"),
                quorum: number(of, "quorum"),
                first: Rank(number(of, "first")),
                layout: number(of, "layout"),
            }
        }),
        marks: of["marks"] == true,
    }
}

/// Emits the body that the vector describes, after checking that `payload` parses to just that.
fn body(packet: &Value, kind: Kind, payload: &[u8]) -> Vec<u8> {
    match kind {
        Kind::Norm | Kind::NormResult => {
            let norm = norm(&packet["norm"]);
            assert_eq!(Norm::parse(payload), Some(norm));
            assert_eq!(Norm::tag_of(payload.try_into().unwrap()), norm.tag);
            norm.to_bytes().to_vec()
        }
        Kind::Data | Kind::Raw | Kind::Result | Kind::RawResult => hex(packet["payload"].as_str().unwrap()),
        Kind::Straggler => {
            let it = &packet["straggler"];
            let kind = Kind::from_byte(number(it, "kind")).unwrap();
            let straggler = Straggler { kind, current: Round(number(it, "current")) };
            assert_eq!(Straggler::parse(payload), Some(straggler));
            straggler.to_bytes().to_vec()
        }
        Kind::Mismatch => {
            let it = &packet["mismatch"];
            let mismatch = Mismatch { slot: norm(&it["slot"]), refused: norm(&it["refused"]) };
            assert_eq!(Mismatch::parse(payload), Some(mismatch));
            mismatch.to_bytes().to_vec()
        }
        Kind::Nudge => {
            let it = &packet["nudge"];
            let kind = Kind::from_byte(number(it, "kind")).unwrap();
            let nudge = Nudge { kind, seen: number(it, "seen") };
            assert_eq!(Nudge::parse(payload), Some(nudge));
            nudge.to_bytes().to_vec()
        }
        Kind::Join => {
            let it = &packet["join"];
            let join = Join {
                ends: false,
                nonce: number(it, "nonce"),
                session: Cookie(number(it, "session")),
                fingerprint: number(it, "fingerprint"),
                definitions: number(it, "definitions"),
            };
            assert_eq!(Join::parse(payload), Some(join));
            join.to_bytes().to_vec()
        }
        Kind::Leave => {
            let leave = Leave { nonce: number(&packet["leave"], "nonce") };
            assert_eq!(Leave::parse(payload), Some(leave));
            leave.to_bytes().to_vec()
        }
        Kind::Ask => {
            let ask = Ask { nonce: number(&packet["ask"], "nonce") };
            assert_eq!(Ask::parse(payload), Some(ask));
            ask.to_bytes().to_vec()
        }
        Kind::Welcome | Kind::Description => {
            let welcome = welcome(&packet["welcome"]);
            assert_eq!(Welcome::parse(payload), Some(welcome));
            assert_eq!(welcome.fingerprint(), number::<u64>(&packet["welcome"], "fingerprint"));
            welcome.to_bytes().to_vec()
        }
        Kind::Pending => {
            let pending = Pending { joined: number(&packet["pending"], "joined") };
            assert_eq!(Pending::parse(payload), Some(pending));
            pending.to_bytes().to_vec()
        }
        Kind::Refused => {
            let it = &packet["refused"];
            let reason = match number::<u8>(it, "reason") {
                1 => RefuseReason::UnknownJob,
                2 => RefuseReason::WrongCookie,
                3 => RefuseReason::WorkerOutOfRange,
                4 => RefuseReason::WorkerInUse,
                5 => RefuseReason::Reforming,
                6 => RefuseReason::Definitions,
                other => panic!("reason {other}"),
            };
            let refused = Refused { reason, worker: WorkerId(number(it, "worker")) };
            assert_eq!(Refused::parse(payload), Some(refused));
            refused.to_bytes().to_vec()
        }
        Kind::Bye => Vec::new(),
    }
}

#[test]
fn every_packet_of_the_vectors_parses_and_is_emitted_byte_for_byte() {
    let golden = golden();
    for packet in golden["packets"].as_array().unwrap() {
        let name = packet["name"].as_str().unwrap();
        let bytes = hex(packet["hex"].as_str().unwrap());
        let header = header(&packet["header"]);
        let (parsed, payload) = Header::parse(&bytes).unwrap();
        assert_eq!(parsed, header, "{name}");
        let number = |name: &str, default: u64| packet[name].as_u64().unwrap_or(default) as u8;
        let form = Form::with_sums(number("width", 4), number("lane", 8)).unwrap();
        let form = match Lane::narrowest(number("sums", 0)).and_then(|sums| form.in_racks(sums)) {
            Some((rack, _)) if packet["level"] == "rack" => rack,
            Some((_, root)) => root,
            None => form,
        };
        let rows = |list: &str| packet["welcome"][list].as_array().map_or(0, Vec::len);
        let v6 = packet["welcome"]["shares"][0].as_str().is_some_and(|share| share.starts_with('['));
        let shares = (if v6 { 18 } else { 8 } * rows("shares")).next_multiple_of(8);
        let lists = shares + 40 * rows("tables").saturating_sub(1);
        assert_eq!(payload.len(), header.kind.payload_len(form) + lists, "{name}");
        let body = body(packet, header.kind, payload);
        assert_eq!(body, payload, "{name}");
        // Emitting writes every byte, whatever was there before.
        let mut buffer = [0xEE; MAX_PACKET];
        assert_eq!(header.emit_packet(&mut buffer, &body), bytes, "{name}");
        let mut head = [0x55; HEADER_LEN];
        header.emit(&mut head);
        assert_eq!(head, bytes[..HEADER_LEN], "{name}");
    }
}

#[test]
fn the_vectors_have_every_kind() {
    let golden = golden();
    let packets = golden["packets"].as_array().unwrap();
    let kinds: BTreeSet<u8> = packets.iter().map(|p| number(&p["header"], "kind")).collect();
    let all: BTreeSet<u8> = thc_support::kinds().iter().map(|&kind| kind as u8).collect();
    assert_eq!(kinds, all);
}

#[test]
fn norm_tags_are_those_of_the_vectors() {
    for tag in golden()["tags"].as_array().unwrap() {
        norm(tag);
    }
}
