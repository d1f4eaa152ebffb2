// The way of a packet through one pass.
control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Membership() membership;
    NormStage() norm;
    DataStage() data;
    Answers() answers;
    Forwarding() forwarding;
    @name(".drops") counter(1 << (JOB_BITS + WORKER_BITS + REASON_BITS), CounterType.packets) drops;
    @name(".carrier") counter(1 << REASON_BITS, CounterType.packets) carrier;

    TABLE_OWN_ADDRESS(meta.ours = true;)

    TABLE_CONTROL_PLANE(
        standard.egress_spec = port;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = meta.ingress_port;)

    apply {
        if (meta.between) {
            meta.ours = true;
            meta.pass = (bit<PASS_BITS>)hdr.pass.number;
        } else if (hdr.ipv4.isValid()) {
            meta.ingress_port = (bit<16>)standard.ingress_port;
            own_address.apply();
            // Other ports of the aggregator's address: nobody is there.
            if (meta.ours && hdr.udp.isValid() && hdr.udp.dst_port != THC_UDP_PORT) {
                mark_to_drop(standard);
                exit;
            }
        }
        bool taken = false;
        if (meta.ours && !meta.between && hdr.thc.isValid() && hdr.thc.version == VERSION) {
            taken = control_plane.apply().hit;
        }
        if (taken) {
            // On its way to the control plane.
        } else if (meta.ours) {
            membership.apply(hdr, meta, standard);
            if (meta.reason == NOT_DROPPED) {
                if (hdr.thc.kind == KIND_NORM) {
                    norm.apply(hdr, meta);
                } else if (!meta.from_root) {
                    data.apply(hdr, meta);
                }
            }
            if (meta.reason == NOT_DROPPED) {
                answers.apply(hdr, meta, standard);
            } else {
                mark_to_drop(standard);
                if (meta.known) {
                    drops.count((bit<32>)(meta.job.index ++ meta.worker ++ meta.reason));
                } else {
                    carrier.count((bit<32>)meta.reason);
                }
            }
        } else {
            forwarding.apply(hdr, meta, standard);
        }
    }
}
