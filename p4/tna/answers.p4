// P12 to P17: what goes out, once the passes have found out what it is. The member's own addresses are
// written in egress, once per copy.
control Answers(
    inout ingress_headers_t hdr,
    inout ingress_t meta,
    inout ingress_intrinsic_metadata_for_tm_t manager)
{
    action carrier(bit<8> tos, bit<16> udp_len, bit<16> total_len) {
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 0;
        hdr.ethernet.type = ETHERTYPE_IPV4;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4;
        hdr.ipv4.ihl = 5;
        hdr.ipv4.tos = tos;
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

    action result(bit<8> tos, bit<16> udp_len, bit<16> total_len) {
        hdr.thc.kind = hdr.trip.head[15:8];
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.worker = NO_WORKER;
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        carrier(tos, udp_len, total_len);
    }

    action result_to_members(bit<8> tos, bit<16> udp_len, bit<16> total_len) {
        to_members();
        result(tos, udp_len, total_len);
        meta.whose[WHOSE_ANSWER] = ANSWER_RESULT;
        meta.count_answer = 1;
    }

    action result_to_sender(bit<8> tos, bit<16> udp_len, bit<16> total_len) {
        to_sender();
        result(tos, udp_len, total_len);
        meta.whose[WHOSE_ANSWER] = ANSWER_RESENT;
        meta.count_answer = 1;
    }

    action straggler() {
        to_sender();
        hdr.straggler.setValid();
        hdr.straggler.kind = hdr.thc.kind;
        hdr.straggler.zero = 0;
        hdr.straggler.current = hdr.trip.seen_low;
        hdr.thc.kind = KIND_STRAGGLER;
        hdr.thc.flags = 0;
        hdr.thc.count = 0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        carrier(0, UDP_STRAGGLER, UDP_STRAGGLER + 20);
    }

    // P35: what would go to all, or to the sender again, goes up, with kind, table and slot of the packet that found it. Its own kind
    // is the slot's: a packet of another is dropped.
    action to_root() {
        hdr.bridge.trip = TRIP_TO_ONE;
        hdr.bridge.worker = meta.root;
        manager.ucast_egress_port = meta.root_port;
        hdr.thc.worker = meta.rack_number;
        hdr.thc.num_workers = meta.racks;
    }

    action sums(bit<ANSWER_BITS> counted, bit<8> flags, bit<8> tos, bit<16> udp_len, bit<16> total_len) {
        to_root();
        hdr.thc.flags = flags;
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        carrier(tos, udp_len, total_len);
        meta.whose[WHOSE_ANSWER] = counted;
        meta.count_answer = 1;
    }

    action mismatch_to_root() {
        to_root();
        hdr.thc.count = meta.next;
        hdr.thc.kind = KIND_MISMATCH;
        carrier(0, UDP_MISMATCH, UDP_MISMATCH + 20);
    }

    // P36: from the root, as it is but for flags and carrier. Marks stay as they came (P46).
    action pass_on(bit<8> flags, bit<8> tos) {
        to_members();
        hdr.thc.flags = flags;
        hdr.ipv4.tos = tos;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 2;
        hdr.ipv4.ttl = 64;
        hdr.udp.src_port = THC_UDP_PORT;
        hdr.udp.checksum = 0;
    }

    action mismatch() {
        to_members();
        hdr.thc.kind = KIND_MISMATCH;
        hdr.thc.count = 0;
        carrier(0, UDP_MISMATCH, UDP_MISMATCH + 20);
    }

    action nudge() {
        to_members();
        hdr.nudge.setValid();
        hdr.nudge.kind = hdr.thc.kind;
        hdr.nudge.zero = 0;
        hdr.nudge.seen = hdr.trip.seen_high ++ hdr.trip.seen_low;
        hdr.thc.kind = KIND_NUDGE;
        hdr.thc.flags = 0;
        hdr.thc.count = 0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        carrier(0, UDP_NUDGE, UDP_NUDGE + 20);
        meta.whose[WHOSE_ANSWER] = ANSWER_NUDGE;
        meta.count_answer = 1;
    }

    table answer {
        key = {
            hdr.trip.isValid(): ternary;
            hdr.trip.what: ternary;
            hdr.norm.isValid(): ternary;
            meta.half: ternary;
            meta.rack: ternary;
            hdr.trip.flags: ternary;
            // The slot's mark.
            hdr.thc.flags: ternary;
            // Of what comes from a root.
            hdr.ipv4.tos: ternary;
        }
        actions = {
            result_to_members; result_to_sender; straggler; mismatch; nudge; sums; mismatch_to_root; pass_on; @defaultonly NoAction;
        }
        size = 64;
        const default_action = NoAction();
        const entries = {
#define PASSED_ON(ecn) \
            (false, _, _, _, _, _, WITH(FLAG_MARK), ecn &&& 3): pass_on(FLAG_ROOT | FLAG_MARK, ecn); \
            (false, _, _, _, _, _, _, ecn &&& 3): pass_on(FLAG_ROOT, ecn);
            PASSED_ON(0) PASSED_ON(1) PASSED_ON(2) PASSED_ON(3)
#define SUMS(what, counted, nudge, marked, flags) \
            (true, what, false, 0, 1, WITH(TRIP_ECT | nudge), marked, _): sums(counted, flags, TOS_ECT, UDP_WORDS, UDP_WORDS + 20); \
            (true, what, false, 0, 1, WITH(nudge), marked, _): sums(counted, flags, 0, UDP_WORDS, UDP_WORDS + 20); \
            (true, what, false, 1, 1, WITH(TRIP_ECT | nudge), marked, _): sums(counted, flags, TOS_ECT, UDP_HALF_WORDS, UDP_HALF_WORDS + 20); \
            (true, what, false, 1, 1, WITH(nudge), marked, _): sums(counted, flags, 0, UDP_HALF_WORDS, UDP_HALF_WORDS + 20);
#define ALL_SUMS(what, counted) \
            (true, what, true, _, 1, WITH(TRIP_NUDGE), _, _): sums(counted, FLAG_NUDGE, 0, UDP_NORM, UDP_NORM + 20); \
            (true, what, true, _, 1, _, _, _): sums(counted, 0, 0, UDP_NORM, UDP_NORM + 20); \
            SUMS(what, counted, TRIP_NUDGE, WITH(FLAG_MARK), FLAG_NUDGE | FLAG_MARK) \
            SUMS(what, counted, TRIP_NUDGE, _, FLAG_NUDGE) \
            SUMS(what, counted, 0, WITH(FLAG_MARK), FLAG_MARK) \
            SUMS(what, counted, 0, _, 0)
            ALL_SUMS(ANSWER_WITH_RESULT, ANSWER_RESULT) ALL_SUMS(ANSWER_AGAIN, ANSWER_RESENT)
#define RESULTS(what, to) \
            (true, what, false, 0, _, WITH(TRIP_ECT), _, _): to(TOS_ECT, UDP_WORDS, UDP_WORDS + 20); \
            (true, what, false, 0, _, _, _, _): to(0, UDP_WORDS, UDP_WORDS + 20); \
            (true, what, false, 1, _, WITH(TRIP_ECT), _, _): to(TOS_ECT, UDP_HALF_WORDS, UDP_HALF_WORDS + 20); \
            (true, what, false, 1, _, _, _, _): to(0, UDP_HALF_WORDS, UDP_HALF_WORDS + 20); \
            (true, what, true, _, _, _, _, _): to(0, UDP_NORM, UDP_NORM + 20);
            RESULTS(ANSWER_WITH_RESULT, result_to_members) RESULTS(ANSWER_AGAIN, result_to_sender)
            (true, ANSWER_STRAGGLER, _, _, _, _, _, _): straggler();
            (true, ANSWER_MISMATCH, true, _, 1, _, _, _): mismatch_to_root();
            (true, ANSWER_MISMATCH, true, _, _, _, _, _): mismatch();
            (true, ANSWER_WITH_NUDGE, _, _, _, _, _, _): nudge();
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
