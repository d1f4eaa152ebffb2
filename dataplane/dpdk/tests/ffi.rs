//! Tests of everything that crosses into DPDK, on virtual devices inside one process. They use ordinary pages, so they
//! need no privileges.
//!
//! The last test runs the others under valgrind.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::thread;

use thc_dpdk::{
    BURST, Batch, DpdkError, Eal, EalConfig, Mbuf, Mempool, Port, PortConfig, RingPair, RxQueue, SharedMbuf,
    Steering, TxQueue,
};

const FRAME: u16 = 1514;

fn config() -> EalConfig {
    EalConfig { hugepages: false, memory: 128, pci: Vec::new(), arguments: Vec::new() }
}

fn eal() -> &'static Eal {
    Eal::start(&config()).unwrap()
}

fn pool(packets: u32) -> Mempool {
    Mempool::new(eal(), packets, FRAME).unwrap()
}

fn port_config(device: &str) -> PortConfig {
    PortConfig {
        device: device.to_owned(),
        descriptors: 256,
        mtu: 1500,
        mac: None,
        checksums: true,
        first_udp_port: 9000,
    }
}

type Ends = [(Port, RxQueue, TxQueue); 2];

/// Two ports that rings connect.
fn joined_ports(pool: &Mempool) -> Ends {
    let pair = RingPair::new(eal(), 1024).unwrap();
    pair.names.map(|name| {
        let (port, queues) = Port::open(eal(), &port_config(&name), std::slice::from_ref(pool)).unwrap();
        let (rx, tx) = queues.into_iter().next().unwrap();
        (port, rx, tx)
    })
}

fn packet(pool: &Mempool, bytes: &[u8]) -> Mbuf {
    let mut packet = pool.take().unwrap();
    packet.append(bytes.len()).unwrap().copy_from_slice(bytes);
    packet
}

fn send_one(tx: &mut TxQueue, packet: Mbuf) {
    let mut batch = Batch::new();
    batch.push(packet).unwrap();
    assert_eq!(tx.burst(&mut batch), 1);
    assert!(batch.is_empty());
}

#[test]
fn dpdk_starts_once_and_only_with_the_same_settings() {
    eal();
    eal();
    assert!(Eal::version().starts_with("DPDK "), "{}", Eal::version());
    let others = [
        EalConfig { arguments: vec!["--log-level=8".into()], ..config() },
        EalConfig { pci: vec!["0000:ff:1f.7".into()], ..config() },
    ];
    for other in others {
        assert!(matches!(Eal::start(&other), Err(DpdkError::Differs { .. })));
    }
    let huge = Eal::start(&EalConfig { hugepages: true, ..config() });
    assert!(matches!(huge, Err(DpdkError::Differs { what: "hugepages" })));
    // Another amount of memory is no difference: pools report when the memory does not suffice.
    Eal::start(&EalConfig { memory: 1, ..config() }).unwrap();
}

#[test]
fn pools_count_what_is_out() {
    let pool = pool(1000);
    assert_eq!((pool.packets(), pool.available()), (1000, 1000));
    let mut batches = Vec::new();
    loop {
        let mut batch = Batch::new();
        if !pool.fill(&mut batch) {
            assert!(batch.is_empty(), "all or none");
            break;
        }
        batches.push(batch);
    }
    assert_eq!(batches.len(), 1000 / BURST);
    assert_eq!(pool.available() as usize, 1000 % BURST);
    let kept = batches[0].pop().unwrap();
    batches.clear();
    assert_eq!(pool.available(), 999);
    drop(kept);
    assert_eq!(pool.available(), 1000);
    let too_many = Mempool::new(eal(), 1 << 20, 9000);
    assert!(matches!(too_many, Err(DpdkError::Pool { packets: 0x10_0000, .. })));
}

#[test]
fn packets_grow_to_their_room_and_no_further() {
    let pool = pool(256);
    let mut packet = pool.take().unwrap();
    assert!(packet.is_empty() && packet.segments() == 1 && packet.references() == 1);
    packet.append(3).unwrap().copy_from_slice(b"abc");
    packet.append(2).unwrap().copy_from_slice(b"de");
    assert_eq!(packet.data(), b"abcde");
    packet.data_mut().unwrap()[0] = b'x';
    let room = (0..4096).take_while(|_| packet.append(1).is_some()).count();
    assert!(room >= usize::from(FRAME) - 5, "{room}");
    assert_eq!((packet.len(), &packet.data()[..5]), (room + 5, b"xbcde".as_slice()));
    assert!(packet.append(1).is_none() && packet.append(usize::MAX / 2).is_none());
    assert!(packet.append(0).is_some());
}

