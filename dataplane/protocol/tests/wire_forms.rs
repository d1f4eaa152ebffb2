//! Headers, NORM and WELCOME survive a round trip, and what they must not say is refused by name. The vectors and the fuzz
//! target `wire` have all forms.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use thc_protocol::wire::{
    Change, FEATURE_IPV6, FEATURE_RACKS, Form, HEADER_LEN, Header, HeaderError, Kind, MAX_PACKET, Norm,
    Nudge, RAW_LEN, RESULT_LEN, Rack, Shares, SharesError, Straggler, Table, Tables, TablesError, VERSION,
    Welcome, WelcomeError,
};
use thc_protocol::{Cookie, JobId, Lane, Policy, Rank, Round, SlotId, TableId, WorkerId};

fn any_shares() -> impl Strategy<Value = Shares> {
    let row = (1u32..0xE000_0000, 1u16..).prop_map(|(ip, port)| SocketAddr::from((Ipv4Addr::from(ip), port)));
    let v6 = |ip: u128| (1 << 125) | (ip >> 3);
    let row_v6 =
        (any::<u128>(), 1u16..).prop_map(move |(ip, port)| SocketAddr::from((Ipv6Addr::from(v6(ip)), port)));
    let list = |rows: BTreeSet<SocketAddr>| Shares::new(&rows.into_iter().collect::<Vec<_>>(), 1).unwrap();
    prop_oneof![
        Just(Shares::NONE),
        prop::collection::btree_set(row, 2..=64).prop_map(list),
        // As many as a packet has room for.
        prop::collection::btree_set(row_v6, 2..=49).prop_map(list),
    ]
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(thc_support::kinds())
}

prop_compose! {
    fn any_header()(
        kind in any_kind(),
        bytes in any::<[u8; 5]>(),
        job in any::<u16>(),
        slot in any::<u16>(),
        cookie in any::<u32>(),
        round in any::<u32>(),
    ) -> Header {
        Header {
            kind,
            flags: bytes[0],
            num_workers: bytes[1],
            job: JobId(job),
            worker: WorkerId(bytes[2]),
            table: TableId(bytes[3]),
            cookie: Cookie(cookie),
            round: Round(round),
            slot: SlotId(slot),
            count: u16::from_be_bytes([bytes[4], bytes[0]]),
        }
    }
}

prop_compose! {
    fn any_norm()(
        value in any::<u32>(),
        length in any::<u32>(),
        call in any::<u16>(),
        table in any::<u8>(),
        mode in any::<u8>(),
        key in any::<u32>(),
        partitions in 0u32..1 << 22,
    ) -> Norm {
        Norm { tag: 0, value, length, call, table: TableId(table), mode, key }.with_tag(partitions)
    }
}

prop_compose! {
    fn any_table()(
        form in prop::sample::select(&Form::ALL[..]),
        narrower in any::<u8>(),
        granularity in any::<u16>(),
        fraction in 0.0f64..1.0,
        values in any::<[u8; 16]>(),
    ) -> Table {
        let bits = if form.is_identity() { 8 } else { 1 + narrower % form.width() };
        Table { id: TableId(0), bits, form, granularity, fraction, t_p: fraction + 1.0, values }
    }
}

prop_compose! {
    fn any_tables()(tables in prop::collection::vec(any_table(), 1..=16), first in any::<u8>()) -> Tables {
        let numbered = (0u8..).zip(tables);
        let id = |i: u8| TableId(first.wrapping_add(i).max(1));
        let tables: Vec<Table> = numbered.map(|(i, table)| Table { id: id(i), ..table }).collect();
        // Two have the number 1 where they wrap.
        Tables::new(&tables).unwrap_or(Tables::one(tables[0]))
    }
}

prop_compose! {
    fn any_rack()(
        racks in 1u8..=64,
        rack in any::<u8>(),
        more in any::<u16>(),
        less in any::<u16>(),
        first in any::<u16>(),
        layout in any::<u64>(),
    ) -> Rack {
        let most = u16::from(racks) * 63;
        let workers = u16::from(racks) + more % (most + 1);
        let quorum = u16::from(racks) + less % (workers - u16::from(racks) + 1);
        let rack = if rack == 255 { WorkerId::NONE } else { WorkerId(rack % racks) };
        Rack { racks, rack, workers, quorum, first: Rank(first % workers), layout }
    }
}

