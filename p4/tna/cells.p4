// P8 to P15: what a slot holds for one pass, its cell. Every pass decides for itself, from its own cell; why
// that survives lost packets is in docs/switch.md.
//
// A chip reads and writes a register once per packet, so the state is a chain of registers, each of which is
// told what the ones before it have found: round, tag, seen, missing.
struct pair_t {
    bit<32> first;
    bit<32> second;
}

struct half_t {
    bit<16> missing;
    bit<16> head;
}

control Cells(inout egress_headers_t hdr, inout egress_t meta) {
#if __TARGET_TOFINO__ == 1
    // A register of the first chip gives back one word.
    Register<bit<32>, bit<16>>(ALL_CELLS, 0) epochs;
    RegisterAction<bit<32>, bit<16>, bit<32>>(epochs) take_epoch = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = hdr.trip.epoch;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(epochs) read_epoch = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
        }
    };
    Register<bit<32>, bit<16>>(ALL_CELLS, 0) rounds;
    RegisterAction<bit<32>, bit<16>, bit<32>>(rounds) open_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = hdr.thc.round;
        }
    };
    // P9: the difference wraps, and its sign counts.
    RegisterAction<bit<32>, bit<16>, bit<32>>(rounds) take_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            if ((int<32>)(hdr.thc.round - value) > 0) {
                value = hdr.thc.round;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(rounds) take_next_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            if (hdr.thc.round - value == 1) {
                value = hdr.thc.round;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(rounds) read_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
        }
    };
#else
    // Round and epoch. A cell of another epoch is empty.
    Register<pair_t, bit<16>>(ALL_CELLS, {0, 0}) rounds;
    // P9: the difference wraps, and its sign counts.
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(rounds) take_round = {
        void apply(inout pair_t value, out bit<32> round, out bit<32> epoch) {
            round = value.first;
            epoch = value.second;
            if (value.second != hdr.trip.epoch || (int<32>)(hdr.thc.round - value.first) > 0) {
                value.first = hdr.thc.round;
            }
            value.second = hdr.trip.epoch;
        }
    };
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(rounds) take_next_round = {
        void apply(inout pair_t value, out bit<32> round, out bit<32> epoch) {
            round = value.first;
            epoch = value.second;
            if (value.second != hdr.trip.epoch || hdr.thc.round - value.first == 1) {
                value.first = hdr.thc.round;
            }
            value.second = hdr.trip.epoch;
        }
    };
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(rounds) read_round = {
        void apply(inout pair_t value, out bit<32> round, out bit<32> epoch) {
            round = value.first;
            epoch = value.second;
        }
    };
#endif

#if __TARGET_TOFINO__ == 1
    action use_epoch() {
        meta.old_epoch = take_epoch.execute(hdr.trip.cell);
    }

    action look_at_epoch() {
        meta.old_epoch = read_epoch.execute(hdr.trip.cell);
    }

    table epoch {
        key = { hdr.trip.what: exact; }
        actions = { use_epoch; look_at_epoch; @defaultonly NoAction; }
        size = 2;
        const default_action = NoAction();
        const entries = {
            TRIP_ADD: use_epoch();
            TRIP_COLLECT: look_at_epoch();
        }
    }

    action use_round() {
        meta.old_round = take_round.execute(hdr.trip.cell);
    }

    action use_next_round() {
        meta.old_round = take_next_round.execute(hdr.trip.cell);
    }

    action look_at_round() {
        meta.old_round = read_round.execute(hdr.trip.cell);
    }
#else
    action use_round() {
        meta.old_round = take_round.execute(hdr.trip.cell, meta.old_epoch);
    }

    action use_next_round() {
        meta.old_round = take_next_round.execute(hdr.trip.cell, meta.old_epoch);
    }

    action look_at_round() {
        meta.old_round = read_round.execute(hdr.trip.cell, meta.old_epoch);
    }