#[test]
fn a_shared_payload_lives_as_long_as_a_packet_ends_with_it() {
    let pool = pool(256);
    let mut shared = SharedMbuf::new(packet(&pool, b"payload")).unwrap();
    // Two are announced, and three come.
    shared.add_references(2);
    let mut chains: Vec<Mbuf> =
        (0..3u8).map(|i| shared.append_to(packet(&pool, &[i, b':'])).unwrap()).collect();
    drop(shared);
    assert_eq!(pool.available(), 252);
    let mut scratch = [0; 64];
    for (i, chain) in (0u8..).zip(&mut chains) {
        assert_eq!((chain.len(), chain.segments()), (9, 2));
        assert_eq!(chain.data(), [i, b':']);
        assert!(chain.append(1).is_none(), "a chain's first segment does not grow");
        assert_eq!(chain.contiguous(&mut scratch).unwrap(), [&[i, b':'], b"payload".as_slice()].concat());
        assert!(chain.contiguous(&mut scratch[..8]).is_none());
    }
    // A chain can neither be shared nor extended further.
    let chain = chains.pop().unwrap();
    assert!(SharedMbuf::new(chain).is_none());
    assert_eq!(pool.available(), 253);
    let mut other = SharedMbuf::new(packet(&pool, b"more")).unwrap();
    // Five are announced, and none comes.
    other.add_references(5);
    let chain = other.append_to(chains.pop().unwrap()).unwrap_err();
    assert_eq!((chain.len(), other.data()), (9, b"more".as_slice()));
    drop((chain, other, chains));
    assert_eq!(pool.available(), 256);
}

#[test]
fn batches_keep_their_order() {
    let pool = pool(256);
    let mut batch = Batch::new();
    for i in 0..BURST as u8 {
        batch.push(packet(&pool, &[i])).unwrap();
    }
    assert!(batch.is_full());
    let refused = batch.push(packet(&pool, b"no room")).unwrap_err();
    assert_eq!(refused.data(), b"no room");
    drop(refused);
    let order: Vec<u8> = batch.packets().iter().map(|packet| packet.data()[0]).collect();
    assert!(order.iter().copied().eq(0..BURST as u8));
    assert_eq!(batch.pop().unwrap().data(), [BURST as u8 - 1]);
    drop(batch);
    assert_eq!(pool.available(), 256);
}

#[test]
fn a_packet_that_was_received_becomes_an_empty_one_if_it_is_nobody_elses() {
    let pool = pool(256);
    let [(_a, _, mut tx), (_b, mut rx, _)] = joined_ports(&pool);
    let chain =
        SharedMbuf::new(packet(&pool, b"payload")).unwrap().append_to(packet(&pool, b"head: ")).unwrap();
    send_one(&mut tx, packet(&pool, b"alone"));
    let wanted = packet(&pool, b"wanted");
    let again = wanted.share().unwrap();
    send_one(&mut tx, wanted);
    send_one(&mut tx, chain);
    let mut batch = Batch::new();
    assert_eq!(rx.burst(&mut batch), 3);
    let mut renewed = Vec::new();
    batch.sift(|mut packet, behind| {
        assert!(behind.len() < 3 - renewed.len());
        if !packet.renew() {
            return Some(packet);
        }
        renewed.push(packet);
        None
    });
    let left: Vec<usize> = batch.packets().iter().map(Mbuf::len).collect();
    assert_eq!(left, [6, 13], "what others refer to, and what has several segments, stays as it is");
    assert_eq!(again.data(), b"wanted");
    let mut empty = renewed.pop().unwrap();
    assert!(empty.is_empty() && renewed.is_empty());
    empty.append(usize::from(FRAME)).unwrap().fill(1);
    assert_eq!(empty.len(), usize::from(FRAME));
    drop((empty, batch, again));
    assert_eq!(pool.available(), 256);
}

#[test]
fn what_is_sifted_out_leaves_the_batch() {
    let pool = pool(256);
    let mut batch = Batch::new();
    for i in 0..10 {
        batch.push(packet(&pool, &[i])).unwrap();
    }
    batch.sift(|packet, behind| {
        let number = packet.data()[0];
        assert!(behind.iter().map(|later| later.data()[0]).eq(number + 1..10));
        (number % 3 == 0).then_some(packet)
    });
    assert_eq!(pool.available(), 256 - 4);
    assert_eq!(batch.packets().iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), [0, 3, 6, 9]);
    batch.push(packet(&pool, &[99])).unwrap();
    assert_eq!(batch.pop().unwrap().data(), [99]);
    batch.clear();
    assert_eq!(pool.available(), 256);
}