prop_compose! {
    fn any_welcome()(
        session in any::<u32>(),
        slots in (1u32..=32768, 1u32..=32768),
        workers in 1u8..=64,
        best_effort in any::<bool>(),
        shards in 1u8..,
        micros in any::<u32>(),
        tables in any_tables(),
        job_seed in any::<u64>(),
        nonce in any::<u64>(),
        block in 10u8..=20,
        shares in any_shares(),
        rack in prop::option::of(any_rack()),
        marks in any::<bool>(),
    ) -> Welcome {
        Welcome {
            session: Cookie(session),
            data_slots: slots.0 * 2,
            norm_slots: slots.1 * 2,
            quorum: workers,
            policy: if best_effort { Policy::BestEffort } else { Policy::Reliable },
            shards: if shares == Shares::NONE { shards } else { 1 },
            deadline: Duration::from_micros(u64::from(micros)),
            tables,
            job_seed,
            nonce,
            block,
            workers,
            credit: micros,
            features: micros.rotate_left(7) & !(FEATURE_RACKS | FEATURE_IPV6),
            shares,
            rack,
            marks,
        }
    }
}

/// `parse` takes the bytes that were emitted and no other length of them.
fn round_trip<T: PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8], parse: impl Fn(&[u8]) -> Option<T>) {
    assert_eq!(parse(bytes).as_ref(), Some(value));
    for len in 0..bytes.len() {
        assert_eq!(parse(&bytes[..len]), None, "cut to {len}");
    }
    let mut longer = bytes.to_vec();
    for _ in 0..4 {
        longer.push(0);
        assert_eq!(parse(&longer), None, "{} long", longer.len());
    }
}

proptest! {
    #[test]
    fn headers(header in any_header(), payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut buffer = [0xEE; MAX_PACKET];
        let packet = header.emit_packet(&mut buffer, &payload);
        prop_assert_eq!(packet.len(), HEADER_LEN + payload.len());
        prop_assert_eq!(Header::parse(packet), Ok((header, &payload[..])));
        for len in 0..HEADER_LEN {
            prop_assert_eq!(Header::parse(&packet[..len]), Err(HeaderError::Short(len)));
        }
        // The one number whose upper byte comes second (P1).
        prop_assert_eq!(u16::from(packet[18]) + 256 * u16::from(packet[19]), header.count);
    }

    #[test]
    fn other_versions_and_kinds_are_refused(header in any_header(), byte in any::<u8>()) {
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes[0] = byte;
        if byte != VERSION {
            prop_assert_eq!(Header::parse(&bytes), Err(HeaderError::Version(byte)));
        }
        bytes[0] = VERSION;
        bytes[1] = byte;
        let known = Kind::from_byte(byte).is_some();
        match Header::parse(&bytes) {
            Ok((parsed, _)) => prop_assert!(known && parsed.kind as u8 == byte),
            Err(error) => prop_assert!(!known && error == HeaderError::Kind(byte)),
        }
    }

    #[test]
    fn norms(norm in any_norm(), other in any_norm(), partitions in 1u32..1 << 22) {
        let bytes = norm.to_bytes();
        round_trip(&norm, &bytes, Norm::parse);
        prop_assert_eq!(Norm::tag_of(&bytes), norm.tag);
        // The value is no part of the tag; everything else is.
        let tag = norm.with_tag(partitions).tag;
        prop_assert_eq!(Norm { value: other.value, ..norm }.with_tag(partitions).tag, tag);
        for changed in [
            Norm { length: norm.length ^ 1, ..norm },
            Norm { call: norm.call ^ 0x8000, ..norm },
            Norm { table: TableId(norm.table.0 ^ 4), ..norm },
            Norm { mode: norm.mode ^ 1, ..norm },
            Norm { key: norm.key ^ 0x8000_0000, ..norm },
        ] {
            prop_assert_ne!(changed.with_tag(partitions).tag, tag);
        }
        prop_assert_ne!(norm.with_tag(partitions ^ 1).tag, tag);
    }

    #[test]
    fn welcomes(welcome in any_welcome()) {
        round_trip(&welcome, &welcome.to_bytes(), Welcome::parse);
        let (shares, tables) = (welcome.shares.as_slice().len(), welcome.tables.len() - 1);
        let bytes = welcome.to_bytes();
        prop_assert_eq!((usize::from(bytes[92]), usize::from(bytes[93])), (shares, tables));
        let unused = if welcome.rack.is_some() { 110 } else { 94 };
        prop_assert_eq!(bytes[118], u8::from(welcome.marks));
        prop_assert!((unused..128).filter(|at| *at != 118).all(|at| bytes[at] == 0));
        let v6 = welcome.shares.as_slice().first().is_some_and(SocketAddr::is_ipv6);
        prop_assert_eq!(u32::from_be_bytes(*bytes[88..].first_chunk().unwrap()) & FEATURE_IPV6 != 0, v6);
        let list = if v6 { (18 * shares).next_multiple_of(8) } else { 8 * shares };
        prop_assert_eq!(bytes.len(), 128 + list + 40 * tables);
        // Neither more than the counts say, nor less.
        prop_assert_eq!(Welcome::parse(&[&bytes[..], &[0; 8]].concat()), None);
        prop_assert_eq!(Welcome::parse(&bytes[..bytes.len() - 8]), None);
        // Session, nonce, credit and marks make no other job, all else does.
        let session = Cookie(!welcome.session.0);
        let other = Welcome { session, nonce: !welcome.nonce, credit: !welcome.credit, marks: !welcome.marks, ..welcome };
        prop_assert_eq!((welcome.fingerprint(), Change::compare(&welcome, &other)), (other.fingerprint(), None));
        let other = Welcome { job_seed: !welcome.job_seed, ..welcome };
        prop_assert_ne!(welcome.fingerprint(), other.fingerprint());
        prop_assert!(Change::compare(&welcome, &other).is_some());
    }
}

