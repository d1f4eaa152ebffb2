// P8 to P13 and P15: the state of a cell, which is what a slot holds for one pass. Every pass decides for
// itself, from its own cell; why that survives lost packets is in docs/switch.md.
control Cells(inout headers_t hdr, inout metadata_t meta)(bit<32> cells) {
    register<bit<32>>(cells) epochs;
    register<bit<32>>(cells) rounds;
    register<bit<64>>(cells) seen;
    register<bit<8>>(cells) counts;

    apply {
        bit<32> i = meta.cell.index;
        bit<32> epoch;
        bit<32> old_round;
        bit<64> old_seen;
        bit<8> old_count;
        epochs.read(epoch, i);
        rounds.read(old_round, i);
        seen.read(old_seen, i);
        counts.read(old_count, i);

        bit<64> me = (bit<64>)1 << hdr.thc.worker;
        bit<32> ahead = hdr.thc.round - old_round;
        bool complete = old_count >= meta.job.quorum;
        meta.cell.completes = false;
        // P9; the difference's sign is that of serial-number arithmetic.
        bool newer = ahead != 0 && ahead[31:31] == 0;
        bool far = ahead != 1 && meta.job.skip == 0 && hdr.thc.flags & FLAG_NUDGE == 0;
        // Rounds with lanes of 4 bits leave out the second half of a slot's cells, which so may be any number of rounds behind:
        // what the first cell has let in, no later one finds too far ahead, and what has opened a round there opens it here.
        if (meta.between) {
            far = false;
            newer = newer || (hdr.pass.opened == 1 && ahead != 0);
        }
        if (epoch != meta.job.epoch || old_seen == 0 || (newer && !far)) {
            meta.cell.event = EVENT_OPENED;
            old_seen = 0;
            old_count = 0;
        } else if (newer) {
            meta.cell.event = NO_EVENT;
            meta.reason = DROP_ROUND;
        } else if (ahead != 0) {
            meta.cell.event = EVENT_STALE;
        } else if (meta.differs) {
            meta.cell.event = EVENT_MISMATCH;
        } else if (old_seen & me != 0) {
            meta.cell.event = EVENT_DUPLICATE;
        } else if (complete) {
            meta.cell.event = EVENT_LATE;
        } else {
            meta.cell.event = EVENT_ADDED;
        }
        if (meta.cell.event == EVENT_OPENED || meta.cell.event == EVENT_ADDED) {
            old_round = hdr.thc.round;
            old_seen = old_seen | me;
            old_count = old_count + 1;
            complete = old_count >= meta.job.quorum;
            meta.cell.completes = complete;
            epochs.write(i, meta.job.epoch);
            rounds.write(i, old_round);
            seen.write(i, old_seen);
            counts.write(i, old_count);
        }
        meta.cell.round = old_round;
        meta.cell.seen = old_seen;
        meta.cell.count = old_count;
        meta.cell.complete = complete;
    }
}