#[test]
fn what_one_end_of_a_pair_sends_the_other_receives() {
    let pool = pool(1024);
    let [(a, mut a_rx, mut a_tx), (b, mut b_rx, mut b_tx)] = joined_ports(&pool);
    assert_eq!(a.info().steering, Steering::OneQueue);
    assert!(a.link().0 && b.link().0);
    assert_eq!(a.info().driver, "net_ring");
    let mut got = Batch::new();
    assert_eq!(a_rx.burst(&mut got), 0);
    send_one(&mut a_tx, packet(&pool, b"to b"));
    send_one(&mut b_tx, packet(&pool, b"to a"));
    assert_eq!(b_rx.burst(&mut got), 1);
    assert_eq!(a_rx.burst(&mut got), 1);
    let texts: Vec<&[u8]> = got.packets().iter().map(Mbuf::data).collect();
    assert_eq!(texts, [b"to b", b"to a"]);
    assert_eq!((a.stats().sent, b.stats().received), (1, 1));
}

#[test]
fn a_full_ring_leaves_packets_with_the_sender() {
    let pool = pool(4096);
    let [(_a, _, mut a_tx), (_b, mut b_rx, _)] = joined_ports(&pool);
    let (mut sent, mut batch) = (0, Batch::new());
    loop {
        assert!(pool.fill(&mut batch));
        let taken = a_tx.burst(&mut batch);
        sent += taken;
        if taken < BURST {
            break;
        }
    }
    assert_eq!(sent, 1023, "a ring of 1024 holds one less");
    assert_eq!(batch.len(), BURST - 1023 % BURST);
    let mut got = Batch::new();
    let mut received = 0;
    while b_rx.burst(&mut got) > 0 {
        received += got.len();
        got.clear();
    }
    assert_eq!(received, sent);
    drop(batch);
    assert_eq!(pool.available(), 4096);
}

/// Packets that were still in a device's rings are freed with it, or at least not with their pool.
#[test]
fn a_port_outlives_neither_its_queues_nor_its_pool() {
    let first = pool(512);
    for _ in 0..3 {
        let (port, queues) =
            Port::open(eal(), &port_config("net_null0"), std::slice::from_ref(&first)).unwrap();
        let again = Port::open(eal(), &port_config("net_null0"), std::slice::from_ref(&first));
        assert!(matches!(again, Err(DpdkError::InUse { .. })));
        drop(port);
        let (mut rx, _) = queues.into_iter().next().unwrap();
        let mut batch = Batch::new();
        assert!(rx.burst(&mut batch) > 0, "net_null always has packets");
    }
    assert_eq!(first.available(), 512);
}

#[test]
fn devices_that_cannot_be_opened_are_named() {
    let pool = pool(512);
    let open = |device: &str, pools: &[Mempool], mtu: u16| {
        let config = PortConfig { mtu, ..port_config(device) };
        Port::open(eal(), &config, pools).err().unwrap()
    };
    let one = std::slice::from_ref(&pool);
    for device in ["net_nonsense0", "net_af_packet0,iface=no-such-if", "0000:ff:1f.7", "net_null0,what=1", ""]
    {
        let error = open(device, one, 1500);
        assert!(matches!(error, DpdkError::Device { .. }), "{device}: {error}");
        assert!(error.to_string().contains(&format!("device {device}: ")), "{error}");
    }
    assert!(matches!(open("net_null\0", one, 1500), DpdkError::Text { .. }));
    // A failed attempt leaves nothing behind.
    let (port, _queues) = Port::open(eal(), &port_config("net_null0"), one).unwrap();
    assert_eq!(port.info().name, "net_null0");

    let pair = RingPair::new(eal(), 64).unwrap();
    let two = [pool.clone(), pool.clone()];
    let error = open(&pair.names[0], &two, 1500);
    assert!(matches!(error, DpdkError::Queues { queues: 2, max: 1, .. }), "{error}");
    assert!(error.to_string().ends_with("use at most 1 shards on it"), "{error}");
}

