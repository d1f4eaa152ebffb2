// Where a packet goes: to a host, to its next pass, or nowhere. All that a slot holds is in egress, so that
// the port of a pass, which is chosen here, decides in which pipe its cells are.
control Ingress(
    inout ingress_headers_t hdr,
    inout ingress_t meta,
    in ingress_intrinsic_metadata_t intrinsic,
    in ingress_intrinsic_metadata_from_parser_t parsed,
    inout ingress_intrinsic_metadata_for_deparser_t deparser,
    inout ingress_intrinsic_metadata_for_tm_t manager)
{
    Membership() membership;
    Forwarding() forwarding;
    Answers() answers_out;

    Counter<bit<64>, bit<WORKERS_BITS>>(1 << WORKERS_BITS, CounterType_t.PACKETS_AND_BYTES) packets;
    Counter<bit<32>, bit<WHO_BITS>>(1 << WHO_BITS, CounterType_t.PACKETS) drops;
    Counter<bit<32>, bit<REASON_BITS>>(1 << REASON_BITS, CounterType_t.PACKETS) carrier;
    Counter<bit<64>, bit<WHOSE_BITS>>(1 << WHOSE_BITS, CounterType_t.PACKETS) answers;

    TABLE_CONTROL_PLANE(
        manager.ucast_egress_port = port;
        hdr.bridge.trip = TRIP_FORWARD;
        hdr.bridge.port = NO_PORT;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = meta.port;
        meta.way = WAY_CONTROL;
        meta.count_carrier = 0;)

    // How often the control plane may be asked through a port: what comes more often is dropped.
    DirectMeter(MeterType_t.PACKETS) requests;

    action meter_port() {
        meta.color = requests.execute();
    }

    table control_ports {
        key = { intrinsic.ingress_port: exact @name("port"); }
        OR_NOTHING(meter_port)
        size = METERED_PORTS;
        meters = requests;
    }

    // From here to its last answer the packet does without Ethernet, IP and UDP.
    action begin() {
        hdr.trip.setValid();
        hdr.trip.what = TRIP_ADD;
        hdr.trip.type = ETHERTYPE_TRIP;
        hdr.trip.port = meta.port;
        hdr.trip.who = meta.who;
        hdr.trip.lookup = meta.lookup;
        hdr.trip.complete = 1;
        hdr.trip.completes = 0;
        hdr.trip.flags = meta.flags;
        hdr.trip.head[15:8] = hdr.thc.kind | RESULT_BIT;
        hdr.trip.head[7:0] = hdr.thc.table_id;
        hdr.trip.me_low = meta.me_low;
        hdr.trip.me_high = meta.me_high;
        hdr.trip.seen_low = 0xFFFFFFFF;
        hdr.trip.seen_high = 0xFFFFFFFF;
        hdr.thc.flags = 0;
        hdr.thc.reserved = 0;
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
    }

    action begin_data() {
        begin();
        hdr.trip.number = 0;
        hdr.trip.place = meta.data_place;
    }

    // The payload goes twice: a pass replaces the first copy by the slot's (P14).
    action begin_norm() {
        begin();
        hdr.trip.number = NORM_PASS;
        hdr.trip.place = meta.norm_place;
        hdr.refused = hdr.norm;
    }

    // Through which port and queue a packet goes to a pass, and the first of the cells that the port's pipe has for the pass. Packets
    // of one port and queue stay in order; what has fewer passes left overtakes, in a queue of a higher number.
    action set_pass(PortId_t port, QueueId_t queue, bit<16> first_cell) {
        manager.ucast_egress_port = port;
        manager.qid = queue;
        meta.first_cell = first_cell;
        hdr.bridge.trip = hdr.trip.what;
        meta.whose[WHOSE_ANSWER] = ANSWER_PASS;
        meta.count_answer = 1;
    }

    action no_pass() {
        deparser.drop_ctl = 1;
    }

    table passes {
        key = {
            hdr.trip.number: exact @name("pass");
            // 1 for TRIP_COLLECT, 0 for TRIP_ADD.
            hdr.trip.what[0:0]: exact @name("collect");
        }
        actions = { set_pass; @defaultonly no_pass; }
        const default_action = no_pass();
        // A norm's one pass, and one fewer that collects than adds.
        size = 2 * PASSES;
    }

    apply {
        meta.color = (bit<8>)MeterColor_t.GREEN;
        hdr.bridge.setValid();
        hdr.bridge.worker = 0;
        hdr.bridge.job = hdr.thc.job;
        membership.apply(hdr, meta, intrinsic);
        if (!hdr.trip.isValid() && meta.own_port == 0 && meta.ours == 1 && hdr.thc.isValid() && hdr.thc.version == VERSION) {
            if (control_plane.apply().hit) {
                control_ports.apply();
            }
        }
        if (meta.color == (bit<8>)MeterColor_t.RED) {
            deparser.drop_ctl = 1;
            meta.reason = DROP_RATE;
            meta.count_carrier = 1;
        } else if (meta.way == WAY_FORWARD) {
            forwarding.apply(hdr, intrinsic, deparser, manager);
        } else if (meta.way == WAY_DROP) {
            deparser.drop_ctl = 1;
        } else if (meta.way == WAY_FRESH) {
            if (hdr.norm.isValid()) {
                begin_norm();
            } else {
                begin_data();
            }
        }
        meta.who[WHO_REASON] = meta.reason;
        if (meta.way == WAY_FRESH || meta.way == WAY_DOWN || meta.count_drop == 1) {
            packets.count(meta.who[WHO_BITS - 1:REASON_BITS]);
        }
        if (meta.count_drop == 1) {
            drops.count(meta.who[WHO_BITS - 1:0]);
        }
        if (meta.count_carrier == 1) {
            carrier.count(meta.reason);
        }
        if (meta.way == WAY_FRESH || meta.way == WAY_BACK) {
            hdr.trip.epoch = meta.epoch;
            hdr.trip.quorum = meta.quorum;
            hdr.trip.flags[1:1] = meta.skip;
            hdr.trip.flags[2:2] = meta.half;
            if (hdr.trip.what == TRIP_ADD || hdr.trip.what == TRIP_COLLECT) {
                passes.apply();
                hdr.trip.cell = hdr.trip.place + meta.first_cell;
            } else {
                answers_out.apply(hdr, meta, manager);
            }
        } else if (meta.way == WAY_DOWN) {
            answers_out.apply(hdr, meta, manager);
        }
        if (meta.count_answer == 1) {
            answers.count(meta.whose[WHOSE_BITS - 1:0]);
        }
    }
}
