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
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(rounds) read_round = {
        void apply(inout pair_t value, out bit<32> round, out bit<32> epoch) {
            round = value.first;
            epoch = value.second;
        }
    };
#endif

    action newer() {
        meta.age = AGE_NEWER;
    }

    action same() {
        meta.age = AGE_SAME;
    }

    action older() {
        meta.age = AGE_OLDER;
    }

    table ages {
        key = {
#if __TARGET_TOFINO__ == 1
            meta.fresh: ternary;
#else
            meta.epoch_off: ternary;
#endif
            meta.ahead: ternary;
        }
        actions = { newer; same; older; }
        size = 4;
        const default_action = newer();
        const entries = {
            (0, 0): same();
            (0, 0x80000000 &&& 0x80000000): older();
        }
    }

    // P14.
    Register<bit<32>, bit<16>>(NORM_CELLS, 0) tags;
    RegisterAction<bit<32>, bit<16>, bit<32>>(tags) open_tag = {
        void apply(inout bit<32> value) {
            value = hdr.tag.tag;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(tags) read_tag = {
        void apply(inout bit<32> value, out bit<32> tag) {
            tag = value;
        }
    };

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
            value = hdr.trip.others;
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
            value.missing = hdr.trip.others;
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

    // What becomes of the words, and what it is counted as.
    action decide(operation_t operation, bit<16> event, bit<8> complete, bit<8> completes) {
        meta.operation = operation;
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
        meta.operation = NORM_READ;
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
        actions = { decide; stale; mismatch; @defaultonly NoAction; }
        size = 32;
        const default_action = NoAction();
        const entries = {
            (_, _, AGE_OLDER, _, _, _): stale();
            // P10. The old number of a cell that is opened stands for the quorum.
            (TRIP_ADD, false, AGE_NEWER, _, _, 1): decide(WORDS_OPEN, (bit<16>)EVENT_OPENED, 1, 1);
            (TRIP_ADD, false, AGE_NEWER, _, _, _): decide(WORDS_OPEN, (bit<16>)EVENT_OPENED, 0, 0);
            (TRIP_ADD, true, AGE_NEWER, _, _, 1): decide(NORM_OPEN, (bit<16>)EVENT_OPENED, 1, 1);
            (TRIP_ADD, true, AGE_NEWER, _, _, _): decide(NORM_OPEN, (bit<16>)EVENT_OPENED, 0, 0);
            // P13, P11, P12.
            (TRIP_ADD, false, AGE_SAME, _, 0, 0): decide(WORDS_READ, (bit<16>)EVENT_LATE, 1, 0);
            (TRIP_ADD, false, AGE_SAME, _, 0, 1): decide(WORDS_ADD, (bit<16>)EVENT_ADDED, 1, 1);
            (TRIP_ADD, false, AGE_SAME, _, 0, _): decide(WORDS_ADD, (bit<16>)EVENT_ADDED, 0, 0);
            (TRIP_ADD, false, AGE_SAME, _, _, 0): decide(WORDS_READ, (bit<16>)EVENT_DUPLICATE, 1, 0);
            (TRIP_ADD, false, AGE_SAME, _, _, _): decide(LEAVE, (bit<16>)EVENT_DUPLICATE, 0, 0);
            (TRIP_ADD, true, AGE_SAME, 0, 0, 0): decide(NORM_READ, (bit<16>)EVENT_LATE, 1, 0);
            (TRIP_ADD, true, AGE_SAME, 0, 0, 1): decide(NORM_MAX, (bit<16>)EVENT_ADDED, 1, 1);
            (TRIP_ADD, true, AGE_SAME, 0, 0, _): decide(NORM_MAX, (bit<16>)EVENT_ADDED, 0, 0);
            (TRIP_ADD, true, AGE_SAME, 0, _, 0): decide(NORM_READ, (bit<16>)EVENT_DUPLICATE, 1, 0);
            (TRIP_ADD, true, AGE_SAME, 0, _, _): decide(LEAVE, (bit<16>)EVENT_DUPLICATE, 0, 0);
            (TRIP_ADD, true, AGE_SAME, _, _, _): mismatch();
            (TRIP_COLLECT, _, AGE_SAME, _, _, 0): decide(WORDS_READ, 0, 1, 0);
        }
    }

    apply {
        // P9, P10, P15.
#if __TARGET_TOFINO__ == 1
        if (hdr.trip.what == TRIP_ADD) {
            meta.old_epoch = take_epoch.execute(hdr.trip.cell);
        } else {
            meta.old_epoch = read_epoch.execute(hdr.trip.cell);
        }
        if (meta.old_epoch != hdr.trip.epoch) {
            meta.fresh = 1;
            if (hdr.trip.what == TRIP_ADD) {
                open_round.execute(hdr.trip.cell);
            }
        } else {
            if (hdr.trip.what == TRIP_ADD) {
                meta.old_round = take_round.execute(hdr.trip.cell);
            } else {
                meta.old_round = read_round.execute(hdr.trip.cell);
            }
        }
#else
        if (hdr.trip.what == TRIP_ADD) {
            meta.old_round = take_round.execute(hdr.trip.cell, meta.old_epoch);
        } else {
            meta.old_round = read_round.execute(hdr.trip.cell, meta.old_epoch);
        }
        meta.epoch_off = hdr.trip.epoch ^ meta.old_epoch;
#endif
        meta.ahead = hdr.thc.round - meta.old_round;
        ages.apply();

        // P14.
        if (hdr.tag.isValid()) {
            if (meta.age == AGE_NEWER) {
                open_tag.execute(hdr.trip.place);
            } else {
                meta.slot_tag = read_tag.execute(hdr.trip.place);
            }
        }

        if (meta.age == AGE_SAME && hdr.tag.isValid() && meta.slot_tag != hdr.tag.tag) {
            meta.differs = 1;
        } else if (hdr.trip.what == TRIP_ADD) {
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
        if (hdr.thc.worker[5:5] == 0) {
            meta.again = meta.old_low & hdr.trip.me_low;
        } else {
            meta.again = meta.old_high & hdr.trip.me_high;
        }
        if (hdr.trip.what == TRIP_ADD) {
            hdr.trip.seen_low = hdr.trip.seen_low & meta.old_low;
            hdr.trip.seen_high = hdr.trip.seen_high & meta.old_high;
        }

        meta.event_index = hdr.trip.who >> 1;
        if (meta.differs == 0) {
            if (meta.age == AGE_NEWER) {
                if (hdr.trip.what == TRIP_ADD) {
#if __TARGET_TOFINO__ == 1
                    open_missing.execute(hdr.trip.cell);
                    meta.counts = 1;
#else
                    meta.head = open_missing.execute(hdr.trip.cell);
#endif
                    meta.missing = hdr.trip.quorum;
                }
            } else if (meta.age == AGE_SAME) {
                if (hdr.trip.what == TRIP_ADD && meta.again == 0) {
#if __TARGET_TOFINO__ == 1
                    meta.missing = take_missing.execute(hdr.trip.cell);
                    meta.counts = 1;
#else
                    meta.missing = take_missing.execute(hdr.trip.cell, meta.head);
#endif
                } else {
#if __TARGET_TOFINO__ == 1
                    meta.missing = read_missing.execute(hdr.trip.cell);
#else
                    meta.missing = read_missing.execute(hdr.trip.cell, meta.head);
#endif
                }
            }
        }
        decisions.apply();
#if __TARGET_TOFINO__ == 1
        // The worker that counts while one is missing completes the cell.
        if (meta.counts == 1 && meta.missing == 1) {
            write_head.execute(hdr.trip.cell);
            meta.head = hdr.trip.head;
        } else {
            meta.head = read_head.execute(hdr.trip.cell);
        }
#endif
    }
}
