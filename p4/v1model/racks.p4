// P34 to P36: a job in which the switch is a rack, whose sums go up to a root.
control Racks(in headers_t hdr, inout metadata_t meta) {
    TABLE_RACKS(
        meta.rack.here = true;
        meta.rack.number = rack;
        meta.rack.racks = racks;
        meta.rack.port = port;)

    TABLE_ROOTS(
        meta.rack.root_known = true;
        meta.rack.root = receiver;
        meta.rack.root_ip = address;
        meta.rack.root_udp = udp_port;)

    apply {
        meta.rack.here = false;
        meta.rack.root_known = false;
        if (racks.apply().hit) {
            roots.apply();
        }
    }
}

// P36: which packets of the root go to all members. The checks are in the order of P7, behind those for the cookie.
control Relay(in headers_t hdr, inout metadata_t meta, in bool table_known) {
    apply {
        bit<8> kind = hdr.thc.kind;
        bool of_norms = (bit<32>)hdr.thc.slot < meta.job.norm_slots;
        bool of_data = (bit<32>)hdr.thc.slot < meta.job.data_slots;
        bit<16> udp_len = UDP_WORDS;
        bool of_slots = of_data;
        if (kind == KIND_NORM_RESULT) {
            udp_len = UDP_NORM;
            of_slots = of_norms;
        } else if (kind == KIND_MISMATCH) {
            udp_len = UDP_MISMATCH;
            of_slots = of_norms;
        } else if (kind == KIND_STRAGGLER) {
            udp_len = UDP_STRAGGLER;
            of_slots = of_norms || of_data;
        } else if (kind == KIND_NUDGE) {
            udp_len = UDP_NUDGE;
            of_slots = of_norms || of_data;
        }
        if (meta.rack.root_known && (meta.rack.root_ip != hdr.ipv4.src || meta.rack.root_udp != hdr.udp.src_port)) {
            meta.reason = DROP_SOURCE;
        } else if (hdr.thc.num_workers != meta.rack.racks) {
            meta.reason = DROP_WORKERS;
        } else if (table_known && hdr.udp.len != udp_len) {
            meta.reason = DROP_LENGTH;
        } else if (!of_slots || !meta.rack.root_known) {
            meta.reason = DROP_SLOT;
        } else if (!table_known) {
            meta.reason = DROP_TABLE;
        }
    }
}
