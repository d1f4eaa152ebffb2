// From Ethernet to the chunk of this pass. BMv2's metadata says which packets come from an earlier pass.
const bit<32> INSTANCE_RECIRCULATED = 4;

parser SwitchParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard)
{
    state start {
        meta.between = standard.instance_type == INSTANCE_RECIRCULATED;
        transition select(meta.between) {
            true: pass;
            false: ethernet;
        }
    }

    state pass {
        packet.extract(hdr.pass);
        meta.done_left = hdr.pass.kept;
        transition ethernet;
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
        // With options or of a fragment it may not look like UDP where UDP would be.
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            THC_UDP_PORT: sized;
            default: accept;
        }
    }

    // UDP lengths below 28 have no room for P1.
    state sized {
        transition select(hdr.udp.len) {
            0 &&& 0xFFF0: too_short;
            16 &&& 0xFFF8: too_short;
            24 &&& 0xFFFC: too_short;
            default: thc;
        }
    }

    state too_short {
        meta.too_short = true;
        transition accept;
    }

    state thc {
        packet.extract(hdr.thc);
        transition select(meta.between, hdr.thc.version, hdr.thc.kind, hdr.udp.len) {
            (false, VERSION, KIND_NORM, UDP_NORM): norm;
            (false, VERSION, KIND_DATA, UDP_DATA): indices;
            (false, VERSION, KIND_DATA, UDP_HALF_DATA): indices;
            (false, VERSION, KIND_RAW, UDP_WORDS): words;
            (true, _, _, _): done;
            // A wrong length (P7.9): nothing of the payload is parsed.
            default: accept;
        }
    }

    state norm {
        packet.extract(hdr.norm);
        transition accept;
    }

    state done {
        transition select(meta.done_left, hdr.thc.kind) {
            (0, KIND_DATA): indices;
            (0, KIND_RAW): words;
            default: one_done;
        }
    }

    state one_done {
        packet.extract(hdr.done.next);
        meta.done_left = meta.done_left - 1;
        transition done;
    }

    state indices {
        packet.extract(hdr.indices);
        transition accept;
    }

    state words {
        packet.extract(hdr.words);
        transition accept;
    }
}