#[test]
fn payload_lengths_are_those_of_p2() {
    use Kind::*;
    let expected = [
        (Norm, 20, 20),
        (Data, 512, 256),
        (Raw, 1024, 1024),
        (NormResult, 20, 20),
        (Result, 1024, 1024),
        (RawResult, 1024, 1024),
        (Straggler, 8, 8),
        (Mismatch, 40, 40),
        (Nudge, 12, 12),
        (Join, 32, 32),
        (Leave, 8, 8),
        (Welcome, 128, 128),
        (Pending, 8, 8),
        (Refused, 4, 4),
        (Bye, 0, 0),
        (Description, 128, 128),
        (Ask, 8, 8),
    ];
    assert_eq!(expected.map(|(kind, ..)| kind).to_vec(), thc_support::kinds());
    for (kind, narrow, wide) in expected {
        assert_eq!(kind.payload_len(Form::USUAL), narrow, "{kind:?}");
        assert_eq!(kind.payload_len(Form::new(4, Lane::Bits16).unwrap()), wide, "{kind:?}");
        assert_eq!(kind.is_control(), kind as u8 >= 0x20, "{kind:?}");
    }
    assert_eq!((RESULT_LEN, RAW_LEN, MAX_PACKET), (1024, 1024, 1044));
}

#[test]
fn forms_are_those_of_p2() {
    // Index, lane, coordinates, bytes up, bytes down.
    let expected = [
        (1, 4, 1024, 128, 512),
        (1, 8, 1024, 128, 1024),
        (1, 16, 512, 64, 1024),
        (2, 4, 1024, 256, 512),
        (2, 8, 1024, 256, 1024),
        (2, 16, 512, 128, 1024),
        (3, 4, 1024, 384, 512),
        (3, 8, 1024, 384, 1024),
        (3, 16, 512, 192, 1024),
        (4, 4, 1024, 512, 512),
        (4, 8, 1024, 512, 1024),
        (4, 16, 512, 256, 1024),
        (8, 16, 512, 512, 1024),
    ];
    let all = Form::ALL.map(|form| {
        assert_eq!(Form::new(form.width(), form.lane()), Some(form));
        assert_eq!(form.to_string(), format!("{}/{}", form.width(), form.lane().bits()));
        (form.width(), form.lane().bits(), form.coordinates(), form.data_len(), form.result_len())
    });
    assert_eq!(all, expected);
    // P44: lanes in which sums are added, coordinates, bytes down.
    let packed = |width, sums| {
        let form = Form::with_sums(width, sums)?;
        assert_eq!((form.sums(), form.max_sum(), form.in_racks(Lane::Bits8)), (sums, (1 << sums) - 1, None));
        assert_eq!(form.to_string(), format!("{width}/{sums}"));
        Some((form.lane().bits(), form.coordinates(), form.result_len()))
    };
    assert_eq!(packed(4, 5), Some((8, 1024, 640)));
    assert_eq!(packed(4, 7), Some((8, 1024, 896)));
    assert_eq!(packed(2, 9), Some((16, 512, 576)));
    assert_eq!(packed(8, 10), Some((16, 512, 640)));
    for form in Form::ALL {
        assert_eq!(Form::with_sums(form.width(), form.sums()), Some(form));
        assert_eq!((form.is_packed(), form.lanes_len()), (false, form.result_len()));
    }
    for (width, sums) in [(4, 3), (4, 17), (8, 7), (8, 8), (5, 8)] {
        assert_eq!(Form::with_sums(width, sums), None);
    }
    // P34: coordinates, bytes from a worker to its rack, from a rack to its root, and down.
    let in_racks = |width, lane, sums| {
        let (rack, root) = Form::new(width, lane)?.in_racks(sums)?;
        assert_eq!((rack.coordinates(), rack.result_len()), (root.coordinates(), root.data_len()));
        Some((root.coordinates(), rack.data_len(), root.data_len(), root.result_len()))
    };
    assert_eq!(in_racks(4, Lane::Bits8, Lane::Bits8), Some((1024, 512, 1024, 1024)));
    assert_eq!(in_racks(4, Lane::Bits16, Lane::Bits8), Some((512, 256, 512, 1024)));
    assert_eq!(in_racks(3, Lane::Bits16, Lane::Bits8), Some((512, 192, 512, 1024)));
    assert_eq!(in_racks(4, Lane::Bits16, Lane::Bits16), Some((512, 256, 1024, 1024)));
    assert_eq!(in_racks(8, Lane::Bits16, Lane::Bits16), Some((512, 512, 1024, 1024)));
    for (width, lane, sums) in [
        (8, Lane::Bits16, Lane::Bits8),
        (4, Lane::Bits4, Lane::Bits4),
        (4, Lane::Bits8, Lane::Bits4),
        (4, Lane::Bits8, Lane::Bits16),
    ] {
        assert_eq!(in_racks(width, lane, sums), None);
    }
    assert_eq!((Form::default(), Form::USUAL.to_string().as_str()), (Form::USUAL, "4/8"));
    for width in [0, 5, 6, 7, 9] {
        assert_eq!(Form::new(width, Lane::Bits8), None);
    }
    assert_eq!((Form::new(8, Lane::Bits8), Form::new(8, Lane::Bits4)), (None, None));
}

