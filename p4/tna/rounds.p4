// A part of the control Cells (cells.p4), which includes this file in its body: the round and the epoch that a cell is in, and
// how old a packet is beside them (P9, P10, P15).
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
