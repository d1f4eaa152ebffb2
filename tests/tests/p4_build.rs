//! What lies compiled in `p4/build` is made of the sources next to it, and its packets are those of
//! `thc_protocol::wire`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use thc_protocol::aggregator::{DropReason, Event};
use thc_protocol::wire::{
    FLAG_MARK, FLAG_NUDGE, Form, HEADER_LEN, Header, HeaderError, Kind, MISMATCH_LEN, NORM_LEN, NUDGE_LEN,
    Norm, Nudge, RAW_LEN, RESULT_LEN, STRAGGLER_LEN, Straggler, VERSION,
};

fn p4() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4")
}

fn json() -> Value {
    serde_json::from_slice(&fs::read(p4().join("build/thc.json")).unwrap()).unwrap()
}

/// Names of all sources in `folders`, relative to `p4`.
fn sources(folders: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(p4().join(folder)).unwrap().map(move |file| (folder, file.unwrap())))
        .map(|(folder, file)| format!("{folder}/{}", file.file_name().into_string().unwrap()))
        .filter(|name| name.ends_with(".p4"))
        .collect();
    names.sort();
    names
}

/// That a list has the hashes of exactly these files.
fn assert_listed(list: &str, mut names: Vec<String>) {
    let listed: BTreeMap<String, String> = fs::read_to_string(p4().join(list))
        .unwrap()
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(hash, name)| (name.to_owned(), hash.to_owned()))
        .collect();
    names.sort();
    assert!(names.iter().eq(listed.keys()), "files of p4 were added or removed: run `make p4`");
    for name in names {
        let digest = Sha256::digest(fs::read(p4().join(&name)).unwrap());
        let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, listed[&name], "p4/{name} has changed: run `make p4`");
    }
}

#[test]
fn build_is_of_these_sources() {
    let mut names = sources(&["shared", "v1model"]);
    names.extend(["build/thc.json", "build/thc.p4info.txtpb"].map(str::to_owned));
    assert_listed("build/sources.sha256", names);
}

#[test]
fn reports_of_tofino_are_of_these_sources() {
    let mut names = sources(&["shared", "tna", "tna/generated"]);
    names.extend(
        ["fit.json", "tofino.p4info.txtpb", "tofino2.p4info.txtpb", "tofino.p4", "tofino2.p4"]
            .map(|n| format!("build/tofino/{n}")),
    );
    // What a chip loads, where it was assembled.
    for folder in ["build/tofino/tofino", "build/tofino/tofino2"] {
        let files = fs::read_dir(p4().join(folder)).into_iter().flatten();
        names.extend(
            files.map(|file| format!("{folder}/{}", file.unwrap().file_name().into_string().unwrap())),
        );
    }
    assert_listed("build/tofino/sources.sha256", names);
    let fit: Value = serde_json::from_slice(&fs::read(p4().join("build/tofino/fit.json")).unwrap()).unwrap();
    for chip in fit.as_array().unwrap() {
        for gress in ["ingress", "egress"] {
            assert!(chip["stages"][gress].as_u64() <= chip["stages"]["chip"].as_u64(), "{chip}");
        }
    }
}