#[test]
fn several_queues_need_a_device_that_tells_ports_apart() {
    let pools = [pool(512), pool(512)];
    let (port, queues) = Port::open(eal(), &port_config("net_null1"), &pools).unwrap();
    // It never looks at a packet, but takes a hash key and a table as a NIC does.
    assert_eq!((port.info().steering, port.info().queues, queues.len()), (Steering::Rss, 2, 2));
    for (mut rx, mut tx) in queues {
        let mut batch = Batch::new();
        assert_eq!(rx.burst(&mut batch), BURST);
        assert_eq!(tx.burst(&mut batch), BURST);
    }
    assert!(pools.iter().all(|pool| pool.available() == 512));
    // Rings neither take rules nor hash, so several queues of theirs are refused, and one is not.
    let pair = RingPair::with_queues(eal(), 64, 2).unwrap();
    let error = Port::open(eal(), &port_config(&pair.names[0]), &pools).err().unwrap();
    assert!(matches!(error, DpdkError::NoSteering { queues: 2, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("neither by rules (rte_flow) nor by a hash") && text.contains("one shard"),
        "{text}"
    );
    let (port, _) = Port::open(eal(), &port_config(&pair.names[1]), &pools[..1]).unwrap();
    assert_eq!(port.info().steering, Steering::OneQueue);
}

#[test]
fn threads_use_pools_and_queues_in_turn() {
    let pool = pool(4096);
    let [(_a, _, mut a_tx), (_b, mut b_rx, _)] = joined_ports(&pool);
    const PACKETS: usize = 20_000;
    let sending = pool.clone();
    let sender = thread::spawn(move || {
        let (mut batch, mut sent) = (Batch::new(), 0);
        while sent < PACKETS {
            if batch.is_empty() && !sending.fill(&mut batch) {
                thread::yield_now();
            }
            sent += a_tx.burst(&mut batch);
        }
        sent
    });
    let receiver = thread::spawn(move || {
        let (mut batch, mut received) = (Batch::new(), 0);
        while received < PACKETS {
            if b_rx.burst(&mut batch) == 0 {
                thread::yield_now();
            }
            received += batch.len();
            batch.clear();
        }
        (received, b_rx)
    });
    let sent = sender.join().unwrap();
    let (mut received, mut b_rx) = receiver.join().unwrap();
    let mut batch = Batch::new();
    while b_rx.burst(&mut batch) > 0 {
        received += batch.len();
        batch.clear();
    }
    assert_eq!(received, sent);
    assert_eq!(pool.available(), 4096);
}

/// Of ten million packets, a third of which end with a shared payload, every one comes back.
#[test]
fn nothing_leaks_in_ten_million_packets() {
    let rounds = if under_valgrind() { 200 } else { 10_000_000 / BURST };
    let pool = pool(4096);
    let [(_a, _, mut a_tx), (_b, mut b_rx, _)] = joined_ports(&pool);
    let (mut out, mut back) = (Batch::new(), Batch::new());
    let mut received = 0;
    for round in 0..=rounds {
        if round % 3 == 0 {
            let mut payload = pool.take().unwrap();
            payload.append(1024).unwrap()[0] = round as u8;
            let mut payload = SharedMbuf::new(payload).unwrap();
            payload.add_references(BURST as u16 - 3);
            while !out.is_full() {
                let mut head = pool.take().unwrap();
                head.append(42).unwrap()[0] = round as u8;
                out.push(payload.append_to(head).unwrap()).unwrap();
            }
        } else {
            assert!(pool.fill(&mut out));
        }
        assert_eq!(a_tx.burst(&mut out), BURST);
        received += b_rx.burst(&mut back);
        let segments = back.packets()[0].segments();
        assert_eq!(segments, if round % 3 == 0 { 2 } else { 1 });
        back.clear();
    }
    assert_eq!(received, (rounds + 1) * BURST);
    assert_eq!(pool.available(), 4096, "packets leaked");
}

fn under_valgrind() -> bool {
    std::env::var_os("THC_UNDER_VALGRIND").is_some()
}

/// Runs every test of this file again, one at a time, and checks each access to memory, including DPDK's.
#[test]
fn clean_under_valgrind() {
    if under_valgrind() {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("not run: valgrind not found");
        return;
    }
    let run = Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        // DPDK's own errors at its start, which the file lists.
        .arg(concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/valgrind.supp"))
        .arg(std::env::current_exe().unwrap())
        .arg("--test-threads=1")
        .env("THC_UNDER_VALGRIND", "1")
        .output()
        .unwrap();
    let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{out}\n{errors}", run.status);
    assert!(out.contains("test result: ok. 15 passed"), "{out}");
}
