//! Workers in parts, each with the slots of some ports.

use super::driven::{Driven, Reports, Sent, ms, parameters};
use std::time::Duration;
use thc_protocol::wire::{Header, Kind, Rack};
use thc_protocol::worker::{Dealt, PacketId, Parameters, Stripe, Worker};
use thc_protocol::{Policy, Rank, SlotId, WorkerId};

fn of_shards(shards: u8, data_slots: u32) -> Parameters {
    Parameters { shards, data_slots, ..parameters() }
}

#[test]
fn seqs_half_a_round_apart_are_of_one_stripe_or_there_are_none() {
    for (shards, slots, count, refused) in [
        (1, 16, 1, None),
        (1, 16, 2, Some("fewer ports")),
        (2, 1024, 2, None),
        (2, 256, 2, None),
        (4, 1024, 2, None),
        (4, 1024, 3, None),
        (3, 1024, 2, Some("128 for each port")),
        (3, 1024, 3, Some("128 for each port")),
        (3, 384, 3, None),
        (2, 128, 2, Some("128 for each port")),
        (2, 130, 2, Some("128 for each port")),
        (6, 1024, 2, None),
    ] {
        let said = of_shards(shards, slots).refuses_stripes(count);
        match refused {
            None => assert_eq!(said, None, "{shards} {slots} {count}"),
            Some(why) => {
                assert!(said.is_some_and(|said| said.contains(why)), "{shards} {slots} {count} {said:?}");
            }
        }
    }
    let usual = of_shards(2, 256);
    let rack = Rack { racks: 2, rack: WorkerId(0), workers: 6, quorum: 6, first: Rank(0), layout: 0 };
    for (parameters, why) in [
        (Parameters { quorum: 2, ..usual }, "lost"),
        (Parameters { policy: Policy::BestEffort, ..usual }, "lost"),
        (Parameters { rack: Some(rack), ..usual }, "rack"),
        (Parameters { credit: 1, ..usual }, "credit"),
    ] {
        assert!(parameters.refuses_stripes(2).is_some_and(|said| said.contains(why)), "{why}");
    }
    assert_eq!(Parameters { credit: 2, ..usual }.refuses_stripes(2), None);
}

/// All that a worker deals out, as far as it does.
fn deal(driven: &mut Driven) -> Vec<Dealt> {
    std::iter::from_fn(|| driven.worker.deal(usize::MAX)).collect()
}

fn send(part: &mut Worker, now: Duration, sent: &mut Sent, dealt: &Dealt, from: usize) -> usize {
    let place = |packet: usize| PacketId { packet: packet as u32, ..dealt.first };
    part.send_dealt(now, sent, dealt, from, place, |_, payload| payload.fill(7))
}

/// P18: each stripe has its half of the window, whatever the other does, and P41: of credit, too.
#[test]
fn each_stripe_has_its_part_of_window_and_credit() {
    for (credit, each) in [(0, 64), (100, 50)] {
        let parameters = Parameters { credit, ..of_shards(2, 256) };
        let mut driven = Driven::new(parameters);
        driven.worker.set_stripes(2);
        driven.call(400);
        let dealt = deal(&mut driven);
        // No more than twice a window.
        let blocks: Vec<_> = dealt.iter().map(|dealt| (dealt.seq, dealt.count, dealt.stripe)).collect();
        assert_eq!(blocks, [(0, 64, 0), (64, 64, 1), (128, 64, 0), (192, 64, 1)]);
        assert!(driven.worker.is_busy() && !driven.worker.has_room());
        let mut sent = Sent::default();
        let mut part = Worker::of_stripe(parameters, Stripe { index: 1, count: 2 }, u64::MAX, ms(0));
        assert_eq!(send(&mut part, ms(1), &mut sent, &dealt[1], 0), each);
        assert_eq!((send(&mut part, ms(1), &mut sent, &dealt[1], each), part.report().busy), (0, true));
        assert_eq!(part.report().window.0, each as u64);
        // Its own results, and not those of the other, let it go on.
        let mut reports = Reports::default();
        for seq in 64..64 + each as u64 {
            let header = Header { slot: SlotId(seq as u16), ..driven.header(Kind::Result, 0) };
            let mut buffer = vec![0; 1100];
            let packet = header.emit_packet(&mut buffer, &[1; 1024]).to_vec();
            part.handle(ms(2), &packet, &mut reports, &mut sent);
        }
        assert_eq!((reports.0.len(), part.report().busy), (each, false));
        if each == 64 {
            assert_eq!(send(&mut part, ms(2), &mut sent, &dealt[3], 0), 64);
        } else {
            assert_eq!(send(&mut part, ms(2), &mut sent, &dealt[1], each), 14);
        }
        // The call ends when all that was dealt out is known to be finished.
        let more = |driven: &mut Driven, dealt: &[Dealt]| {
            dealt.iter().for_each(|dealt| driven.worker.finish_dealt(dealt));
            deal(driven)
        };
        let second = more(&mut driven, &dealt);
        assert_eq!(second.iter().map(|dealt| dealt.count).sum::<usize>(), 400 - 256);
        assert_eq!(driven.worker.pending_calls(), 1);
        assert!(more(&mut driven, &second).is_empty());
        assert_eq!((driven.worker.pending_calls(), driven.worker.is_busy()), (0, false));
    }
}
