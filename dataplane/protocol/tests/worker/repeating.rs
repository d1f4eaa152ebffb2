//! P20: when packets are sent again, to the millisecond.

use super::driven::{Driven, Report, ms, parameters};
use std::time::Duration;
use thc_protocol::wire::Kind;
use thc_protocol::worker::{PacketId, Parameters, Rtt};
use thc_protocol::{Policy, WorkerId};

/// A worker with the round trips of 32 packets of 1 ms behind it.
fn warm(parameters: Parameters) -> Driven {
    let mut driven = Driven::new(parameters);
    driven.call(32);
    let mut seq = 0;
    while seq < 32 {
        driven.fill();
        let sent = driven.seqs();
        driven.now += ms(1);
        sent.iter().for_each(|&seq| driven.result(seq));
        driven.tick();
        seq += sent.len() as u64;
    }
    assert_eq!(driven.worker.stats().data.repeated, 0);
    assert_eq!(driven.worker.round_trip(), Some(ms(1)));
    driven.reports.0.clear();
    driven
}

#[test]
fn the_time_out_of_rfc_6298_within_its_bounds() {
    let mut rtt = Rtt::new(ms(100), ms(20), ms(1000));
    assert_eq!((rtt.smoothed_rtt(), rtt.timeout(0), rtt.silence()), (None, ms(100), ms(5)));
    assert_eq!((rtt.timeout(1), rtt.timeout(9), rtt.timeout(u32::MAX)), (ms(200), ms(1000), ms(1000)));
    rtt.sample(ms(40), 1);
    // SRTT = R, RTTVAR = R / 2.
    assert_eq!((rtt.smoothed_rtt(), rtt.timeout(0)), (Some(ms(40)), ms(120)));
    rtt.sample(ms(80), 1);
    // RTTVAR = 3/4 · 20 + 1/4 · 40, SRTT = 7/8 · 40 + 1/8 · 80.
    assert_eq!((rtt.smoothed_rtt(), rtt.timeout(0)), (Some(ms(45)), ms(145)));
    // Not more than four of the shortest recent round trips: others' time-outs are not learnt.
    rtt.sample(ms(10), 1);
    assert_eq!((rtt.shortest(), rtt.timeout(0)), (Some(ms(10)), ms(40)));
    (0..1022).for_each(|_| rtt.sample(ms(400), 1));
    assert!(rtt.timeout(0) > ms(400) && rtt.timeout(0) <= ms(1000));
    (0..2000).for_each(|_| rtt.sample(Duration::from_micros(50), 1));
    assert_eq!((rtt.timeout(0), rtt.timeout(2)), (ms(20), ms(80)));
    assert_eq!(rtt.silence(), Duration::from_micros(200));
    assert_eq!(Rtt::new(ms(1), ms(1), ms(1)).timeout(5), ms(1));
}

#[test]
fn without_an_answer_the_lowest_alone_is_sent_again_at_doubled_times() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[1; 3], &[0.0; 3]);
    driven.take();
    driven.pass(ms(99));
    // 0 is not this worker's to ask for: a quarter of the shortest time-out, as long again for who is to, then twice that.
    assert_eq!(driven.take(), vec![(Kind::Norm, 0, false); 3]);
    // No round trip is known: the first time-out is five of the shortest. From the third on, NUDGE.
    let mut at = ms(0);
    for (wait, nudge) in [(100, false), (200, false), (400, true), (800, true), (1000, true), (1000, true)] {
        at += ms(wait);
        driven.pass(at - Duration::from_nanos(1));
        assert_eq!(driven.take(), []);
        driven.pass(at);
        assert_eq!(driven.take(), [(Kind::Norm, 0, nudge)]);
    }
    assert_eq!(driven.worker.stats().norm.timeouts, 6);
    // Once something comes, one doubling stays.
    driven.norm_result(0, 0);
    driven.pass(at + ms(20));
    assert_eq!(driven.take(), [(Kind::Norm, 1, true), (Kind::Norm, 2, true)]);
    assert_eq!(driven.worker.deadline(), Some(at + ms(200)));
}

