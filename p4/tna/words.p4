// The words of a pass: opened, added to, or read. Lanes of 4, 8 or 16 bits do not carry into each other, because
// n·g fits a lane (P6); words of RAW wrap. What a cell holds afterwards takes the place of what was added.
control Words(inout egress_headers_t hdr, in egress_t meta) {
#if __TARGET_TOFINO__ == 1
// One word for each register: the first chip's give back no more.
#define REGISTER(s, a) \
    Register<bit<32>, bit<16>>(CELLS_OF_##s, 0) lanes##a; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(lanes##a) open_lanes##a = { \
        void apply(inout bit<32> value) { value = hdr.s.w##a; } \
    }; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(lanes##a) add_lanes##a = { \
        void apply(inout bit<32> value, out bit<32> sum) { value = value + hdr.s.w##a; sum = value; } \
    }; \
    RegisterAction<bit<32>, bit<16>, bit<32>>(lanes##a) read_lanes##a = { \
        void apply(inout bit<32> value, out bit<32> sum) { sum = value; } \
    }; \
    action open##a() { open_lanes##a.execute(hdr.trip.cell); } \
    action add##a() { hdr.s.w##a = add_lanes##a.execute(hdr.trip.cell); } \
    action read##a() { hdr.s.w##a = read_lanes##a.execute(hdr.trip.cell); }
#define REGISTERS(s, a, b) REGISTER(s, a) REGISTER(s, b)
#define MAX_REGISTERS \
    RegisterAction<bit<32>, bit<16>, bit<32>>(lanes0) max_lanes0 = { \
        void apply(inout bit<32> value, out bit<32> sum) { value = max(value, hdr.first.w0); sum = value; } \
    }; \
    action max0() { hdr.first.w0 = max_lanes0.execute(hdr.trip.cell); }
#else
// Two words for each register.
#define REGISTERS(s, a, b) \
    Register<pair_t, bit<16>>(CELLS_OF_##s, {0, 0}) lanes##a; \
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(lanes##a) open_lanes##a = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            value.first = hdr.s.w##a; value.second = hdr.s.w##b; first = value.first; second = value.second; \
        } \
    }; \
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(lanes##a) add_lanes##a = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            value.first = value.first + hdr.s.w##a; value.second = value.second + hdr.s.w##b; \
            first = value.first; second = value.second; \
        } \
    }; \
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(lanes##a) read_lanes##a = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            first = value.first; second = value.second; \
        } \
    }; \
    action open##a() { hdr.s.w##a = open_lanes##a.execute(hdr.trip.cell, hdr.s.w##b); } \
    action add##a() { hdr.s.w##a = add_lanes##a.execute(hdr.trip.cell, hdr.s.w##b); } \
    action read##a() { hdr.s.w##a = read_lanes##a.execute(hdr.trip.cell, hdr.s.w##b); }
#define MAX_REGISTERS \
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(lanes0) max_lanes0 = { \
        void apply(inout pair_t value, out bit<32> first, out bit<32> second) { \
            value.first = max(value.first, hdr.first.w0); first = value.first; second = value.second; \
        } \
    }; \
    action max0() { hdr.first.w0 = max_lanes0.execute(hdr.trip.cell, hdr.first.w1); }
#endif
// A norm slot is a cell of the first four words: the maximum, and three that are as its opener sent them.
#define CELLS_OF_first ALL_CELLS
#define CELLS_OF_more PIPE_CELLS

    FIRST_PAIRS(REGISTERS)
    MORE_PAIRS(REGISTERS)
    MAX_REGISTERS

// What the words of DATA and RAW meet: P10 opens, P13 reads what is complete, P11 adds, P12 leaves all as it is.
#define KEYS \
    key = { \
        hdr.trip.what: ternary; \
        hdr.tag.isValid(): ternary; \
        meta.age: ternary; \
        meta.again: ternary; \
        meta.missing: ternary; \
    }
#define OF_WORDS(n) \
    (TRIP_ADD, false, AGE_NEWER, _, _): open##n(); \
    (TRIP_ADD, false, AGE_SAME, _, 0): read##n(); \
    (TRIP_ADD, false, AGE_SAME, 0, _): add##n(); \
    (TRIP_COLLECT, _, AGE_SAME, _, 0): read##n();
// A NORM that is refused (P14) finds no number of missing workers, and so reads.
#define TABLE_NORM(n, on_norm, ...) \
    table words##n { \
        KEYS \
        actions = { open##n; add##n; read##n; __VA_ARGS__ @defaultonly NoAction; } \
        size = 8; \
        const default_action = NoAction(); \
        const entries = { \
            OF_WORDS(n) \
            (TRIP_ADD, true, AGE_NEWER, _, _): open##n(); \
            (TRIP_ADD, true, AGE_SAME, _, 0): read##n(); \
            (TRIP_ADD, true, AGE_SAME, 0, _): on_norm##n(); \
        } \
    }
#define TABLE_more(n) \
    table words##n { \
        KEYS \
        actions = { open##n; add##n; read##n; @defaultonly NoAction; } \
        size = 4; \
        const default_action = NoAction(); \
        const entries = { OF_WORDS(n) } \
    }
#if __TARGET_TOFINO__ == 1
    TABLE_NORM(0, max, max0;) TABLE_NORM(1, read) TABLE_NORM(2, read) TABLE_NORM(3, read)
#define TABLES(s, a, b) TABLE_##s(a) TABLE_##s(b)
#define APPLY_WORDS(s, a, b) words##a.apply(); words##b.apply();
#else
    TABLE_NORM(0, max, max0;) TABLE_NORM(2, read)
#define TABLES(s, a, b) TABLE_##s(a)
#define APPLY_WORDS(s, a, b) words##a.apply();
#endif
    MORE_PAIRS(TABLES)

    apply {
        FIRST_PAIRS(APPLY_WORDS)
        MORE_PAIRS(APPLY_WORDS)
    }
}
