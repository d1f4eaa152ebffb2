//! P46: what a slot keeps of congestion, and how answers leave.

use super::setup::{COOKIE, JOB, Setup, TABLE, USUAL, bytes, config, endpoint, norm};
use thc_protocol::aggregator::{
    Aggregator, Endpoint, Event, JobConfig, Level, Outcome, Racks, Scalar, Shard, Sink,
};
use thc_protocol::wire::{FLAG_MARK, FLAG_NUDGE, FLAG_ROOT, Header, Kind};
use thc_protocol::{Ecn, JobId, WorkerId};

/// Kind, flags and bits of each packet sent; to all is one.
#[derive(Default)]
struct Leaving(Vec<(Kind, u8, Ecn)>, Vec<u8>);

impl Sink for Leaving {
    fn unicast(&mut self, _: Endpoint, ecn: Ecn, packet: &[u8]) {
        let header = Header::parse(packet).unwrap().0;
        self.0.push((header.kind, header.flags, ecn));
        self.1 = packet.to_vec();
    }

    fn multicast(&mut self, _: JobId, _: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        self.unicast(endpoint(0), ecn, packet);
    }
}

fn hand(
    aggregator: &mut Aggregator<Scalar>,
    from: Endpoint,
    ecn: Ecn,
    packet: &[u8],
) -> (Outcome, Vec<(Kind, u8, Ecn)>) {
    let mut leaving = Leaving::default();
    let outcome = aggregator.handle_with(from, ecn, packet, &mut leaving);
    (outcome, leaving.0)
}

impl Setup {
    /// Hands in DATA with these flags and bits; what leaves.
    fn hand_in_marked(&mut self, (worker, round): (u8, u32), flags: u8, ecn: Ecn) -> Vec<(Kind, u8, Ecn)> {
        let header = Header { flags, ..self.header(Kind::Data, worker, round, 3) };
        hand(&mut self.aggregator, endpoint(worker), ecn, &bytes(header, &[0x21; 512])).1
    }
}

const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];

#[test]
fn a_mark_of_any_packet_of_the_sum_is_in_the_result() {
    for first in ALL {
        for last in ALL {
            let mut setup = Setup::new(2);
            assert_eq!(setup.hand_in_marked((0, 0), 0, first), []);
            assert_eq!(setup.slot(Kind::Data, 3).mark, first == Ecn::Ce);
            let mark = if first == Ecn::Ce || last == Ecn::Ce { FLAG_MARK } else { 0 };
            let leaves = if last == Ecn::NotEct { Ecn::NotEct } else { Ecn::Ect0 };
            assert_eq!(setup.hand_in_marked((1, 0), 0, last), [(Kind::Result, mark, leaves)]);
            // Whoever asks again gets the same, whatever its packet met; it leaves as that came.
            for again in ALL {
                let leaves = if again == Ecn::NotEct { Ecn::NotEct } else { Ecn::Ect0 };
                assert_eq!(setup.hand_in_marked((0, 0), FLAG_NUDGE, again), [(Kind::Result, mark, leaves)]);
                assert_eq!(setup.slot(Kind::Data, 3).mark, mark != 0);
            }
            // The next round begins without.
            assert_eq!(setup.hand_in_marked((0, 1), 0, Ecn::Ect0), []);
            assert!(!setup.slot(Kind::Data, 3).mark);
            assert_eq!(setup.hand_in_marked((1, 1), 0, Ecn::Ect0), [(Kind::Result, 0, Ecn::Ect0)]);
        }
    }
}

#[test]
fn what_adds_nothing_marks_nothing() {
    let mut setup = Setup::new(3);
    setup.hand_in_marked((0, 1), 0, Ecn::Ect0);
    // Repeated, with NUDGE, of an older round, from a stranger, of no length: nothing that is answered is a result.
    assert_eq!(setup.hand_in_marked((0, 1), 0, Ecn::Ce), []);
    let nudge = [(Kind::Nudge, 0, Ecn::NotEct)];
    assert_eq!(setup.hand_in_marked((0, 1), FLAG_NUDGE | FLAG_MARK, Ecn::Ce), nudge);
    assert_eq!(setup.hand_in_marked((1, 0), 0, Ecn::Ce), [(Kind::Straggler, 0, Ecn::NotEct)]);
    let packet = bytes(setup.header(Kind::Data, 1, 1, 3), &[0x21; 512]);
    for (from, packet) in [(endpoint(2), &packet[..]), (endpoint(1), &packet[..100])] {
        assert!(matches!(hand(&mut setup.aggregator, from, Ecn::Ce, packet).0, Outcome::Dropped(_)));
    }
    assert!(!setup.slot(Kind::Data, 3).mark);
    setup.hand_in_marked((1, 1), 0, Ecn::Ect1);
    assert_eq!(setup.hand_in_marked((2, 1), 0, Ecn::Ect0), [(Kind::Result, 0, Ecn::Ect0)]);
}

