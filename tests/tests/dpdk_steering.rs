//! A server with several queues on devices that sort packets by UDP port. By rules (rte_flow): net_tap, whose rules are the
//! kernel's, in a guest whose kernel has what they take. By a hash (RSS): an emulated card on the PCI bus of a machine.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thc_tests::guest::{Guest, word};
use thc_tests::machine::{CARD, Image};
use thc_tests::{COOKIE, Finished, Network, Ps, WorkerProcess, binary, write_gradients};

const WORKERS: u8 = 4;
/// 1.2 MB, all packets full but one.
const COORDINATES: usize = 300_000;

/// Whether the programs have DPDK.
fn built_in() -> Result<(), String> {
    let has = cfg!(feature = "dpdk").then_some(());
    has.ok_or_else(|| "built without the feature dpdk (libdpdk-dev not found?)".to_owned())
}

/// Says why a test cannot run.
fn or_say<T>(found: Result<T, String>) -> Option<T> {
    found.map_err(|reason| println!("not run: {reason}")).ok()
}

/// The line of a script that starts a server with so many shards, `$server`, which logs to `out`/log.
fn server(shards: u8, out: &Path) -> String {
    format!(
        "{ps} --io dpdk --dpdk-hugepages=false --dpdk-address=10.78.0.1/24 --dpdk-device=net_tap0,iface=thc0 \
             --listen 10.78.0.1:9000 --job 1 --cookie {COOKIE} --workers {WORKERS} --granularity 30 --fraction 1/32 \
             --shards {shards} --json 2>{log} >{stats} &\n\
         server=$!\n",
        ps = word(&binary("thc-ps")),
        log = word(&out.join("log")),
        stats = word(&out.join("stats")),
    )
}

/// One worker per input, to the end.
fn all_reduce(
    inputs: &[PathBuf],
    start: impl Fn(u8, &[&str]) -> WorkerProcess,
) -> (Vec<Vec<u8>>, Vec<Finished>) {
    let output = |input: &PathBuf| input.with_extension("out");
    let workers: Vec<WorkerProcess> = (0u8..)
        .zip(inputs)
        .map(|(number, input)| {
            let output = output(input);
            let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
            start(number, &[&files[..], &["--json"]].concat())
        })
        .collect();
    let ends: Vec<Finished> = workers.into_iter().map(WorkerProcess::finish).collect();
    ends.iter().for_each(|end| assert_eq!(end.code, Some(0), "{end:?}"));
    let outputs = inputs.iter().map(|input| {
        let bytes = std::fs::read(output(input)).unwrap();
        std::fs::remove_file(output(input)).unwrap();
        bytes
    });
    (outputs.collect(), ends)
}

/// The mean that kernel UDP brings.
fn reference(inputs: &[PathBuf]) -> Vec<u8> {
    let ps = Ps::start(WORKERS, &[]);
    let (mut outputs, _) = all_reduce(inputs, |number, more| WorkerProcess::start(ps.addr, number, more));
    outputs.swap_remove(0)
}

/// Packets that each rule has steered, by the queue it leads to: what `tc` counts.
fn steered_packets(said: &str, shards: u8) -> Vec<u64> {
    let mut packets = vec![0; usize::from(shards)];
    let mut queue = None;
    for line in said.lines().map(str::trim) {
        let mut words = line.split(' ');
        if let Some(rest) = line.split("queue_mapping ").nth(1) {
            queue = rest.split(' ').next().unwrap().parse::<usize>().ok();
        } else if words.next() == Some("Sent")
            && let Some(queue) = queue.take()
        {
            packets[queue] += words.nth(2).unwrap().parse::<u64>().unwrap();
        }
    }
    packets
}

