//! A server with several queues on a device that sorts by UDP port (rte_flow): net_tap, whose rules are the kernel's, with
//! workers on the kernel's side of the same interface. The kernel is a guest that has what the rules take.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use thc_tests::guest::{Guest, word};
use thc_tests::{COOKIE, Ps, Worker, binary, write_gradients};

const WORKERS: u8 = 4;
/// 1.2 MB, all packets full but one.
const COORDINATES: usize = 300_000;

/// The line of a script that starts a server with so many shards, `$server`, which logs to `out`/log.
fn server(shards: u8, out: &Path) -> String {
    format!(
        "{ps} --io dpdk --dpdk-hugepages=false --dpdk-address=10.78.0.1/24 --dpdk-device=net_tap0,iface=thc0 \
             --listen 10.78.0.1:9000 --job 1 --cookie {COOKIE} --workers {WORKERS} --granularity 30 --fraction 1/32 \
             --shards {shards} --stats-json {stats} >{log} 2>&1 &\n\
         server=$!\n",
        ps = word(&binary("thc-ps")),
        log = word(&out.join("log")),
        stats = word(&out.join("stats")),
    )
}

/// Packets that each rule has steered, by the queue it leads to: what `tc` counts.
fn steered(said: &str, shards: u8) -> Vec<u64> {
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
    if !cfg!(feature = "dpdk") {
        println!("not run: built without the feature dpdk (libdpdk-dev not found?)");
        return;
    }
    let guest = match Guest::find() {
        Ok(guest) => guest,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_gradients(folder.path(), WORKERS, COORDINATES);
    // The mean that kernel UDP brings.
    let ps = Ps::start(WORKERS, &[]);
    let expected = folder.path().join("expected");
    let workers: Vec<Worker> = (0u8..)
        .zip(&inputs)
        .map(|(number, input)| {
            let output = if number == 0 { expected.clone() } else { input.with_extension("out") };
            let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
            Worker::start(ps.addr, number, &files)
        })
        .collect();
    workers.into_iter().map(Worker::finish).for_each(|end| assert_eq!(end.code, Some(0), "{end:?}"));
    drop(ps);
    let expected = std::fs::read(expected).unwrap();

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
        let log = word(&out.join("log"));
        writeln!(script, "until grep ^ready {log}; do kill -0 $server; sleep 0.2; done").unwrap();
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
        let stats: Value = serde_json::from_str(&read(&out.join("stats"))).unwrap();
        let number = |pointer: &str| stats.pointer(pointer).and_then(Value::as_u64).unwrap();
        let filters = read(&out.join("filters"));
        let steered = steered(&filters, shards);
        let (all, received) = (steered.iter().sum::<u64>(), number("/network/packets_in"));
        println!("{shards} shards: {steered:?} packets steered, {received} received");
        // Slots are dealt out evenly, but for the last ones.
        let least = received / u64::from(shards) / 2;
        assert!(least > 100 && steered.iter().all(|&packets| packets > least), "{filters}");
        // A shard drops what is another's; a full ring may have lost some.
        assert!(received <= all && received > all / 10 * 9, "{received} received of {all} steered");
    }
}