#[test]
fn norms_have_no_marks() {
    let mut setup = Setup::new(2);
    for worker in 0..2 {
        let packet = bytes(setup.header(Kind::Norm, worker, 0, 1), &norm(1.0).to_bytes());
        let sent = hand(&mut setup.aggregator, endpoint(worker), Ecn::Ce, &packet).1;
        if worker == 1 {
            assert_eq!(sent, [(Kind::NormResult, 0, Ecn::NotEct)]);
        }
    }
    assert!(!setup.slot(Kind::Norm, 1).mark);
}

#[test]
fn raw_has_marks() {
    let mut setup = Setup::new(1);
    let packet = bytes(setup.header(Kind::Raw, 0, 0, 1), &[0; 1024]);
    let sent = hand(&mut setup.aggregator, endpoint(0), Ecn::Ce, &packet).1;
    assert_eq!(sent, [(Kind::RawResult, FLAG_MARK, Ecn::Ect0)]);
}

/// A late packet changes nothing of what a quorum has made.
#[test]
fn a_late_packet_does_not_mark() {
    let mut setup = Setup::with_config(JobConfig { quorum: 1, skip: true, ..config(2) });
    assert_eq!(setup.hand_in_marked((0, 0), 0, Ecn::Ect0), [(Kind::Result, 0, Ecn::Ect0)]);
    assert_eq!(setup.hand_in_marked((1, 0), 0, Ecn::Ce), [(Kind::Result, 0, Ecn::Ect0)]);
    assert!(!setup.slot(Kind::Data, 3).mark);
}

/// A rack's mark goes up with its sum, the root takes it, and what comes down passes through as it is.
#[test]
fn marks_go_up_and_down_through_racks() {
    let racks = Racks { count: 2, largest: 2, total: 4 };
    let root_at = endpoint(40);
    let rack_at = |rack| endpoint(20 + rack);
    let with = |level, workers| {
        let mut aggregator = Aggregator::<Scalar>::new(Shard::WHOLE, 1 << 24);
        aggregator.install_table(TABLE, USUAL).unwrap();
        aggregator.install_job(JobConfig { level, ..config(workers) }).unwrap();
        aggregator
    };
    let mut root = with(Level::Root(racks), 2);
    for rack in 0..2 {
        root.set_member(JOB, WorkerId(rack), rack_at(rack)).unwrap();
    }
    let mut up = Vec::new();
    for (number, ecns) in [[Ecn::Ce, Ecn::Ect0], [Ecn::Ect0, Ecn::Ect0]].into_iter().enumerate() {
        let level = Level::Rack { racks, rack: WorkerId(number as u8), root: root_at, ports: 1 };
        let mut rack = with(level, 2);
        for worker in 0..2 {
            rack.set_member(JOB, WorkerId(worker), endpoint(worker)).unwrap();
        }
        let setup = Setup { aggregator: rack, workers: 2 };
        let mut rack = setup;
        let mark = if number == 0 { FLAG_MARK } else { 0 };
        assert_eq!(rack.hand_in_marked((0, 0), 0, ecns[0]), []);
        assert_eq!(rack.hand_in_marked((1, 0), 0, ecns[1]), [(Kind::Data, mark, Ecn::Ect0)]);
        let header = Header { flags: FLAG_NUDGE, ..rack.header(Kind::Data, 0, 0, 3) };
        let mut leaving = Leaving::default();
        let packet = bytes(header, &[0x21; 512]);
        rack.aggregator.handle_with(endpoint(0), Ecn::NotEct, &packet, &mut leaving);
        assert_eq!(leaving.0, [(Kind::Data, FLAG_NUDGE | mark, Ecn::NotEct)]);
        // What was added before went up with NUDGE aside.
        up.push((rack, leaving.1));
    }
    let (_, first) = &up[0];
    assert_eq!(hand(&mut root, rack_at(0), Ecn::Ect0, first).1, [(Kind::Nudge, 0, Ecn::NotEct)]);
    let mut leaving = Leaving::default();
    let outcome = root.handle_with(rack_at(1), Ecn::Ect0, &up[1].1, &mut leaving);
    assert_eq!(outcome, Outcome::Handled(Event::Added));
    assert_eq!(leaving.0, [(Kind::Result, FLAG_MARK, Ecn::Ect0)]);
    let mut down = leaving.1;
    assert_eq!(Header::parse(&down).unwrap().0.cookie, COOKIE);
    for (flags, passed) in [(FLAG_MARK, FLAG_MARK | FLAG_ROOT), (0, FLAG_ROOT)] {
        Header::set_flags(&mut down, flags);
        for ecn in ALL {
            let sent = hand(&mut up[0].0.aggregator, root_at, ecn, &down);
            assert_eq!(sent, (Outcome::Passed, vec![(Kind::Result, passed, ecn)]));
        }
    }
}
