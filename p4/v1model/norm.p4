// NORM: the maximum of a slot, and P14.
control NormStage(inout headers_t hdr, inout metadata_t meta) {
    Cells(NORM_SLOTS) state;
    register<bit<32>>(NORM_SLOTS) tags;
    register<bit<32>>(NORM_SLOTS) values;
    register<bit<32>>(NORM_SLOTS) lengths;
    // call ++ table_id ++ mode
    register<bit<32>>(NORM_SLOTS) calls;
    register<bit<32>>(NORM_SLOTS) keys;
    // The table number in the header of the packet that completed the slot (P13).
    register<bit<8>>(NORM_SLOTS) result_tables;

    apply {
        bit<32> i = meta.job.norm_base + (bit<32>)hdr.thc.slot;
        meta.cell.index = i;
        bit<32> tag;
        tags.read(tag, i);
        meta.differs = tag != hdr.norm.tag;
        state.apply(hdr, meta);

        if (meta.cell.event == NO_EVENT) {
            return;
        }
        if (meta.cell.event == EVENT_OPENED) {
            tags.write(i, hdr.norm.tag);
            values.write(i, hdr.norm.value);
            lengths.write(i, hdr.norm.length);
            calls.write(i, hdr.norm.call ++ hdr.norm.table_id ++ hdr.norm.mode);
            keys.write(i, hdr.norm.key);
        } else {
            bit<32> call;
            if (meta.cell.event == EVENT_MISMATCH) {
                hdr.refused = hdr.norm;
            }
            bit<32> value;
            values.read(value, i);
            if (meta.cell.event == EVENT_ADDED && hdr.norm.value > value) {
                values.write(i, hdr.norm.value);
                value = hdr.norm.value;
            }
            // The rest is as in the packet that opened the slot (P10).
            hdr.norm.value = value;
            tags.read(hdr.norm.tag, i);
            lengths.read(hdr.norm.length, i);
            calls.read(call, i);
            keys.read(hdr.norm.key, i);
            hdr.norm.call = call[31:16];
            hdr.norm.table_id = call[15:8];
            hdr.norm.mode = call[7:0];
        }

        // A resent RESULT says what the first said.
        if (meta.cell.completes) {
            result_tables.write(i, hdr.thc.table_id);
        } else if (meta.cell.complete && meta.cell.event != EVENT_STALE && meta.cell.event != EVENT_MISMATCH) {
            result_tables.read(hdr.thc.table_id, i);
        }
    }
}