#[test]
fn results_of_repeated_packets_let_two_more_be_repeated_after_a_grace() {
    // A restarted aggregator: 8 packets are outstanding and lost.
    let mut driven = warm(parameters());
    driven.call(8);
    driven.fill();
    assert_eq!(driven.seqs(), (32..40).collect::<Vec<_>>());
    let begun = driven.now;
    // 4 ms without a result: the lowest may be lost. Another is to ask for it, and has a round trip for that.
    driven.pass(begun + ms(4));
    assert_eq!(driven.take(), []);
    driven.pass(begun + ms(19));
    assert_eq!(driven.seqs(), [32, 32, 32, 32]);
    driven.pass(begun + ms(20));
    assert_eq!(driven.take(), [(Kind::Data, 32, false); 2]);
    let mut at = begun + ms(21);
    driven.pass(at);
    driven.result(32);
    driven.tick();
    assert_eq!(driven.take(), []);
    for next in [vec![33, 34], vec![35, 36, 37, 38], vec![39]] {
        // One round trip of grace: had nothing been lost, another result would have come.
        driven.pass(at + ms(1) - Duration::from_nanos(1));
        assert_eq!(driven.take(), []);
        driven.pass(at + ms(1));
        assert_eq!(driven.seqs(), next);
        at = driven.now;
        next.iter().for_each(|&seq| driven.result(seq));
        driven.tick();
    }
    assert!(driven.worker.is_idle());
}

#[test]
fn nudging_ends_when_all_is_through_that_was_outstanding() {
    let mut driven = warm(parameters());
    driven.call(2);
    driven.fill();
    driven.pass(driven.now + ms(140));
    assert_eq!(driven.take().last(), Some(&(Kind::Data, 32, true)));
    driven.result(32);
    driven.pass(driven.now + ms(1));
    assert_eq!(driven.take(), [(Kind::Data, 33, true)]);
    driven.result(33);
    driven.call(1);
    driven.fill();
    driven.take();
    // One doubling has stayed. Before that this worker asks, for 34 is its to ask for.
    driven.pass(driven.now + ms(40));
    let sent = driven.take();
    let (timeout, asks) = sent.split_last().unwrap();
    assert_eq!((*timeout, asks), ((Kind::Data, 34, false), &[(Kind::Data, 34, true); 6][..]));
}

#[test]
fn a_result_of_a_packet_sent_once_shows_that_nothing_was_lost() {
    // A slow worker: after a time-out all results come after all.
    let mut driven = warm(parameters());
    driven.call(8);
    driven.fill();
    driven.take();
    driven.pass(driven.now + ms(30));
    assert!(driven.seqs().iter().all(|&seq| seq == 32));
    for seq in 32..40 {
        driven.result(seq);
        driven.tick();
    }
    assert_eq!(driven.seqs(), []);
    // The wait was no round trip.
    assert_eq!(driven.worker.round_trip(), Some(ms(1)));
}

#[test]
fn what_is_sent_after_a_time_out_is_not_chased_by_it() {
    let mut driven = warm(parameters());
    driven.call(30);
    driven.fill();
    driven.take();
    driven.pass(driven.now + ms(20));
    assert!(driven.seqs().iter().all(|&seq| seq == 32));
    // The slowest worker is one that sends packet by packet: each result lets a new packet out.
    for seq in 32..62 {
        driven.pass(driven.now + Duration::from_micros(100));
        driven.result(seq);
        driven.tick();
        driven.fill();
    }
    let seqs = driven.seqs();
    assert_eq!(seqs, (40..62).collect::<Vec<_>>());
    assert!(driven.worker.is_idle());
}

