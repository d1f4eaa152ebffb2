//! Worker processes and a parameter server process on hosts of their own, over kernel UDP.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use thc_tests::{Network, Ps, WorkerProcess, write_gradient};

const WORKERS: u8 = 3;

#[test]
fn hosts_of_a_network_of_its_own_get_what_the_loopback_gets() {
    let network = match Network::star(WORKERS + 1) {
        Ok(network) => network,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    network.hosts().iter().for_each(|host| host.assign().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let input = |worker: u8| dir.path().join(format!("{worker}.f32"));
    (0..WORKERS).for_each(|worker| write_gradient(&input(worker), 300_000, u64::from(worker)));
    let run = |ps: &Ps, hosts: bool| {
        let workers: Vec<WorkerProcess> = (0..WORKERS)
            .map(|worker| {
                let host = hosts.then(|| network.host(usize::from(worker) + 1));
                let input = input(worker);
                let output = input.with_extension("out");
                let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
                WorkerProcess::start_on(host, ps.addr, worker, &["--input", input, "--output", output])
            })
            .collect();
        for end in workers.into_iter().map(WorkerProcess::finish) {
            assert_eq!(end.code, Some(0), "{end:?}");
        }
        std::fs::read(input(0).with_extension("out")).unwrap()
    };
    let loopback = run(&Ps::start(WORKERS, &[]), false);
    let host = network.host(0);
    let ps = Ps::start_on(Some(host), SocketAddr::from((host.address, 9000)), WORKERS, &[]);
    assert!(run(&ps, true) == loopback);
}