/// What `fit.py` prints from the committed report.
fn fit(mode: &str) -> String {
    let (script, report) = (p4().join("fit.py"), p4().join("build/tofino/fit.json"));
    let printed = Command::new("python3").arg(script).arg(mode).arg(report).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn the_page_has_the_report() {
    let docs = p4().join("../docs");
    let page = fs::read_to_string(docs.join("switch.md")).unwrap();
    let rows = fit("--table");
    assert!(page.contains(&rows), "docs/switch.md lacks these rows of `p4/fit.py --table`:\n{rows}");
    let picture = fs::read_to_string(docs.join("tofino.svg")).unwrap();
    assert!(
        picture == fit("--picture"),
        "docs/tofino.svg is old: p4/fit.py --picture p4/build/tofino/fit.json"
    );
}

/// Lookups write words while indices wait for theirs, and passes keep words whose headers are not valid: neither may share a
/// container with anything else, which the interpreter does not see.
#[test]
fn indices_and_words_have_containers_of_their_own() {
    for chip in ["tofino", "tofino2"] {
        let file = p4().join(format!("build/tofino/{chip}/context.json.gz"));
        let context = Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
        let context: Value = serde_json::from_slice(&context.stdout).unwrap();
        let mut own = BTreeSet::new();
        let stages = context["phv_allocation"].as_array().unwrap();
        for container in stages.iter().flat_map(|stage| stage["egress"].as_array().unwrap()) {
            let records = container["records"].as_array().unwrap().iter();
            let names: BTreeSet<&str> =
                records.map(|record| record["field_name"].as_str().unwrap()).collect();
            let is_of = |header: &str| names.iter().any(|name| name.starts_with(header));
            if let Some(header) = ["hdr.indices.", "hdr.first.w", "hdr.more.w"].into_iter().find(|h| is_of(h))
            {
                assert!(
                    names.iter().all(|name| name.starts_with(header)),
                    "{chip}: {names:?} share a container"
                );
                own.extend(names);
            }
        }
        // Each word, and its two bytes of indices.
        assert_eq!(own.len(), if chip == "tofino" { 3 * 16 } else { 3 * 32 }, "{chip}: {own:?}");
    }
}

/// Each part behind its length, and a message of Protocol Buffers: both have the files of a chip, whole and in order.
#[test]
fn a_program_is_packed_as_servers_load_it() {
    let folder = tempfile::tempdir().unwrap();
    let (script, build) = (folder.path().join("pack.py"), folder.path().join("build/tofino/tofino2"));
    fs::copy(p4().join("pack.py"), &script).unwrap();
    fs::create_dir_all(&build).unwrap();
    fs::write(build.join("tofino.bin"), "binary").unwrap();
    fs::write(build.join("bfrt.json"), "s".repeat(200)).unwrap();
    fs::write(build.join("context.json"), "context").unwrap();
    let files = ["context.json", "bfrt.json"].map(|name| build.join(name));
    assert!(Command::new("gzip").args(files).status().unwrap().success());
    let pack = |server: &str| {
        let file = folder.path().join(server);
        let arguments = [script.to_str().unwrap(), server, "tofino2", file.to_str().unwrap()];
        assert!(Command::new("python3").args(arguments).status().unwrap().success());
        fs::read(file).unwrap()
    };
    let schema = "s".repeat(200);
    let parts = ["thc", "binary", "context", "pipe", &schema];
    let expected: Vec<u8> = parts
        .iter()
        .flat_map(|part| [&(part.len() as u32).to_le_bytes()[..], part.as_bytes()].concat())
        .collect();
    assert_eq!(pack("bf_switchd"), expected);
    let profile = b"\x0a\x04pipe\x12\x07context\x1a\x06binary\x22\x04\0\x01\x02\x03";
    let begin = b"\x0a\x03thc\x12\xc8\x01";
    let expected = [&begin[..], schema.as_bytes(), &[0x1a, profile.len() as u8], &profile[..]].concat();
    assert_eq!(pack("stratum"), expected);
}

#[test]
fn entries_of_the_verdict_are_those_of_their_script() {
    let made = Command::new("python3").arg(p4().join("tna/verdict.py")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kept = fs::read(p4().join("tna/generated/verdict.p4")).unwrap();
    assert!(made.stdout == kept, "p4/tna/generated/verdict.p4 is not what verdict.py prints: run `make p4`");
}

/// Every field of a key and every parameter of an action that the control plane writes, with its bits: "jobs.set_job.cookie 32".
/// Tables of constant entries are nobody's.
fn fields_written(info: &str) -> BTreeSet<String> {
    let info = p4runtime_proto::p4info::parse(&fs::read(p4().join(info)).unwrap()).unwrap();
    let alias =
        |preamble: &Option<p4runtime_proto::config::Preamble>| preamble.as_ref().unwrap().alias.clone();
    let mut written = BTreeSet::new();
    for table in info.tables.iter().filter(|table| !table.is_const_table) {
        let name = alias(&table.preamble);
        written.extend(
            table.match_fields.iter().map(|field| format!("{name}[{}] {}", field.name, field.bitwidth)),
        );
        for action in &table.action_refs {
            let action = info.actions.iter().find(|known| known.id() == action.id).unwrap();
            let place = format!("{name}.{}", alias(&action.preamble));
            written.extend(
                action.params.iter().map(|param| format!("{place}.{} {}", param.name, param.bitwidth)),
            );
            written.insert(place);
        }
    }
    written
}

/// Both programs have the tables of shared/tables.p4; what differs is here, and so known.
#[test]
fn tables_are_the_same_for_every_program() {
    let bmv2 = fields_written("build/thc.p4info.txtpb");
    let chips =
        ["tofino", "tofino2"].map(|chip| fields_written(&format!("build/tofino/{chip}.p4info.txtpb")));
    for (chip, queues) in chips.into_iter().zip([5, 7]) {
        let only = |mine: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
            // One lookup table stands for all of them.
            let others = |line: &&String| line.starts_with("lookup_") && !line.starts_with("lookup_a0");
            mine.difference(other).filter(|line| !others(line)).cloned().collect()
        };
        assert_eq!(
            only(&bmv2, &chip),
            [
                // A replication id has 16 bits on a chip.
                "addresses[worker] 8",
                "jobs.set_job.data_base 32",
                "jobs.set_job.data_slots 32",
                "jobs.set_job.index 6",
                "jobs.set_job.norm_base 32",
                "jobs.set_job.norm_slots 32",
                "jobs.set_job.quorum 8",
                "lookup.NoAction",
                "lookup.set_values",
                "lookup.set_values.lane 8",
                "lookup.set_values.values 128",
                "lookup.set_values.width 8",
                "lookup[table] 8",
                "passes.set_pass_port",
                "passes.set_pass_port.port 9",
            ]
        );
        assert_eq!(
            only(&chip, &bmv2),
            [
                "addresses[worker] 16",
                "control_ports.NoAction",
                "control_ports.meter_port",
                "control_ports[port] 9",
                "job_tables.allow_table.half 1",
                "job_tables.allow_table.lookup 8",
                "jobs.set_job.data_base 16",
                "jobs.set_job.data_slots 16",
                "jobs.set_job.index 4",
                "jobs.set_job.norm_base 16",
                "jobs.set_job.norm_slots 16",
                "jobs.set_job.quorum 16",
                "lookup_a0.NoAction",
                "lookup_a0.set_a0",
                "lookup_a0.set_a0.values 16",
                "lookup_a0[indices] 8",
                "lookup_a0[lookup] 3",
                "loopback_ports.NoAction",
                "loopback_ports.own_pass",
                "loopback_ports[port] 9",
                "marking.set_depth",
                "marking.set_depth.length 32",
                "passes.no_pass",
                "passes.set_pass",
                "passes.set_pass.first_cell 16",
                "passes.set_pass.port 9",
                // A port of Tofino has 32 queues, and one of Tofino 2 has 128.
                &format!("passes.set_pass.queue {queues}"),
                "passes[collect] 1",
                "source.set_source",
                "source.set_source.address 32",
                "source.set_source.mac 48",
            ]
        );
    }
}

/// The field that each byte of a header belongs to, as p4c laid it out.
fn laid_out(json: &Value, header: &str) -> Vec<String> {
    let types = json["header_types"].as_array().unwrap();
    let layout = types.iter().find(|kind| kind["name"] == header).unwrap();
    let mut owners = Vec::new();
    for field in layout["fields"].as_array().unwrap() {
        let (name, bits) = (field[0].as_str().unwrap(), field[1].as_u64().unwrap() as usize);
        assert_eq!(bits % 8, 0, "{header}.{name} is not of whole bytes");
        owners.extend(std::iter::repeat_n(name.to_owned(), bits / 8));
    }
    owners
}

/// The field that each byte belongs to, as `changed` tells of bytes with that one inverted.
fn parsed_fields(bytes: &[u8], changed: impl Fn(&[u8]) -> &'static str) -> Vec<String> {
    let one = |at: usize| {
        let mut other = bytes.to_vec();
        other[at] ^= 0xFF;
        changed(&other).to_owned()
    };
    (0..bytes.len()).map(one).collect()
}

/// The name beside the first pair that differs.
fn first_difference<T: PartialEq>(fields: &[(&'static str, T, T)]) -> &'static str {
    let mut names = fields.iter().filter(|(_, a, b)| a != b).map(|(name, _, _)| *name);
    let name = names.next().unwrap_or("");
    assert_eq!(names.next(), None, "one byte belongs to two fields");
    name
}

#[test]
fn header_is_that_of_the_wire() {
    let mut bytes = [0x55; HEADER_LEN];
    (bytes[0], bytes[1]) = (VERSION, Kind::Data as u8);
    let (a, _) = Header::parse(&bytes).unwrap();
    let owners = parsed_fields(&bytes, |other| match Header::parse(other) {
        Err(HeaderError::Version(_)) => "version",
        Err(HeaderError::Kind(_)) => "kind",
        Err(HeaderError::Short(_)) => unreachable!(),
        Ok((b, _)) => match first_difference(&[
            ("flags", u32::from(a.flags), u32::from(b.flags)),
            ("num_workers", a.num_workers.into(), b.num_workers.into()),
            ("job", a.job.0.into(), b.job.0.into()),
            ("worker", a.worker.0.into(), b.worker.0.into()),
            ("table_id", a.table.0.into(), b.table.0.into()),
            ("cookie", a.cookie.0, b.cookie.0),
            ("round", a.round.0, b.round.0),
            ("slot", a.slot.0.into(), b.slot.0.into()),
            // The upper byte is a root's (P37), which the program is not: it has up to 64 workers, and passes on what it gets.
            ("count", (a.count & 0xff).into(), (b.count & 0xff).into()),
        ]) {
            "" => "reserved",
            name => name,
        },
    });
    assert_eq!(laid_out(&json(), "thc_h"), owners);
}

#[test]
fn norm_is_that_of_the_wire() {
    let bytes = [0x55; NORM_LEN];
    let (a, tag) = (Norm::parse(&bytes).unwrap(), Norm::tag_of(&bytes));
    let owners = parsed_fields(&bytes, |other| {
        let b = Norm::parse(other).unwrap();
        first_difference(&[
            ("tag", tag, Norm::tag_of(other.try_into().unwrap())),
            ("value", a.value, b.value),
            ("length", a.length, b.length),
            ("call", a.call.into(), b.call.into()),
            ("table_id", a.table.0.into(), b.table.0.into()),
            ("mode", a.mode.into(), b.mode.into()),
            ("key", a.key, b.key),
        ])
    });
    let json = json();
    assert_eq!(laid_out(&json, "norm_h"), owners);
    let types: BTreeMap<&str, &str> = json["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|header| (header["name"].as_str().unwrap(), header["header_type"].as_str().unwrap()))
        .collect();
    // MISMATCH: the slot's payload, then the refused one.
    assert_eq!((types["norm"], types["refused"]), ("norm_h", "norm_h"));
    assert_eq!(2 * owners.len(), MISMATCH_LEN);
}

#[test]
fn straggler_and_nudge_are_those_of_the_wire() {
    let json = json();
    let bytes = Straggler { kind: Kind::Raw, current: thc_protocol::Round(0x5555_5555) }.to_bytes();
    assert_eq!(bytes.len(), STRAGGLER_LEN);
    let a = Straggler::parse(&bytes).unwrap();
    let owners = parsed_fields(&bytes, |other| match Straggler::parse(other) {
        None => "kind",
        Some(b) if b.current != a.current => "current",
        Some(_) => "zero",
    });
    assert_eq!(laid_out(&json, "straggler_h"), owners);

    let bytes = Nudge { kind: Kind::Raw, seen: 0x5555_5555_5555_5555 }.to_bytes();
    assert_eq!(bytes.len(), NUDGE_LEN);
    let a = Nudge::parse(&bytes).unwrap();
    let owners = parsed_fields(&bytes, |other| match Nudge::parse(other) {
        None => "kind",
        Some(b) if b.seen != a.seen => "seen",
        Some(_) => "zero",
    });
    assert_eq!(laid_out(&json, "nudge_h"), owners);
}

#[test]
fn passes_make_whole_packets() {
    let json = json();
    let (indices, words) = (laid_out(&json, "indices_h"), laid_out(&json, "words_h"));
    let passes = RESULT_LEN / words.len();
    assert_eq!(passes * words.len(), RESULT_LEN);
    assert_eq!(passes * words.len(), RAW_LEN);
    assert_eq!(passes * indices.len(), Kind::Data.payload_len(Form::USUAL));
    let done = json["headers"].as_array().unwrap().iter().filter(|h| h["header_type"] == "done_h").count();
    assert_eq!(done, passes - 1);
    assert_eq!(laid_out(&json, "done_h").len(), words.len());
    // The k-th field holds the k-th word and its indices.
    let numbered = |letter: &str, bytes: usize| -> Vec<String> {
        (0..32).flat_map(|k| std::iter::repeat_n(format!("{letter}{k}"), bytes)).collect()
    };
    assert_eq!(words, numbered("w", 4));
    assert_eq!(indices, numbered("i", 2));
    // What goes out: P1, then one of the payloads, finished words first.
    let order: Vec<&str> =
        json["deparsers"][0]["order"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let done = (0..passes - 1).map(|pass| format!("done[{pass}]"));
    let expected: Vec<String> =
        ["packet_in", "pass", "ethernet", "arp", "ipv4", "udp", "thc", "norm", "refused"]
            .into_iter()
            .chain(["straggler", "nudge"])
            .map(str::to_owned)
            .chain(done)
            .chain(["sums", "indices", "words"].map(str::to_owned))
            .collect();
    assert_eq!(order, expected);
}

#[test]
fn numbers_are_those_of_the_protocol() {
    let text =
        ["shared/kinds.p4", "v1model/kinds.p4"].map(|name| fs::read_to_string(p4().join(name)).unwrap());
    let text = text.concat();
    let constants: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.trim_start_matches("@noWarn(\"unused\") ").strip_prefix("const "))
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?.1.split_once(" = ")?;
            let value = value.split_once(';')?.0;
            let hex = value.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
            Some((name, hex.unwrap_or_else(|| value.parse()).ok()?))
        })
        .collect();
    for (name, kind) in [
        ("NORM", Kind::Norm),
        ("DATA", Kind::Data),
        ("RAW", Kind::Raw),
        ("STRAGGLER", Kind::Straggler),
        ("MISMATCH", Kind::Mismatch),
        ("NUDGE", Kind::Nudge),
    ] {
        assert_eq!(constants[format!("KIND_{name}").as_str()], kind as u64);
        if let Some(result) = kind.result() {
            assert_eq!(constants["RESULT_BIT"] | kind as u64, result as u64);
        }
    }
    assert_eq!(constants["VERSION"], u64::from(VERSION));
    assert_eq!(constants["FLAG_NUDGE"], u64::from(FLAG_NUDGE));
    assert_eq!(constants["FLAG_MARK"], u64::from(FLAG_MARK));
    for reason in DropReason::ALL {
        assert_eq!(constants[format!("DROP_{}", reason.name().to_uppercase()).as_str()], reason as u64);
    }
    for event in Event::ALL {
        assert_eq!(constants[format!("EVENT_{}", event.name().to_uppercase()).as_str()], event as u64);
    }
}
