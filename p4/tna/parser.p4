// Ingress parses the carrier and P1, and of a NORM its payload; all other payload stays unparsed.
parser IngressParser(
    packet_in packet,
    out ingress_headers_t hdr,
    out ingress_t meta,
    out ingress_intrinsic_metadata_t intrinsic)
{
    Checksum() ip_checksum;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.too_short = 0;
        meta.bad_checksum = false;
        meta.ours = 0;
        meta.own_port = 0;
        meta.job_known = 0;
        meta.member_known = 0;
        meta.table_known = 0;
        meta.lookup = NO_LOOKUP;
        meta.length_known = 0;
        meta.half_length = 0;
        meta.half = 0;
        meta.me_low = 0;
        meta.me_high = 0;
        meta.who = 0;
        meta.whose = 0;
        meta.down = 0;
        meta.rack = 0;
        meta.root = 0;
        meta.count_drop = 0;
        meta.count_carrier = 0;
        meta.count_answer = 0;
        meta.reason = 0;
        // Whether its port is one that packets come back by, table `loopback_ports` says (membership.p4).
        transition select(packet.lookahead<types_h>().type) {
            ETHERTYPE_TRIP: trip;
            default: ethernet;
        }
    }

    state trip {
        packet.extract(hdr.trip);
        packet.extract(hdr.thc);
        transition select(hdr.trip.what, hdr.thc.kind) {
            (ANSWER_WITH_RESULT, KIND_NORM): both;
            (ANSWER_AGAIN, KIND_NORM): both;
            (ANSWER_STRAGGLER, KIND_NORM): both;
            (ANSWER_MISMATCH, KIND_NORM): both;
            (ANSWER_WITH_NUDGE, KIND_NORM): both;
            default: accept;
        }
    }

    // The slot's payload, which egress wrote, and the packet's own.
    state both {
        packet.extract(hdr.norm);
        packet.extract(hdr.refused);
        transition accept;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_ARP: arp;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        ip_checksum.add(hdr.ipv4);
        meta.bad_checksum = ip_checksum.verify();
        // With options or of a fragment it may not look like UDP where UDP would be.
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.len) {
            // UDP lengths below 28 have no room for P1.
            (THC_UDP_PORT, 0 &&& 0xFFF0): too_short;
            (THC_UDP_PORT, 16 &&& 0xFFF8): too_short;
            (THC_UDP_PORT, 24 &&& 0xFFFC): too_short;
            (THC_UDP_PORT, UDP_NORM): thc_norm;
            (THC_UDP_PORT, _): thc;
            default: accept;
        }
    }

    state too_short {
        meta.too_short = 1;
        transition accept;
    }

    state thc {
        packet.extract(hdr.thc);
        transition select(hdr.thc.kind) {
            KIND_RESULTS: result;
            default: accept;
        }
    }

    // What a root sends.
    state result {
        meta.down = 1;
        transition accept;
    }

    // As long as a NORM is.
    state thc_norm {
        packet.extract(hdr.thc);
        transition select(hdr.thc.version, hdr.thc.kind) {
            (VERSION, KIND_NORM): norm;
            (_, KIND_RESULTS): result;
            default: accept;
        }
    }

    state norm {
        packet.extract(hdr.norm);
        transition accept;
    }
}

control IngressDeparser(
    packet_out packet,
    inout ingress_headers_t hdr,
    in ingress_t meta,
    in ingress_intrinsic_metadata_for_deparser_t deparser)
{
    apply {
        packet.emit(hdr);
    }
}

// Egress parses what one pass needs: the payload of later passes stays unparsed behind it.
parser EgressParser(
    packet_in packet,
    out egress_headers_t hdr,
    out egress_t meta,
    out egress_intrinsic_metadata_t intrinsic)
{
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        meta.old_low = 0;
        meta.old_high = 0;
        meta.missing = 0;
        meta.head = 0;
        meta.slot_tag = 0;
        meta.fresh = 0;
        meta.again = 0;
        meta.counts = 0;
        meta.complete = 0;
        meta.completes = 0;
        meta.stale = 0;
        meta.differs = 0;
        meta.refused = 0;
        transition select(hdr.bridge.trip) {
            TRIP_ADD: adding;
            TRIP_COLLECT: collecting;
            TRIP_TO_ALL: answer;
            TRIP_TO_ONE: answer;
            default: accept;
        }
    }

    state adding {
        packet.extract(hdr.trip);
        packet.extract(hdr.thc);
        transition select(hdr.thc.kind) {
            KIND_DATA: indices;
            KIND_RAW: words;
            KIND_NORM: norm;
            default: accept;
        }
    }

    state collecting {
        packet.extract(hdr.trip);
        packet.extract(hdr.thc);
        transition accept;
    }

    state indices {
        packet.extract(hdr.indices);
        transition accept;
    }

    state words {
        packet.extract(hdr.first);
        packet.extract(hdr.more);
        transition accept;
    }

    state norm {
        packet.extract(hdr.tag);
        packet.extract(hdr.first);
        transition accept;
    }

    state answer {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        transition accept;
    }
}

control EgressDeparser(
    packet_out packet,
    inout egress_headers_t hdr,
    in egress_t meta,
    in egress_intrinsic_metadata_for_deparser_t deparser)
{
    Checksum() ip_checksum;

    apply {
        hdr.ipv4.checksum = ip_checksum.update({
            hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags,
            hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst });
        packet.emit(hdr);
    }
}