#[test]
fn a_job_has_one_to_sixteen_tables_of_different_numbers() {
    let table = |id| Table { id: TableId(id), bits: 4, ..Table::default() };
    let many: Vec<Table> = (1..=17).map(table).collect();
    assert_eq!(Tables::new(&many[..16]).unwrap()[..], many[..16]);
    assert_eq!(Tables::new(&many), Err(TablesError::Count { count: 17 }));
    assert_eq!(Tables::new(&[]), Err(TablesError::Count { count: 0 }));
    for bad in [&[table(0)][..], &[table(7), table(3), table(7)]] {
        assert_eq!(Tables::new(bad), Err(TablesError::Number { id: bad[bad.len() - 1].id }));
    }
    let two = Form::new(2, Lane::Bits8).unwrap();
    let eight = Form::new(8, Lane::Bits16).unwrap();
    for (bits, form) in [(0, two), (3, two), (7, eight), (8, Form::USUAL)] {
        let wrong = Tables::new(&[Table { bits, form, ..table(1) }]);
        assert_eq!(wrong, Err(TablesError::Width { id: TableId(1), bits, width: form.width() }));
    }
}

/// P23: what a job has more of is another job, and what is behind the rows nobody knows.
#[test]
fn further_tables_are_told_and_are_part_of_the_fingerprint() {
    let one = Table { id: TableId(5), bits: 4, granularity: 30, ..Table::default() };
    let two =
        Table { id: TableId(6), bits: 2, form: Form::new(2, Lane::Bits4).unwrap(), granularity: 3, ..one };
    let with = |tables: &[Table]| Welcome { tables: Tables::new(tables).unwrap(), ..GOOD };
    let (alone, both) = (with(&[one]), with(&[one, two]));
    let bytes = both.to_bytes();
    assert_eq!((bytes.len(), bytes[93], bytes[83]), (168, 1, 4));
    assert_eq!(bytes[128..136], [6, 2, 2, 4, 0, 3, 0, 0]);
    assert_eq!(Welcome::parse(&bytes), Some(both));
    assert_ne!(alone.fingerprint(), both.fingerprint());
    assert_eq!(Welcome::parse(&bytes[..128]), None);
    assert_eq!(Welcome::parse(&[&bytes[..], &[0; 8]].concat()), None);
    let said = |is: &Welcome| Change::compare(&alone, is).unwrap().to_string();
    assert_eq!(said(&both), "other further tables");
    let narrow = with(&[Table { form: two.form, bits: 2, ..one }]);
    assert_eq!(said(&narrow), "lane 4 instead of 8, and 2 differences more");
}

