// P12 to P17: what goes out, once the passes have found out what it is. The member's own addresses are
// written in egress, once per copy.
control Answers(
    inout ingress_headers_t hdr,
    inout ingress_t meta,
    inout ingress_intrinsic_metadata_for_tm_t manager)
{
    action carrier(bit<16> udp_len, bit<16> total_len) {
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 0;
        hdr.ethernet.type = ETHERTYPE_IPV4;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4;
        hdr.ipv4.ihl = 5;
        hdr.ipv4.tos = 0;
        hdr.ipv4.total_len = total_len;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 2;
        hdr.ipv4.fragment = 0;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.protocol = PROTOCOL_UDP;
        hdr.ipv4.checksum = 0;
        hdr.ipv4.dst = 0;
        hdr.udp.setValid();
        hdr.udp.src_port = THC_UDP_PORT;
        hdr.udp.dst_port = 0;
        hdr.udp.len = udp_len;
        hdr.udp.checksum = 0;
        hdr.trip.setInvalid();
    }

    action to_sender() {
        hdr.bridge.trip = TRIP_TO_ONE;
        hdr.bridge.worker = hdr.thc.worker;
        manager.ucast_egress_port = (PortId_t)hdr.trip.port;
    }

    action to_members() {
        hdr.bridge.trip = TRIP_TO_ALL;
        manager.mcast_grp_a = meta.group;
    }

    action result(bit<16> udp_len, bit<16> total_len) {
        hdr.thc.kind = hdr.trip.head[15:8];
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.worker = NO_WORKER;
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        carrier(udp_len, total_len);
    }

    action result_to_members(bit<16> udp_len, bit<16> total_len) {
        to_members();
        result(udp_len, total_len);
        meta.whose[1:0] = ANSWER_RESULT;
        meta.count_answer = 1;
    }

    action result_to_sender(bit<16> udp_len, bit<16> total_len) {
        to_sender();
        result(udp_len, total_len);
        meta.whose[1:0] = ANSWER_RESENT;
        meta.count_answer = 1;
    }

    action straggler() {
        to_sender();
        hdr.straggler.setValid();
        hdr.straggler.kind = hdr.thc.kind;
        hdr.straggler.zero = 0;
        hdr.straggler.current = hdr.trip.seen_low;
        hdr.thc.kind = KIND_STRAGGLER;
        hdr.thc.count = 0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        carrier(UDP_STRAGGLER, UDP_STRAGGLER + 20);
    }

    action mismatch() {
        to_members();
        hdr.thc.kind = KIND_MISMATCH;
        hdr.thc.count = 0;
        carrier(UDP_MISMATCH, UDP_MISMATCH + 20);
    }

    action nudge() {
        to_members();
        hdr.nudge.setValid();
        hdr.nudge.kind = hdr.thc.kind;
        hdr.nudge.zero = 0;
        hdr.nudge.seen = hdr.trip.seen_high ++ hdr.trip.seen_low;
        hdr.thc.kind = KIND_NUDGE;
        hdr.thc.count = 0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        carrier(UDP_NUDGE, UDP_NUDGE + 20);
        meta.whose[1:0] = ANSWER_NUDGE;
        meta.count_answer = 1;
    }

    table answer {
        key = {
            hdr.trip.what: exact;
            hdr.norm.isValid(): exact;
            meta.half: exact;
        }
        actions = { result_to_members; result_to_sender; straggler; mismatch; nudge; @defaultonly NoAction; }
        size = 16;
        const default_action = NoAction();
        const entries = {
            (ANSWER_WITH_RESULT, false, 0): result_to_members(UDP_WORDS, UDP_WORDS + 20);
            (ANSWER_WITH_RESULT, false, 1): result_to_members(UDP_HALF_WORDS, UDP_HALF_WORDS + 20);
            (ANSWER_WITH_RESULT, true, 0): result_to_members(UDP_NORM, UDP_NORM + 20);
            (ANSWER_AGAIN, false, 0): result_to_sender(UDP_WORDS, UDP_WORDS + 20);
            (ANSWER_AGAIN, false, 1): result_to_sender(UDP_HALF_WORDS, UDP_HALF_WORDS + 20);
            (ANSWER_AGAIN, true, 0): result_to_sender(UDP_NORM, UDP_NORM + 20);
            (ANSWER_STRAGGLER, false, 0): straggler();
            (ANSWER_STRAGGLER, false, 1): straggler();
            (ANSWER_STRAGGLER, true, 0): straggler();
            (ANSWER_MISMATCH, true, 0): mismatch();
            (ANSWER_WITH_NUDGE, false, 0): nudge();
            (ANSWER_WITH_NUDGE, false, 1): nudge();
            (ANSWER_WITH_NUDGE, true, 0): nudge();
        }
    }

    action set_source(mac_t mac, ipv4_addr_t address) {
        hdr.ethernet.src = mac;
        hdr.ipv4.src = address;
    }

    // What answers come from: the aggregator's own addresses, which the controller sets as the default.
    table source {
        actions = { set_source; }
        default_action = set_source(0, 0);
        size = 1;
    }

    apply {
        answer.apply();
        if (hdr.ethernet.isValid()) {
            source.apply();
        }
    }
}