#endif

    // Only a packet that adds opens a round, and only the next one unless its flags allow more.
    table round {
        key = {
            hdr.trip.what: ternary;
            hdr.trip.flags: ternary;
        }
        actions = { use_round; use_next_round; look_at_round; @defaultonly NoAction; }
        size = 3;
        const default_action = NoAction();
        const entries = {
            (TRIP_ADD, WITHOUT(TRIP_NUDGE | TRIP_SKIP)): use_next_round();
            (TRIP_ADD, _): use_round();
            (TRIP_COLLECT, _): look_at_round();
        }
    }

    action newer() {
        meta.age = AGE_NEWER;
    }

    action same() {
        meta.age = AGE_SAME;
    }

    action older() {
        meta.age = AGE_OLDER;
    }

    action far() {
        meta.age = AGE_FAR;
    }

    table ages {
        key = {
#if __TARGET_TOFINO__ == 1
            meta.fresh: ternary;
#else
            meta.epoch_off: ternary;
#endif
            meta.ahead: ternary;
            hdr.trip.flags: ternary;
        }
        actions = { newer; same; older; far; }
        size = 4;
        const default_action = newer();
        const entries = {
            (0, 0, _): same();
            (0, 0x80000000 &&& 0x80000000, _): older();
            (0, 1, _): newer();
            (0, _, WITHOUT(TRIP_NUDGE | TRIP_SKIP)): far();
        }
    }

    // P14: the tag that all packets of a round have in common, and the round that it is of.
    Register<pair_t, bit<16>>(ALL_CELLS, {0, 0}) tags;
    RegisterAction<pair_t, bit<16>, bit<32>>(tags) open_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            value.first = meta.tag;
            value.second = hdr.thc.round;
            tag = value.first;
        }
    };
    RegisterAction<pair_t, bit<16>, bit<32>>(tags) take_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            if ((int<32>)(hdr.thc.round - value.second) > 0) {
                value.first = meta.tag;
                value.second = hdr.thc.round;
            }
            tag = value.first;
        }
    };
    RegisterAction<pair_t, bit<16>, bit<32>>(tags) take_next_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            if (hdr.thc.round - value.second == 1) {
                value.first = meta.tag;
                value.second = hdr.thc.round;
            }
            tag = value.first;
        }
    };

    action begin_tag() {
        meta.slot_tag = open_tag.execute(hdr.trip.cell);
    }

    action use_tag() {
        meta.slot_tag = take_tag.execute(hdr.trip.cell);
    }

    action use_next_tag() {
        meta.slot_tag = take_next_tag.execute(hdr.trip.cell);
    }

    // A cell of another epoch has no tag.
    table tag {
        key = {
            hdr.trip.what: ternary;
#if __TARGET_TOFINO__ == 1
            meta.fresh: ternary;
#else
            meta.epoch_off: ternary;
#endif
            hdr.trip.flags: ternary;
        }
        actions = { begin_tag; use_tag; use_next_tag; @defaultonly NoAction; }
        size = 3;
        const default_action = NoAction();
        const entries = {
            (TRIP_ADD, 0, WITHOUT(TRIP_NUDGE | TRIP_SKIP)): use_next_tag();
            (TRIP_ADD, 0, _): use_tag();
            (TRIP_ADD, _, _): begin_tag();
        }
    }

    // One bit for each worker.
#if __TARGET_TOFINO__ == 1
    Register<bit<32>, bit<16>>(ALL_CELLS, 0) low;
    RegisterAction<bit<32>, bit<16>, bit<32>>(low) open_low = {
        void apply(inout bit<32> value) {
            value = hdr.trip.me_low;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(low) join_low = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = value | hdr.trip.me_low;
        }
    };
    Register<bit<32>, bit<16>>(ALL_CELLS, 0) high;
    RegisterAction<bit<32>, bit<16>, bit<32>>(high) open_high = {
        void apply(inout bit<32> value) {
            value = hdr.trip.me_high;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(high) join_high = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = value | hdr.trip.me_high;
        }
    };
#else
    Register<pair_t, bit<16>>(ALL_CELLS, {0, 0}) seen;
    RegisterAction<pair_t, bit<16>, bit<32>>(seen) open_seen = {
        void apply(inout pair_t value) {
            value.first = hdr.trip.me_low;
            value.second = hdr.trip.me_high;
        }
    };
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(seen) join_seen = {
        void apply(inout pair_t value, out bit<32> low, out bit<32> high) {
            low = value.first;
            high = value.second;
            value.first = value.first | hdr.trip.me_low;
            value.second = value.second | hdr.trip.me_high;
        }
    };
