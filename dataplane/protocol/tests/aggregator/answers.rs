//! P15–P17: STRAGGLER, NUDGE, and that there is never more than one answer.

use super::setup::{JOB, Sent, Setup, To, config, endpoint, expect_handled, norm};
use thc_protocol::Round;
use thc_protocol::aggregator::{Event, JobConfig, Outcome};
use thc_protocol::wire::{FLAG_NUDGE, Header, Kind, Nudge, Straggler};

fn single(sent: Vec<Sent>) -> Sent {
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.into_iter().next().unwrap()
}

#[test]
fn an_older_round_gets_a_straggler_alone() {
    let mut setup = Setup::new(3);
    setup.data(0, 10, 4, 1);
    for (kind, length) in [(Kind::Data, 512), (Kind::Raw, 1024)] {
        for flags in [0, FLAG_NUDGE] {
            let header = Header { flags, ..setup.header(kind, 1, 9, 4) };
            let (event, sent) = expect_handled(setup.packet(header, &vec![0; length]));
            assert_eq!(event, Event::Stale);
            let answer = single(sent);
            assert_eq!(answer.to, To::One(endpoint(1)));
            assert_eq!(answer.header(), Header { kind: Kind::Straggler, flags: 0, ..header });
            assert_eq!(Straggler::parse(answer.payload()), Some(Straggler { kind, current: Round(10) }));
        }
    }
    let slot = setup.slot(Kind::Data, 4);
    assert_eq!((slot.round, slot.seen), (Round(10), 1));
    setup.norm(0, 3, 1, norm(1.0));
    let (_, sent) = setup.norm(2, 2, 1, norm(1.0));
    let expected = Straggler { kind: Kind::Norm, current: Round(3) };
    assert_eq!(Straggler::parse(single(sent).payload()), Some(expected));
    assert_eq!(setup.events(1), [(Event::Stale, 4)]);
}

#[test]
fn a_nudge_is_passed_on_with_those_in_the_slot() {
    let mut setup = Setup::new(4);
    // The packet itself still counts.
    let (event, sent) = setup.nudging_data(2, 0, 0, 1);
    assert_eq!(event, Event::Opened);
    let answer = single(sent);
    let header = setup.header(Kind::Data, 2, 0, 0);
    assert_eq!(answer.to, setup.to_all());
    assert_eq!(answer.header(), Header { kind: Kind::Nudge, ..header });
    assert_eq!(Nudge::parse(answer.payload()), Some(Nudge { kind: Kind::Data, seen: 0b0100 }));
    setup.data(0, 0, 0, 1);
    let (event, sent) = setup.nudging_data(3, 0, 0, 1);
    assert_eq!((event, Nudge::parse(single(sent).payload()).unwrap().seen), (Event::Added, 0b1101));
    let (event, sent) = setup.nudging_data(0, 0, 0, 1);
    assert_eq!((event, Nudge::parse(single(sent).payload()).unwrap().seen), (Event::Duplicate, 0b1101));
    // The last one is answered by the result, a duplicate after it as well, an old round by a straggler.
    assert_eq!(single(setup.nudging_data(1, 0, 0, 1).1).header().kind, Kind::Result);
    assert_eq!(single(setup.nudging_data(1, 0, 0, 1).1).header().kind, Kind::Result);
    setup.data(1, 1, 0, 1);
    assert_eq!(single(setup.nudging_data(3, 0, 0, 1).1).header().kind, Kind::Straggler);
    assert_eq!(setup.aggregator.job_counters(JOB).unwrap().nudges, 3);
}

#[test]
fn nudges_of_norm_and_raw_say_so() {
    let mut setup = Setup::new(2);
    let header = Header { flags: FLAG_NUDGE | 0x80, ..setup.header(Kind::Norm, 1, 0, 3) };
    let (_, sent) = expect_handled(setup.packet(header, &norm(1.0).to_bytes()));
    assert_eq!(Nudge::parse(single(sent).payload()), Some(Nudge { kind: Kind::Norm, seen: 0b10 }));
    let header = Header { flags: FLAG_NUDGE, ..setup.header(Kind::Raw, 0, 0, 3) };
    let (_, sent) = expect_handled(setup.packet(header, &[0; 1024]));
    assert_eq!(Nudge::parse(single(sent).payload()), Some(Nudge { kind: Kind::Raw, seen: 0b01 }));
}

#[test]
fn the_late_with_nudge_get_the_result() {
    let mut setup = Setup::with_config(JobConfig { quorum: 1, ..config(2) });
    setup.data(0, 0, 0, 1);
    let (event, sent) = setup.nudging_data(1, 0, 0, 1);
    let answer = single(sent);
    assert_eq!(
        (event, answer.to.clone(), answer.header().kind),
        (Event::Late, To::One(endpoint(1)), Kind::Result)
    );
    assert_eq!(setup.aggregator.job_counters(JOB).unwrap().nudges, 0);
}

#[test]
fn no_packet_has_more_than_one_answer() {
    // P16, over every small history of two workers on one slot.
    let choices: Vec<(u8, u32, bool)> = (0..2)
        .flat_map(|worker| (0..3).flat_map(move |round| [false, true].map(|nudge| (worker, round, nudge))))
        .collect();
    for &a in &choices {
        for &b in &choices {
            for &c in &choices {
                let mut setup = Setup::new(2);
                for (worker, round, nudge) in [a, b, c] {
                    let flags = if nudge { FLAG_NUDGE } else { 0 };
                    let header = Header { flags, ..setup.header(Kind::Data, worker, round, 0) };
                    let (outcome, sent) = setup.packet(header, &[0x11; 512]);
                    assert!(sent.len() <= 1);
                    let slot = setup.slot(Kind::Data, 0);
                    let answered = match outcome {
                        Outcome::Handled(event) => slot.complete || event == Event::Stale || nudge,
                        Outcome::Dropped(_) | Outcome::Passed => false,
                    };
                    assert_eq!(!sent.is_empty(), answered, "{a:?} {b:?} {c:?}: {outcome:?}");
                    assert_eq!(slot.complete, slot.seen == 0b11);
                }
            }
        }
    }
}
