//! How much of what a port sends to the controller gets there.

use super::{CASES, Site, trace};
use thc_protocol::Ecn;
use thc_protocol::wire::{HEADER_LEN, Kind, VERSION};
use thc_tests::p4::Order;
use thc_tests::traffic::frame::Datagram;
use thc_tests::traffic::plant::{CONTROL_PORT, OWN, OWN_MAC};

/// A rate, and the burst that follows from it.
const RATE: u32 = 1000;
const BURST: usize = 100;
/// The cell of `carrier` that counts what is too much.
const DROP_RATE: usize = 15;

#[test]
fn a_port_that_asks_too_often_leaves_others_their_answers() {
    for case in CASES {
        let plant = trace::plant(case);
        let stations = trace::stations(&plant);
        let mut site = Site::new(case, &case.program(), &stations, 5);
        site.target.ports.control_rate = RATE;
        site.configure(&plant);
        let member = *plant.jobs[0].members.values().next().unwrap();
        let mut payload = vec![0; HEADER_LEN];
        (payload[0], payload[1]) = (VERSION, Kind::Join as u8);
        let from = (member.mac, member.endpoint.addr);
        let join = Datagram { from, to: (OWN_MAC, OWN), ecn: Ecn::default(), payload }.frame();
        let loud = stations[0].1;
        let quiet = stations.iter().map(|(_, port)| *port).find(|port| *port != loud).unwrap();
        // How many get there, and how many have been too many until now.
        let mut send = |port: u16, count: usize| {
            (0..count).for_each(|_| site.chip.send(port, &join));
            site.chip.run(Order::First);
            let out = std::mem::take(&mut site.chip.out);
            assert!(out.keys().all(|port| *port == CONTROL_PORT), "{case:?}: {:?}", out.keys());
            (
                out.values().map(Vec::len).sum::<usize>(),
                site.chip.counter_value("Ingress.carrier", DROP_RATE).0,
            )
        };
        assert_eq!(send(loud, BURST), (BURST, 0), "{case:?}");
        assert_eq!(send(loud, 50), (0, 50), "{case:?}");
        assert_eq!(send(quiet, 50), (50, 50), "{case:?}");
    }
}