#[test]
fn results_of_what_was_sent_after_a_time_out_do_not_end_the_repetition_of_what_was_before() {
    // The aggregator has forgotten 32 to 39, which the others have the results of: only NUDGE helps.
    let mut driven = warm(parameters());
    driven.call(30);
    driven.fill();
    driven.take();
    driven.pass(driven.now + ms(140));
    assert_eq!(driven.take().last(), Some(&(Kind::Data, 32, true)));
    driven.result(32);
    driven.result(33);
    driven.pass(driven.now + ms(1));
    driven.fill();
    driven.take();
    // 33 came of itself: nothing seems lost. The next time-outs begin from the start.
    let at = driven.now;
    driven.pass(at + ms(140));
    assert_eq!(driven.take().last(), Some(&(Kind::Data, 34, true)));
    driven.result(34);
    driven.fill();
    assert_eq!(driven.take().last(), Some(&(Kind::Data, 42, false)));
    // 42 was sent after the time-out and comes at once; 35 and 36 are repeated all the same, with NUDGE.
    driven.now += ms(1);
    driven.result(42);
    driven.tick();
    let sent = driven.take();
    assert!([35, 36].iter().all(|&seq| sent.contains(&(Kind::Data, seq, true))), "{sent:?}");
}

#[test]
fn later_results_show_a_loss_and_one_worker_asks_for_it() {
    let mut driven = warm(Parameters { data_slots: 256, ..parameters() });
    driven.call(128);
    driven.fill();
    driven.take();
    driven.now += ms(1);
    (35..49).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.take(), []);
    // An eighth of the window later: worker 1 of 3 is to ask for 34, and does at once.
    (49..51).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.take(), [(Kind::Data, 34, true)]);
    // 32 and 33 are asked for by others. They have a round trip for it.
    let at = driven.now;
    driven.pass(at + ms(1) - Duration::from_nanos(1));
    assert_eq!(driven.take(), []);
    // 33 lacks somebody's packet: this worker waits for that. 32 was lost here alone.
    driven.nudge(0, Kind::Data, 33, 0b011);
    driven.pass(at + ms(1));
    assert_eq!(driven.take(), [(Kind::Data, 32, false), (Kind::Data, 34, true)]);
    driven.nudge(1, Kind::Data, 34, 0b011);
    [32, 33, 34].into_iter().for_each(|seq| driven.result(seq));
    (51..160).for_each(|seq| driven.result(seq));
    driven.pass(at + ms(100));
    assert_eq!((driven.take(), driven.worker.is_idle()), (vec![], true));
}

#[test]
fn results_of_one_shard_overtake_nothing_at_another() {
    let two = Parameters { worker: WorkerId(2), data_slots: 512, shards: 2, ..parameters() };
    let mut driven = warm(two);
    driven.call(256);
    driven.fill();
    driven.take();
    // The other shard is far ahead.
    (64..128).chain(192..256).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.seqs(), []);
    // Of this one, 32 to 63 and from 128 on: an eighth of its half of the window.
    (33..48).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.seqs(), []);
    driven.result(48);
    driven.tick();
    assert_eq!(driven.seqs(), [32]);
}

#[test]
fn when_results_cease_what_others_have_passed_is_asked_for() {
    let mut driven = warm(Parameters { data_slots: 128, ..parameters() });
    driven.call(8);
    driven.fill();
    driven.take();
    driven.now += ms(1);
    [33, 35, 36, 38].into_iter().for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.seqs(), []);
    let at = driven.now;
    // A quarter of a round trip later no other result of the same burst can be on its way.
    let settled = at + Duration::from_micros(250);
    driven.pass(settled - Duration::from_nanos(1));
    assert_eq!(driven.take(), []);
    driven.pass(settled);
    // Of 32, 34 and 37 this worker is to ask for two; the other's has a round trip.
    assert_eq!(driven.take(), [(Kind::Data, 34, true), (Kind::Data, 37, true)]);
    driven.pass(settled + ms(1) - Duration::from_nanos(1));
    assert_eq!(driven.take(), []);
    driven.pass(settled + ms(1));
    assert_eq!(driven.take(), [(Kind::Data, 32, false), (Kind::Data, 34, true), (Kind::Data, 37, true)]);
    // The last one of the call has been passed by nothing: it may be lost.
    [32, 34, 37].into_iter().for_each(|seq| driven.result(seq));
    driven.tick();
    driven.pass(driven.now + ms(4));
    assert_eq!(driven.take(), []);
    driven.pass(driven.now + ms(1));
    assert_eq!(driven.take(), [(Kind::Data, 39, false)]);
}

