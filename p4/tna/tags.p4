// A part of the control Cells (cells.p4), which includes this file in its body: the tag that all packets of a round have in
// common (P14).
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
