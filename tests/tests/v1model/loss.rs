//! Packets that are lost between passes, while many are under way and meet each other in any order.

use super::Site;
use crate::bmv2_trace::WORDS;
use crate::tna::trace::stations;
use fastrand::Rng;
use thc_tests::traffic::loss;

#[test]
fn a_packet_lost_between_passes_makes_no_wrong_sum() {
    let mut site = Site::new(&stations(&loss::plant()));
    for (seed, shuffles, loses) in [(4, true, None), (5, false, Some(16)), (6, true, Some(16))] {
        (site.switch.shuffles, site.switch.loses) = (shuffles, loses);
        let passes = site.switch.passes;
        // Cells of another epoch are empty.
        let mut plant = loss::plant();
        plant.jobs.iter_mut().for_each(|job| job.epoch += seed);
        site.configure(&plant);
        let (sent, results) = loss::rounds(&mut Rng::with_seed(seed.into()), &plant, 4 * WORDS, |packets| {
            packets.iter().for_each(|(port, frame, _)| site.switch.send(*port, frame));
            site.switch.run();
            std::mem::take(&mut site.switch.out)
        });
        println!("{sent} packets, {} passes, {results} results", site.switch.passes - passes);
        assert_eq!(loses.is_none(), sent == 12 * 4 * (4 + 3), "what is lost is sent again");
    }
}