#[test]
fn a_late_packet_is_known_to_be_lost_when_later_results_come() {
    let mut driven = warm(Parameters { data_slots: 128, ..parameters() });
    driven.call(8);
    driven.fill();
    driven.take();
    // Results cease: somebody may be slow. 32 is not this worker's to ask for, nor the last one, 39.
    let at = driven.now;
    driven.pass(at + ms(16));
    assert!(driven.seqs().iter().all(|&seq| seq == 32));
    // They come, but for that of 32: it is asked for a round trip after the last time, and then each other round trip.
    (33..40).for_each(|seq| driven.result(seq));
    driven.tick();
    let from = driven.now;
    driven.pass(from + Duration::from_micros(250));
    driven.pass(from + ms(4));
    assert!(driven.seqs().len() >= 2);
}

#[test]
fn the_answer_to_who_asks_is_a_round_trip_without_waiting() {
    let mut rtt = Rtt::new(ms(100), ms(20), ms(1000));
    (0..2000).for_each(|_| rtt.sample(ms(3), 1));
    assert_eq!(
        (rtt.patience(), rtt.silence(), rtt.reorder_time()),
        (ms(3), ms(12), Duration::from_micros(750))
    );
    rtt.add_answer(ms(1));
    assert_eq!((rtt.patience(), rtt.silence()), (Duration::from_micros(1500), ms(4)));
    assert_eq!((rtt.shortest(), rtt.timeout(0)), (Some(ms(3)), ms(20)));
    // Three times the quickest round trip of all, and a hundredth of the shortest time-out more, is a queue (P41).
    assert!(!rtt.is_crowded());
    rtt.add_answer(Duration::from_micros(2900));
    assert!(!rtt.is_crowded());
    rtt.add_answer(ms(3));
    assert!(rtt.is_crowded());
    rtt.add_answer(ms(1));
    // The other class of slots, which has none of its own, takes it over.
    let mut other = Rtt::new(ms(100), ms(20), ms(1000));
    other.set_elsewhere(rtt.shortest(), rtt.answer());
    assert_eq!(other.patience(), rtt.patience());
}

#[test]
fn norms_are_asked_for_ever_less_often_for_workers_may_be_slow() {
    let mut driven = warm(parameters());
    driven.submit(&[1], &[1.0]);
    driven.take();
    let at = driven.now;
    // From four round trips on, which took no time here, but a 400th of the shortest time-out at least.
    let mut asked = Vec::new();
    for half in 0..38 {
        driven.pass(at + Duration::from_micros(half * 500));
        asked.push(driven.take().len());
    }
    assert_eq!((asked[..2].iter().sum::<usize>(), asked.iter().sum()), (4, 9));
    assert_eq!(driven.worker.stats().norm.timeouts, 0);
}

#[test]
fn a_nudge_brings_what_is_kept_and_lacking() {
    let mut driven = warm(parameters());
    driven.call(4);
    driven.fill();
    driven.take();
    driven.now += ms(1);
    driven.result(32);
    // Finished here (32), outstanding (33).
    for seq in [32, 33] {
        driven.nudge(0, Kind::Data, seq, 0b001);
        assert_eq!(driven.take(), [(Kind::Data, seq, false)]);
    }
    // Not: what is in the slot, was never sent, is of another round, another kind, or was asked for by oneself.
    driven.nudge(0, Kind::Data, 33, 0b011);
    driven.nudge(0, Kind::Data, 36, 0b001);
    driven.nudge(0, Kind::Data, 33 + 16, 0b001);
    driven.nudge(0, Kind::Data, 33 - 16, 0b001);
    driven.nudge(0, Kind::Norm, 6, 0b001);
    driven.nudge(1, Kind::Data, 33, 0b100);
    assert_eq!(driven.take(), []);
    driven.nudge(2, Kind::Norm, 1, 0b100);
    assert_eq!(driven.take(), [(Kind::Norm, 1, false)]);
    assert_eq!(driven.worker.stats().nudged, 3);
    // 33 was sent twice: its result is no round trip.
    driven.now += ms(15);
    driven.result(33);
    assert_eq!(driven.worker.round_trip(), Some(ms(1)));
}

