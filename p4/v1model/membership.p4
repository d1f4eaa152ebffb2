// P7: which packets are let in, as far as the slot need not be known for it. The checks are in the order of
// P7, and the first that fails is the reason.
control Membership(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    Racks() racks;
    Relay() relay;
    @name(".packets") counter(1 << (JOB_BITS + WORKER_BITS), CounterType.packets_and_bytes) packets;

    TABLE_JOBS(
        meta.job.index = index;
        meta.job.cookie = cookie;
        meta.job.epoch = epoch;
        meta.job.workers = workers;
        meta.job.quorum = quorum;
        meta.job.skip = skip;
        meta.job.data_base = data_base;
        meta.job.data_slots = data_slots;
        meta.job.norm_base = norm_base;
        meta.job.norm_slots = norm_slots;
        meta.job.group = group;)

    TABLE_MEMBERS(
        meta.member_port = ingress_port;
        meta.member_ip = address;
        meta.member_udp = udp_port;)

    TABLE_JOB_TABLES(, )

    // A lookup table: 16 values, T[0] in the highest byte, and the form of packets that name it: bits per index and per sum.
    @name(".set_values")
    action set_values(bit<128> values, bit<8> width, bit<8> lane) {
        meta.table_values = values;
        meta.width = width;
        meta.lane = lane;
    }

    FORMS
    @name(".lookup")
    table lookup {
        key = { hdr.thc.table_id: exact @name("table"); }
        actions = { set_values; @defaultonly NoAction; }
        const default_action = NoAction();
        size = MAX_TABLES;
    }

    apply {
        meta.reason = NOT_DROPPED;
        meta.known = false;
        meta.half = false;
        meta.from_root = false;
        bool later = meta.between;
        // What a root may send (P36).
        bool down = !later && hdr.thc.isValid() && hdr.thc.kind >= KIND_NORM_RESULT && hdr.thc.kind <= KIND_NUDGE;
        if (!later && (standard.parser_error != error.NoError
            || standard.checksum_error == 1
            || !hdr.udp.isValid()
            || hdr.ipv4.total_len != hdr.udp.len + 20
            || standard.packet_length < (bit<32>)hdr.ipv4.total_len + 14
            || hdr.udp.len < 8)) {
            meta.reason = DROP_CARRIER;
        } else if (meta.too_short) {
            meta.reason = DROP_SHORT;
        } else if (hdr.thc.version != VERSION) {
            meta.reason = DROP_VERSION;
        } else if (hdr.thc.kind != KIND_NORM && hdr.thc.kind != KIND_DATA && hdr.thc.kind != KIND_RAW && !down) {
            meta.reason = DROP_KIND;
        } else if (!jobs.apply().hit) {
            meta.reason = DROP_JOB;
            if (down) {
                meta.reason = DROP_KIND;
            }
        } else {
            racks.apply(hdr, meta);
            meta.from_root = down && meta.rack.here;
            meta.known = !down || meta.rack.here;
            meta.worker = OTHER_WORKERS;
            if (hdr.thc.worker < (bit<8>)OTHER_WORKERS && !down) {
                meta.worker = (bit<WORKER_BITS>)hdr.thc.worker;
            }
            bool table_known = true;
            if (hdr.thc.kind == KIND_DATA || hdr.thc.kind == KIND_RESULT) {
                table_known = lookup.apply().hit;
                // P34: what a rack adds for a root with lanes of 16 bits are sums of 8.
                meta.half = meta.lane == 4 || (meta.rack.here && meta.width == 4 && meta.lane == 16);
                // Forms whose lanes are twice as wide as their indices lie in the same bytes of every pass.
                table_known = table_known && ((meta.width == 4 && (meta.lane == 8 || meta.half))
                    || (meta.width == 8 && meta.lane == 16)
                    || (meta.width == 2 && meta.lane == 4));
                if (table_known && !later) {
                    table_known = job_tables.apply().hit;
                }
            }
            if (meta.known && !later) {
                packets.count((bit<32>)(meta.job.index ++ meta.worker));
            }
            if (!meta.known) {
                // Of these only a rack takes any.
                meta.reason = DROP_KIND;
            } else if (hdr.thc.cookie != meta.job.cookie) {
                meta.reason = DROP_COOKIE;
            } else if (later) {
                if (!table_known) {
                    meta.reason = DROP_TABLE;
                }
            } else if (down) {
                relay.apply(hdr, meta, table_known);
            } else if (!members.apply().hit) {
                meta.reason = DROP_MEMBER;
            } else if ((meta.member_port != 0 && meta.member_port != meta.ingress_port)
                || meta.member_ip != hdr.ipv4.src
                || meta.member_udp != hdr.udp.src_port) {
                meta.reason = DROP_SOURCE;
            } else if (hdr.thc.num_workers != meta.job.workers) {
                meta.reason = DROP_WORKERS;
            } else if (table_known && ((!hdr.norm.isValid() && !hdr.indices.isValid() && !hdr.words.isValid())
                || (hdr.indices.isValid() && meta.half != (hdr.udp.len == UDP_HALF_DATA)))) {
                // How long DATA is, only its table tells.
                meta.reason = DROP_LENGTH;
            } else if ((hdr.thc.kind == KIND_NORM && (bit<32>)hdr.thc.slot >= meta.job.norm_slots)
                || (hdr.thc.kind != KIND_NORM && (bit<32>)hdr.thc.slot >= meta.job.data_slots)) {
                meta.reason = DROP_SLOT;
            } else if (!table_known) {
                meta.reason = DROP_TABLE;
            }
        }
        if (later && meta.reason != NOT_DROPPED) {
            // The job went on while the packet was between passes: its remaining cells lack it.
            meta.reason = DROP_PASS;
            meta.known = false;
        }
    }
}
