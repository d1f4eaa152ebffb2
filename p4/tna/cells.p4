// P8 to P15: what a slot holds for one pass, its cell. Every pass decides for itself, from its own cell; why
// that survives lost packets is in docs/switch.md.
//
// A chip reads and writes a register once per packet, so the state is a chain of registers, each of which is
// told what the ones before it have found: round, tag, seen, missing. A file declares each link of the chain.
struct pair_t {
    bit<32> first;
    bit<32> second;
}

struct half_t {
    bit<16> missing;
    bit<16> head;
}

control Cells(inout egress_headers_t hdr, inout egress_t meta) {
#include "rounds.p4"
#include "tags.p4"
#include "quorum.p4"
#include "marks.p4"

    // What the packet is counted as, and what becomes of its answer. What becomes of the words is in words.p4.
    action decide(bit<16> event, bit<8> complete, bit<8> completes) {
        meta.event_index = meta.event_index | event;
        meta.complete = complete;
        meta.completes = completes;
    }

    action stale() {
        meta.event_index = meta.event_index | (bit<16>)EVENT_STALE;
        meta.stale = 1;
    }

    action mismatch() {
        meta.event_index = meta.event_index | (bit<16>)EVENT_MISMATCH;
    }

    action refuse(bit<16> event) {
        meta.event_index = meta.event_index | event;
        meta.refused = 1;
    }

    table decisions {
        key = {
            hdr.trip.what: ternary;
            hdr.tag.isValid(): ternary;
            meta.age: ternary;
            meta.differs: ternary;
            meta.again: ternary;
            meta.missing: ternary;
        }
        actions = { decide; stale; mismatch; refuse; @defaultonly NoAction; }
        size = 16;
        const default_action = NoAction();
        const entries = {
            (_, _, AGE_OLDER, _, _, _): stale();
            (TRIP_ADD, _, AGE_FAR, _, _, _): refuse(EVENT_ROUND);
            // P10. The old number of a cell that is opened stands for the quorum.
            (TRIP_ADD, _, AGE_NEWER, _, _, 1): decide((bit<16>)EVENT_OPENED, 1, 1);
            (TRIP_ADD, _, AGE_NEWER, _, _, _): decide((bit<16>)EVENT_OPENED, 0, 0);
            // P14, P13, P11, P12.
            (TRIP_ADD, true, AGE_SAME, 1, _, _): mismatch();
            (TRIP_ADD, false, AGE_SAME, 1, _, _): refuse(EVENT_MIXED);
            (TRIP_ADD, _, AGE_SAME, _, 0, 0): decide((bit<16>)EVENT_LATE, 1, 0);
            (TRIP_ADD, _, AGE_SAME, _, 0, 1): decide((bit<16>)EVENT_ADDED, 1, 1);
            (TRIP_ADD, _, AGE_SAME, _, 0, _): decide((bit<16>)EVENT_ADDED, 0, 0);
            (TRIP_ADD, _, AGE_SAME, _, _, 0): decide((bit<16>)EVENT_DUPLICATE, 1, 0);
            (TRIP_ADD, _, AGE_SAME, _, _, _): decide((bit<16>)EVENT_DUPLICATE, 0, 0);
            (TRIP_COLLECT, _, AGE_SAME, _, _, 0): decide(0, 1, 0);
        }
    }

    apply {
        if (hdr.tag.isValid()) {
            meta.tag = hdr.tag.tag;
        } else {
            meta.tag = (bit<32>)hdr.trip.head;
        }
        // P9, P10, P15.
#if __TARGET_TOFINO__ == 1
        epoch.apply();
        if (meta.old_epoch == hdr.trip.epoch) {
            round.apply();
        } else {
            meta.fresh = 1;
            if (hdr.trip.what == TRIP_ADD) {
                open_round.execute(hdr.trip.cell);
            }
        }
#else
        round.apply();
        meta.epoch_off = hdr.trip.epoch ^ meta.old_epoch;
#endif
        meta.ahead = hdr.thc.round - meta.old_round;
        ages.apply();

        // P14. What a newer packet finds is its own tag.
        if (tag.apply().hit) {
            if (meta.slot_tag != meta.tag) {
                meta.differs = 1;
            }
        }

        if (hdr.trip.what == TRIP_ADD && meta.differs == 0) {
            if (meta.age == AGE_NEWER) {
#if __TARGET_TOFINO__ == 1
                open_low.execute(hdr.trip.cell);
                open_high.execute(hdr.trip.cell);
#else
                open_seen.execute(hdr.trip.cell);
#endif
            } else if (meta.age == AGE_SAME) {
#if __TARGET_TOFINO__ == 1
                meta.old_low = join_low.execute(hdr.trip.cell);
                meta.old_high = join_high.execute(hdr.trip.cell);
#else
                meta.old_low = join_seen.execute(hdr.trip.cell, meta.old_high);
#endif
            }
        }
        if (hdr.trip.what == TRIP_ADD) {
            hdr.trip.seen_low = hdr.trip.seen_low & meta.old_low;
            hdr.trip.seen_high = hdr.trip.seen_high & meta.old_high;
        }

        meta.event_index = hdr.trip.who >> (REASON_BITS - EVENT_BITS);
        counting.apply();
        decisions.apply();
        if (meta.below == 0) {
            hdr.trip.flags = hdr.trip.flags | TRIP_MARK;
        }
        mark.apply();
#if __TARGET_TOFINO__ == 1
        head.apply();
#endif
    }
}