#[test]
fn rules_lead_every_shards_packets_to_its_queue() {
    let Some(guest) = or_say(built_in().and_then(|()| Guest::find())) else { return };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    let expected = reference(&inputs);

    // Without traffic control, net_tap cannot steer, and that is said.
    let refused = folder.path().join("refused");
    std::fs::create_dir(&refused).unwrap();
    let mut script = String::from("module drivers/net/tun\n");
    script += &server(2, &refused);
    script += "if wait $server; then exit 9; fi\n";
    for module in ["sch_multiq", "sch_ingress", "cls_flower", "act_skbedit"] {
        writeln!(script, "module net/sched/{module}").unwrap();
    }
    let cases = [2u8, 4];
    for shards in cases {
        let out = folder.path().join(shards.to_string());
        std::fs::create_dir(&out).unwrap();
        script += &server(shards, &out);
        let stats = word(&out.join("stats"));
        writeln!(script, "until grep ^ready {stats}; do kill -0 $server; sleep 0.2; done").unwrap();
        script += "ip addr add 10.78.0.2/24 dev thc0\nworkers=\n";
        for (number, input) in inputs.iter().enumerate() {
            let (worker, input) = (word(&binary("thc-worker")), word(input));
            let output = word(&out.join(number.to_string()));
            writeln!(
                script,
                "{worker} --ps 10.78.0.1:9000 --worker {number} --cookie {COOKIE} --input {input} --output {output} & \
                 workers=\"$workers $!\""
            )
            .unwrap();
        }
        script += "for worker in $workers; do wait $worker; done\n";
        writeln!(script, "tc -s filter show dev thc0 parent 1: >{}", word(&out.join("filters"))).unwrap();
        script += "kill -INT $server; wait $server\n";
    }
    println!("{}", guest.run(&script));

    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let said = read(&refused.join("log"));
    assert!(said.contains("net_tap0 can send packets to 2 queues neither by rules (rte_flow) nor"), "{said}");
    for shards in cases {
        let out = folder.path().join(shards.to_string());
        for worker in 0..WORKERS {
            let same = std::fs::read(out.join(worker.to_string())).unwrap() == expected;
            assert!(same, "{shards} shards: worker {worker} has another mean than over kernel UDP");
        }
        let log = read(&out.join("log"));
        let by_rules =
            format!("net_tap0 has {shards} queues, which packets find by rules for the UDP port (rte_flow)");
        assert!(log.contains(&by_rules), "{log}");
        let stats = read(&out.join("stats"));
        let stats: Value = serde_json::from_str(stats.lines().last().unwrap()).unwrap();
        let number = |pointer: &str| stats.pointer(pointer).and_then(Value::as_u64).unwrap();
        let filters = read(&out.join("filters"));
        let steered = steered_packets(&filters, shards);
        let (all, received) = (steered.iter().sum::<u64>(), number("/network/packets_in"));
        println!("{shards} shards: {steered:?} packets steered, {received} received");
        // Slots are dealt out evenly, but for the last ones.
        let least = received / u64::from(shards) / 2;
        assert!(least > 100 && steered.iter().all(|&packets| packets > least), "{filters}");
        // A shard drops what is another's; a full ring may have lost some.
        assert!(received <= all && received > all / 10 * 9, "{received} received of {all} steered");
    }
}

/// A machine's files: the server, and the drivers of a virtio card.
fn image() -> Result<Image, String> {
    built_in()?;
    let mut image = Image::new()?;
    image.program(&binary("thc-ps"))?;
    let drivers =
        ["net_virtio", "bus_pci", "bus_vdev", "mempool_ring"].map(|name| format!("librte_{name}.so."));
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let libraries = entries("/usr/lib".as_ref()).flat_map(|entry| entries(&entry.path().join("dpdk")));
    let mut found = 0;
    for entry in libraries.flat_map(|entry| entries(&entry.path())) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && drivers.iter().any(|driver| name.starts_with(driver)) {
            image.library(&entry.path())?;
            found += 1;
        }
    }
    if found < drivers.len() {
        return Err("drivers of DPDK not found below /usr/lib".to_owned());
    }
    image.module("drivers/uio/uio")?;
    image.module("drivers/uio/uio_pci_generic")?;
    Ok(image)
}

#[test]
fn a_hash_leads_every_shards_packets_to_its_queue() {
    let Some(image) = or_say(image()) else { return };
    let Some(network) = or_say(Network::star(1)) else { return };
    let host = network.host(0);
    host.ip("tuntap add dev card mode tap multi_queue").unwrap();
    host.ip("addr add 10.78.0.2/24 dev card").unwrap();
    host.ip("link set card up").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    let expected = reference(&inputs);
    // All that may be under way fits one ring: this card stops for good when its hash leads to a ring that is full.
    let script = format!(
        "echo 160 >/proc/sys/vm/nr_hugepages\n\
         insmod /uio.ko; insmod /uio_pci_generic.ko\n\
         echo 1af4 1041 >/sys/bus/pci/drivers/uio_pci_generic/new_id\n\
         for shards in 2 4; do\n\
         thc-ps --io dpdk --dpdk-address=10.78.0.1/24 --dpdk-device={CARD} --listen 10.78.0.1:9000 \
             --job 1 --cookie {COOKIE} --workers {WORKERS} --granularity 30 --fraction 1/32 --data-slots 256 \
             --shards $shards 2>&1 &\n\
         read line; kill -INT $!; wait $!; echo end $?\n\
         done"
    );
    let mut machine = image.boot(&script, host, "card", 4);
    for shards in [2, 4] {
        let said = machine.await_line("ready");
        let by_hash =
            format!("{CARD} has {shards} queues, which packets find by a hash of the UDP port (RSS)");
        assert!(said.contains(&by_hash), "{said}");
        let server = "10.78.0.1:9000".parse().unwrap();
        let (outputs, ends) =
            all_reduce(&inputs, |number, more| WorkerProcess::start_on(Some(host), server, number, more));
        let same = outputs.iter().all(|output| *output == expected);
        assert!(same, "{shards} shards: another mean than over kernel UDP");
        machine.enter();
        let said = machine.await_line("end");
        assert!(said.ends_with("end 0\n"), "{said}");
        // A shard drops what is another's, so what was received came to the right queue.
        let received: u64 =
            said.split("network: in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let sent: u64 = ends.iter().map(|end| end.json()["stats"]["packets_up"].as_u64().unwrap()).sum();
        println!("{shards} shards: {sent} packets sent, {received} received, JOINs included");
        assert!(sent > 1000 && received > sent / 10 * 9, "{said}");
    }
}
