// P12 to P17: what goes out. Source and destination are swapped here; the member's own addresses are
// written in egress, once per copy.
control Answers(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name(".events") counter(1 << (JOB_BITS + WORKER_BITS + EVENT_BITS), CounterType.packets) events;
    @name(".answers") counter(1 << (JOB_BITS + ANSWER_BITS), CounterType.packets) answers;

    @name(".set_pass_port")
    action set_pass_port(PortId_t port) {
        standard.egress_spec = port;
    }

    // Through which port a packet goes to its next pass. BMv2 recirculates whatever the port; packets of
    // one port stay in order.
    @name(".passes")
    table passes {
        key = { hdr.pass.number: exact @name("pass"); }
        actions = { set_pass_port; }
        default_action = set_pass_port(PASS_PORT);
        size = PASSES;
    }

    action to_sender() {
        standard.egress_spec = (PortId_t)meta.ingress_port;
        meta.answer = true;
        meta.to_all = false;
        meta.to = hdr.thc.worker;
    }

    // P35: what would go to all, or to the sender again, goes up.
    action to_root() {
        standard.mcast_grp = 0;
        standard.egress_spec = meta.rack.port;
        meta.answer = true;
        meta.to_all = false;
        meta.to = meta.rack.root;
        hdr.thc.worker = meta.rack.number;
        hdr.thc.num_workers = meta.rack.racks;
    }

    action to_members() {
        standard.mcast_grp = meta.job.group;
        meta.answer = true;
        meta.to_all = true;
    }

    action head(bit<8> kind, bit<16> udp_len, bit<8> tos) {
        hdr.thc.kind = kind;
        hdr.thc.flags = 0;
        hdr.thc.count = 0;
        hdr.thc.reserved = 0;
        hdr.udp.len = udp_len;
        mac_t mac = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = mac;
        ipv4_addr_t address = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = address;
        bit<16> port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.udp.checksum = 0;
        hdr.ipv4.tos = tos;
        hdr.ipv4.total_len = udp_len + 20;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 2;
        hdr.ipv4.ttl = 64;
    }

    apply {
        // P46: data brings about an answer that may be marked, if it could be itself.
        bit<2> ecn = hdr.ipv4.tos[1:0];
        bit<8> tos = 0;
        if (ecn != 0) {
            tos = TOS_ECT;
        }
        if (meta.from_root) {
            // P36: to all members as it is, but for the flags and the carrier. Marks stay as they came (P46).
            bit<8> count = hdr.thc.count;
            bit<8> upper = hdr.thc.reserved;
            bit<8> flags = FLAG_ROOT | hdr.thc.flags & FLAG_MARK;
            head(hdr.thc.kind, hdr.udp.len, (bit<8>)ecn);
            hdr.thc.count = count;
            hdr.thc.reserved = upper;
            hdr.thc.flags = flags;
            to_members();
            return;
        }
        bool norm = hdr.norm.isValid();
        bool nudge = hdr.thc.flags & FLAG_NUDGE != 0;
        bit<8> kind = hdr.thc.kind;
        bit<32> counted = (bit<32>)(meta.job.index ++ (answer_t)0);
        bool complete = meta.cell.complete;
        bool completes = meta.cell.completes;
        bit<64> seen = meta.cell.seen;
        bit<PASS_BITS> last = PASSES - 1;
        if (meta.half) {
            last = PASSES / 2 - 1;
        }

        if (meta.pass == 0) {
            events.count((bit<32>)(meta.job.index ++ meta.worker ++ meta.cell.event));
        }
        mark_to_drop(standard);
        if (meta.cell.event == EVENT_STALE) {
            head(KIND_STRAGGLER, UDP_STRAGGLER, 0);
            hdr.straggler.setValid();
            hdr.straggler.kind = kind;
            hdr.straggler.zero = 0;
            hdr.straggler.current = meta.cell.round;
            hdr.norm.setInvalid();
            hdr.indices.setInvalid();
            hdr.words.setInvalid();
            hdr.pass.setInvalid();
            hdr.done.pop_front(PASSES - 1);
            to_sender();
        } else if (meta.cell.event == EVENT_MISMATCH) {
            head(KIND_MISMATCH, UDP_MISMATCH, 0);
            if (meta.rack.here) {
                hdr.thc.count = hdr.thc.worker + 1;
                to_root();
            } else {
                to_members();
            }
        } else if (!norm && meta.pass != last) {
            hdr.pass.number = (bit<8>)meta.pass + 1;
            hdr.pass.kept = 0;
            if (hdr.pass.complete == 1) {
                hdr.pass.kept = hdr.pass.number;
            }
            passes.apply();
            answers.count(counted | (bit<32>)ANSWER_PASS);
        } else {
            bit<8> result_kind = kind | RESULT_BIT;
            bit<8> result_table = hdr.thc.table_id;
            bit<8> flags = 0;
            if (!norm) {
                if (hdr.pass.mark == 1) {
                    flags = FLAG_MARK;
                }
                complete = hdr.pass.complete == 1;
                completes = hdr.pass.completes == 1;
                seen = hdr.pass.seen;
                result_kind = hdr.pass.result_kind;
                result_table = hdr.pass.result_table;
                hdr.pass.setInvalid();
            }
            if (complete) {
                if (completes) {
                    to_members();
                    answers.count(counted | (bit<32>)ANSWER_RESULT);
                } else {
                    to_sender();
                    answers.count(counted | (bit<32>)ANSWER_RESENT);
                }
                if (norm) {
                    head(result_kind, UDP_NORM, 0);
                } else if (meta.half) {
                    head(result_kind, UDP_HALF_WORDS, tos);
                } else {
                    head(result_kind, UDP_WORDS, tos);
                }
                hdr.thc.flags = flags;
                hdr.thc.worker = NO_WORKER;
                hdr.thc.table_id = result_table;
                hdr.thc.count = meta.cell.count;
                if (meta.rack.here) {
                    hdr.thc.kind = result_kind ^ RESULT_BIT;
                    if (nudge) {
                        hdr.thc.flags = flags | FLAG_NUDGE;
                    }
                    to_root();
                }
            } else if (nudge) {
                head(KIND_NUDGE, UDP_NUDGE, 0);
                hdr.nudge.setValid();
                hdr.nudge.kind = kind;
                hdr.nudge.zero = 0;
                hdr.nudge.seen = seen;
                hdr.norm.setInvalid();
                to_members();
                answers.count(counted | (bit<32>)ANSWER_NUDGE);
            }
        }
    }
}
