// The compiler lets fields share containers that no parser extracts together, as indices and words. A lookup writes a word while
// indices wait for theirs.
#define TEXT(x) #x
#define NO_OVERLAY(n) @pa_no_overlay("egress", TEXT(hdr.indices.a##n)) @pa_no_overlay("egress", TEXT(hdr.indices.b##n))
#define NO_OVERLAY_PAIR(s, a, b) NO_OVERLAY(a) NO_OVERLAY(b)

// One pass over a cell; or, for an answer on its way to a member, the member's own addresses.
FIRST_PAIRS(NO_OVERLAY_PAIR)
MORE_PAIRS(NO_OVERLAY_PAIR)
control Egress(
    inout egress_headers_t hdr,
    inout egress_t meta,
    in egress_intrinsic_metadata_t intrinsic,
    in egress_intrinsic_metadata_from_parser_t parsed,
    inout egress_intrinsic_metadata_for_deparser_t deparser,
    inout egress_intrinsic_metadata_for_output_port_t port)
{
    Cells() cells;
    Lookup() lookup;
    Words() words;

    Counter<bit<32>, bit<EVENTS_BITS>>(1 << EVENTS_BITS, CounterType_t.PACKETS) events;

    TABLE_ADDRESSES(hdr.bridge.job, meta.to, deparser.drop_ctl = 1;)

    // P46: how far the queue that a packet has left is below the length, in cells of the packet buffer, at which it marks packets.
    action set_depth(bit<32> length) {
        meta.below = length |-| meta.depth;
    }

    table marking {
        actions = { set_depth; }
        default_action = set_depth(MARKING_DEPTH);
        size = 1;
    }

    // What the packet asks of ingress next. Of DATA and RAW the words stay behind only where they are a part
    // of the RESULT: it grows from its end, in front of what is there already.
    action keep_words() {
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }

    action drop_words() {
        hdr.first.setInvalid();
        hdr.more.setInvalid();
        hdr.indices.setInvalid();
    }

    action next_pass() {
        hdr.trip.number = hdr.trip.number + 1;
        drop_words();
    }

    // All passes have found complete cells: back over them, the other way round. This pass has the last words.
    action first_collected() {
        hdr.trip.what = TRIP_COLLECT;
        hdr.trip.number = LAST_PASS - 1;
        keep_words();
    }

    action first_half_collected() {
        hdr.trip.what = TRIP_COLLECT;
        hdr.trip.number = HALF_LAST_PASS - 1;
        keep_words();
    }

    action next_collected() {
        hdr.trip.number = hdr.trip.number - 1;
        keep_words();
    }

    action result() {
        hdr.trip.what = ANSWER_WITH_RESULT;
        hdr.trip.head = meta.head;
        keep_words();
    }

    action result_again() {
        hdr.trip.what = ANSWER_AGAIN;
        hdr.trip.head = meta.head;
        keep_words();
    }

    action norm_result() {
        hdr.trip.what = ANSWER_WITH_RESULT;
        hdr.trip.head = meta.head;
    }

    action norm_again() {
        hdr.trip.what = ANSWER_AGAIN;
        hdr.trip.head = meta.head;
    }

    action straggler() {
        hdr.trip.what = ANSWER_STRAGGLER;
        hdr.trip.seen_low = meta.old_round;
        drop_words();
    }

    action norm_straggler() {
        hdr.trip.what = ANSWER_STRAGGLER;
        hdr.trip.seen_low = meta.old_round;
    }

    action mismatch() {
        hdr.trip.what = ANSWER_MISMATCH;
        hdr.tag.tag = meta.slot_tag;
    }

    action norm_nudge() {
        hdr.trip.what = ANSWER_WITH_NUDGE;
        hdr.trip.seen_low = hdr.trip.seen_low | hdr.trip.me_low;
        hdr.trip.seen_high = hdr.trip.seen_high | hdr.trip.me_high;
    }

    action nudge() {
        norm_nudge();
        drop_words();
    }

    action nothing() {
        deparser.drop_ctl = 1;
    }

    table outcomes {
        key = {
            hdr.trip.what: ternary;
            hdr.tag.isValid(): ternary;
            hdr.trip.number: ternary;
            meta.stale: ternary;
            meta.differs: ternary;
            hdr.trip.complete: ternary;
            hdr.trip.completes: ternary;
            hdr.trip.flags: ternary;
            meta.refused: ternary;
        }
        actions = {
            next_pass; first_collected; first_half_collected; next_collected; result; result_again; norm_result; norm_again;
            straggler; norm_straggler; mismatch; nudge; norm_nudge; nothing;
        }
        size = 32;
        const default_action = nothing();
        const entries = {
            (_, _, _, _, _, _, _, _, 1): nothing();
            (_, false, _, 1, _, _, _, _, _): straggler();
            (_, true, _, 1, _, _, _, _, _): norm_straggler();
            (TRIP_ADD, true, _, _, 1, _, _, _, _): mismatch();
            (TRIP_ADD, true, _, _, _, 1, 1, _, _): norm_result();
            (TRIP_ADD, true, _, _, _, 1, _, _, _): norm_again();
            (TRIP_ADD, true, _, _, _, _, _, WITH(TRIP_NUDGE), _): norm_nudge();
            (TRIP_ADD, true, _, _, _, _, _, _, _): nothing();
            (TRIP_ADD, false, LAST_PASS, _, _, 1, _, _, _): first_collected();
            (TRIP_ADD, false, LAST_PASS, _, _, _, _, WITH(TRIP_NUDGE), _): nudge();
            (TRIP_ADD, false, LAST_PASS, _, _, _, _, _, _): nothing();
            (TRIP_ADD, false, HALF_LAST_PASS, _, _, 1, _, WITH(TRIP_HALF), _): first_half_collected();
            (TRIP_ADD, false, HALF_LAST_PASS, _, _, _, _, WITH(TRIP_HALF | TRIP_NUDGE), _): nudge();
            (TRIP_ADD, false, HALF_LAST_PASS, _, _, _, _, WITH(TRIP_HALF), _): nothing();
            (TRIP_ADD, false, _, _, _, _, _, _, _): next_pass();
            (TRIP_COLLECT, _, 0, _, _, 1, 1, _, _): result();
            (TRIP_COLLECT, _, 0, _, _, 1, _, _, _): result_again();
            (TRIP_COLLECT, _, _, _, _, 1, _, _, _): next_collected();
            (TRIP_COLLECT, _, _, _, _, _, _, WITH(TRIP_NUDGE), _): nudge();
        }
    }

    apply {
        if (parsed.parser_err != PARSER_ERROR_OK) {
            // Shorter than its header says: it changes no cell.
            deparser.drop_ctl = 1;
        } else if (hdr.trip.isValid()) {
            meta.depth = (bit<32>)intrinsic.deq_qdepth;
            marking.apply();
            cells.apply(hdr, meta);
            lookup.apply(hdr);
            words.apply(hdr, meta);
            if (hdr.trip.what == TRIP_ADD && (hdr.tag.isValid() || hdr.trip.number == 0)) {
                events.count(meta.event_index[EVENTS_BITS - 1:0]);
            }
            hdr.trip.complete = hdr.trip.complete & meta.complete;
            hdr.trip.completes = hdr.trip.completes | meta.completes;
            outcomes.apply();
        } else if (hdr.bridge.trip == TRIP_FORWARD) {
            if (hdr.bridge.port == (bit<16>)intrinsic.egress_port) {
                deparser.drop_ctl = 1;
            }
        } else {
            if (hdr.bridge.trip == TRIP_TO_ALL) {
                meta.to = intrinsic.egress_rid;
            } else {
                meta.to = (bit<16>)hdr.bridge.worker;
            }
            addresses.apply();
        }
        hdr.bridge.setInvalid();
    }
}
