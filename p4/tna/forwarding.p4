// Everything that is not for the aggregator: ARP for its address, and a plain learning-free Ethernet switch.
control Forwarding(
    inout ingress_headers_t hdr,
    in ingress_intrinsic_metadata_t intrinsic,
    inout ingress_intrinsic_metadata_for_deparser_t deparser,
    inout ingress_intrinsic_metadata_for_tm_t manager)
{
    action set_port(PortId_t port) {
        manager.ucast_egress_port = port;
    }

    action flood(bit<16> group) {
        manager.mcast_grp_a = group;
        hdr.bridge.port = (bit<16>)intrinsic.ingress_port;
    }

    action drop() {
        deparser.drop_ctl = 1;
    }

    // By destination MAC. The controller sets the default to `flood` with the group of all ports.
    table stations {
        key = { hdr.ethernet.dst: exact @name("mac"); }
        actions = { set_port; flood; drop; }
        default_action = drop();
        size = MAX_STATIONS;
    }

    action answer_arp(mac_t mac) {
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        ipv4_addr_t asked = hdr.arp.target_ip;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = mac;
        hdr.arp.sender_ip = asked;
        manager.ucast_egress_port = intrinsic.ingress_port;
    }

    // The aggregator's own address.
    table own_arp {
        key = { hdr.arp.target_ip: exact @name("address"); }
        actions = { answer_arp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 4;
    }

    apply {
        hdr.bridge.trip = TRIP_FORWARD;
        hdr.bridge.port = NO_PORT;
        bool answered = false;
        if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST) {
            answered = own_arp.apply().hit;
        }
        if (!answered) {
            stations.apply();
        }
    }
}
