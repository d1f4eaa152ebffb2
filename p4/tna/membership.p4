// P7: which packets are let in. All tables are looked up side by side; one table of constant entries then
// finds the first check that fails.
control Membership(
    inout ingress_headers_t hdr,
    inout ingress_t meta,
    in ingress_intrinsic_metadata_t intrinsic)
{
    TABLE_OWN_ADDRESS(meta.ours = 1;)

    action own_pass() {
        meta.own_port = 1;
    }

    // The ports over which packets come back from a pass, and nobody else's: only there is a trip_h believed.
    table loopback_ports {
        key = { intrinsic.ingress_port: exact @name("port"); }
        OR_NOTHING(own_pass)
        size = LOOPBACK_PORTS;
    }

    TABLE_JOBS(
        meta.job_known = 1;
        meta.whose[WHOSE_JOB] = index;
        meta.cookie_off = hdr.thc.cookie ^ cookie;
        meta.workers_off = hdr.thc.num_workers ^ workers;
        meta.epoch = epoch;
        meta.quorum = quorum;
        meta.skip = skip[0:0];
        meta.count = quorum[7:0];
        meta.data_place = hdr.thc.slot + data_base;
        meta.data_room = data_slots |-| hdr.thc.slot;
        meta.norm_place = hdr.thc.slot + norm_base;
        meta.norm_room = norm_slots |-| hdr.thc.slot;
        meta.group = group;)

    TABLE_MEMBERS(
        meta.member_known = 1;
        meta.member_port = ingress_port;
        meta.port_off = meta.port ^ ingress_port;
        meta.address_off = hdr.ipv4.src ^ address;
        meta.udp_off = hdr.udp.src_port ^ udp_port;)

    TABLE_RACKS(
        meta.rack = 1;
        meta.rack_number = rack;
        meta.racks = racks;
        meta.racks_off = hdr.thc.num_workers ^ racks;
        meta.root_port = port;)

    // In the place of a member, as far as the packet is the root's.
    TABLE_ROOTS(
        meta.root = receiver;
        meta.member_known = 1;
        meta.address_off = hdr.ipv4.src ^ address;
        meta.udp_off = hdr.udp.src_port ^ udp_port;)

    // In a pass all forms are a byte of indices to two bytes of lanes: which it is, the entries of lookup_a0, … say.
    TABLE_JOB_TABLES(FORMS,
        meta.table_known = 1;
        meta.lookup = lookup;
        meta.half = half;)

    action length_is_right() {
        meta.length_known = 1;
    }

    action length_is_half() {
        meta.half_length = 1;
    }

    // P7.9.
    table lengths {
        key = {
            hdr.thc.kind: exact;
            hdr.udp.len: exact;
        }
        actions = { length_is_right; length_is_half; @defaultonly NoAction; }
        size = 16;
        const default_action = NoAction();
        const entries = {
            (KIND_NORM, UDP_NORM): length_is_right();
            (KIND_DATA, UDP_DATA): length_is_right();
            (KIND_DATA, UDP_HALF_DATA): length_is_half();
            (KIND_RAW, UDP_WORDS): length_is_right();
            // Of a root.
            (KIND_NORM_RESULT, UDP_NORM): length_is_right();
            (KIND_RESULT, UDP_WORDS): length_is_right();
            (KIND_RAW_RESULT, UDP_WORDS): length_is_right();
            (KIND_STRAGGLER, UDP_STRAGGLER): length_is_right();
            (KIND_MISMATCH, UDP_MISMATCH): length_is_right();
            (KIND_NUDGE, UDP_NUDGE): length_is_right();
        }
    }

    // The worker's bit in `seen`, its number for counters, and one more for a rack's MISMATCH (P35). No shift by a variable on a chip.
    action set_me(bit<32> low, bit<32> high, bit<8> next) {
        meta.me_low = low;
        meta.me_high = high;
        meta.next = next;
        meta.who[WHO_WORKER] = hdr.thc.worker[WORKER_BITS - 1:0];
    }

    action other_worker() {
        meta.who[WHO_WORKER] = OTHER_WORKERS;
    }

#define LOW(n) n: set_me(32w1 << n, 0, n + 1);
#define HIGH(n) n: set_me(0, 32w1 << (n - 32), n + 1);
    table workers {
        key = { hdr.thc.worker: exact; }
        actions = { set_me; other_worker; }
        size = 64;
        const default_action = other_worker();
        const entries = {
            LOW(0) LOW(1) LOW(2) LOW(3) LOW(4) LOW(5) LOW(6) LOW(7)
            LOW(8) LOW(9) LOW(10) LOW(11) LOW(12) LOW(13) LOW(14) LOW(15)
            LOW(16) LOW(17) LOW(18) LOW(19) LOW(20) LOW(21) LOW(22) LOW(23)
            LOW(24) LOW(25) LOW(26) LOW(27) LOW(28) LOW(29) LOW(30) LOW(31)
            HIGH(32) HIGH(33) HIGH(34) HIGH(35) HIGH(36) HIGH(37) HIGH(38) HIGH(39)
            HIGH(40) HIGH(41) HIGH(42) HIGH(43) HIGH(44) HIGH(45) HIGH(46) HIGH(47)
            HIGH(48) HIGH(49) HIGH(50) HIGH(51) HIGH(52) HIGH(53) HIGH(54) HIGH(55)
            HIGH(56) HIGH(57) HIGH(58) HIGH(59) HIGH(60) HIGH(61) HIGH(62) HIGH(63)
        }
    }

    action set_flags(bit<8> bits) {
        meta.flags = bits;
    }

    // P17, and P46 of DATA and RAW.
#define DATA_OR_RAW KIND_DATA &&& 0xFE
#define MARKED(nudge) \
            (DATA_OR_RAW, nudge &&& FLAG_NUDGE, 3 &&& 3): set_flags(nudge | TRIP_ECT | TRIP_MARK); \
            (DATA_OR_RAW, nudge | FLAG_MARK &&& FLAG_NUDGE | FLAG_MARK, 1 &&& 1): set_flags(nudge | TRIP_ECT | TRIP_MARK); \
            (DATA_OR_RAW, nudge | FLAG_MARK &&& FLAG_NUDGE | FLAG_MARK, 2 &&& 2): set_flags(nudge | TRIP_ECT | TRIP_MARK); \
            (DATA_OR_RAW, nudge | FLAG_MARK &&& FLAG_NUDGE | FLAG_MARK, _): set_flags(nudge | TRIP_MARK); \
            (DATA_OR_RAW, nudge &&& FLAG_NUDGE, 1 &&& 1): set_flags(nudge | TRIP_ECT); \
            (DATA_OR_RAW, nudge &&& FLAG_NUDGE, 2 &&& 2): set_flags(nudge | TRIP_ECT);
    table flags {
        key = {
            hdr.thc.kind: ternary;
            hdr.thc.flags: ternary;
            hdr.ipv4.tos: ternary;
        }
        actions = { set_flags; }
        size = 16;
        const default_action = set_flags(0);
        const entries = {
            MARKED(0) MARKED(FLAG_NUDGE)
            (_, WITH(FLAG_NUDGE), _): set_flags(TRIP_NUDGE);
        }
    }

    action fresh() {
        meta.way = WAY_FRESH;
    }

    // What the first pass has let in, no later one finds too far ahead (P9).
    action back() {
        meta.way = WAY_BACK;
        meta.skip = 1;
    }

    action forward() {
        meta.way = WAY_FORWARD;
    }

    // The first that fails decides the reason; it is counted for the worker where the job is known.
    action refuse(reason_t reason) {
        meta.way = WAY_DROP;
        meta.reason = reason;
        meta.count_drop = 1;
    }

    action refuse_carrier(reason_t reason) {
        meta.way = WAY_DROP;
        meta.reason = reason;
        meta.count_carrier = 1;
    }

    // Of the root, for all members (P36).
    action down() {
        meta.way = WAY_DOWN;
        meta.who[WHO_WORKER] = OTHER_WORKERS;
    }

    action refuse_root(reason_t reason) {
        refuse(reason);
        meta.who[WHO_WORKER] = OTHER_WORKERS;
    }

    // Other ports of the aggregator's address: nobody is there.
    action nobody() {
        meta.way = WAY_DROP;
    }

    // A packet that passes all checks meets the topmost line of its kind; one that fails falls through to
    // the line of the first check that it fails, since every line asks for all checks before its own.
    // The columns are verdict.py's, in its order.
    table verdict {
        key = {
            meta.own_port: ternary;
            hdr.trip.isValid(): ternary;
            meta.ours: ternary;
            hdr.udp.isValid(): ternary;
            hdr.udp.dst_port: ternary;
            meta.bad_checksum: ternary;
            meta.length_off: ternary;
            meta.too_short: ternary;
            hdr.thc.version: ternary;
            hdr.thc.kind: ternary;
            meta.job_known: ternary;
            meta.cookie_off: ternary;
            meta.member_known: ternary;
            meta.address_off: ternary;
            meta.udp_off: ternary;
            meta.port_off: ternary;
            meta.member_port: ternary;
            meta.workers_off: ternary;
            meta.length_known: ternary;
            meta.data_room: ternary;
            meta.norm_room: ternary;
            meta.table_known: ternary;
            meta.half_length: ternary;
            meta.half: ternary;
            meta.rack: ternary;
            meta.racks_off: ternary;
        }
        actions = { fresh; back; forward; down; refuse; refuse_root; refuse_carrier; nobody; }
        size = 128;
        const default_action = forward();
        const entries = {
#include "generated/verdict.p4"
        }
    }

    apply {
        meta.port = (bit<16>)intrinsic.ingress_port;
        meta.length_off = hdr.ipv4.total_len - hdr.udp.len;
        if (hdr.ipv4.isValid()) {
            own_address.apply();
        }
        loopback_ports.apply();
        jobs.apply();
        racks.apply();
        // What comes from a root, or may go there.
        if (hdr.trip.isValid() || meta.down == 1) {
            roots.apply();
        } else {
            members.apply();
        }
        if (hdr.thc.kind == KIND_DATA || hdr.thc.kind == KIND_RESULT) {
            job_tables.apply();
        }
        flags.apply();
        lengths.apply();
        workers.apply();
        meta.who[WHO_JOB] = meta.whose[WHOSE_JOB];
        verdict.apply();
    }
}
