//! As many workers as an aggregator can have: the bits of all of them.

use super::{Site, TOFINO, TOFINO2, compare, trace};
use fastrand::Rng;
use thc_protocol::aggregator::Outcome;
use thc_protocol::wire::{FLAG_NUDGE, Header, Kind, MAX_PACKET, Norm};
use thc_protocol::{Round, SlotId, TableId, WorkerId};
use thc_tests::traffic::frame::Datagram;
use thc_tests::traffic::plant::{OWN, OWN_MAC, Plant};
use thc_tests::traffic::{config, ecn, jobs, member};

#[test]
fn sixty_four_workers_complete_a_slot() {
    for case in [TOFINO, TOFINO2] {
        let mut random = Rng::with_seed(4);
        let mut plant = Plant::new(&[]);
        plant.jobs = jobs();
        plant.jobs.truncate(1);
        let job = &mut plant.jobs[0];
        // RAW and NORM, which need no table.
        job.config = config(1, 64, 64, (2, 2), &[8]);
        job.members =
            (0..64).map(|worker| (worker, member(1, worker, 1 + u16::from(worker) % 5, false))).collect();
        plant.tables = thc_tests::traffic::tables();
        plant.tables.retain(|&id, _| id == 8);
        plant.configure_model();
        let mut site = Site::new(case, &case.program(), &trace::stations(&plant), 4);
        site.configure(&plant);
        let mut order: Vec<u8> = (0..64).chain(20..44).collect();
        for (kind, round) in [(Kind::Raw, 0), (Kind::Norm, 0), (Kind::Raw, 1), (Kind::Norm, 1)] {
            random.shuffle(&mut order);
            for &worker in &order {
                let config = &plant.jobs[0].config;
                let header = Header {
                    kind,
                    flags: if random.u8(..3) == 0 { FLAG_NUDGE } else { 0 },
                    num_workers: 64,
                    job: config.job,
                    worker: WorkerId(worker),
                    table: TableId(0),
                    cookie: config.cookie,
                    round: Round(round),
                    slot: SlotId(0),
                    count: 0,
                };
                let payload: Vec<u8> = match kind {
                    Kind::Raw => (0..1024).map(|_| random.u8(..)).collect(),
                    _ => {
                        let value = random.f32().to_bits();
                        let norm =
                            Norm { tag: 0, value, length: 5, call: 1, table: TableId(3), mode: 0, key: 7 };
                        norm.with_tag(1).to_bytes().to_vec()
                    }
                };
                let mut packet = [0; MAX_PACKET];
                let payload = header.emit_packet(&mut packet, &payload).to_vec();
                let member = plant.jobs[0].members[&worker];
                let datagram = Datagram {
                    from: (member.mac, member.endpoint.addr),
                    to: (OWN_MAC, OWN),
                    ecn: ecn(&mut random),
                    payload,
                };
                let outcome = site.send_to_both(&mut plant, member.port, &datagram);
                let outcome =
                    outcome.unwrap_or_else(|what| panic!("{case:?}, {kind:?}, worker {worker}: {what}"));
                assert!(matches!(outcome, Outcome::Handled(_)));
            }
        }
        compare::registers(&plant, &site, case).unwrap_or_else(|what| panic!("{what}"));
        compare::counters(&plant, &site, 0).unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(plant.model.job_counters(plant.jobs[0].config.job).unwrap().results, 4);
    }
}
