// Everything that is not for the aggregator: ARP for its address, and a plain learning-free Ethernet switch.
control Forwarding(
    inout ingress_headers_t hdr,
    in ingress_intrinsic_metadata_t intrinsic,
    inout ingress_intrinsic_metadata_for_deparser_t deparser,
    inout ingress_intrinsic_metadata_for_tm_t manager)
{
    TABLE_STATIONS(
        manager.ucast_egress_port = port;,
        manager.mcast_grp_a = group; hdr.bridge.port = (bit<16>)intrinsic.ingress_port;,
        deparser.drop_ctl = 1;)

    TABLE_OWN_ARP(manager.ucast_egress_port = intrinsic.ingress_port;)

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
