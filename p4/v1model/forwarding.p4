// Everything that is not for the aggregator: ARP for its address, and a plain learning-free Ethernet switch.
control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    TABLE_STATIONS(
        standard.egress_spec = port;,
        standard.mcast_grp = group; meta.flooded = true;,
        mark_to_drop(standard);)

    TABLE_OWN_ARP(standard.egress_spec = standard.ingress_port;)

    apply {
        if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST && own_arp.apply().hit) {
            return;
        }
        stations.apply();
    }
}
