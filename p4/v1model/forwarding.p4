// Everything that is not for the aggregator: ARP for its address, and a plain learning-free Ethernet switch.
control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name(".set_port")
    action set_port(bit<9> port) {
        standard.egress_spec = port;
    }

    @name(".flood")
    action flood(bit<16> group) {
        standard.mcast_grp = group;
        meta.flooded = true;
    }

    @name(".drop")
    action drop() {
        mark_to_drop(standard);
    }

    // By destination MAC. The controller sets the default to `flood` with the group of all ports.
    @name(".stations")
    table stations {
        key = { hdr.ethernet.dst: exact @name("mac"); }
        actions = { set_port; flood; drop; }
        default_action = drop();
        size = MAX_STATIONS;
    }

    @name(".answer_arp")
    action answer_arp(mac_t mac) {
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        ipv4_addr_t asked = hdr.arp.target_ip;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = mac;
        hdr.arp.sender_ip = asked;
        standard.egress_spec = standard.ingress_port;
    }

    // The aggregator's own address.
    @name(".own_arp")
    table own_arp {
        key = { hdr.arp.target_ip: exact @name("address"); }
        actions = { answer_arp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4;
    }

    apply {
        if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST && own_arp.apply().hit) {
            return;
        }
        stations.apply();
    }
}