#[test]
fn non_finite_values_name_the_highest_worker_of_a_maximum() {
    for worker in 0..64 {
        let value = Norm::non_finite(WorkerId(worker));
        assert!(f32::from_bits(value).is_nan());
        assert!(value > f32::MAX.to_bits() && value > f32::INFINITY.to_bits());
        assert_eq!(Norm::non_finite_worker(value), Some(WorkerId(worker).into()));
        assert!(worker == 0 || value > Norm::non_finite(WorkerId(worker - 1)));
    }
    for finite in [0.0, f32::MIN_POSITIVE, 1.0, f32::MAX] {
        assert_eq!(Norm::non_finite_worker(finite.to_bits()), None);
    }
}

#[test]
fn stragglers_and_nudges_about_kinds_that_no_slot_holds_are_refused() {
    for kind in thc_support::kinds() {
        let held = matches!(kind, Kind::Norm | Kind::Data | Kind::Raw);
        let straggler = Straggler { kind, current: Round(1) };
        assert_eq!(Straggler::parse(&straggler.to_bytes()).is_some(), held, "{kind:?}");
        let nudge = Nudge { kind, seen: 1 };
        assert_eq!(Nudge::parse(&nudge.to_bytes()).is_some(), held, "{kind:?}");
    }
}

const GOOD: Welcome = Welcome {
    session: Cookie(1),
    data_slots: 2,
    norm_slots: 65536,
    quorum: 1,
    policy: Policy::Reliable,
    shards: 1,
    deadline: Duration::ZERO,
    tables: Tables::one(Table {
        id: TableId(1),
        bits: 4,
        form: Form::USUAL,
        granularity: 30,
        fraction: 0.03125,
        t_p: 2.15,
        values: [0; 16],
    }),
    job_seed: 0,
    nonce: 0,
    block: 20,
    workers: 64,
    credit: 0,
    features: 0,
    shares: Shares::NONE,
    rack: None,
    marks: false,
};

/// A payload with its fingerprint (P23), whatever else is in it.
fn seal(mut payload: Vec<u8>) -> Vec<u8> {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let own = |at: usize| matches!(at, 0..4 | 56..64 | 72..80 | 84..88 | 118);
    let hashed: Vec<u8> = payload.iter().enumerate().map(|(at, &b)| if own(at) { 0 } else { b }).collect();
    let words = hashed.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap()));
    let fingerprint = words.fold(0, |h, word| mix(h ^ word).wrapping_add(1));
    payload[72..80].copy_from_slice(&u64::to_be_bytes(fingerprint));
    payload
}