#[test]
fn best_effort_asks_for_data_at_quarters_of_the_deadline_and_for_norms_until_they_are_through() {
    let mut driven = Driven::new(Parameters { policy: Policy::BestEffort, ..parameters() });
    driven.submit(&[2], &[1.0]);
    driven.take();
    driven.pass(ms(100));
    assert_eq!(driven.take(), [(Kind::Norm, 0, false); 4]);
    driven.norm_result(0, 1f32.to_bits());
    driven.fill();
    driven.take();
    assert_eq!(driven.worker.deadline(), Some(Duration::from_micros(112_500)));
    driven.pass(ms(115));
    assert_eq!(driven.take(), [(Kind::Data, 0, true), (Kind::Data, 1, false)]);
    assert_eq!(driven.worker.deadline(), Some(ms(125)));
    // The sum had been there, and its copy was lost.
    driven.result(0);
    driven.reports.0.clear();
    driven.pass(ms(1000));
    assert_eq!(driven.take(), [(Kind::Data, 1, true), (Kind::Data, 1, true)]);
    assert_eq!(driven.reports.0, [Report::Lost(PacketId { call: 0, partition: 0, packet: 1 })]);
    assert_eq!((driven.worker.is_idle(), driven.worker.stats().data.given_up), (true, 1));
    // Others may still need them.
    driven.nudge(0, Kind::Data, 1, 0b001);
    assert_eq!(driven.take(), [(Kind::Data, 1, false)]);
}

#[test]
fn best_effort_asks_at_once_for_what_results_have_overtaken() {
    let mut driven = Driven::new(Parameters {
        policy: Policy::BestEffort,
        data_slots: 512,
        norm_slots: 16,
        ..parameters()
    });
    driven.call(200);
    driven.fill();
    assert_eq!(driven.seqs().len(), 200);
    driven.now = ms(1);
    (0..1).chain(2..18).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.take(), [(Kind::Data, 1, true)]);
    (18..200).for_each(|seq| driven.result(seq));
    driven.tick();
    assert_eq!(driven.seqs(), []);
    // Asked for until it is given up, at the deadline of the first transmission.
    driven.pass(ms(49));
    let seqs = driven.seqs();
    assert!(seqs.len() >= 10 && seqs.iter().all(|&seq| seq == 1), "{seqs:?}");
    assert_eq!(driven.worker.stats().data.given_up, 0);
    driven.pass(ms(50));
    assert_eq!(driven.worker.stats().data.given_up, 1);
}

#[test]
fn a_silent_aggregator_is_suspected_to_have_restarted() {
    let mut driven = Driven::new(parameters());
    driven.submit(&[1], &[0.0]);
    driven.pass(ms(299));
    assert!(!driven.worker.suspects_restart(driven.now));
    driven.pass(ms(300));
    assert!(driven.worker.suspects_restart(driven.now));
    driven.worker.handle_answer(driven.now);
    assert!(!driven.worker.suspects_restart(driven.now));
    driven.pass(ms(380));
    assert!(driven.worker.suspects_restart(driven.now));
    // Who waits for nothing suspects nobody.
    driven.norm_result(0, 0);
    assert!(driven.worker.is_idle());
    assert!(!driven.worker.suspects_restart(driven.now + ms(10_000)));
}

#[test]
fn what_no_later_result_has_overtaken_is_no_loss_for_the_window() {
    let mut driven = warm(Parameters { data_slots: 512, ..parameters() });
    driven.call(256);
    driven.fill();
    let window = driven.worker.window();
    // More than a quarter of 256 lack at a server that has had no time for them.
    driven.now += ms(4);
    (32..112).for_each(|seq| driven.nudge(0, Kind::Data, seq, 0b101));
    assert_eq!(driven.worker.window(), window);
    // The same behind what has a result.
    driven.result(287);
    (112..192).for_each(|seq| driven.nudge(0, Kind::Data, seq, 0b101));
    assert_eq!(driven.worker.window(), (window.0 * 7 / 10, window.1 + 1));
}
