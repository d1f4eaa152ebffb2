//! The programs for Tofino, run without a chip: what p4c's front end makes of them (`p4/build/tofino/*.p4`) by an interpreter, with
//! the rows that the controller writes, against the model and thc-ps, packet by packet.
#![allow(clippy::unwrap_used)]

mod compare;
mod control_rate;
mod faults;
mod loss;
mod many;
mod mutants;
mod queues;
mod racks;
pub mod rows;
mod strays;
pub mod trace;

use std::path::{Path, PathBuf};
use thc_controller::{SwitchRows, TargetConfig};
use thc_protocol::aggregator::{Endpoint, Outcome};
use thc_tests::p4::{Chip, Order};
use thc_tests::traffic::frame::{CARRIER, Datagram, Mac, bytes_of};
use thc_tests::traffic::plant::{Frames, OWN, Plant};

/// A chip, and over which ports its passes go.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// Bytes in front of a packet, which the chip's ports put there.
    port_metadata: usize,
    pass_ports: &'static [u16],
}

/// All passes in one pipe, over one port; spread over four pipes.
const TOFINO: Case = Case { name: "tofino", port_metadata: 8, pass_ports: &[68] };
const TOFINO_SPREAD: Case = Case { name: "tofino", port_metadata: 8, pass_ports: &[68, 196, 324, 452] };
const TOFINO2: Case = Case { name: "tofino2", port_metadata: 24, pass_ports: &[68] };
const TOFINO2_SPREAD: Case =
    Case { name: "tofino2", port_metadata: 24, pass_ports: &[68, 196, 324, 452, 69] };
const CASES: [Case; 4] = [TOFINO, TOFINO_SPREAD, TOFINO2, TOFINO2_SPREAD];

impl Case {
    fn file(&self, suffix: &str) -> PathBuf {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/tofino");
        build.join(format!("{}.{suffix}", self.name))
    }

    /// As p4c's front end left it.
    fn program(&self) -> String {
        std::fs::read_to_string(self.file("p4")).unwrap()
    }
}

/// A chip and its controller.
struct Site {
    chip: Chip,
    target: TargetConfig,
    actual: SwitchRows,
}

impl Site {
    fn new(case: Case, program: &str, stations: &[(Mac, u16)], seed: u64) -> Site {
        let info = case.file("p4info.txtpb");
        let target = rows::target(info.to_str().unwrap(), case.pass_ports, stations);
        let info = p4runtime_proto::p4info::parse(&std::fs::read(&info).unwrap()).unwrap();
        let mut chip = Chip::new(program, info, case.port_metadata, case.pass_ports, seed);
        // The words of a pass are written before there is a header for them: containers of a chip are there all the time.
        chip.keeping = &["hdr.first", "hdr.more"];
        Site { chip, target, actual: SwitchRows::default() }
    }

    /// The controller writes what has changed.
    fn configure(&mut self, plant: &Plant) {
        let wanted = rows::expected_rows(&self.target, plant);
        self.chip.write(wanted.changes(&self.actual, &self.target.schema).unwrap().into_updates());
        self.actual = wanted;
    }

    /// What a frame brings about, up to the ends that IP says.
    fn exchange(&mut self, port: u16, frame: &[u8]) -> Frames {
        self.chip.send(port, frame);
        self.chip.run(Order::First);
        let mut out = std::mem::take(&mut self.chip.out);
        out.values_mut().flatten().for_each(trim);
        out
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

/// Cuts off what lies behind the end of the aggregator's datagrams: indices that no pass has taken, and what a host had put
/// behind its own.
fn trim(frame: &mut Vec<u8>) {
    if frame.len() > CARRIER && frame[12..14] == [8, 0] && frame[26..30] == bytes_of(OWN) {
        frame.truncate(14 + usize::from(u16::from_be_bytes([frame[16], frame[17]])));
    }
}

/// What goes in, and what should and what does come out: the beginnings.
pub fn describe_difference(port: u16, frame: &[u8], expected: &Frames, got: &Frames) -> String {
    let shown = |frame: &[u8]| {
        let hex: String =
            frame[..frame.len().min(CARRIER + 60)].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} bytes: {hex}\n", frame.len())
    };
    let all = |frames: &Frames| -> String {
        let of_port = |(port, frames): (&u16, &Vec<Vec<u8>>)| -> String {
            frames.iter().map(|frame| format!("  port {port}, {}", shown(frame))).collect()
        };
        frames.iter().map(of_port).collect()
    };
    format!("in at port {port}, {}model\n{}program\n{}", shown(frame), all(expected), all(got))
}
