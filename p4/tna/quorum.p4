// A part of the control Cells (cells.p4), which includes this file in its body: which workers a cell has seen, how many are
// missing for its quorum, and whether a packet counts (P10 to P13).
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