#endif

    // Workers that are missing for the quorum (P13), and the head of the RESULT as in the packet that
    // completed the cell. A late worker joins `seen`, but is not counted.
#if __TARGET_TOFINO__ == 1
    Register<bit<16>, bit<16>>(ALL_CELLS, 0) missing;
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) open_missing = {
        void apply(inout bit<16> value) {
            value = hdr.trip.quorum - 1;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) take_missing = {
        void apply(inout bit<16> value, out bit<16> old) {
            old = value;
            value = value |-| 1;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) read_missing = {
        void apply(inout bit<16> value, out bit<16> old) {
            old = value;
        }
    };
    Register<bit<16>, bit<16>>(ALL_CELLS, 0) heads;
    RegisterAction<bit<16>, bit<16>, bit<16>>(heads) write_head = {
        void apply(inout bit<16> value) {
            value = hdr.trip.head;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(heads) read_head = {
        void apply(inout bit<16> value, out bit<16> head) {
            head = value;
        }
    };
#else
    Register<half_t, bit<16>>(ALL_CELLS, {0, 0}) missing;
    RegisterAction<half_t, bit<16>, bit<16>>(missing) open_missing = {
        void apply(inout half_t value, out bit<16> head) {
            value.missing = hdr.trip.quorum - 1;
            value.head = hdr.trip.head;
            head = value.head;
        }
    };
    RegisterAction2<half_t, bit<16>, bit<16>, bit<16>>(missing) take_missing = {
        void apply(inout half_t value, out bit<16> old, out bit<16> head) {
            old = value.missing;
            if (value.missing == 1) {
                value.head = hdr.trip.head;
            }
            value.missing = value.missing |-| 1;
            head = value.head;
        }
    };
    RegisterAction2<half_t, bit<16>, bit<16>, bit<16>>(missing) read_missing = {
        void apply(inout half_t value, out bit<16> old, out bit<16> head) {
            old = value.missing;
            head = value.head;
        }
    };
#endif

#if __TARGET_TOFINO__ == 1
    action open_count() {
        open_missing.execute(hdr.trip.cell);
        meta.missing = hdr.trip.quorum;
        meta.counts = 1;
    }

    action count_in() {
        meta.missing = take_missing.execute(hdr.trip.cell);
        meta.counts = 1;
    }

    action see() {
        meta.missing = read_missing.execute(hdr.trip.cell);
    }
#else
    action open_count() {
        meta.head = open_missing.execute(hdr.trip.cell);
        meta.missing = hdr.trip.quorum;
    }

    action count_in() {
        meta.missing = take_missing.execute(hdr.trip.cell, meta.head);
    }

    action see() {
        meta.missing = read_missing.execute(hdr.trip.cell, meta.head);
    }
#endif

    action see_again() {
        see();
        meta.again = 1;
    }

    // P10, P11, P12: whether the worker was in `seen`, by the line of its bit, and so whether it counts.
#define WAS_LOW(n) (TRIP_ADD, AGE_SAME, 0, n, 32w1 << n &&& 32w1 << n, _): see_again();
#define WAS_HIGH(n) (TRIP_ADD, AGE_SAME, 0, n, _, 32w1 << (n - 32) &&& 32w1 << (n - 32)): see_again();
    table counting {
        key = {
            hdr.trip.what: ternary;
            meta.age: ternary;
            meta.differs: ternary;
            hdr.thc.worker: ternary;
            meta.old_low: ternary;
            meta.old_high: ternary;
        }
        actions = { open_count; count_in; see; see_again; @defaultonly NoAction; }
        size = 72;
        const default_action = NoAction();
        const entries = {
            (TRIP_ADD, AGE_NEWER, _, _, _, _): open_count();
            WAS_LOW(0) WAS_LOW(1) WAS_LOW(2) WAS_LOW(3) WAS_LOW(4) WAS_LOW(5) WAS_LOW(6) WAS_LOW(7)
            WAS_LOW(8) WAS_LOW(9) WAS_LOW(10) WAS_LOW(11) WAS_LOW(12) WAS_LOW(13) WAS_LOW(14) WAS_LOW(15)
            WAS_LOW(16) WAS_LOW(17) WAS_LOW(18) WAS_LOW(19) WAS_LOW(20) WAS_LOW(21) WAS_LOW(22) WAS_LOW(23)
            WAS_LOW(24) WAS_LOW(25) WAS_LOW(26) WAS_LOW(27) WAS_LOW(28) WAS_LOW(29) WAS_LOW(30) WAS_LOW(31)
            WAS_HIGH(32) WAS_HIGH(33) WAS_HIGH(34) WAS_HIGH(35) WAS_HIGH(36) WAS_HIGH(37) WAS_HIGH(38) WAS_HIGH(39)
            WAS_HIGH(40) WAS_HIGH(41) WAS_HIGH(42) WAS_HIGH(43) WAS_HIGH(44) WAS_HIGH(45) WAS_HIGH(46) WAS_HIGH(47)
            WAS_HIGH(48) WAS_HIGH(49) WAS_HIGH(50) WAS_HIGH(51) WAS_HIGH(52) WAS_HIGH(53) WAS_HIGH(54) WAS_HIGH(55)
            WAS_HIGH(56) WAS_HIGH(57) WAS_HIGH(58) WAS_HIGH(59) WAS_HIGH(60) WAS_HIGH(61) WAS_HIGH(62) WAS_HIGH(63)
            (TRIP_ADD, AGE_SAME, 0, _, _, _): count_in();
            (TRIP_COLLECT, AGE_SAME, _, _, _, _): see();
        }
    }

#if __TARGET_TOFINO__ == 1
    action keep_head() {
        write_head.execute(hdr.trip.cell);
        meta.head = hdr.trip.head;
    }

    action look_at_head() {
        meta.head = read_head.execute(hdr.trip.cell);
    }

    // The worker that counts while one is missing completes the cell.
    table head {
        key = {
            meta.counts: ternary;
            meta.missing: ternary;
        }
        actions = { keep_head; look_at_head; @defaultonly NoAction; }
        size = 2;
        const default_action = NoAction();
        const entries = {
            (1, 1): keep_head();
            (_, _): look_at_head();
        }
    }
#endif

    // P46: FLAG_MARK if a packet that was added in the first pass had met congestion. A slot needs no more than that pass's: no RESULT
    // goes out before its cell is complete. The packet has it in P1 from then on.
    Register<bit<8>, bit<16>>(PIPE_CELLS, 0) marks;
    RegisterAction<bit<8>, bit<16>, bit<8>>(marks) set_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            value = FLAG_MARK;
            mark = value;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(marks) clear_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            value = 0;
            mark = value;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(marks) read_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            mark = value;
        }
    };

    action marked() {
        hdr.thc.flags = set_mark.execute(hdr.trip.cell);
    }

    action unmarked() {
        hdr.thc.flags = clear_mark.execute(hdr.trip.cell);
    }

    action look_at_mark() {
        hdr.thc.flags = read_mark.execute(hdr.trip.cell);
    }

    // What is late or a duplicate changes no mark.
    table mark {
        key = {
            hdr.trip.what: ternary;
            hdr.trip.number: ternary;
            meta.age: ternary;
            meta.again: ternary;
            meta.missing: ternary;
            hdr.trip.flags: ternary;
        }
        actions = { marked; unmarked; look_at_mark; @defaultonly NoAction; }
        size = 8;
        const default_action = NoAction();
        const entries = {
            (TRIP_ADD, 0, AGE_NEWER, _, _, WITH(TRIP_MARK)): marked();
            (TRIP_ADD, 0, AGE_NEWER, _, _, _): unmarked();
            (TRIP_ADD, 0, AGE_SAME, _, 0, _): look_at_mark();
            (TRIP_ADD, 0, AGE_SAME, 0, _, WITH(TRIP_MARK)): marked();
            (TRIP_ADD, 0, AGE_SAME, _, _, _): look_at_mark();
        }
    }

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
