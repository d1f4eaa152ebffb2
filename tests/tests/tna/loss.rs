//! Packets that are lost between passes, while many are under way and meet each other in any order.

use super::{CASES, Site, trace, trim};
use fastrand::Rng;
use thc_tests::p4::Order;
use thc_tests::traffic::loss;

#[test]
fn a_packet_lost_between_passes_makes_no_wrong_sum() {
    for case in CASES {
        // Bytes of sums that one pass adds.
        let chunk = if case.name == "tofino" { 64 } else { 128 };
        let plant = loss::plant();
        let mut site = Site::new(case, &case.program(), &trace::stations(&plant), 4);
        site.configure(&plant);
        for (seed, order, loses) in
            [(4, Order::Random, None), (5, Order::First, Some(16)), (6, Order::Random, Some(16))]
        {
            site.chip.loses = loses;
            let passes = site.chip.passes;
            // Cells of another epoch are empty.
            let mut plant = loss::plant();
            plant.jobs.iter_mut().for_each(|job| job.epoch += seed);
            site.configure(&plant);
            let (sent, results) = loss::rounds(&mut Rng::with_seed(seed.into()), &plant, chunk, |packets| {
                packets.iter().for_each(|(port, frame, _)| site.chip.send(*port, frame));
                site.chip.run(order);
                let mut out = std::mem::take(&mut site.chip.out);
                out.values_mut().flatten().for_each(trim);
                out
            });
            println!("{case:?}: {sent} packets, {} passes, {results} results", site.chip.passes - passes);
            assert_eq!(loses.is_none(), sent == 12 * 4 * (4 + 3), "what is lost is sent again");
        }
    }
}
