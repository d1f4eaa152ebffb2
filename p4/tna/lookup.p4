// Indices to table values: 8 bits of indices are looked up at a time, so a lookup table of the controller
// (P6) is 256 entries, the same in each of these tables: four values of 4 bits, two of 8, or one of 16.
// Not asked whether there are indices, which would tie all of these tables together: RAW and NORM have NO_LOOKUP,
// and a pass that collects overwrites what it finds here.
control Lookup(inout egress_headers_t hdr) {
#define LOOK_UP(s, n) \
    action set_a##n(bit<16> values) { hdr.s.w##n[31:16] = values; } \
    table lookup_a##n { \
        key = { hdr.trip.lookup[LOOKUP_BITS:0]: exact @name("lookup"); hdr.indices.a##n: exact @name("indices"); } \
        actions = { set_a##n; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        size = LOOKUP_ENTRIES; \
    } \
    action set_b##n(bit<16> values) { hdr.s.w##n[15:0] = values; } \
    table lookup_b##n { \
        key = { hdr.trip.lookup[LOOKUP_BITS:0]: exact @name("lookup"); hdr.indices.b##n: exact @name("indices"); } \
        actions = { set_b##n; @defaultonly NoAction; } \
        const default_action = NoAction(); \
        size = LOOKUP_ENTRIES; \
    }
#define APPLY_LOOKUP(n) lookup_a##n.apply(); lookup_b##n.apply();

#define LOOK_UP_PAIR(s, a, b) LOOK_UP(s, a) LOOK_UP(s, b)
    FIRST_PAIRS(LOOK_UP_PAIR)
    MORE_PAIRS(LOOK_UP_PAIR)

#define APPLY_PAIR(s, a, b) APPLY_LOOKUP(a) APPLY_LOOKUP(b)
    apply {
        FIRST_PAIRS(APPLY_PAIR)
        MORE_PAIRS(APPLY_PAIR)
    }
}
