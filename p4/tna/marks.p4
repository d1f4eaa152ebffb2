// A part of the control Cells (cells.p4), which includes this file in its body: the congestion mark of a cell (P46).
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
