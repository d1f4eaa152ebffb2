// Per copy: the member's own addresses, or back to ingress for the next pass.
control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name(".set_address")
    action set_address(mac_t mac, ipv4_addr_t address, bit<16> udp_port) {
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = address;
        hdr.udp.dst_port = udp_port;
    }

    @name(".unknown_member")
    action unknown_member() {
        mark_to_drop(standard);
    }

    // Where a member or the root is reached. A multicast group's replica has the worker's number as its instance.
    @name(".addresses")
    table addresses {
        key = {
            hdr.thc.job: exact @name("job");
            meta.to: exact @name("worker");
        }
        actions = { set_address; @defaultonly unknown_member; }
        const default_action = unknown_member();
        size = MAX_MEMBERS;
    }

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
