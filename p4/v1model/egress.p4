// Per copy: the member's own addresses, or back to ingress for the next pass.
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    TABLE_ADDRESSES(hdr.thc.job, meta.to, mark_to_drop(standard);)

    apply {
        if (hdr.pass.isValid()) {
            recirculate_preserving_field_list(0);
        } else if (meta.answer) {
            if (meta.to_all) {
                meta.to = (bit<8>)standard.egress_rid;
            }
            addresses.apply();
            // What was behind the payload, such as the rest of a packet whose round is over.
            truncate((bit<32>)hdr.ipv4.total_len + 14);
        } else if (meta.flooded && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}