#[test]
fn what_a_welcome_says_that_is_not_known_is_named() {
    let table = Table { id: TableId(8), ..*GOOD.tables.first() };
    let good = Welcome { tables: Tables::new(&[*GOOD.tables.first(), table]).unwrap(), ..GOOD }.to_bytes();
    assert_eq!(seal(good.clone()), good);
    // A wrong fingerprint.
    assert_eq!(Welcome::read(&[&good[..72], &[0], &good[73..]].concat()), Err(WelcomeError::Damaged));
    let first = GOOD.tables.first().id.0;
    let at = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        changes.iter().for_each(|&(offset, byte)| bytes[offset] = byte);
        assert_eq!(Welcome::read(&bytes), Err(WelcomeError::Damaged));
        Welcome::read(&seal(bytes)).unwrap_err().to_string()
    };
    for lane in [0, 3, 17, 63, 64, 68, 71, 73, 79, 81, 255] {
        let says = format!(
            "table {first} has indices of 4 bits and sums of the form {lane}, which this version does not know"
        );
        assert_eq!(at(&[(13, lane)]), says);
    }
    assert!(at(&[(83, 5)]).contains("indices of 5 bits"));
    assert!(at(&[(128 + 3, 17)]).starts_with("table 8 has indices of 4 bits and sums of the form 17"));
    assert!(at(&[(128, first)]).starts_with(&format!("two tables with the number {first}")));
    assert!(at(&[(21, 5)]).contains(&format!("table {first} of 5 bits")));
    for (changes, says) in [
        (&[(80, 9)][..], "block 9: this version knows 10 to 20"),
        (&[(80, 21)], "block 21: this version knows 10 to 20"),
        (&[(7, 0)], "data slots 0"),
        (&[(7, 3)], "data slots 3"),
        (&[(5, 1)], "data slots 65538"),
        (&[(9, 0)], "norm slots 0"),
        (&[(8, 255)], "norm slots"),
        (&[(12, 0)], "quorum 0"),
        (&[(12, 65)], "quorum 65"),
        (&[(14, 2)], "loss policy 2: this version knows 0 and 1"),
        (&[(15, 0)], "shards 0"),
        (&[(82, 0)], "workers 0"),
        (&[(82, 65)], "workers 65"),
    ] {
        assert!(at(changes).starts_with(says), "{}", at(changes));
    }
}

#[test]
fn shares_that_overlap_or_that_nobody_can_have_are_refused() {
    let list = |text: &str| text.split(' ').map(|at| at.parse().unwrap()).collect::<Vec<SocketAddr>>();
    for (text, shards, says) in [
        (
            "10.0.0.1:9000",
            1,
            "1 shares of 1 ports each: name 2 shares or more, with at most 64 ports together",
        ),
        ("10.0.0.1:9000 10.0.0.2:9000", 33, "2 shares of 33 ports each"),
        (
            "10.0.0.1:9000 10.0.0.2:9000 10.0.0.1:9000",
            1,
            "shares 0 and 2 overlap: 10.0.0.1:9000 and 10.0.0.1:9000",
        ),
        (
            "10.0.0.1:9000 10.0.0.1:9003",
            4,
            "shares 0 and 1 overlap: 10.0.0.1:9000 and 10.0.0.1:9003, each with 4 ports",
        ),
        ("10.0.0.1:9000 0.0.0.0:9000", 1, "share 1 is at 0.0.0.0:9000, which is not a server's address"),
        ("10.0.0.1:0 10.0.0.2:9000", 1, "share 0 is at 10.0.0.1:0"),
        ("10.0.0.1:9000 224.0.0.1:9000", 1, "share 1 is at 224.0.0.1:9000"),
        ("10.0.0.1:9000 10.0.0.2:65535", 2, "share 1 is at 10.0.0.2:65535"),
        ("[fd00::1]:9000 [::]:9000", 1, "share 1 is at [::]:9000"),
        ("[fd00::1]:9000 [ff02::1]:9000", 1, "share 1 is at [ff02::1]:9000"),
        ("[fe80::1]:9000 [fd00::1]:9000", 1, "share 0 is at [fe80::1]:9000"),
        ("[::ffff:10.0.0.1]:9000 [fd00::1]:9000", 1, "share 0 is at [::ffff:10.0.0.1]:9000"),
        (
            "10.0.0.1:9000 [fd00::1]:9000",
            1,
            "share 1 is at [fd00::1]:9000, and share 0 at 10.0.0.1:9000: give all",
        ),
        ("[fd00::1]:9000 [fd00::1]:9001", 2, "shares 0 and 1 overlap"),
    ] {
        let error: SharesError = Shares::new(&list(text), shards).unwrap_err();
        assert!(error.to_string().starts_with(says), "{text}: {error}");
    }
    let shares = Shares::new(&list("10.0.0.1:9000 10.0.0.1:9004 10.0.0.2:65532"), 4).unwrap();
    // The first is where this worker has joined.
    let ports = shares.ports("127.0.0.1:7000".parse().unwrap(), 4);
    let expected = "127.0.0.1:7000 127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003 10.0.0.1:9004 10.0.0.1:9005";
    assert_eq!((ports.len(), &ports[..6]), (12, &list(expected)[..]));
    assert_eq!(ports[11], "10.0.0.2:65535".parse().unwrap());
    assert_eq!(
        Shares::NONE.ports("127.0.0.1:7000".parse().unwrap(), 2),
        list("127.0.0.1:7000 127.0.0.1:7001")
    );
}
