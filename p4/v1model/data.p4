// DATA and RAW: one pass over the words of one cell.

// Table value of a nibble: T[0] is in the highest byte.
#define VALUE(z) (bit<8>)(meta.table_values >> (~(z) ++ (bit<3>)0))

#define LOOK_UP(n) hdr.sums.w##n = VALUE(hdr.indices.i##n[15:12]) ++ VALUE(hdr.indices.i##n[11:8]) \
    ++ VALUE(hdr.indices.i##n[7:4]) ++ VALUE(hdr.indices.i##n[3:0]);

// Indices of 2 bits, in lanes of 4.
#define HALF_VALUE(z) (bit<4>)(meta.table_values >> (~(2w0 ++ (z)) ++ (bit<3>)0))
#define LOOK_UP_HALF(n) hdr.sums.w##n = HALF_VALUE(hdr.indices.i##n[15:14]) ++ HALF_VALUE(hdr.indices.i##n[13:12]) \
    ++ HALF_VALUE(hdr.indices.i##n[11:10]) ++ HALF_VALUE(hdr.indices.i##n[9:8]) \
    ++ HALF_VALUE(hdr.indices.i##n[7:6]) ++ HALF_VALUE(hdr.indices.i##n[5:4]) \
    ++ HALF_VALUE(hdr.indices.i##n[3:2]) ++ HALF_VALUE(hdr.indices.i##n[1:0]);

// Indices of 8 bits are their own values, in lanes of 16 (P6).
#define TAKE_INDICES(n) hdr.sums.w##n = (bit<16>)hdr.indices.i##n[15:8] ++ (bit<16>)hdr.indices.i##n[7:0];

#define TAKE(n) hdr.sums.w##n = hdr.words.w##n;

// Overwrite, add or only read, by two masks. Lanes of 4, 8 or 16 bits do not carry into each other, because
// n·g fits a lane (P6); words of RAW wrap.
#define AGGREGATE(n) lanes##n.read(old, cell); \
    hdr.sums.w##n = (old & keep) + (hdr.sums.w##n & take); \
    lanes##n.write(cell, hdr.sums.w##n);

#define REGISTER(n) register<bit<32>>(DATA_CELLS) lanes##n;

#define ALL_WORDS(do) \
    do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) \
    do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15) \
    do(16) do(17) do(18) do(19) do(20) do(21) do(22) do(23) \
    do(24) do(25) do(26) do(27) do(28) do(29) do(30) do(31)

control DataStage(inout headers_t hdr, inout metadata_t meta) {
    Cells(DATA_CELLS) state;
    ALL_WORDS(REGISTER)
    // Kind and table of the packet that opened the cell's round: all others of the round have the same (P14).
    register<bit<16>>(DATA_CELLS) heads;
    // P46: whether a packet that was added in the first pass had met congestion. A slot needs no more than that pass's: no RESULT goes
    // out before its cell is complete.
    register<bit<1>>(DATA_SLOTS) marks;

    action look_up() {
        ALL_WORDS(LOOK_UP)
    }

    action look_up_half() {
        ALL_WORDS(LOOK_UP_HALF)
    }

    action take_indices() {
        ALL_WORDS(TAKE_INDICES)
    }

    action take_words() {
        ALL_WORDS(TAKE)
    }

    action aggregate(bit<32> cell, bit<32> keep, bit<32> take) {
        bit<32> old;
        ALL_WORDS(AGGREGATE)
    }

    apply {
        bit<32> slot = meta.job.data_base + (bit<32>)hdr.thc.slot;
        bit<32> cell = (slot << PASS_BITS) | (bit<32>)meta.pass;
        meta.cell.index = cell;
        bit<16> head = hdr.thc.kind ++ hdr.thc.table_id;
        bit<16> old_head;
        heads.read(old_head, cell);
        meta.differs = old_head != head;
        state.apply(hdr, meta);
        if (meta.cell.event == EVENT_OPENED) {
            heads.write(cell, head);
        } else if (meta.cell.event == EVENT_MISMATCH) {
            meta.cell.event = NO_EVENT;
            meta.reason = DROP_MIXED;
        }

        if (meta.cell.event != EVENT_STALE && meta.cell.event != NO_EVENT) {
            if (!meta.between) {
                hdr.pass.setValid();
                hdr.pass.unused = 0;
                hdr.pass.complete = 1;
                hdr.pass.completes = 0;
                hdr.pass.opened = 0;
                if (meta.cell.event == EVENT_OPENED) {
                    hdr.pass.opened = 1;
                }
                hdr.pass.seen = 0xFFFFFFFFFFFFFFFF;
                bit<1> mark = 0;
                if (meta.cell.event != EVENT_OPENED) {
                    marks.read(mark, slot);
                }
                if ((meta.cell.event == EVENT_OPENED || meta.cell.event == EVENT_ADDED)
                    && (hdr.ipv4.tos[1:0] == ECN_CE || hdr.thc.flags & FLAG_MARK != 0)) {
                    mark = 1;
                }
                marks.write(slot, mark);
                hdr.pass.mark = mark;
                hdr.pass.result_kind = hdr.thc.kind | RESULT_BIT;
                hdr.pass.result_table = hdr.thc.table_id;
            }

            hdr.sums.setValid();
            if (hdr.thc.kind == KIND_DATA) {
                if (meta.width == 8) {
                    take_indices();
                } else if (meta.lane == 4) {
                    look_up_half();
                } else {
                    look_up();
                }
            } else {
                take_words();
            }
            hdr.indices.setInvalid();
            hdr.words.setInvalid();
            bit<32> keep = 0xFFFFFFFF;
            bit<32> take = 0xFFFFFFFF;
            if (meta.cell.event == EVENT_OPENED) {
                keep = 0;
            } else if (meta.cell.event != EVENT_ADDED) {
                take = 0;
            }
            aggregate(cell, keep, take);

            hdr.pass.seen = hdr.pass.seen & meta.cell.seen;
            if (meta.cell.completes) {
                hdr.pass.completes = 1;
            }
            if (!meta.cell.complete) {
                hdr.pass.complete = 0;
            }
            if (hdr.pass.complete == 0) {
                // There will be no RESULT: nothing has to be kept.
                hdr.sums.setInvalid();
                hdr.done.pop_front(PASSES - 1);
            }
        }
    }
}
