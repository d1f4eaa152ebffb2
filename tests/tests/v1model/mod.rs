//! The program for BMv2, run without BMv2: what p4c makes of it (`p4/build/thc.json`) by an interpreter, with the rows that the
//! controller writes, against the model and thc-ps, packet by packet.

mod faults;
mod loss;
mod racks;
mod trace;
mod workers;

use super::bmv2_trace::Readings;
use super::tna::{describe_difference, rows};
use std::path::Path;
use thc_controller::{SwitchRows, TargetConfig};
use thc_protocol::aggregator::{Endpoint, Outcome};
use thc_tests::traffic::frame::{Datagram, Mac};
use thc_tests::traffic::plant::{Frames, Plant};
use thc_v1model::Switch;

/// BMv2's ports of the passes, which are no port of a host.
const PASS_PORTS: [u16; 7] = [401, 402, 403, 404, 405, 406, 407];
const SEED: u64 = 4;

/// A switch and its controller.
pub struct Site {
    pub switch: Switch,
    target: TargetConfig,
    actual: SwitchRows,
}

impl Site {
    pub fn new(stations: &[(Mac, u16)]) -> Site {
        let info = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/thc.p4info.txtpb");
        let target = rows::target(info.to_str().unwrap(), &PASS_PORTS, stations);
        let info = p4runtime_proto::p4info::parse(&std::fs::read(&info).unwrap()).unwrap();
        Site { switch: Switch::new(info, SEED), target, actual: SwitchRows::default() }
    }

    /// The controller writes what has changed.
    pub fn configure(&mut self, plant: &Plant) {
        let wanted = rows::expected_rows(&self.target, plant);
        for update in wanted.changes(&self.actual, &self.target.schema).unwrap().into_updates() {
            self.switch.update(update).unwrap();
        }
        self.actual = wanted;
    }

    pub fn exchange(&mut self, port: u16, frame: &[u8]) -> Frames {
        self.switch.send(port, frame);
        self.switch.run();
        std::mem::take(&mut self.switch.out)
    }

    /// A packet to the aggregator, and to the model: what became of it there, or how the program differs.
    fn send_to_both(&mut self, plant: &mut Plant, port: u16, datagram: &Datagram) -> Result<Outcome, String> {
        let from = Endpoint { ingress: port, addr: datagram.from.1 };
        let frame = datagram.frame();
        let outcome = plant.handle(from, &datagram.payload, &frame);
        let expected = std::mem::take(&mut plant.out);
        let got = self.exchange(port, &frame);
        if got == expected { Ok(outcome) } else { Err(describe_difference(port, &frame, &expected, &got)) }
    }
}

impl Readings for Switch {
    fn registers(&self, names: &[String]) -> Vec<Vec<u64>> {
        names.iter().map(|name| self.register(name).to_vec()).collect()
    }

    fn counters(&self, cells: &[(&str, usize)]) -> Vec<(u64, u64)> {
        cells.iter().map(|&(name, index)| self.counter(name, index)).collect()
    }
}

/// What became of a packet.
fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Handled(event) => event.name(),
        Outcome::Dropped(reason) => reason.name(),
        Outcome::Passed => "passed",
    }
}
