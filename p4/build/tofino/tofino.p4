

typedef bit<4> reason_t;
typedef bit<48> mac_t;
typedef bit<32> ipv4_addr_t;
@controller_header("packet_in") header packet_in_h {
    bit<16> ingress_port;
}

header ethernet_h {
    mac_t   dst;
    mac_t   src;
    bit<16> type;
}

header arp_h {
    bit<16>     hardware;
    bit<16>     protocol;
    bit<8>      hardware_len;
    bit<8>      protocol_len;
    bit<16>     operation;
    mac_t       sender_mac;
    ipv4_addr_t sender_ip;
    mac_t       target_mac;
    ipv4_addr_t target_ip;
}

header ipv4_h {
    bit<4>      version;
    bit<4>      ihl;
    bit<8>      tos;
    bit<16>     total_len;
    bit<16>     id;
    bit<3>      flags;
    bit<13>     fragment;
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     checksum;
    ipv4_addr_t src;
    ipv4_addr_t dst;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> len;
    bit<16> checksum;
}

header thc_h {
    bit<8>  version;
    bit<8>  kind;
    bit<8>  flags;
    bit<8>  num_workers;
    bit<16> job;
    bit<8>  worker;
    bit<8>  table_id;
    bit<32> cookie;
    bit<32> round;
    bit<16> slot;
    bit<8>  count;
    bit<8>  reserved;
}

header norm_h {
    bit<32> tag;
    bit<32> value;
    bit<32> length;
    bit<16> call;
    bit<8>  table_id;
    bit<8>  mode;
    bit<32> key;
}

header straggler_h {
    bit<8>  kind;
    bit<24> zero;
    bit<32> current;
}

header nudge_h {
    bit<8>  kind;
    bit<24> zero;
    bit<64> seen;
}

typedef bit<8> trip_t;
header bridge_h {
    trip_t  trip;
    bit<8>  worker;
    bit<16> job;
    bit<16> port;
}

header types_h {
    bit<96> before;
    bit<16> type;
}

header trip_h {
    trip_t  what;
    bit<8>  number;
    bit<16> place;
    bit<16> cell;
    bit<16> port;
    bit<16> who;
    bit<16> quorum;
    bit<16> type;
    bit<32> epoch;
    bit<8>  lookup;
    bit<8>  complete;
    bit<8>  completes;
    bit<8>  flags;
    bit<16> head;
    bit<32> me_low;
    bit<32> me_high;
    bit<32> seen_low;
    bit<32> seen_high;
}

header tag_h {
    bit<32> tag;
}

header first_h {
    bit<32> w0;
    bit<32> w1;
    bit<32> w2;
    bit<32> w3;
}

header more_h {
    bit<32> w4;
    bit<32> w5;
    bit<32> w6;
    bit<32> w7;
    bit<32> w8;
    bit<32> w9;
    bit<32> w10;
    bit<32> w11;
    bit<32> w12;
    bit<32> w13;
    bit<32> w14;
    bit<32> w15;
}

header index_h {
    bit<8> a0;
    bit<8> b0;
    bit<8> a1;
    bit<8> b1;
    bit<8> a2;
    bit<8> b2;
    bit<8> a3;
    bit<8> b3;
    bit<8> a4;
    bit<8> b4;
    bit<8> a5;
    bit<8> b5;
    bit<8> a6;
    bit<8> b6;
    bit<8> a7;
    bit<8> b7;
    bit<8> a8;
    bit<8> b8;
    bit<8> a9;
    bit<8> b9;
    bit<8> a10;
    bit<8> b10;
    bit<8> a11;
    bit<8> b11;
    bit<8> a12;
    bit<8> b12;
    bit<8> a13;
    bit<8> b13;
    bit<8> a14;
    bit<8> b14;
    bit<8> a15;
    bit<8> b15;
}

struct ingress_headers_t {
    bridge_h    bridge;
    packet_in_h packet_in;
    trip_h      trip;
    ethernet_h  ethernet;
    arp_h       arp;
    ipv4_h      ipv4;
    udp_h       udp;
    thc_h       thc;
    norm_h      norm;
    norm_h      refused;
    straggler_h straggler;
    nudge_h     nudge;
}

struct egress_headers_t {
    bridge_h   bridge;
    trip_h     trip;
    ethernet_h ethernet;
    ipv4_h     ipv4;
    udp_h      udp;
    thc_h      thc;
    tag_h      tag;
    index_h    indices;
    first_h    first;
    more_h     more;
}

typedef bit<4> way_t;
struct ingress_t {
    bit<1>   too_short;
    bit<1>   down;
    bool     bad_checksum;
    bit<16>  port;
    bit<1>   ours;
    bit<1>   own_port;
    bit<8>   color;
    bit<1>   job_known;
    bit<1>   member_known;
    bit<1>   table_known;
    bit<1>   length_known;
    bit<1>   half_length;
    bit<1>   half;
    bit<32>  cookie_off;
    bit<32>  address_off;
    bit<16>  udp_off;
    bit<16>  port_off;
    bit<8>   workers_off;
    bit<16>  member_port;
    bit<16>  length_off;
    bit<16>  data_room;
    bit<16>  norm_room;
    bit<16>  data_place;
    bit<16>  norm_place;
    bit<16>  group;
    bit<16>  quorum;
    bit<1>   skip;
    bit<8>   flags;
    bit<8>   count;
    bit<32>  epoch;
    bit<8>   lookup;
    bit<32>  me_low;
    bit<32>  me_high;
    bit<8>   next;
    bit<16>  who;
    bit<16>  whose;
    bit<16>  first_cell;
    bit<1>   rack;
    bit<8>   rack_number;
    bit<8>   racks;
    bit<8>   racks_off;
    PortId_t root_port;
    bit<8>   root;
    way_t    way;
    bit<1>   count_drop;
    bit<1>   count_carrier;
    bit<1>   count_answer;
    reason_t reason;
}

typedef bit<2> age_t;
struct egress_t {
    bit<32> old_round;
    bit<32> old_epoch;
    bit<32> old_low;
    bit<32> old_high;
    bit<16> missing;
    bit<16> head;
    bit<32> tag;
    bit<32> slot_tag;
    bit<32> ahead;
    bit<32> epoch_off;
    bit<1>  fresh;
    age_t   age;
    bit<1>  again;
    bit<8>  complete;
    bit<8>  completes;
    bit<1>  stale;
    bit<1>  differs;
    bit<1>  refused;
    bit<1>  counts;
    bit<16> event_index;
    bit<32> depth;
    bit<32> below;
    bit<16> to;
}

parser IngressParser(packet_in packet, out ingress_headers_t hdr, out ingress_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    @name("IngressParser.ip_checksum") Checksum() ip_checksum_0;
    state start {
        packet.extract<ingress_intrinsic_metadata_t>(intrinsic);
        packet.advance(32w64);
        meta.too_short = 1w0;
        meta.bad_checksum = false;
        meta.ours = 1w0;
        meta.own_port = 1w0;
        meta.job_known = 1w0;
        meta.member_known = 1w0;
        meta.table_known = 1w0;
        meta.lookup = 8w4;
        meta.length_known = 1w0;
        meta.half_length = 1w0;
        meta.half = 1w0;
        meta.me_low = 32w0;
        meta.me_high = 32w0;
        meta.who = 16w0;
        meta.whose = 16w0;
        meta.down = 1w0;
        meta.rack = 1w0;
        meta.root = 8w0;
        meta.count_drop = 1w0;
        meta.count_carrier = 1w0;
        meta.count_answer = 1w0;
        meta.reason = 4w0;
        transition select((packet.lookahead<types_h>()).type) {
            16w0x88b6: trip;
            default: ethernet;
        }
    }
    state trip {
        packet.extract<trip_h>(hdr.trip);
        packet.extract<thc_h>(hdr.thc);
        transition select(hdr.trip.what, hdr.thc.kind) {
            (8w5, 8w0x1): both;
            (8w6, 8w0x1): both;
            (8w7, 8w0x1): both;
            (8w8, 8w0x1): both;
            (8w9, 8w0x1): both;
            default: accept;
        }
    }
    state both {
        packet.extract<norm_h>(hdr.norm);
        packet.extract<norm_h>(hdr.refused);
        transition accept;
    }
    state ethernet {
        packet.extract<ethernet_h>(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            16w0x800: ipv4;
            16w0x806: arp;
            default: accept;
        }
    }
    state arp {
        packet.extract<arp_h>(hdr.arp);
        transition accept;
    }
    state ipv4 {
        packet.extract<ipv4_h>(hdr.ipv4);
        ip_checksum_0.add<ipv4_h>(hdr.ipv4);
        meta.bad_checksum = ip_checksum_0.verify();
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4w4, 4w5, 1w0, 13w0, 8w17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract<udp_h>(hdr.udp);
        transition select(hdr.udp.dst_port, hdr.udp.len) {
            (16w9000, 16w0 &&& 16w0xfff0): too_short;
            (16w9000, 16w16 &&& 16w0xfff8): too_short;
            (16w9000, 16w24 &&& 16w0xfffc): too_short;
            (16w9000, 16w48): thc_norm;
            (16w9000, default): thc;
            default: accept;
        }
    }
    state too_short {
        meta.too_short = 1w1;
        transition accept;
    }
    state thc {
        packet.extract<thc_h>(hdr.thc);
        transition select(hdr.thc.kind) {
            8w0x10 &&& 8w0xf8: result;
            default: accept;
        }
    }
    state result {
        meta.down = 1w1;
        transition accept;
    }
    state thc_norm {
        packet.extract<thc_h>(hdr.thc);
        transition select(hdr.thc.version, hdr.thc.kind) {
            (8w3, 8w0x1): norm;
            (default, 8w0x10 &&& 8w0xf8): result;
            default: accept;
        }
    }
    state norm {
        packet.extract<norm_h>(hdr.norm);
        transition accept;
    }
}

control IngressDeparser(packet_out packet, inout ingress_headers_t hdr, in ingress_t meta, in ingress_intrinsic_metadata_for_deparser_t deparser) {
    apply {
        packet.emit<ingress_headers_t>(hdr);
    }
}

parser EgressParser(packet_in packet, out egress_headers_t hdr, out egress_t meta, out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract<egress_intrinsic_metadata_t>(intrinsic);
        packet.extract<bridge_h>(hdr.bridge);
        meta.old_low = 32w0;
        meta.old_high = 32w0;
        meta.missing = 16w0;
        meta.head = 16w0;
        meta.slot_tag = 32w0;
        meta.fresh = 1w0;
        meta.again = 1w0;
        meta.counts = 1w0;
        meta.complete = 8w0;
        meta.completes = 8w0;
        meta.stale = 1w0;
        meta.differs = 1w0;
        meta.refused = 1w0;
        transition select(hdr.bridge.trip) {
            8w2: adding;
            8w1: collecting;
            8w3: answer;
            8w4: answer;
            default: accept;
        }
    }
    state adding {
        packet.extract<trip_h>(hdr.trip);
        packet.extract<thc_h>(hdr.thc);
        transition select(hdr.thc.kind) {
            8w0x2: indices;
            8w0x3: words;
            8w0x1: norm;
            default: accept;
        }
    }
    state collecting {
        packet.extract<trip_h>(hdr.trip);
        packet.extract<thc_h>(hdr.thc);
        transition accept;
    }
    state indices {
        packet.extract<index_h>(hdr.indices);
        transition accept;
    }
    state words {
        packet.extract<first_h>(hdr.first);
        packet.extract<more_h>(hdr.more);
        transition accept;
    }
    state norm {
        packet.extract<tag_h>(hdr.tag);
        packet.extract<first_h>(hdr.first);
        transition accept;
    }
    state answer {
        packet.extract<ethernet_h>(hdr.ethernet);
        packet.extract<ipv4_h>(hdr.ipv4);
        packet.extract<udp_h>(hdr.udp);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout egress_headers_t hdr, in egress_t meta, in egress_intrinsic_metadata_for_deparser_t deparser) {
    @name("EgressDeparser.ip_checksum") Checksum() ip_checksum_1;
    apply {
        hdr.ipv4.checksum = ip_checksum_1.update<tuple<bit<4>, bit<4>, bit<8>, bit<16>, bit<16>, bit<3>, bit<13>, bit<8>, bit<8>, bit<32>, bit<32>>>({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst });
        packet.emit<egress_headers_t>(hdr);
    }
}

control Ingress(inout ingress_headers_t hdr, inout ingress_t meta, in ingress_intrinsic_metadata_t intrinsic, in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparser, inout ingress_intrinsic_metadata_for_tm_t manager) {
    @name("Ingress.forwarding.asked") ipv4_addr_t forwarding_asked;
    @name("Ingress.forwarding.answered") bool forwarding_answered;
    @noWarn("unused") @name(".NoAction") action NoAction_2() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_3() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_4() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_5() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_6() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_7() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_8() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_9() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_10() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_11() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_12() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_13() {
    }
    @name("Ingress.membership.set_ours") action membership_set_ours_0() {
        meta.ours = 1w1;
    }
    @name("Ingress.membership.own_address") table membership_own_address {
        key = {
            hdr.ethernet.dst: exact @name("mac");
            hdr.ipv4.dst    : exact @name("address");
        }
        actions = {
            membership_set_ours_0();
            @defaultonly NoAction_2();
        }
        const default_action = NoAction_2();
        size = 4;
    }
    @name("Ingress.membership.own_pass") action membership_own_pass_0() {
        meta.own_port = 1w1;
    }
    @name("Ingress.membership.loopback_ports") table membership_loopback_ports {
        key = {
            intrinsic.ingress_port: exact @name("port");
        }
        actions = {
            membership_own_pass_0();
            @defaultonly NoAction_3();
        }
        const default_action = NoAction_3();
        size = 256;
    }
    @name("Ingress.membership.set_job") action membership_set_job_0(@name("index") bit<4> index_1, @name("cookie") bit<32> cookie_1, @name("epoch") bit<32> epoch_0, @name("workers") bit<8> workers, @name("quorum") bit<16> quorum_1, @name("skip") bit<8> skip_1, @name("data_base") bit<16> data_base, @name("data_slots") bit<16> data_slots, @name("norm_base") bit<16> norm_base, @name("norm_slots") bit<16> norm_slots, @name("group") bit<16> group_2) {
        meta.job_known = 1w1;
        meta.whose[5:2] = index_1;
        meta.cookie_off = hdr.thc.cookie ^ cookie_1;
        meta.workers_off = hdr.thc.num_workers ^ workers;
        meta.epoch = epoch_0;
        meta.quorum = quorum_1;
        meta.skip = skip_1[0:0];
        meta.count = quorum_1[7:0];
        meta.data_place = hdr.thc.slot + data_base;
        meta.data_room = data_slots |-| hdr.thc.slot;
        meta.norm_place = hdr.thc.slot + norm_base;
        meta.norm_room = norm_slots |-| hdr.thc.slot;
        meta.group = group_2;
    }
    @name("Ingress.membership.jobs") table membership_jobs {
        key = {
            hdr.thc.job: exact @name("job");
        }
        actions = {
            membership_set_job_0();
            @defaultonly NoAction_4();
        }
        const default_action = NoAction_4();
        size = 16;
    }
    @name("Ingress.membership.set_member") action membership_set_member_0(@name("ingress_port") bit<16> ingress_port_1, @name("address") ipv4_addr_t address, @name("udp_port") bit<16> udp_port) {
        meta.member_known = 1w1;
        meta.member_port = ingress_port_1;
        meta.port_off = meta.port ^ ingress_port_1;
        meta.address_off = hdr.ipv4.src ^ address;
        meta.udp_off = hdr.udp.src_port ^ udp_port;
    }
    @name("Ingress.membership.members") table membership_members {
        key = {
            hdr.thc.job   : exact @name("job");
            hdr.thc.worker: exact @name("worker");
        }
        actions = {
            membership_set_member_0();
            @defaultonly NoAction_5();
        }
        const default_action = NoAction_5();
        size = 1024;
    }
    @name("Ingress.membership.set_rack") action membership_set_rack_0(@name("rack") bit<8> rack_1, @name("racks") bit<8> racks_0, @name("port") PortId_t port_4) {
        meta.rack = 1w1;
        meta.rack_number = rack_1;
        meta.racks = racks_0;
        meta.racks_off = hdr.thc.num_workers ^ racks_0;
        meta.root_port = port_4;
    }
    @name("Ingress.membership.racks") table membership_racks {
        key = {
            hdr.thc.job: exact @name("job");
        }
        actions = {
            membership_set_rack_0();
            @defaultonly NoAction_6();
        }
        const default_action = NoAction_6();
        size = 16;
    }
    @name("Ingress.membership.set_root") action membership_set_root_0(@name("receiver") bit<8> receiver, @name("address") ipv4_addr_t address_4, @name("udp_port") bit<16> udp_port_3) {
        meta.root = receiver;
        meta.member_known = 1w1;
        meta.address_off = hdr.ipv4.src ^ address_4;
        meta.udp_off = hdr.udp.src_port ^ udp_port_3;
    }
    @name("Ingress.membership.roots") table membership_roots {
        key = {
            hdr.thc.job       : exact @name("job");
            hdr.thc.slot[15:6]: exact @name("block");
        }
        actions = {
            membership_set_root_0();
            @defaultonly NoAction_7();
        }
        const default_action = NoAction_7();
        size = 256;
    }
    @name("Ingress.membership.allow_table") action membership_allow_table_0(@name("lookup") bit<8> lookup_0, @name("half") bit<1> half_1) {
        meta.table_known = 1w1;
        meta.lookup = lookup_0;
        meta.half = half_1;
    }
    @forms("2/4 4/8 8/16") @name("Ingress.membership.job_tables") table membership_job_tables {
        key = {
            hdr.thc.job     : exact @name("job");
            hdr.thc.table_id: exact @name("table");
        }
        actions = {
            membership_allow_table_0();
            @defaultonly NoAction_8();
        }
        const default_action = NoAction_8();
        size = 1024;
    }
    @name("Ingress.membership.length_is_right") action membership_length_is_right_0() {
        meta.length_known = 1w1;
    }
    @name("Ingress.membership.length_is_half") action membership_length_is_half_0() {
        meta.half_length = 1w1;
    }
    @name("Ingress.membership.lengths") table membership_lengths {
        key = {
            hdr.thc.kind: exact @name("hdr.thc.kind");
            hdr.udp.len : exact @name("hdr.udp.len");
        }
        actions = {
            membership_length_is_right_0();
            membership_length_is_half_0();
            @defaultonly NoAction_9();
        }
        size = 16;
        const default_action = NoAction_9();
        const entries = {
            (8w0x1, 16w48) : membership_length_is_right_0();
            (8w0x2, 16w540) : membership_length_is_right_0();
            (8w0x2, 16w284) : membership_length_is_half_0();
            (8w0x3, 16w1052) : membership_length_is_right_0();
            (8w0x11, 16w48) : membership_length_is_right_0();
            (8w0x12, 16w1052) : membership_length_is_right_0();
            (8w0x13, 16w1052) : membership_length_is_right_0();
            (8w0x14, 16w36) : membership_length_is_right_0();
            (8w0x15, 16w68) : membership_length_is_right_0();
            (8w0x16, 16w40) : membership_length_is_right_0();
        }
    }
    @name("Ingress.membership.set_me") action membership_set_me_0(@name("low") bit<32> low, @name("high") bit<32> high, @name("next") bit<8> next_1) {
        meta.me_low = low;
        meta.me_high = high;
        meta.next = next_1;
        meta.who[10:4] = hdr.thc.worker[6:0];
    }
    @name("Ingress.membership.other_worker") action membership_other_worker_0() {
        meta.who[10:4] = 7w64;
    }
    @name("Ingress.membership.workers") table membership_workers {
        key = {
            hdr.thc.worker: exact @name("hdr.thc.worker");
        }
        actions = {
            membership_set_me_0();
            membership_other_worker_0();
        }
        size = 64;
        const default_action = membership_other_worker_0();
        const entries = {
            8w0 : membership_set_me_0(32w1, 32w0, 8w1);
            8w1 : membership_set_me_0(32w2, 32w0, 8w2);
            8w2 : membership_set_me_0(32w4, 32w0, 8w3);
            8w3 : membership_set_me_0(32w8, 32w0, 8w4);
            8w4 : membership_set_me_0(32w16, 32w0, 8w5);
            8w5 : membership_set_me_0(32w32, 32w0, 8w6);
            8w6 : membership_set_me_0(32w64, 32w0, 8w7);
            8w7 : membership_set_me_0(32w128, 32w0, 8w8);
            8w8 : membership_set_me_0(32w256, 32w0, 8w9);
            8w9 : membership_set_me_0(32w512, 32w0, 8w10);
            8w10 : membership_set_me_0(32w1024, 32w0, 8w11);
            8w11 : membership_set_me_0(32w2048, 32w0, 8w12);
            8w12 : membership_set_me_0(32w4096, 32w0, 8w13);
            8w13 : membership_set_me_0(32w8192, 32w0, 8w14);
            8w14 : membership_set_me_0(32w16384, 32w0, 8w15);
            8w15 : membership_set_me_0(32w32768, 32w0, 8w16);
            8w16 : membership_set_me_0(32w65536, 32w0, 8w17);
            8w17 : membership_set_me_0(32w131072, 32w0, 8w18);
            8w18 : membership_set_me_0(32w262144, 32w0, 8w19);
            8w19 : membership_set_me_0(32w524288, 32w0, 8w20);
            8w20 : membership_set_me_0(32w1048576, 32w0, 8w21);
            8w21 : membership_set_me_0(32w2097152, 32w0, 8w22);
            8w22 : membership_set_me_0(32w4194304, 32w0, 8w23);
            8w23 : membership_set_me_0(32w8388608, 32w0, 8w24);
            8w24 : membership_set_me_0(32w16777216, 32w0, 8w25);
            8w25 : membership_set_me_0(32w33554432, 32w0, 8w26);
            8w26 : membership_set_me_0(32w67108864, 32w0, 8w27);
            8w27 : membership_set_me_0(32w134217728, 32w0, 8w28);
            8w28 : membership_set_me_0(32w268435456, 32w0, 8w29);
            8w29 : membership_set_me_0(32w536870912, 32w0, 8w30);
            8w30 : membership_set_me_0(32w1073741824, 32w0, 8w31);
            8w31 : membership_set_me_0(32w2147483648, 32w0, 8w32);
            8w32 : membership_set_me_0(32w0, 32w1, 8w33);
            8w33 : membership_set_me_0(32w0, 32w2, 8w34);
            8w34 : membership_set_me_0(32w0, 32w4, 8w35);
            8w35 : membership_set_me_0(32w0, 32w8, 8w36);
            8w36 : membership_set_me_0(32w0, 32w16, 8w37);
            8w37 : membership_set_me_0(32w0, 32w32, 8w38);
            8w38 : membership_set_me_0(32w0, 32w64, 8w39);
            8w39 : membership_set_me_0(32w0, 32w128, 8w40);
            8w40 : membership_set_me_0(32w0, 32w256, 8w41);
            8w41 : membership_set_me_0(32w0, 32w512, 8w42);
            8w42 : membership_set_me_0(32w0, 32w1024, 8w43);
            8w43 : membership_set_me_0(32w0, 32w2048, 8w44);
            8w44 : membership_set_me_0(32w0, 32w4096, 8w45);
            8w45 : membership_set_me_0(32w0, 32w8192, 8w46);
            8w46 : membership_set_me_0(32w0, 32w16384, 8w47);
            8w47 : membership_set_me_0(32w0, 32w32768, 8w48);
            8w48 : membership_set_me_0(32w0, 32w65536, 8w49);
            8w49 : membership_set_me_0(32w0, 32w131072, 8w50);
            8w50 : membership_set_me_0(32w0, 32w262144, 8w51);
            8w51 : membership_set_me_0(32w0, 32w524288, 8w52);
            8w52 : membership_set_me_0(32w0, 32w1048576, 8w53);
            8w53 : membership_set_me_0(32w0, 32w2097152, 8w54);
            8w54 : membership_set_me_0(32w0, 32w4194304, 8w55);
            8w55 : membership_set_me_0(32w0, 32w8388608, 8w56);
            8w56 : membership_set_me_0(32w0, 32w16777216, 8w57);
            8w57 : membership_set_me_0(32w0, 32w33554432, 8w58);
            8w58 : membership_set_me_0(32w0, 32w67108864, 8w59);
            8w59 : membership_set_me_0(32w0, 32w134217728, 8w60);
            8w60 : membership_set_me_0(32w0, 32w268435456, 8w61);
            8w61 : membership_set_me_0(32w0, 32w536870912, 8w62);
            8w62 : membership_set_me_0(32w0, 32w1073741824, 8w63);
            8w63 : membership_set_me_0(32w0, 32w2147483648, 8w64);
        }
    }
    @name("Ingress.membership.set_flags") action membership_set_flags_0(@name("bits") bit<8> bits) {
        meta.flags = bits;
    }
    @name("Ingress.membership.flags") table membership_flags {
        key = {
            hdr.thc.kind : ternary @name("hdr.thc.kind");
            hdr.thc.flags: ternary @name("hdr.thc.flags");
            hdr.ipv4.tos : ternary @name("hdr.ipv4.tos");
        }
        actions = {
            membership_set_flags_0();
        }
        size = 16;
        const default_action = membership_set_flags_0(8w0);
        const entries = {
            (8w0x2 &&& 8w0xfe, 8w0 &&& 8w1, 8w3 &&& 8w3) : membership_set_flags_0(8w24);
            (8w0x2 &&& 8w0xfe, 8w4 &&& 8w5, 8w1 &&& 8w1) : membership_set_flags_0(8w24);
            (8w0x2 &&& 8w0xfe, 8w4 &&& 8w5, 8w2 &&& 8w2) : membership_set_flags_0(8w24);
            (8w0x2 &&& 8w0xfe, 8w4 &&& 8w5, default) : membership_set_flags_0(8w16);
            (8w0x2 &&& 8w0xfe, 8w0 &&& 8w1, 8w1 &&& 8w1) : membership_set_flags_0(8w8);
            (8w0x2 &&& 8w0xfe, 8w0 &&& 8w1, 8w2 &&& 8w2) : membership_set_flags_0(8w8);
            (8w0x2 &&& 8w0xfe, 8w1 &&& 8w1, 8w3 &&& 8w3) : membership_set_flags_0(8w25);
            (8w0x2 &&& 8w0xfe, 8w5 &&& 8w5, 8w1 &&& 8w1) : membership_set_flags_0(8w25);
            (8w0x2 &&& 8w0xfe, 8w5 &&& 8w5, 8w2 &&& 8w2) : membership_set_flags_0(8w25);
            (8w0x2 &&& 8w0xfe, 8w5 &&& 8w5, default) : membership_set_flags_0(8w17);
            (8w0x2 &&& 8w0xfe, 8w1 &&& 8w1, 8w1 &&& 8w1) : membership_set_flags_0(8w9);
            (8w0x2 &&& 8w0xfe, 8w1 &&& 8w1, 8w2 &&& 8w2) : membership_set_flags_0(8w9);
            (default, 8w1 &&& 8w1, default) : membership_set_flags_0(8w1);
        }
    }
    @name("Ingress.membership.fresh") action membership_fresh_0() {
        meta.way = 4w2;
    }
    @name("Ingress.membership.back") action membership_back_0() {
        meta.way = 4w3;
        meta.skip = 1w1;
    }
    @name("Ingress.membership.forward") action membership_forward_0() {
        meta.way = 4w0;
    }
    @name("Ingress.membership.refuse") action membership_refuse_0(@name("reason") reason_t reason_3) {
        meta.way = 4w1;
        meta.reason = reason_3;
        meta.count_drop = 1w1;
    }
    @name("Ingress.membership.refuse_carrier") action membership_refuse_carrier_0(@name("reason") reason_t reason_4) {
        meta.way = 4w1;
        meta.reason = reason_4;
        meta.count_carrier = 1w1;
    }
    @name("Ingress.membership.down") action membership_down_0() {
        meta.way = 4w5;
        meta.who[10:4] = 7w64;
    }
    @name("Ingress.membership.refuse_root") action membership_refuse_root_0(@name("reason") reason_t reason_5) {
        meta.way = 4w1;
        meta.reason = reason_5;
        meta.count_drop = 1w1;
        meta.who[10:4] = 7w64;
    }
    @name("Ingress.membership.nobody") action membership_nobody_0() {
        meta.way = 4w1;
    }
    @name("Ingress.membership.verdict") table membership_verdict {
        key = {
            meta.own_port     : ternary @name("meta.own_port");
            hdr.trip.isValid(): ternary @name("hdr.trip.$valid$");
            meta.ours         : ternary @name("meta.ours");
            hdr.udp.isValid() : ternary @name("hdr.udp.$valid$");
            hdr.udp.dst_port  : ternary @name("hdr.udp.dst_port");
            meta.bad_checksum : ternary @name("meta.bad_checksum");
            meta.length_off   : ternary @name("meta.length_off");
            meta.too_short    : ternary @name("meta.too_short");
            hdr.thc.version   : ternary @name("hdr.thc.version");
            hdr.thc.kind      : ternary @name("hdr.thc.kind");
            meta.job_known    : ternary @name("meta.job_known");
            meta.cookie_off   : ternary @name("meta.cookie_off");
            meta.member_known : ternary @name("meta.member_known");
            meta.address_off  : ternary @name("meta.address_off");
            meta.udp_off      : ternary @name("meta.udp_off");
            meta.port_off     : ternary @name("meta.port_off");
            meta.member_port  : ternary @name("meta.member_port");
            meta.workers_off  : ternary @name("meta.workers_off");
            meta.length_known : ternary @name("meta.length_known");
            meta.data_room    : ternary @name("meta.data_room");
            meta.norm_room    : ternary @name("meta.norm_room");
            meta.table_known  : ternary @name("meta.table_known");
            meta.half_length  : ternary @name("meta.half_length");
            meta.half         : ternary @name("meta.half");
            meta.rack         : ternary @name("meta.rack");
            meta.racks_off    : ternary @name("meta.racks_off");
        }
        actions = {
            membership_fresh_0();
            membership_back_0();
            membership_forward_0();
            membership_down_0();
            membership_refuse_0();
            membership_refuse_root_0();
            membership_refuse_carrier_0();
            membership_nobody_0();
        }
        size = 128;
        const default_action = membership_forward_0();
        const entries = {
            (1w0, true, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w13);
            (1w1, false, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w13);
            (1w1, true, default, default, default, default, default, default, default, 8w0x2, 1w1, 32w0, default, default, default, default, default, default, default, default, default, 1w1, default, default, default, default) : membership_back_0();
            (1w1, true, default, default, default, default, default, default, default, 8w0x2, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w14);
            (1w1, true, default, default, default, default, default, default, default, default, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_back_0();
            (1w1, true, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w14);
            (1w0, false, 1w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_forward_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, 1w0, default, default, 1w1, default, 1w0, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, 1w1, 1w0, 1w1, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, 1w0, default, default, 1w1, default, 1w0, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, 1w1, 1w0, 1w1, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, 16w0, default, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, 16w0, default, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, 1w1, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, 1w1, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w10);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w10);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, 1w1, 16w0, default, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, 1w1, 16w0, default, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, 1w1, default, default, default, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, 1w1, default, default, default, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, 1w1, default, 16w0, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, 1w1, default, 16w0, default, default, default, default, default) : membership_refuse_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, 1w1, default, default, default, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, 1w1, default, default, default, default, default, default, default) : membership_fresh_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w5);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x2, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w3);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w5);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x3, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w3);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, 8w0, default, default, default, default, default, default, default, default) : membership_refuse_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, 16w0, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, 32w0, 16w0, default, 16w0, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w5);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w3);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, 16w0, default, 1w1, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, 1w1, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, 16w0, default, 1w0, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, 1w0, default, default, 1w1, 8w0) : membership_refuse_root_0(4w10);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, 16w0, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, default, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, 16w0, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, default, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, 16w0, 16w0, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, default, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, 16w0, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, default, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, 16w0, 16w0, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, 1w1, default, default, default, default, default, 1w1, 8w0) : membership_down_0();
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x11, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x12, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x13, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x14, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x15, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, 8w0) : membership_refuse_root_0(4w8);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, 1w1, 32w0, 16w0, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w7);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, 1w1, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w6);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, 32w0, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w9);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, 8w0x16, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, 1w1, default) : membership_refuse_root_0(4w4);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, 8w3, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w2);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w0, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w1);
            (1w0, false, 1w1, true, 16w9000, false, 16w20, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w0);
            (1w0, false, 1w1, true, 16w9000, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w13);
            (1w0, false, 1w1, true, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_nobody_0();
            (1w0, false, 1w1, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default, default) : membership_refuse_carrier_0(4w13);
        }
    }
    @name("Ingress.forwarding.set_port") action forwarding_set_port_0(@name("port") PortId_t port_5) {
        manager.ucast_egress_port = port_5;
    }
    @name("Ingress.forwarding.flood") action forwarding_flood_0(@name("group") bit<16> group_3) {
        manager.mcast_grp_a = group_3;
        hdr.bridge.port = (bit<16>)intrinsic.ingress_port;
    }
    @name("Ingress.forwarding.drop") action forwarding_drop_0() {
        deparser.drop_ctl = 3w1;
    }
    @name("Ingress.forwarding.stations") table forwarding_stations {
        key = {
            hdr.ethernet.dst: exact @name("mac");
        }
        actions = {
            forwarding_set_port_0();
            forwarding_flood_0();
            forwarding_drop_0();
        }
        default_action = forwarding_drop_0();
        size = 4096;
    }
    @name("Ingress.forwarding.answer_arp") action forwarding_answer_arp_0(@name("mac") mac_t mac) {
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = mac;
        hdr.arp.operation = 16w2;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        forwarding_asked = hdr.arp.target_ip;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = mac;
        hdr.arp.sender_ip = forwarding_asked;
        manager.ucast_egress_port = intrinsic.ingress_port;
    }
    @name("Ingress.forwarding.own_arp") table forwarding_own_arp {
        key = {
            hdr.arp.target_ip: exact @name("address");
        }
        actions = {
            forwarding_answer_arp_0();
            @defaultonly NoAction_10();
        }
        const default_action = NoAction_10();
        size = 4;
    }
    @name("Ingress.answers_out.result_to_members") action answers_out_result_to_members_0(@name("tos") bit<8> tos_0, @name("udp_len") bit<16> udp_len, @name("total_len") bit<16> total_len_0) {
        hdr.bridge.trip = 8w3;
        manager.mcast_grp_a = meta.group;
        hdr.thc.kind = hdr.trip.head[15:8];
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.worker = 8w255;
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = tos_0;
        hdr.ipv4.total_len = total_len_0;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = udp_len;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
        meta.whose[1:0] = 2w0;
        meta.count_answer = 1w1;
    }
    @name("Ingress.answers_out.result_to_sender") action answers_out_result_to_sender_0(@name("tos") bit<8> tos_1, @name("udp_len") bit<16> udp_len_0, @name("total_len") bit<16> total_len_1) {
        hdr.bridge.trip = 8w4;
        hdr.bridge.worker = hdr.thc.worker;
        manager.ucast_egress_port = (PortId_t)hdr.trip.port;
        hdr.thc.kind = hdr.trip.head[15:8];
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.worker = 8w255;
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = tos_1;
        hdr.ipv4.total_len = total_len_1;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = udp_len_0;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
        meta.whose[1:0] = 2w1;
        meta.count_answer = 1w1;
    }
    @name("Ingress.answers_out.straggler") action answers_out_straggler_0() {
        hdr.bridge.trip = 8w4;
        hdr.bridge.worker = hdr.thc.worker;
        manager.ucast_egress_port = (PortId_t)hdr.trip.port;
        hdr.straggler.setValid();
        hdr.straggler.kind = hdr.thc.kind;
        hdr.straggler.zero = 24w0;
        hdr.straggler.current = hdr.trip.seen_low;
        hdr.thc.kind = 8w0x14;
        hdr.thc.flags = 8w0;
        hdr.thc.count = 8w0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = 8w0;
        hdr.ipv4.total_len = 16w56;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = 16w36;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
    }
    @name("Ingress.answers_out.sums") action answers_out_sums_0(@name("counted") bit<2> counted, @name("flags") bit<8> flags_0, @name("tos") bit<8> tos_6, @name("udp_len") bit<16> udp_len_1, @name("total_len") bit<16> total_len_5) {
        hdr.bridge.trip = 8w4;
        hdr.bridge.worker = meta.root;
        manager.ucast_egress_port = meta.root_port;
        hdr.thc.worker = meta.rack_number;
        hdr.thc.num_workers = meta.racks;
        hdr.thc.flags = flags_0;
        hdr.thc.table_id = hdr.trip.head[7:0];
        hdr.thc.count = meta.count;
        hdr.refused.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = tos_6;
        hdr.ipv4.total_len = total_len_5;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = udp_len_1;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
        meta.whose[1:0] = counted;
        meta.count_answer = 1w1;
    }
    @name("Ingress.answers_out.mismatch_to_root") action answers_out_mismatch_to_root_0() {
        hdr.bridge.trip = 8w4;
        hdr.bridge.worker = meta.root;
        manager.ucast_egress_port = meta.root_port;
        hdr.thc.worker = meta.rack_number;
        hdr.thc.num_workers = meta.racks;
        hdr.thc.count = meta.next;
        hdr.thc.kind = 8w0x15;
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = 8w0;
        hdr.ipv4.total_len = 16w88;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = 16w68;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
    }
    @name("Ingress.answers_out.pass_on") action answers_out_pass_on_0(@name("flags") bit<8> flags_3, @name("tos") bit<8> tos_7) {
        hdr.bridge.trip = 8w3;
        manager.mcast_grp_a = meta.group;
        hdr.thc.flags = flags_3;
        hdr.ipv4.tos = tos_7;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.ttl = 8w64;
        hdr.udp.src_port = 16w9000;
        hdr.udp.checksum = 16w0;
    }
    @name("Ingress.answers_out.mismatch") action answers_out_mismatch_0() {
        hdr.bridge.trip = 8w3;
        manager.mcast_grp_a = meta.group;
        hdr.thc.kind = 8w0x15;
        hdr.thc.count = 8w0;
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = 8w0;
        hdr.ipv4.total_len = 16w88;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = 16w68;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
    }
    @name("Ingress.answers_out.nudge") action answers_out_nudge_0() {
        hdr.bridge.trip = 8w3;
        manager.mcast_grp_a = meta.group;
        hdr.nudge.setValid();
        hdr.nudge.kind = hdr.thc.kind;
        hdr.nudge.zero = 24w0;
        hdr.nudge.seen = hdr.trip.seen_high ++ hdr.trip.seen_low;
        hdr.thc.kind = 8w0x16;
        hdr.thc.flags = 8w0;
        hdr.thc.count = 8w0;
        hdr.norm.setInvalid();
        hdr.refused.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet.dst = 48w0;
        hdr.ethernet.type = 16w0x800;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4w4;
        hdr.ipv4.ihl = 4w5;
        hdr.ipv4.tos = 8w0;
        hdr.ipv4.total_len = 16w60;
        hdr.ipv4.id = 16w0;
        hdr.ipv4.flags = 3w2;
        hdr.ipv4.fragment = 13w0;
        hdr.ipv4.ttl = 8w64;
        hdr.ipv4.protocol = 8w17;
        hdr.ipv4.checksum = 16w0;
        hdr.ipv4.dst = 32w0;
        hdr.udp.setValid();
        hdr.udp.src_port = 16w9000;
        hdr.udp.dst_port = 16w0;
        hdr.udp.len = 16w40;
        hdr.udp.checksum = 16w0;
        hdr.trip.setInvalid();
        meta.whose[1:0] = 2w2;
        meta.count_answer = 1w1;
    }
    @name("Ingress.answers_out.answer") table answers_out_answer {
        key = {
            hdr.trip.isValid(): ternary @name("hdr.trip.$valid$");
            hdr.trip.what     : ternary @name("hdr.trip.what");
            hdr.norm.isValid(): ternary @name("hdr.norm.$valid$");
            meta.half         : ternary @name("meta.half");
            meta.rack         : ternary @name("meta.rack");
            hdr.trip.flags    : ternary @name("hdr.trip.flags");
            hdr.thc.flags     : ternary @name("hdr.thc.flags");
            hdr.ipv4.tos      : ternary @name("hdr.ipv4.tos");
        }
        actions = {
            answers_out_result_to_members_0();
            answers_out_result_to_sender_0();
            answers_out_straggler_0();
            answers_out_mismatch_0();
            answers_out_nudge_0();
            answers_out_sums_0();
            answers_out_mismatch_to_root_0();
            answers_out_pass_on_0();
            @defaultonly NoAction_11();
        }
        size = 64;
        const default_action = NoAction_11();
        const entries = {
            (false, default, default, default, default, default, 8w4 &&& 8w4, 8w0 &&& 8w3) : answers_out_pass_on_0(8w6, 8w0);
            (false, default, default, default, default, default, default, 8w0 &&& 8w3) : answers_out_pass_on_0(8w2, 8w0);
            (false, default, default, default, default, default, 8w4 &&& 8w4, 8w1 &&& 8w3) : answers_out_pass_on_0(8w6, 8w1);
            (false, default, default, default, default, default, default, 8w1 &&& 8w3) : answers_out_pass_on_0(8w2, 8w1);
            (false, default, default, default, default, default, 8w4 &&& 8w4, 8w2 &&& 8w3) : answers_out_pass_on_0(8w6, 8w2);
            (false, default, default, default, default, default, default, 8w2 &&& 8w3) : answers_out_pass_on_0(8w2, 8w2);
            (false, default, default, default, default, default, 8w4 &&& 8w4, 8w3 &&& 8w3) : answers_out_pass_on_0(8w6, 8w3);
            (false, default, default, default, default, default, default, 8w3 &&& 8w3) : answers_out_pass_on_0(8w2, 8w3);
            (true, 8w5, true, default, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w0, 8w1, 8w0, 16w48, 16w68);
            (true, 8w5, true, default, 1w1, default, default, default) : answers_out_sums_0(2w0, 8w0, 8w0, 16w48, 16w68);
            (true, 8w5, false, 1w0, 1w1, 8w9 &&& 8w9, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w5, 8w2, 16w1052, 16w1072);
            (true, 8w5, false, 1w0, 1w1, 8w1 &&& 8w1, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w5, 8w0, 16w1052, 16w1072);
            (true, 8w5, false, 1w1, 1w1, 8w9 &&& 8w9, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w5, 8w2, 16w540, 16w560);
            (true, 8w5, false, 1w1, 1w1, 8w1 &&& 8w1, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w5, 8w0, 16w540, 16w560);
            (true, 8w5, false, 1w0, 1w1, 8w9 &&& 8w9, default, default) : answers_out_sums_0(2w0, 8w1, 8w2, 16w1052, 16w1072);
            (true, 8w5, false, 1w0, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w0, 8w1, 8w0, 16w1052, 16w1072);
            (true, 8w5, false, 1w1, 1w1, 8w9 &&& 8w9, default, default) : answers_out_sums_0(2w0, 8w1, 8w2, 16w540, 16w560);
            (true, 8w5, false, 1w1, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w0, 8w1, 8w0, 16w540, 16w560);
            (true, 8w5, false, 1w0, 1w1, 8w8 &&& 8w8, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w4, 8w2, 16w1052, 16w1072);
            (true, 8w5, false, 1w0, 1w1, 8w0 &&& 8w0, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w4, 8w0, 16w1052, 16w1072);
            (true, 8w5, false, 1w1, 1w1, 8w8 &&& 8w8, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w4, 8w2, 16w540, 16w560);
            (true, 8w5, false, 1w1, 1w1, 8w0 &&& 8w0, 8w4 &&& 8w4, default) : answers_out_sums_0(2w0, 8w4, 8w0, 16w540, 16w560);
            (true, 8w5, false, 1w0, 1w1, 8w8 &&& 8w8, default, default) : answers_out_sums_0(2w0, 8w0, 8w2, 16w1052, 16w1072);
            (true, 8w5, false, 1w0, 1w1, 8w0 &&& 8w0, default, default) : answers_out_sums_0(2w0, 8w0, 8w0, 16w1052, 16w1072);
            (true, 8w5, false, 1w1, 1w1, 8w8 &&& 8w8, default, default) : answers_out_sums_0(2w0, 8w0, 8w2, 16w540, 16w560);
            (true, 8w5, false, 1w1, 1w1, 8w0 &&& 8w0, default, default) : answers_out_sums_0(2w0, 8w0, 8w0, 16w540, 16w560);
            (true, 8w6, true, default, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w1, 8w1, 8w0, 16w48, 16w68);
            (true, 8w6, true, default, 1w1, default, default, default) : answers_out_sums_0(2w1, 8w0, 8w0, 16w48, 16w68);
            (true, 8w6, false, 1w0, 1w1, 8w9 &&& 8w9, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w5, 8w2, 16w1052, 16w1072);
            (true, 8w6, false, 1w0, 1w1, 8w1 &&& 8w1, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w5, 8w0, 16w1052, 16w1072);
            (true, 8w6, false, 1w1, 1w1, 8w9 &&& 8w9, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w5, 8w2, 16w540, 16w560);
            (true, 8w6, false, 1w1, 1w1, 8w1 &&& 8w1, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w5, 8w0, 16w540, 16w560);
            (true, 8w6, false, 1w0, 1w1, 8w9 &&& 8w9, default, default) : answers_out_sums_0(2w1, 8w1, 8w2, 16w1052, 16w1072);
            (true, 8w6, false, 1w0, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w1, 8w1, 8w0, 16w1052, 16w1072);
            (true, 8w6, false, 1w1, 1w1, 8w9 &&& 8w9, default, default) : answers_out_sums_0(2w1, 8w1, 8w2, 16w540, 16w560);
            (true, 8w6, false, 1w1, 1w1, 8w1 &&& 8w1, default, default) : answers_out_sums_0(2w1, 8w1, 8w0, 16w540, 16w560);
            (true, 8w6, false, 1w0, 1w1, 8w8 &&& 8w8, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w4, 8w2, 16w1052, 16w1072);
            (true, 8w6, false, 1w0, 1w1, 8w0 &&& 8w0, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w4, 8w0, 16w1052, 16w1072);
            (true, 8w6, false, 1w1, 1w1, 8w8 &&& 8w8, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w4, 8w2, 16w540, 16w560);
            (true, 8w6, false, 1w1, 1w1, 8w0 &&& 8w0, 8w4 &&& 8w4, default) : answers_out_sums_0(2w1, 8w4, 8w0, 16w540, 16w560);
            (true, 8w6, false, 1w0, 1w1, 8w8 &&& 8w8, default, default) : answers_out_sums_0(2w1, 8w0, 8w2, 16w1052, 16w1072);
            (true, 8w6, false, 1w0, 1w1, 8w0 &&& 8w0, default, default) : answers_out_sums_0(2w1, 8w0, 8w0, 16w1052, 16w1072);
            (true, 8w6, false, 1w1, 1w1, 8w8 &&& 8w8, default, default) : answers_out_sums_0(2w1, 8w0, 8w2, 16w540, 16w560);
            (true, 8w6, false, 1w1, 1w1, 8w0 &&& 8w0, default, default) : answers_out_sums_0(2w1, 8w0, 8w0, 16w540, 16w560);
            (true, 8w5, false, 1w0, default, 8w8 &&& 8w8, default, default) : answers_out_result_to_members_0(8w2, 16w1052, 16w1072);
            (true, 8w5, false, 1w0, default, default, default, default) : answers_out_result_to_members_0(8w0, 16w1052, 16w1072);
            (true, 8w5, false, 1w1, default, 8w8 &&& 8w8, default, default) : answers_out_result_to_members_0(8w2, 16w540, 16w560);
            (true, 8w5, false, 1w1, default, default, default, default) : answers_out_result_to_members_0(8w0, 16w540, 16w560);
            (true, 8w5, true, default, default, default, default, default) : answers_out_result_to_members_0(8w0, 16w48, 16w68);
            (true, 8w6, false, 1w0, default, 8w8 &&& 8w8, default, default) : answers_out_result_to_sender_0(8w2, 16w1052, 16w1072);
            (true, 8w6, false, 1w0, default, default, default, default) : answers_out_result_to_sender_0(8w0, 16w1052, 16w1072);
            (true, 8w6, false, 1w1, default, 8w8 &&& 8w8, default, default) : answers_out_result_to_sender_0(8w2, 16w540, 16w560);
            (true, 8w6, false, 1w1, default, default, default, default) : answers_out_result_to_sender_0(8w0, 16w540, 16w560);
            (true, 8w6, true, default, default, default, default, default) : answers_out_result_to_sender_0(8w0, 16w48, 16w68);
            (true, 8w7, default, default, default, default, default, default) : answers_out_straggler_0();
            (true, 8w8, true, default, 1w1, default, default, default) : answers_out_mismatch_to_root_0();
            (true, 8w8, true, default, default, default, default, default) : answers_out_mismatch_0();
            (true, 8w9, default, default, default, default, default, default) : answers_out_nudge_0();
        }
    }
    @name("Ingress.answers_out.set_source") action answers_out_set_source_0(@name("mac") mac_t mac_3, @name("address") ipv4_addr_t address_5) {
        hdr.ethernet.src = mac_3;
        hdr.ipv4.src = address_5;
    }
    @name("Ingress.answers_out.source") table answers_out_source {
        actions = {
            answers_out_set_source_0();
        }
        default_action = answers_out_set_source_0(48w0, 32w0);
        size = 1;
    }
    @name("Ingress.packets") Counter<bit<64>, bit<11>>(32w2048, CounterType_t.PACKETS_AND_BYTES) packets_0;
    @name("Ingress.drops") Counter<bit<32>, bit<15>>(32w32768, CounterType_t.PACKETS) drops_0;
    @name("Ingress.carrier") Counter<bit<32>, bit<4>>(32w16, CounterType_t.PACKETS) carrier_0;
    @name("Ingress.answers") Counter<bit<64>, bit<6>>(32w64, CounterType_t.PACKETS) answers_0;
    @name("Ingress.to_control") action to_control(@name("port") PortId_t port_6) {
        manager.ucast_egress_port = port_6;
        hdr.bridge.trip = 8w0;
        hdr.bridge.port = 16w0xffff;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = meta.port;
        meta.way = 4w4;
        meta.count_carrier = 1w0;
    }
    @name("Ingress.control_plane") table control_plane_0 {
        key = {
            hdr.thc.kind: exact @name("kind");
        }
        actions = {
            to_control();
            @defaultonly NoAction_12();
        }
        const default_action = NoAction_12();
        size = 16;
    }
    @name("Ingress.requests") DirectMeter(MeterType_t.PACKETS) requests_0;
    @name("Ingress.meter_port") action meter_port() {
        meta.color = requests_0.execute();
    }
    @name("Ingress.control_ports") table control_ports_0 {
        key = {
            intrinsic.ingress_port: exact @name("port");
        }
        actions = {
            meter_port();
            @defaultonly NoAction_13();
        }
        const default_action = NoAction_13();
        size = 512;
        meters = requests_0;
    }
    @name("Ingress.begin_data") action begin_data() {
        hdr.trip.setValid();
        hdr.trip.what = 8w2;
        hdr.trip.type = 16w0x88b6;
        hdr.trip.port = meta.port;
        hdr.trip.who = meta.who;
        hdr.trip.lookup = meta.lookup;
        hdr.trip.complete = 8w1;
        hdr.trip.completes = 8w0;
        hdr.trip.flags = meta.flags;
        hdr.trip.head[15:8] = hdr.thc.kind | 8w0x10;
        hdr.trip.head[7:0] = hdr.thc.table_id;
        hdr.trip.me_low = meta.me_low;
        hdr.trip.me_high = meta.me_high;
        hdr.trip.seen_low = 32w0xffffffff;
        hdr.trip.seen_high = 32w0xffffffff;
        hdr.thc.flags = 8w0;
        hdr.thc.reserved = 8w0;
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.trip.number = 8w0;
        hdr.trip.place = meta.data_place;
    }
    @name("Ingress.begin_norm") action begin_norm() {
        hdr.trip.setValid();
        hdr.trip.what = 8w2;
        hdr.trip.type = 16w0x88b6;
        hdr.trip.port = meta.port;
        hdr.trip.who = meta.who;
        hdr.trip.lookup = meta.lookup;
        hdr.trip.complete = 8w1;
        hdr.trip.completes = 8w0;
        hdr.trip.flags = meta.flags;
        hdr.trip.head[15:8] = hdr.thc.kind | 8w0x10;
        hdr.trip.head[7:0] = hdr.thc.table_id;
        hdr.trip.me_low = meta.me_low;
        hdr.trip.me_high = meta.me_high;
        hdr.trip.seen_low = 32w0xffffffff;
        hdr.trip.seen_high = 32w0xffffffff;
        hdr.thc.flags = 8w0;
        hdr.thc.reserved = 8w0;
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.udp.setInvalid();
        hdr.trip.number = 8w255;
        hdr.trip.place = meta.norm_place;
        hdr.refused = hdr.norm;
    }
    @name("Ingress.set_pass") action set_pass(@name("port") PortId_t port_7, @name("queue") QueueId_t queue, @name("first_cell") bit<16> first_cell_1) {
        manager.ucast_egress_port = port_7;
        manager.qid = queue;
        meta.first_cell = first_cell_1;
        hdr.bridge.trip = hdr.trip.what;
        meta.whose[1:0] = 2w3;
        meta.count_answer = 1w1;
    }
    @name("Ingress.no_pass") action no_pass() {
        deparser.drop_ctl = 3w1;
    }
    @name("Ingress.passes") table passes_0 {
        key = {
            hdr.trip.number   : exact @name("pass");
            hdr.trip.what[0:0]: exact @name("collect");
        }
        actions = {
            set_pass();
            @defaultonly no_pass();
        }
        const default_action = no_pass();
        size = 32;
    }
    apply {
        meta.color = 8w0;
        hdr.bridge.setValid();
        hdr.bridge.worker = 8w0;
        hdr.bridge.job = hdr.thc.job;
        meta.port = (bit<16>)intrinsic.ingress_port;
        meta.length_off = hdr.ipv4.total_len - hdr.udp.len;
        if (hdr.ipv4.isValid()) {
            membership_own_address.apply();
        }
        membership_loopback_ports.apply();
        membership_jobs.apply();
        membership_racks.apply();
        if (hdr.trip.isValid() || meta.down == 1w1) {
            membership_roots.apply();
        } else {
            membership_members.apply();
        }
        if (hdr.thc.kind == 8w0x2 || hdr.thc.kind == 8w0x12) {
            membership_job_tables.apply();
        }
        membership_flags.apply();
        membership_lengths.apply();
        membership_workers.apply();
        meta.who[14:11] = meta.whose[5:2];
        membership_verdict.apply();
        if (!hdr.trip.isValid() && meta.own_port == 1w0 && meta.ours == 1w1 && hdr.thc.isValid() && hdr.thc.version == 8w3) {
            if (control_plane_0.apply().hit) {
            control_ports_0.apply();
            }
        }
        if (meta.color == 8w3) {
            deparser.drop_ctl = 3w1;
            meta.reason = 4w15;
            meta.count_carrier = 1w1;
        } else if (meta.way == 4w0) {
            hdr.bridge.trip = 8w0;
            hdr.bridge.port = 16w0xffff;
            forwarding_answered = false;
            if (hdr.arp.isValid() && hdr.arp.operation == 16w1) {
            forwarding_answered = forwarding_own_arp.apply().hit;
            }
            if (forwarding_answered) {
            ;
            } else {
            forwarding_stations.apply();
            }
        } else if (meta.way == 4w1) {
            deparser.drop_ctl = 3w1;
        } else if (meta.way == 4w2) {
            if (hdr.norm.isValid()) {
            begin_norm();
            } else {
            begin_data();
            }
        }
        meta.who[3:0] = meta.reason;
        if (meta.way == 4w2 || meta.way == 4w5 || meta.count_drop == 1w1) {
            packets_0.count(meta.who[14:4]);
        }
        if (meta.count_drop == 1w1) {
            drops_0.count(meta.who[14:0]);
        }
        if (meta.count_carrier == 1w1) {
            carrier_0.count(meta.reason);
        }
        if (meta.way == 4w2 || meta.way == 4w3) {
            hdr.trip.epoch = meta.epoch;
            hdr.trip.quorum = meta.quorum;
            hdr.trip.flags[1:1] = meta.skip;
            hdr.trip.flags[2:2] = meta.half;
            if (hdr.trip.what == 8w2 || hdr.trip.what == 8w1) {
            passes_0.apply();
            hdr.trip.cell = hdr.trip.place + meta.first_cell;
            } else {
            answers_out_answer.apply();
            if (hdr.ethernet.isValid()) {
            answers_out_source.apply();
            }
            }
        } else if (meta.way == 4w5) {
            answers_out_answer.apply();
            if (hdr.ethernet.isValid()) {
            answers_out_source.apply();
            }
        }
        if (meta.count_answer == 1w1) {
            answers_0.count(meta.whose[5:0]);
        }
    }
}

struct pair_t {
    bit<32> first;
    bit<32> second;
}

struct half_t {
    bit<16> missing;
    bit<16> head;
}

@pa_no_overlay("egress", "hdr.indices.a0") @pa_no_overlay("egress", "hdr.indices.b0") @pa_no_overlay("egress", "hdr.indices.a1") @pa_no_overlay("egress", "hdr.indices.b1") @pa_no_overlay("egress", "hdr.indices.a2") @pa_no_overlay("egress", "hdr.indices.b2") @pa_no_overlay("egress", "hdr.indices.a3") @pa_no_overlay("egress", "hdr.indices.b3") @pa_no_overlay("egress", "hdr.indices.a4") @pa_no_overlay("egress", "hdr.indices.b4") @pa_no_overlay("egress", "hdr.indices.a5") @pa_no_overlay("egress", "hdr.indices.b5") @pa_no_overlay("egress", "hdr.indices.a6") @pa_no_overlay("egress", "hdr.indices.b6") @pa_no_overlay("egress", "hdr.indices.a7") @pa_no_overlay("egress", "hdr.indices.b7") @pa_no_overlay("egress", "hdr.indices.a8") @pa_no_overlay("egress", "hdr.indices.b8") @pa_no_overlay("egress", "hdr.indices.a9") @pa_no_overlay("egress", "hdr.indices.b9") @pa_no_overlay("egress", "hdr.indices.a10") @pa_no_overlay("egress", "hdr.indices.b10") @pa_no_overlay("egress", "hdr.indices.a11") @pa_no_overlay("egress", "hdr.indices.b11") @pa_no_overlay("egress", "hdr.indices.a12") @pa_no_overlay("egress", "hdr.indices.b12") @pa_no_overlay("egress", "hdr.indices.a13") @pa_no_overlay("egress", "hdr.indices.b13") @pa_no_overlay("egress", "hdr.indices.a14") @pa_no_overlay("egress", "hdr.indices.b14") @pa_no_overlay("egress", "hdr.indices.a15") @pa_no_overlay("egress", "hdr.indices.b15") control Egress(inout egress_headers_t hdr, inout egress_t meta, in egress_intrinsic_metadata_t intrinsic, in egress_intrinsic_metadata_from_parser_t parsed, inout egress_intrinsic_metadata_for_deparser_t deparser, inout egress_intrinsic_metadata_for_output_port_t port) {
    @noWarn("unused") @name(".NoAction") action NoAction_14() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_15() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_16() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_17() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_18() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_19() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_20() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_21() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_22() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_23() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_24() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_25() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_26() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_27() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_28() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_29() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_30() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_31() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_32() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_33() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_34() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_35() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_36() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_37() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_38() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_39() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_40() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_41() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_42() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_43() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_44() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_45() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_46() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_47() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_48() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_49() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_50() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_51() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_52() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_53() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_54() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_55() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_56() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_57() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_58() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_59() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_60() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_61() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_62() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_63() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_64() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_65() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_66() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_67() {
    }
    @noWarn("unused") @name(".NoAction") action NoAction_68() {
    }
    @name("Egress.cells.epochs") Register<bit<32>, bit<16>>(32w9216, 32w0) cells_epochs;
    @name("Egress.cells.take_epoch") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_epochs) cells_take_epoch = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = hdr.trip.epoch;
        }
    };
    @name("Egress.cells.read_epoch") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_epochs) cells_read_epoch = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
        }
    };
    @name("Egress.cells.rounds") Register<bit<32>, bit<16>>(32w9216, 32w0) cells_rounds;
    @name("Egress.cells.open_round") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_rounds) cells_open_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = hdr.thc.round;
        }
    };
    @name("Egress.cells.take_round") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_rounds) cells_take_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            if ((int<32>)(hdr.thc.round - value) > 32s0) {
            value = hdr.thc.round;
            }
        }
    };
    @name("Egress.cells.take_next_round") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_rounds) cells_take_next_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            if (hdr.thc.round - value == 32w1) {
            value = hdr.thc.round;
            }
        }
    };
    @name("Egress.cells.read_round") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_rounds) cells_read_round = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
        }
    };
    @name("Egress.cells.use_epoch") action cells_use_epoch_0() {
        meta.old_epoch = cells_take_epoch.execute(hdr.trip.cell);
    }
    @name("Egress.cells.look_at_epoch") action cells_look_at_epoch_0() {
        meta.old_epoch = cells_read_epoch.execute(hdr.trip.cell);
    }
    @name("Egress.cells.epoch") table cells_epoch {
        key = {
            hdr.trip.what: exact @name("hdr.trip.what");
        }
        actions = {
            cells_use_epoch_0();
            cells_look_at_epoch_0();
            @defaultonly NoAction_14();
        }
        size = 2;
        const default_action = NoAction_14();
        const entries = {
            8w2 : cells_use_epoch_0();
            8w1 : cells_look_at_epoch_0();
        }
    }
    @name("Egress.cells.use_round") action cells_use_round_0() {
        meta.old_round = cells_take_round.execute(hdr.trip.cell);
    }
    @name("Egress.cells.use_next_round") action cells_use_next_round_0() {
        meta.old_round = cells_take_next_round.execute(hdr.trip.cell);
    }
    @name("Egress.cells.look_at_round") action cells_look_at_round_0() {
        meta.old_round = cells_read_round.execute(hdr.trip.cell);
    }
    @name("Egress.cells.round") table cells_round {
        key = {
            hdr.trip.what : ternary @name("hdr.trip.what");
            hdr.trip.flags: ternary @name("hdr.trip.flags");
        }
        actions = {
            cells_use_round_0();
            cells_use_next_round_0();
            cells_look_at_round_0();
            @defaultonly NoAction_15();
        }
        size = 3;
        const default_action = NoAction_15();
        const entries = {
            (8w2, 8w0 &&& 8w3) : cells_use_next_round_0();
            (8w2, default) : cells_use_round_0();
            (8w1, default) : cells_look_at_round_0();
        }
    }
    @name("Egress.cells.newer") action cells_newer_0() {
        meta.age = 2w1;
    }
    @name("Egress.cells.same") action cells_same_0() {
        meta.age = 2w2;
    }
    @name("Egress.cells.older") action cells_older_0() {
        meta.age = 2w3;
    }
    @name("Egress.cells.far") action cells_far_0() {
        meta.age = 2w0;
    }
    @name("Egress.cells.ages") table cells_ages {
        key = {
            meta.fresh    : ternary @name("meta.fresh");
            meta.ahead    : ternary @name("meta.ahead");
            hdr.trip.flags: ternary @name("hdr.trip.flags");
        }
        actions = {
            cells_newer_0();
            cells_same_0();
            cells_older_0();
            cells_far_0();
        }
        size = 4;
        const default_action = cells_newer_0();
        const entries = {
            (1w0, 32w0, default) : cells_same_0();
            (1w0, 32w0x80000000 &&& 32w0x80000000, default) : cells_older_0();
            (1w0, 32w1, default) : cells_newer_0();
            (1w0, default, 8w0 &&& 8w3) : cells_far_0();
        }
    }
    @name("Egress.cells.tags") Register<pair_t, bit<16>>(32w9216, (pair_t){first = 32w0,second = 32w0}) cells_tags;
    @name("Egress.cells.open_tag") RegisterAction<pair_t, bit<16>, bit<32>>(cells_tags) cells_open_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            value.first = meta.tag;
            value.second = hdr.thc.round;
            tag = value.first;
        }
    };
    @name("Egress.cells.take_tag") RegisterAction<pair_t, bit<16>, bit<32>>(cells_tags) cells_take_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            if ((int<32>)(hdr.thc.round - value.second) > 32s0) {
            value.first = meta.tag;
            value.second = hdr.thc.round;
            }
            tag = value.first;
        }
    };
    @name("Egress.cells.take_next_tag") RegisterAction<pair_t, bit<16>, bit<32>>(cells_tags) cells_take_next_tag = {
        void apply(inout pair_t value, out bit<32> tag) {
            if (hdr.thc.round - value.second == 32w1) {
            value.first = meta.tag;
            value.second = hdr.thc.round;
            }
            tag = value.first;
        }
    };
    @name("Egress.cells.begin_tag") action cells_begin_tag_0() {
        meta.slot_tag = cells_open_tag.execute(hdr.trip.cell);
    }
    @name("Egress.cells.use_tag") action cells_use_tag_0() {
        meta.slot_tag = cells_take_tag.execute(hdr.trip.cell);
    }
    @name("Egress.cells.use_next_tag") action cells_use_next_tag_0() {
        meta.slot_tag = cells_take_next_tag.execute(hdr.trip.cell);
    }
    @name("Egress.cells.tag") table cells_tag {
        key = {
            hdr.trip.what : ternary @name("hdr.trip.what");
            meta.fresh    : ternary @name("meta.fresh");
            hdr.trip.flags: ternary @name("hdr.trip.flags");
        }
        actions = {
            cells_begin_tag_0();
            cells_use_tag_0();
            cells_use_next_tag_0();
            @defaultonly NoAction_16();
        }
        size = 3;
        const default_action = NoAction_16();
        const entries = {
            (8w2, 1w0, 8w0 &&& 8w3) : cells_use_next_tag_0();
            (8w2, 1w0, default) : cells_use_tag_0();
            (8w2, default, default) : cells_begin_tag_0();
        }
    }
    @name("Egress.cells.low") Register<bit<32>, bit<16>>(32w9216, 32w0) cells_low;
    @name("Egress.cells.open_low") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_low) cells_open_low = {
        void apply(inout bit<32> value) {
            value = hdr.trip.me_low;
        }
    };
    @name("Egress.cells.join_low") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_low) cells_join_low = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = value | hdr.trip.me_low;
        }
    };
    @name("Egress.cells.high") Register<bit<32>, bit<16>>(32w9216, 32w0) cells_high;
    @name("Egress.cells.open_high") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_high) cells_open_high = {
        void apply(inout bit<32> value) {
            value = hdr.trip.me_high;
        }
    };
    @name("Egress.cells.join_high") RegisterAction<bit<32>, bit<16>, bit<32>>(cells_high) cells_join_high = {
        void apply(inout bit<32> value, out bit<32> old) {
            old = value;
            value = value | hdr.trip.me_high;
        }
    };
    @name("Egress.cells.missing") Register<bit<16>, bit<16>>(32w9216, 16w0) cells_missing;
    @name("Egress.cells.open_missing") RegisterAction<bit<16>, bit<16>, bit<16>>(cells_missing) cells_open_missing = {
        void apply(inout bit<16> value) {
            value = hdr.trip.quorum + 16w65535;
        }
    };
    @name("Egress.cells.take_missing") RegisterAction<bit<16>, bit<16>, bit<16>>(cells_missing) cells_take_missing = {
        void apply(inout bit<16> value, out bit<16> old) {
            old = value;
            value = value |-| 16w1;
        }
    };
    @name("Egress.cells.read_missing") RegisterAction<bit<16>, bit<16>, bit<16>>(cells_missing) cells_read_missing = {
        void apply(inout bit<16> value, out bit<16> old) {
            old = value;
        }
    };
    @name("Egress.cells.heads") Register<bit<16>, bit<16>>(32w9216, 16w0) cells_heads;
    @name("Egress.cells.write_head") RegisterAction<bit<16>, bit<16>, bit<16>>(cells_heads) cells_write_head = {
        void apply(inout bit<16> value) {
            value = hdr.trip.head;
        }
    };
    @name("Egress.cells.read_head") RegisterAction<bit<16>, bit<16>, bit<16>>(cells_heads) cells_read_head = {
        void apply(inout bit<16> value, out bit<16> head) {
            head = value;
        }
    };
    @name("Egress.cells.open_count") action cells_open_count_0() {
        cells_open_missing.execute(hdr.trip.cell);
        meta.missing = hdr.trip.quorum;
        meta.counts = 1w1;
    }
    @name("Egress.cells.count_in") action cells_count_in_0() {
        meta.missing = cells_take_missing.execute(hdr.trip.cell);
        meta.counts = 1w1;
    }
    @name("Egress.cells.see") action cells_see_0() {
        meta.missing = cells_read_missing.execute(hdr.trip.cell);
    }
    @name("Egress.cells.see_again") action cells_see_again_0() {
        meta.missing = cells_read_missing.execute(hdr.trip.cell);
        meta.again = 1w1;
    }
    @name("Egress.cells.counting") table cells_counting {
        key = {
            hdr.trip.what : ternary @name("hdr.trip.what");
            meta.age      : ternary @name("meta.age");
            meta.differs  : ternary @name("meta.differs");
            hdr.thc.worker: ternary @name("hdr.thc.worker");
            meta.old_low  : ternary @name("meta.old_low");
            meta.old_high : ternary @name("meta.old_high");
        }
        actions = {
            cells_open_count_0();
            cells_count_in_0();
            cells_see_0();
            cells_see_again_0();
            @defaultonly NoAction_17();
        }
        size = 72;
        const default_action = NoAction_17();
        const entries = {
            (8w2, 2w1, default, default, default, default) : cells_open_count_0();
            (8w2, 2w2, 1w0, 8w0, 32w1 &&& 32w1, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w1, 32w2 &&& 32w2, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w2, 32w4 &&& 32w4, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w3, 32w8 &&& 32w8, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w4, 32w16 &&& 32w16, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w5, 32w32 &&& 32w32, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w6, 32w64 &&& 32w64, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w7, 32w128 &&& 32w128, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w8, 32w256 &&& 32w256, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w9, 32w512 &&& 32w512, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w10, 32w1024 &&& 32w1024, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w11, 32w2048 &&& 32w2048, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w12, 32w4096 &&& 32w4096, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w13, 32w8192 &&& 32w8192, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w14, 32w16384 &&& 32w16384, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w15, 32w32768 &&& 32w32768, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w16, 32w65536 &&& 32w65536, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w17, 32w131072 &&& 32w131072, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w18, 32w262144 &&& 32w262144, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w19, 32w524288 &&& 32w524288, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w20, 32w1048576 &&& 32w1048576, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w21, 32w2097152 &&& 32w2097152, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w22, 32w4194304 &&& 32w4194304, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w23, 32w8388608 &&& 32w8388608, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w24, 32w16777216 &&& 32w16777216, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w25, 32w33554432 &&& 32w33554432, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w26, 32w67108864 &&& 32w67108864, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w27, 32w134217728 &&& 32w134217728, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w28, 32w268435456 &&& 32w268435456, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w29, 32w536870912 &&& 32w536870912, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w30, 32w1073741824 &&& 32w1073741824, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w31, 32w2147483648 &&& 32w2147483648, default) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w32, default, 32w1 &&& 32w1) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w33, default, 32w2 &&& 32w2) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w34, default, 32w4 &&& 32w4) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w35, default, 32w8 &&& 32w8) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w36, default, 32w16 &&& 32w16) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w37, default, 32w32 &&& 32w32) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w38, default, 32w64 &&& 32w64) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w39, default, 32w128 &&& 32w128) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w40, default, 32w256 &&& 32w256) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w41, default, 32w512 &&& 32w512) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w42, default, 32w1024 &&& 32w1024) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w43, default, 32w2048 &&& 32w2048) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w44, default, 32w4096 &&& 32w4096) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w45, default, 32w8192 &&& 32w8192) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w46, default, 32w16384 &&& 32w16384) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w47, default, 32w32768 &&& 32w32768) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w48, default, 32w65536 &&& 32w65536) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w49, default, 32w131072 &&& 32w131072) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w50, default, 32w262144 &&& 32w262144) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w51, default, 32w524288 &&& 32w524288) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w52, default, 32w1048576 &&& 32w1048576) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w53, default, 32w2097152 &&& 32w2097152) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w54, default, 32w4194304 &&& 32w4194304) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w55, default, 32w8388608 &&& 32w8388608) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w56, default, 32w16777216 &&& 32w16777216) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w57, default, 32w33554432 &&& 32w33554432) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w58, default, 32w67108864 &&& 32w67108864) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w59, default, 32w134217728 &&& 32w134217728) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w60, default, 32w268435456 &&& 32w268435456) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w61, default, 32w536870912 &&& 32w536870912) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w62, default, 32w1073741824 &&& 32w1073741824) : cells_see_again_0();
            (8w2, 2w2, 1w0, 8w63, default, 32w2147483648 &&& 32w2147483648) : cells_see_again_0();
            (8w2, 2w2, 1w0, default, default, default) : cells_count_in_0();
            (8w1, 2w2, default, default, default, default) : cells_see_0();
        }
    }
    @name("Egress.cells.keep_head") action cells_keep_head_0() {
        cells_write_head.execute(hdr.trip.cell);
        meta.head = hdr.trip.head;
    }
    @name("Egress.cells.look_at_head") action cells_look_at_head_0() {
        meta.head = cells_read_head.execute(hdr.trip.cell);
    }
    @name("Egress.cells.head") table cells_head {
        key = {
            meta.counts : ternary @name("meta.counts");
            meta.missing: ternary @name("meta.missing");
        }
        actions = {
            cells_keep_head_0();
            cells_look_at_head_0();
            @defaultonly NoAction_18();
        }
        size = 2;
        const default_action = NoAction_18();
        const entries = {
            (1w1, 16w1) : cells_keep_head_0();
            (default, default) : cells_look_at_head_0();
        }
    }
    @name("Egress.cells.marks") Register<bit<8>, bit<16>>(32w8192, 8w0) cells_marks;
    @name("Egress.cells.set_mark") RegisterAction<bit<8>, bit<16>, bit<8>>(cells_marks) cells_set_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            value = 8w4;
            mark = value;
        }
    };
    @name("Egress.cells.clear_mark") RegisterAction<bit<8>, bit<16>, bit<8>>(cells_marks) cells_clear_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            value = 8w0;
            mark = value;
        }
    };
    @name("Egress.cells.read_mark") RegisterAction<bit<8>, bit<16>, bit<8>>(cells_marks) cells_read_mark = {
        void apply(inout bit<8> value, out bit<8> mark) {
            mark = value;
        }
    };
    @name("Egress.cells.marked") action cells_marked_0() {
        hdr.thc.flags = cells_set_mark.execute(hdr.trip.cell);
    }
    @name("Egress.cells.unmarked") action cells_unmarked_0() {
        hdr.thc.flags = cells_clear_mark.execute(hdr.trip.cell);
    }
    @name("Egress.cells.look_at_mark") action cells_look_at_mark_0() {
        hdr.thc.flags = cells_read_mark.execute(hdr.trip.cell);
    }
    @name("Egress.cells.mark") table cells_mark {
        key = {
            hdr.trip.what  : ternary @name("hdr.trip.what");
            hdr.trip.number: ternary @name("hdr.trip.number");
            meta.age       : ternary @name("meta.age");
            meta.again     : ternary @name("meta.again");
            meta.missing   : ternary @name("meta.missing");
            hdr.trip.flags : ternary @name("hdr.trip.flags");
        }
        actions = {
            cells_marked_0();
            cells_unmarked_0();
            cells_look_at_mark_0();
            @defaultonly NoAction_19();
        }
        size = 8;
        const default_action = NoAction_19();
        const entries = {
            (8w2, 8w0, 2w1, default, default, 8w16 &&& 8w16) : cells_marked_0();
            (8w2, 8w0, 2w1, default, default, default) : cells_unmarked_0();
            (8w2, 8w0, 2w2, default, 16w0, default) : cells_look_at_mark_0();
            (8w2, 8w0, 2w2, 1w0, default, 8w16 &&& 8w16) : cells_marked_0();
            (8w2, 8w0, 2w2, default, default, default) : cells_look_at_mark_0();
        }
    }
    @name("Egress.cells.decide") action cells_decide_0(@name("event") bit<16> event, @name("complete") bit<8> complete_1, @name("completes") bit<8> completes_1) {
        meta.event_index = meta.event_index | event;
        meta.complete = complete_1;
        meta.completes = completes_1;
    }
    @name("Egress.cells.stale") action cells_stale_0() {
        meta.event_index = meta.event_index | 16w4;
        meta.stale = 1w1;
    }
    @name("Egress.cells.mismatch") action cells_mismatch_0() {
        meta.event_index = meta.event_index | 16w5;
    }
    @name("Egress.cells.refuse") action cells_refuse_0(@name("event") bit<16> event_2) {
        meta.event_index = meta.event_index | event_2;
        meta.refused = 1w1;
    }
    @name("Egress.cells.decisions") table cells_decisions {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.differs     : ternary @name("meta.differs");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            cells_decide_0();
            cells_stale_0();
            cells_mismatch_0();
            cells_refuse_0();
            @defaultonly NoAction_20();
        }
        size = 16;
        const default_action = NoAction_20();
        const entries = {
            (default, default, 2w3, default, default, default) : cells_stale_0();
            (8w2, default, 2w0, default, default, default) : cells_refuse_0(16w6);
            (8w2, default, 2w1, default, default, 16w1) : cells_decide_0(16w0, 8w1, 8w1);
            (8w2, default, 2w1, default, default, default) : cells_decide_0(16w0, 8w0, 8w0);
            (8w2, true, 2w2, 1w1, default, default) : cells_mismatch_0();
            (8w2, false, 2w2, 1w1, default, default) : cells_refuse_0(16w7);
            (8w2, default, 2w2, default, 1w0, 16w0) : cells_decide_0(16w3, 8w1, 8w0);
            (8w2, default, 2w2, default, 1w0, 16w1) : cells_decide_0(16w1, 8w1, 8w1);
            (8w2, default, 2w2, default, 1w0, default) : cells_decide_0(16w1, 8w0, 8w0);
            (8w2, default, 2w2, default, default, 16w0) : cells_decide_0(16w2, 8w1, 8w0);
            (8w2, default, 2w2, default, default, default) : cells_decide_0(16w2, 8w0, 8w0);
            (8w1, default, 2w2, default, default, 16w0) : cells_decide_0(16w0, 8w1, 8w0);
        }
    }
    @name("Egress.lookup.set_a0") action lookup_set_a0_0(@name("values") bit<16> values) {
        hdr.first.w0[31:16] = values;
    }
    @name("Egress.lookup.lookup_a0") table lookup_lookup_a0 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a0      : exact @name("indices");
        }
        actions = {
            lookup_set_a0_0();
            @defaultonly NoAction_21();
        }
        const default_action = NoAction_21();
        size = 1024;
    }
    @name("Egress.lookup.set_b0") action lookup_set_b0_0(@name("values") bit<16> values_32) {
        hdr.first.w0[15:0] = values_32;
    }
    @name("Egress.lookup.lookup_b0") table lookup_lookup_b0 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b0      : exact @name("indices");
        }
        actions = {
            lookup_set_b0_0();
            @defaultonly NoAction_22();
        }
        const default_action = NoAction_22();
        size = 1024;
    }
    @name("Egress.lookup.set_a1") action lookup_set_a1_0(@name("values") bit<16> values_33) {
        hdr.first.w1[31:16] = values_33;
    }
    @name("Egress.lookup.lookup_a1") table lookup_lookup_a1 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a1      : exact @name("indices");
        }
        actions = {
            lookup_set_a1_0();
            @defaultonly NoAction_23();
        }
        const default_action = NoAction_23();
        size = 1024;
    }
    @name("Egress.lookup.set_b1") action lookup_set_b1_0(@name("values") bit<16> values_34) {
        hdr.first.w1[15:0] = values_34;
    }
    @name("Egress.lookup.lookup_b1") table lookup_lookup_b1 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b1      : exact @name("indices");
        }
        actions = {
            lookup_set_b1_0();
            @defaultonly NoAction_24();
        }
        const default_action = NoAction_24();
        size = 1024;
    }
    @name("Egress.lookup.set_a2") action lookup_set_a2_0(@name("values") bit<16> values_35) {
        hdr.first.w2[31:16] = values_35;
    }
    @name("Egress.lookup.lookup_a2") table lookup_lookup_a2 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a2      : exact @name("indices");
        }
        actions = {
            lookup_set_a2_0();
            @defaultonly NoAction_25();
        }
        const default_action = NoAction_25();
        size = 1024;
    }
    @name("Egress.lookup.set_b2") action lookup_set_b2_0(@name("values") bit<16> values_36) {
        hdr.first.w2[15:0] = values_36;
    }
    @name("Egress.lookup.lookup_b2") table lookup_lookup_b2 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b2      : exact @name("indices");
        }
        actions = {
            lookup_set_b2_0();
            @defaultonly NoAction_26();
        }
        const default_action = NoAction_26();
        size = 1024;
    }
    @name("Egress.lookup.set_a3") action lookup_set_a3_0(@name("values") bit<16> values_37) {
        hdr.first.w3[31:16] = values_37;
    }
    @name("Egress.lookup.lookup_a3") table lookup_lookup_a3 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a3      : exact @name("indices");
        }
        actions = {
            lookup_set_a3_0();
            @defaultonly NoAction_27();
        }
        const default_action = NoAction_27();
        size = 1024;
    }
    @name("Egress.lookup.set_b3") action lookup_set_b3_0(@name("values") bit<16> values_38) {
        hdr.first.w3[15:0] = values_38;
    }
    @name("Egress.lookup.lookup_b3") table lookup_lookup_b3 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b3      : exact @name("indices");
        }
        actions = {
            lookup_set_b3_0();
            @defaultonly NoAction_28();
        }
        const default_action = NoAction_28();
        size = 1024;
    }
    @name("Egress.lookup.set_a4") action lookup_set_a4_0(@name("values") bit<16> values_39) {
        hdr.more.w4[31:16] = values_39;
    }
    @name("Egress.lookup.lookup_a4") table lookup_lookup_a4 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a4      : exact @name("indices");
        }
        actions = {
            lookup_set_a4_0();
            @defaultonly NoAction_29();
        }
        const default_action = NoAction_29();
        size = 1024;
    }
    @name("Egress.lookup.set_b4") action lookup_set_b4_0(@name("values") bit<16> values_40) {
        hdr.more.w4[15:0] = values_40;
    }
    @name("Egress.lookup.lookup_b4") table lookup_lookup_b4 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b4      : exact @name("indices");
        }
        actions = {
            lookup_set_b4_0();
            @defaultonly NoAction_30();
        }
        const default_action = NoAction_30();
        size = 1024;
    }
    @name("Egress.lookup.set_a5") action lookup_set_a5_0(@name("values") bit<16> values_41) {
        hdr.more.w5[31:16] = values_41;
    }
    @name("Egress.lookup.lookup_a5") table lookup_lookup_a5 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a5      : exact @name("indices");
        }
        actions = {
            lookup_set_a5_0();
            @defaultonly NoAction_31();
        }
        const default_action = NoAction_31();
        size = 1024;
    }
    @name("Egress.lookup.set_b5") action lookup_set_b5_0(@name("values") bit<16> values_42) {
        hdr.more.w5[15:0] = values_42;
    }
    @name("Egress.lookup.lookup_b5") table lookup_lookup_b5 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b5      : exact @name("indices");
        }
        actions = {
            lookup_set_b5_0();
            @defaultonly NoAction_32();
        }
        const default_action = NoAction_32();
        size = 1024;
    }
    @name("Egress.lookup.set_a6") action lookup_set_a6_0(@name("values") bit<16> values_43) {
        hdr.more.w6[31:16] = values_43;
    }
    @name("Egress.lookup.lookup_a6") table lookup_lookup_a6 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a6      : exact @name("indices");
        }
        actions = {
            lookup_set_a6_0();
            @defaultonly NoAction_33();
        }
        const default_action = NoAction_33();
        size = 1024;
    }
    @name("Egress.lookup.set_b6") action lookup_set_b6_0(@name("values") bit<16> values_44) {
        hdr.more.w6[15:0] = values_44;
    }
    @name("Egress.lookup.lookup_b6") table lookup_lookup_b6 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b6      : exact @name("indices");
        }
        actions = {
            lookup_set_b6_0();
            @defaultonly NoAction_34();
        }
        const default_action = NoAction_34();
        size = 1024;
    }
    @name("Egress.lookup.set_a7") action lookup_set_a7_0(@name("values") bit<16> values_45) {
        hdr.more.w7[31:16] = values_45;
    }
    @name("Egress.lookup.lookup_a7") table lookup_lookup_a7 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a7      : exact @name("indices");
        }
        actions = {
            lookup_set_a7_0();
            @defaultonly NoAction_35();
        }
        const default_action = NoAction_35();
        size = 1024;
    }
    @name("Egress.lookup.set_b7") action lookup_set_b7_0(@name("values") bit<16> values_46) {
        hdr.more.w7[15:0] = values_46;
    }
    @name("Egress.lookup.lookup_b7") table lookup_lookup_b7 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b7      : exact @name("indices");
        }
        actions = {
            lookup_set_b7_0();
            @defaultonly NoAction_36();
        }
        const default_action = NoAction_36();
        size = 1024;
    }
    @name("Egress.lookup.set_a8") action lookup_set_a8_0(@name("values") bit<16> values_47) {
        hdr.more.w8[31:16] = values_47;
    }
    @name("Egress.lookup.lookup_a8") table lookup_lookup_a8 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a8      : exact @name("indices");
        }
        actions = {
            lookup_set_a8_0();
            @defaultonly NoAction_37();
        }
        const default_action = NoAction_37();
        size = 1024;
    }
    @name("Egress.lookup.set_b8") action lookup_set_b8_0(@name("values") bit<16> values_48) {
        hdr.more.w8[15:0] = values_48;
    }
    @name("Egress.lookup.lookup_b8") table lookup_lookup_b8 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b8      : exact @name("indices");
        }
        actions = {
            lookup_set_b8_0();
            @defaultonly NoAction_38();
        }
        const default_action = NoAction_38();
        size = 1024;
    }
    @name("Egress.lookup.set_a9") action lookup_set_a9_0(@name("values") bit<16> values_49) {
        hdr.more.w9[31:16] = values_49;
    }
    @name("Egress.lookup.lookup_a9") table lookup_lookup_a9 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a9      : exact @name("indices");
        }
        actions = {
            lookup_set_a9_0();
            @defaultonly NoAction_39();
        }
        const default_action = NoAction_39();
        size = 1024;
    }
    @name("Egress.lookup.set_b9") action lookup_set_b9_0(@name("values") bit<16> values_50) {
        hdr.more.w9[15:0] = values_50;
    }
    @name("Egress.lookup.lookup_b9") table lookup_lookup_b9 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b9      : exact @name("indices");
        }
        actions = {
            lookup_set_b9_0();
            @defaultonly NoAction_40();
        }
        const default_action = NoAction_40();
        size = 1024;
    }
    @name("Egress.lookup.set_a10") action lookup_set_a10_0(@name("values") bit<16> values_51) {
        hdr.more.w10[31:16] = values_51;
    }
    @name("Egress.lookup.lookup_a10") table lookup_lookup_a10 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a10     : exact @name("indices");
        }
        actions = {
            lookup_set_a10_0();
            @defaultonly NoAction_41();
        }
        const default_action = NoAction_41();
        size = 1024;
    }
    @name("Egress.lookup.set_b10") action lookup_set_b10_0(@name("values") bit<16> values_52) {
        hdr.more.w10[15:0] = values_52;
    }
    @name("Egress.lookup.lookup_b10") table lookup_lookup_b10 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b10     : exact @name("indices");
        }
        actions = {
            lookup_set_b10_0();
            @defaultonly NoAction_42();
        }
        const default_action = NoAction_42();
        size = 1024;
    }
    @name("Egress.lookup.set_a11") action lookup_set_a11_0(@name("values") bit<16> values_53) {
        hdr.more.w11[31:16] = values_53;
    }
    @name("Egress.lookup.lookup_a11") table lookup_lookup_a11 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a11     : exact @name("indices");
        }
        actions = {
            lookup_set_a11_0();
            @defaultonly NoAction_43();
        }
        const default_action = NoAction_43();
        size = 1024;
    }
    @name("Egress.lookup.set_b11") action lookup_set_b11_0(@name("values") bit<16> values_54) {
        hdr.more.w11[15:0] = values_54;
    }
    @name("Egress.lookup.lookup_b11") table lookup_lookup_b11 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b11     : exact @name("indices");
        }
        actions = {
            lookup_set_b11_0();
            @defaultonly NoAction_44();
        }
        const default_action = NoAction_44();
        size = 1024;
    }
    @name("Egress.lookup.set_a12") action lookup_set_a12_0(@name("values") bit<16> values_55) {
        hdr.more.w12[31:16] = values_55;
    }
    @name("Egress.lookup.lookup_a12") table lookup_lookup_a12 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a12     : exact @name("indices");
        }
        actions = {
            lookup_set_a12_0();
            @defaultonly NoAction_45();
        }
        const default_action = NoAction_45();
        size = 1024;
    }
    @name("Egress.lookup.set_b12") action lookup_set_b12_0(@name("values") bit<16> values_56) {
        hdr.more.w12[15:0] = values_56;
    }
    @name("Egress.lookup.lookup_b12") table lookup_lookup_b12 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b12     : exact @name("indices");
        }
        actions = {
            lookup_set_b12_0();
            @defaultonly NoAction_46();
        }
        const default_action = NoAction_46();
        size = 1024;
    }
    @name("Egress.lookup.set_a13") action lookup_set_a13_0(@name("values") bit<16> values_57) {
        hdr.more.w13[31:16] = values_57;
    }
    @name("Egress.lookup.lookup_a13") table lookup_lookup_a13 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a13     : exact @name("indices");
        }
        actions = {
            lookup_set_a13_0();
            @defaultonly NoAction_47();
        }
        const default_action = NoAction_47();
        size = 1024;
    }
    @name("Egress.lookup.set_b13") action lookup_set_b13_0(@name("values") bit<16> values_58) {
        hdr.more.w13[15:0] = values_58;
    }
    @name("Egress.lookup.lookup_b13") table lookup_lookup_b13 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b13     : exact @name("indices");
        }
        actions = {
            lookup_set_b13_0();
            @defaultonly NoAction_48();
        }
        const default_action = NoAction_48();
        size = 1024;
    }
    @name("Egress.lookup.set_a14") action lookup_set_a14_0(@name("values") bit<16> values_59) {
        hdr.more.w14[31:16] = values_59;
    }
    @name("Egress.lookup.lookup_a14") table lookup_lookup_a14 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a14     : exact @name("indices");
        }
        actions = {
            lookup_set_a14_0();
            @defaultonly NoAction_49();
        }
        const default_action = NoAction_49();
        size = 1024;
    }
    @name("Egress.lookup.set_b14") action lookup_set_b14_0(@name("values") bit<16> values_60) {
        hdr.more.w14[15:0] = values_60;
    }
    @name("Egress.lookup.lookup_b14") table lookup_lookup_b14 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b14     : exact @name("indices");
        }
        actions = {
            lookup_set_b14_0();
            @defaultonly NoAction_50();
        }
        const default_action = NoAction_50();
        size = 1024;
    }
    @name("Egress.lookup.set_a15") action lookup_set_a15_0(@name("values") bit<16> values_61) {
        hdr.more.w15[31:16] = values_61;
    }
    @name("Egress.lookup.lookup_a15") table lookup_lookup_a15 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.a15     : exact @name("indices");
        }
        actions = {
            lookup_set_a15_0();
            @defaultonly NoAction_51();
        }
        const default_action = NoAction_51();
        size = 1024;
    }
    @name("Egress.lookup.set_b15") action lookup_set_b15_0(@name("values") bit<16> values_62) {
        hdr.more.w15[15:0] = values_62;
    }
    @name("Egress.lookup.lookup_b15") table lookup_lookup_b15 {
        key = {
            hdr.trip.lookup[2:0]: exact @name("lookup");
            hdr.indices.b15     : exact @name("indices");
        }
        actions = {
            lookup_set_b15_0();
            @defaultonly NoAction_52();
        }
        const default_action = NoAction_52();
        size = 1024;
    }
    @name("Egress.words.lanes0") Register<bit<32>, bit<16>>(32w9216, 32w0) words_lanes0;
    @name("Egress.words.open_lanes0") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes0) words_open_lanes0 = {
        void apply(inout bit<32> value) {
            value = hdr.first.w0;
        }
    };
    @name("Egress.words.add_lanes0") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes0) words_add_lanes0 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.first.w0;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes0") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes0) words_read_lanes0 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open0") action words_open0_0() {
        words_open_lanes0.execute(hdr.trip.cell);
    }
    @name("Egress.words.add0") action words_add0_0() {
        hdr.first.w0 = words_add_lanes0.execute(hdr.trip.cell);
    }
    @name("Egress.words.read0") action words_read0_0() {
        hdr.first.w0 = words_read_lanes0.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes1") Register<bit<32>, bit<16>>(32w9216, 32w0) words_lanes1;
    @name("Egress.words.open_lanes1") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes1) words_open_lanes1 = {
        void apply(inout bit<32> value) {
            value = hdr.first.w1;
        }
    };
    @name("Egress.words.add_lanes1") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes1) words_add_lanes1 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.first.w1;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes1") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes1) words_read_lanes1 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open1") action words_open1_0() {
        words_open_lanes1.execute(hdr.trip.cell);
    }
    @name("Egress.words.add1") action words_add1_0() {
        hdr.first.w1 = words_add_lanes1.execute(hdr.trip.cell);
    }
    @name("Egress.words.read1") action words_read1_0() {
        hdr.first.w1 = words_read_lanes1.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes2") Register<bit<32>, bit<16>>(32w9216, 32w0) words_lanes2;
    @name("Egress.words.open_lanes2") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes2) words_open_lanes2 = {
        void apply(inout bit<32> value) {
            value = hdr.first.w2;
        }
    };
    @name("Egress.words.add_lanes2") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes2) words_add_lanes2 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.first.w2;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes2") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes2) words_read_lanes2 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open2") action words_open2_0() {
        words_open_lanes2.execute(hdr.trip.cell);
    }
    @name("Egress.words.add2") action words_add2_0() {
        hdr.first.w2 = words_add_lanes2.execute(hdr.trip.cell);
    }
    @name("Egress.words.read2") action words_read2_0() {
        hdr.first.w2 = words_read_lanes2.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes3") Register<bit<32>, bit<16>>(32w9216, 32w0) words_lanes3;
    @name("Egress.words.open_lanes3") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes3) words_open_lanes3 = {
        void apply(inout bit<32> value) {
            value = hdr.first.w3;
        }
    };
    @name("Egress.words.add_lanes3") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes3) words_add_lanes3 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.first.w3;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes3") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes3) words_read_lanes3 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open3") action words_open3_0() {
        words_open_lanes3.execute(hdr.trip.cell);
    }
    @name("Egress.words.add3") action words_add3_0() {
        hdr.first.w3 = words_add_lanes3.execute(hdr.trip.cell);
    }
    @name("Egress.words.read3") action words_read3_0() {
        hdr.first.w3 = words_read_lanes3.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes4") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes4;
    @name("Egress.words.open_lanes4") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes4) words_open_lanes4 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w4;
        }
    };
    @name("Egress.words.add_lanes4") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes4) words_add_lanes4 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w4;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes4") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes4) words_read_lanes4 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open4") action words_open4_0() {
        words_open_lanes4.execute(hdr.trip.cell);
    }
    @name("Egress.words.add4") action words_add4_0() {
        hdr.more.w4 = words_add_lanes4.execute(hdr.trip.cell);
    }
    @name("Egress.words.read4") action words_read4_0() {
        hdr.more.w4 = words_read_lanes4.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes5") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes5;
    @name("Egress.words.open_lanes5") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes5) words_open_lanes5 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w5;
        }
    };
    @name("Egress.words.add_lanes5") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes5) words_add_lanes5 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w5;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes5") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes5) words_read_lanes5 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open5") action words_open5_0() {
        words_open_lanes5.execute(hdr.trip.cell);
    }
    @name("Egress.words.add5") action words_add5_0() {
        hdr.more.w5 = words_add_lanes5.execute(hdr.trip.cell);
    }
    @name("Egress.words.read5") action words_read5_0() {
        hdr.more.w5 = words_read_lanes5.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes6") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes6;
    @name("Egress.words.open_lanes6") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes6) words_open_lanes6 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w6;
        }
    };
    @name("Egress.words.add_lanes6") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes6) words_add_lanes6 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w6;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes6") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes6) words_read_lanes6 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open6") action words_open6_0() {
        words_open_lanes6.execute(hdr.trip.cell);
    }
    @name("Egress.words.add6") action words_add6_0() {
        hdr.more.w6 = words_add_lanes6.execute(hdr.trip.cell);
    }
    @name("Egress.words.read6") action words_read6_0() {
        hdr.more.w6 = words_read_lanes6.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes7") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes7;
    @name("Egress.words.open_lanes7") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes7) words_open_lanes7 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w7;
        }
    };
    @name("Egress.words.add_lanes7") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes7) words_add_lanes7 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w7;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes7") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes7) words_read_lanes7 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open7") action words_open7_0() {
        words_open_lanes7.execute(hdr.trip.cell);
    }
    @name("Egress.words.add7") action words_add7_0() {
        hdr.more.w7 = words_add_lanes7.execute(hdr.trip.cell);
    }
    @name("Egress.words.read7") action words_read7_0() {
        hdr.more.w7 = words_read_lanes7.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes8") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes8;
    @name("Egress.words.open_lanes8") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes8) words_open_lanes8 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w8;
        }
    };
    @name("Egress.words.add_lanes8") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes8) words_add_lanes8 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w8;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes8") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes8) words_read_lanes8 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open8") action words_open8_0() {
        words_open_lanes8.execute(hdr.trip.cell);
    }
    @name("Egress.words.add8") action words_add8_0() {
        hdr.more.w8 = words_add_lanes8.execute(hdr.trip.cell);
    }
    @name("Egress.words.read8") action words_read8_0() {
        hdr.more.w8 = words_read_lanes8.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes9") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes9;
    @name("Egress.words.open_lanes9") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes9) words_open_lanes9 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w9;
        }
    };
    @name("Egress.words.add_lanes9") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes9) words_add_lanes9 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w9;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes9") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes9) words_read_lanes9 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open9") action words_open9_0() {
        words_open_lanes9.execute(hdr.trip.cell);
    }
    @name("Egress.words.add9") action words_add9_0() {
        hdr.more.w9 = words_add_lanes9.execute(hdr.trip.cell);
    }
    @name("Egress.words.read9") action words_read9_0() {
        hdr.more.w9 = words_read_lanes9.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes10") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes10;
    @name("Egress.words.open_lanes10") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes10) words_open_lanes10 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w10;
        }
    };
    @name("Egress.words.add_lanes10") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes10) words_add_lanes10 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w10;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes10") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes10) words_read_lanes10 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open10") action words_open10_0() {
        words_open_lanes10.execute(hdr.trip.cell);
    }
    @name("Egress.words.add10") action words_add10_0() {
        hdr.more.w10 = words_add_lanes10.execute(hdr.trip.cell);
    }
    @name("Egress.words.read10") action words_read10_0() {
        hdr.more.w10 = words_read_lanes10.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes11") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes11;
    @name("Egress.words.open_lanes11") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes11) words_open_lanes11 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w11;
        }
    };
    @name("Egress.words.add_lanes11") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes11) words_add_lanes11 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w11;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes11") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes11) words_read_lanes11 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open11") action words_open11_0() {
        words_open_lanes11.execute(hdr.trip.cell);
    }
    @name("Egress.words.add11") action words_add11_0() {
        hdr.more.w11 = words_add_lanes11.execute(hdr.trip.cell);
    }
    @name("Egress.words.read11") action words_read11_0() {
        hdr.more.w11 = words_read_lanes11.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes12") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes12;
    @name("Egress.words.open_lanes12") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes12) words_open_lanes12 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w12;
        }
    };
    @name("Egress.words.add_lanes12") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes12) words_add_lanes12 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w12;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes12") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes12) words_read_lanes12 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open12") action words_open12_0() {
        words_open_lanes12.execute(hdr.trip.cell);
    }
    @name("Egress.words.add12") action words_add12_0() {
        hdr.more.w12 = words_add_lanes12.execute(hdr.trip.cell);
    }
    @name("Egress.words.read12") action words_read12_0() {
        hdr.more.w12 = words_read_lanes12.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes13") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes13;
    @name("Egress.words.open_lanes13") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes13) words_open_lanes13 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w13;
        }
    };
    @name("Egress.words.add_lanes13") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes13) words_add_lanes13 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w13;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes13") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes13) words_read_lanes13 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open13") action words_open13_0() {
        words_open_lanes13.execute(hdr.trip.cell);
    }
    @name("Egress.words.add13") action words_add13_0() {
        hdr.more.w13 = words_add_lanes13.execute(hdr.trip.cell);
    }
    @name("Egress.words.read13") action words_read13_0() {
        hdr.more.w13 = words_read_lanes13.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes14") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes14;
    @name("Egress.words.open_lanes14") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes14) words_open_lanes14 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w14;
        }
    };
    @name("Egress.words.add_lanes14") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes14) words_add_lanes14 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w14;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes14") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes14) words_read_lanes14 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open14") action words_open14_0() {
        words_open_lanes14.execute(hdr.trip.cell);
    }
    @name("Egress.words.add14") action words_add14_0() {
        hdr.more.w14 = words_add_lanes14.execute(hdr.trip.cell);
    }
    @name("Egress.words.read14") action words_read14_0() {
        hdr.more.w14 = words_read_lanes14.execute(hdr.trip.cell);
    }
    @name("Egress.words.lanes15") Register<bit<32>, bit<16>>(32w8192, 32w0) words_lanes15;
    @name("Egress.words.open_lanes15") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes15) words_open_lanes15 = {
        void apply(inout bit<32> value) {
            value = hdr.more.w15;
        }
    };
    @name("Egress.words.add_lanes15") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes15) words_add_lanes15 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + hdr.more.w15;
            sum = value;
        }
    };
    @name("Egress.words.read_lanes15") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes15) words_read_lanes15 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };
    @name("Egress.words.open15") action words_open15_0() {
        words_open_lanes15.execute(hdr.trip.cell);
    }
    @name("Egress.words.add15") action words_add15_0() {
        hdr.more.w15 = words_add_lanes15.execute(hdr.trip.cell);
    }
    @name("Egress.words.read15") action words_read15_0() {
        hdr.more.w15 = words_read_lanes15.execute(hdr.trip.cell);
    }
    @name("Egress.words.max_lanes0") RegisterAction<bit<32>, bit<16>, bit<32>>(words_lanes0) words_max_lanes0 = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = max<bit<32>>(value, hdr.first.w0);
            sum = value;
        }
    };
    @name("Egress.words.max0") action words_max0_0() {
        hdr.first.w0 = words_max_lanes0.execute(hdr.trip.cell);
    }
    @name("Egress.words.words0") table words_words0 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open0_0();
            words_add0_0();
            words_read0_0();
            words_max0_0();
            @defaultonly NoAction_53();
        }
        size = 8;
        const default_action = NoAction_53();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open0_0();
            (8w2, false, 2w2, default, 16w0) : words_read0_0();
            (8w2, false, 2w2, 1w0, default) : words_add0_0();
            (8w1, default, 2w2, default, 16w0) : words_read0_0();
            (8w2, true, 2w1, default, default) : words_open0_0();
            (8w2, true, 2w2, default, 16w0) : words_read0_0();
            (8w2, true, 2w2, 1w0, default) : words_max0_0();
        }
    }
    @name("Egress.words.words1") table words_words1 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open1_0();
            words_add1_0();
            words_read1_0();
            @defaultonly NoAction_54();
        }
        size = 8;
        const default_action = NoAction_54();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open1_0();
            (8w2, false, 2w2, default, 16w0) : words_read1_0();
            (8w2, false, 2w2, 1w0, default) : words_add1_0();
            (8w1, default, 2w2, default, 16w0) : words_read1_0();
            (8w2, true, 2w1, default, default) : words_open1_0();
            (8w2, true, 2w2, default, 16w0) : words_read1_0();
            (8w2, true, 2w2, 1w0, default) : words_read1_0();
        }
    }
    @name("Egress.words.words2") table words_words2 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open2_0();
            words_add2_0();
            words_read2_0();
            @defaultonly NoAction_55();
        }
        size = 8;
        const default_action = NoAction_55();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open2_0();
            (8w2, false, 2w2, default, 16w0) : words_read2_0();
            (8w2, false, 2w2, 1w0, default) : words_add2_0();
            (8w1, default, 2w2, default, 16w0) : words_read2_0();
            (8w2, true, 2w1, default, default) : words_open2_0();
            (8w2, true, 2w2, default, 16w0) : words_read2_0();
            (8w2, true, 2w2, 1w0, default) : words_read2_0();
        }
    }
    @name("Egress.words.words3") table words_words3 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open3_0();
            words_add3_0();
            words_read3_0();
            @defaultonly NoAction_56();
        }
        size = 8;
        const default_action = NoAction_56();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open3_0();
            (8w2, false, 2w2, default, 16w0) : words_read3_0();
            (8w2, false, 2w2, 1w0, default) : words_add3_0();
            (8w1, default, 2w2, default, 16w0) : words_read3_0();
            (8w2, true, 2w1, default, default) : words_open3_0();
            (8w2, true, 2w2, default, 16w0) : words_read3_0();
            (8w2, true, 2w2, 1w0, default) : words_read3_0();
        }
    }
    @name("Egress.words.words4") table words_words4 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open4_0();
            words_add4_0();
            words_read4_0();
            @defaultonly NoAction_57();
        }
        size = 4;
        const default_action = NoAction_57();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open4_0();
            (8w2, false, 2w2, default, 16w0) : words_read4_0();
            (8w2, false, 2w2, 1w0, default) : words_add4_0();
            (8w1, default, 2w2, default, 16w0) : words_read4_0();
        }
    }
    @name("Egress.words.words5") table words_words5 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open5_0();
            words_add5_0();
            words_read5_0();
            @defaultonly NoAction_58();
        }
        size = 4;
        const default_action = NoAction_58();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open5_0();
            (8w2, false, 2w2, default, 16w0) : words_read5_0();
            (8w2, false, 2w2, 1w0, default) : words_add5_0();
            (8w1, default, 2w2, default, 16w0) : words_read5_0();
        }
    }
    @name("Egress.words.words6") table words_words6 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open6_0();
            words_add6_0();
            words_read6_0();
            @defaultonly NoAction_59();
        }
        size = 4;
        const default_action = NoAction_59();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open6_0();
            (8w2, false, 2w2, default, 16w0) : words_read6_0();
            (8w2, false, 2w2, 1w0, default) : words_add6_0();
            (8w1, default, 2w2, default, 16w0) : words_read6_0();
        }
    }
    @name("Egress.words.words7") table words_words7 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open7_0();
            words_add7_0();
            words_read7_0();
            @defaultonly NoAction_60();
        }
        size = 4;
        const default_action = NoAction_60();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open7_0();
            (8w2, false, 2w2, default, 16w0) : words_read7_0();
            (8w2, false, 2w2, 1w0, default) : words_add7_0();
            (8w1, default, 2w2, default, 16w0) : words_read7_0();
        }
    }
    @name("Egress.words.words8") table words_words8 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open8_0();
            words_add8_0();
            words_read8_0();
            @defaultonly NoAction_61();
        }
        size = 4;
        const default_action = NoAction_61();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open8_0();
            (8w2, false, 2w2, default, 16w0) : words_read8_0();
            (8w2, false, 2w2, 1w0, default) : words_add8_0();
            (8w1, default, 2w2, default, 16w0) : words_read8_0();
        }
    }
    @name("Egress.words.words9") table words_words9 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open9_0();
            words_add9_0();
            words_read9_0();
            @defaultonly NoAction_62();
        }
        size = 4;
        const default_action = NoAction_62();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open9_0();
            (8w2, false, 2w2, default, 16w0) : words_read9_0();
            (8w2, false, 2w2, 1w0, default) : words_add9_0();
            (8w1, default, 2w2, default, 16w0) : words_read9_0();
        }
    }
    @name("Egress.words.words10") table words_words10 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open10_0();
            words_add10_0();
            words_read10_0();
            @defaultonly NoAction_63();
        }
        size = 4;
        const default_action = NoAction_63();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open10_0();
            (8w2, false, 2w2, default, 16w0) : words_read10_0();
            (8w2, false, 2w2, 1w0, default) : words_add10_0();
            (8w1, default, 2w2, default, 16w0) : words_read10_0();
        }
    }
    @name("Egress.words.words11") table words_words11 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open11_0();
            words_add11_0();
            words_read11_0();
            @defaultonly NoAction_64();
        }
        size = 4;
        const default_action = NoAction_64();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open11_0();
            (8w2, false, 2w2, default, 16w0) : words_read11_0();
            (8w2, false, 2w2, 1w0, default) : words_add11_0();
            (8w1, default, 2w2, default, 16w0) : words_read11_0();
        }
    }
    @name("Egress.words.words12") table words_words12 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open12_0();
            words_add12_0();
            words_read12_0();
            @defaultonly NoAction_65();
        }
        size = 4;
        const default_action = NoAction_65();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open12_0();
            (8w2, false, 2w2, default, 16w0) : words_read12_0();
            (8w2, false, 2w2, 1w0, default) : words_add12_0();
            (8w1, default, 2w2, default, 16w0) : words_read12_0();
        }
    }
    @name("Egress.words.words13") table words_words13 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open13_0();
            words_add13_0();
            words_read13_0();
            @defaultonly NoAction_66();
        }
        size = 4;
        const default_action = NoAction_66();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open13_0();
            (8w2, false, 2w2, default, 16w0) : words_read13_0();
            (8w2, false, 2w2, 1w0, default) : words_add13_0();
            (8w1, default, 2w2, default, 16w0) : words_read13_0();
        }
    }
    @name("Egress.words.words14") table words_words14 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open14_0();
            words_add14_0();
            words_read14_0();
            @defaultonly NoAction_67();
        }
        size = 4;
        const default_action = NoAction_67();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open14_0();
            (8w2, false, 2w2, default, 16w0) : words_read14_0();
            (8w2, false, 2w2, 1w0, default) : words_add14_0();
            (8w1, default, 2w2, default, 16w0) : words_read14_0();
        }
    }
    @name("Egress.words.words15") table words_words15 {
        key = {
            hdr.trip.what    : ternary @name("hdr.trip.what");
            hdr.tag.isValid(): ternary @name("hdr.tag.$valid$");
            meta.age         : ternary @name("meta.age");
            meta.again       : ternary @name("meta.again");
            meta.missing     : ternary @name("meta.missing");
        }
        actions = {
            words_open15_0();
            words_add15_0();
            words_read15_0();
            @defaultonly NoAction_68();
        }
        size = 4;
        const default_action = NoAction_68();
        const entries = {
            (8w2, false, 2w1, default, default) : words_open15_0();
            (8w2, false, 2w2, default, 16w0) : words_read15_0();
            (8w2, false, 2w2, 1w0, default) : words_add15_0();
            (8w1, default, 2w2, default, 16w0) : words_read15_0();
        }
    }
    @name("Egress.events") Counter<bit<32>, bit<14>>(32w16384, CounterType_t.PACKETS) events_0;
    @name("Egress.set_address") action set_address(@name("mac") mac_t mac_4, @name("address") ipv4_addr_t address_6, @name("udp_port") bit<16> udp_port_4) {
        hdr.ethernet.dst = mac_4;
        hdr.ipv4.dst = address_6;
        hdr.udp.dst_port = udp_port_4;
    }
    @name("Egress.unknown_member") action unknown_member() {
        deparser.drop_ctl = 3w1;
    }
    @name("Egress.addresses") table addresses_0 {
        key = {
            hdr.bridge.job: exact @name("job");
            meta.to       : exact @name("worker");
        }
        actions = {
            set_address();
            @defaultonly unknown_member();
        }
        const default_action = unknown_member();
        size = 1024;
    }
    @name("Egress.set_depth") action set_depth(@name("length") bit<32> length_1) {
        meta.below = length_1 |-| meta.depth;
    }
    @name("Egress.marking") table marking_0 {
        actions = {
            set_depth();
        }
        default_action = set_depth(32w1024);
        size = 1;
    }
    @name("Egress.next_pass") action next_pass() {
        hdr.trip.number = hdr.trip.number + 8w1;
        hdr.first.setInvalid();
        hdr.more.setInvalid();
        hdr.indices.setInvalid();
    }
    @name("Egress.first_collected") action first_collected() {
        hdr.trip.what = 8w1;
        hdr.trip.number = 8w14;
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }
    @name("Egress.first_half_collected") action first_half_collected() {
        hdr.trip.what = 8w1;
        hdr.trip.number = 8w6;
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }
    @name("Egress.next_collected") action next_collected() {
        hdr.trip.number = hdr.trip.number + 8w255;
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }
    @name("Egress.result") action result_0() {
        hdr.trip.what = 8w5;
        hdr.trip.head = meta.head;
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }
    @name("Egress.result_again") action result_again() {
        hdr.trip.what = 8w6;
        hdr.trip.head = meta.head;
        hdr.first.setValid();
        hdr.more.setValid();
        hdr.indices.setInvalid();
    }
    @name("Egress.norm_result") action norm_result() {
        hdr.trip.what = 8w5;
        hdr.trip.head = meta.head;
    }
    @name("Egress.norm_again") action norm_again() {
        hdr.trip.what = 8w6;
        hdr.trip.head = meta.head;
    }
    @name("Egress.straggler") action straggler_0() {
        hdr.trip.what = 8w7;
        hdr.trip.seen_low = meta.old_round;
        hdr.first.setInvalid();
        hdr.more.setInvalid();
        hdr.indices.setInvalid();
    }
    @name("Egress.norm_straggler") action norm_straggler() {
        hdr.trip.what = 8w7;
        hdr.trip.seen_low = meta.old_round;
    }
    @name("Egress.mismatch") action mismatch() {
        hdr.trip.what = 8w8;
        hdr.tag.tag = meta.slot_tag;
    }
    @name("Egress.norm_nudge") action norm_nudge() {
        hdr.trip.what = 8w9;
        hdr.trip.seen_low = hdr.trip.seen_low | hdr.trip.me_low;
        hdr.trip.seen_high = hdr.trip.seen_high | hdr.trip.me_high;
    }
    @name("Egress.nudge") action nudge_0() {
        hdr.trip.what = 8w9;
        hdr.trip.seen_low = hdr.trip.seen_low | hdr.trip.me_low;
        hdr.trip.seen_high = hdr.trip.seen_high | hdr.trip.me_high;
        hdr.first.setInvalid();
        hdr.more.setInvalid();
        hdr.indices.setInvalid();
    }
    @name("Egress.nothing") action nothing() {
        deparser.drop_ctl = 3w1;
    }
    @name("Egress.outcomes") table outcomes_0 {
        key = {
            hdr.trip.what     : ternary @name("hdr.trip.what");
            hdr.tag.isValid() : ternary @name("hdr.tag.$valid$");
            hdr.trip.number   : ternary @name("hdr.trip.number");
            meta.stale        : ternary @name("meta.stale");
            meta.differs      : ternary @name("meta.differs");
            hdr.trip.complete : ternary @name("hdr.trip.complete");
            hdr.trip.completes: ternary @name("hdr.trip.completes");
            hdr.trip.flags    : ternary @name("hdr.trip.flags");
            meta.refused      : ternary @name("meta.refused");
        }
        actions = {
            next_pass();
            first_collected();
            first_half_collected();
            next_collected();
            result_0();
            result_again();
            norm_result();
            norm_again();
            straggler_0();
            norm_straggler();
            mismatch();
            nudge_0();
            norm_nudge();
            nothing();
        }
        size = 32;
        const default_action = nothing();
        const entries = {
            (default, default, default, default, default, default, default, default, 1w1) : nothing();
            (default, false, default, 1w1, default, default, default, default, default) : straggler_0();
            (default, true, default, 1w1, default, default, default, default, default) : norm_straggler();
            (8w2, true, default, default, 1w1, default, default, default, default) : mismatch();
            (8w2, true, default, default, default, 8w1, 8w1, default, default) : norm_result();
            (8w2, true, default, default, default, 8w1, default, default, default) : norm_again();
            (8w2, true, default, default, default, default, default, 8w1 &&& 8w1, default) : norm_nudge();
            (8w2, true, default, default, default, default, default, default, default) : nothing();
            (8w2, false, 8w15, default, default, 8w1, default, default, default) : first_collected();
            (8w2, false, 8w15, default, default, default, default, 8w1 &&& 8w1, default) : nudge_0();
            (8w2, false, 8w15, default, default, default, default, default, default) : nothing();
            (8w2, false, 8w7, default, default, 8w1, default, 8w4 &&& 8w4, default) : first_half_collected();
            (8w2, false, 8w7, default, default, default, default, 8w5 &&& 8w5, default) : nudge_0();
            (8w2, false, 8w7, default, default, default, default, 8w4 &&& 8w4, default) : nothing();
            (8w2, false, default, default, default, default, default, default, default) : next_pass();
            (8w1, default, 8w0, default, default, 8w1, 8w1, default, default) : result_0();
            (8w1, default, 8w0, default, default, 8w1, default, default, default) : result_again();
            (8w1, default, default, default, default, 8w1, default, default, default) : next_collected();
            (8w1, default, default, default, default, default, default, 8w1 &&& 8w1, default) : nudge_0();
        }
    }
    apply {
        if (parsed.parser_err != 16w0x0) {
            deparser.drop_ctl = 3w1;
        } else if (hdr.trip.isValid()) {
            meta.depth = (bit<32>)intrinsic.deq_qdepth;
            marking_0.apply();
            if (hdr.tag.isValid()) {
            meta.tag = hdr.tag.tag;
            } else {
            meta.tag = (bit<32>)hdr.trip.head;
            }
            cells_epoch.apply();
            if (meta.old_epoch == hdr.trip.epoch) {
            cells_round.apply();
            } else {
            meta.fresh = 1w1;
            if (hdr.trip.what == 8w2) {
            cells_open_round.execute(hdr.trip.cell);
            }
            }
            meta.ahead = hdr.thc.round - meta.old_round;
            cells_ages.apply();
            if (cells_tag.apply().hit) {
            if (meta.slot_tag != meta.tag) {
            meta.differs = 1w1;
            }
            }
            if (hdr.trip.what == 8w2 && meta.differs == 1w0) {
            if (meta.age == 2w1) {
            cells_open_low.execute(hdr.trip.cell);
            cells_open_high.execute(hdr.trip.cell);
            } else if (meta.age == 2w2) {
            meta.old_low = cells_join_low.execute(hdr.trip.cell);
            meta.old_high = cells_join_high.execute(hdr.trip.cell);
            }
            }
            if (hdr.trip.what == 8w2) {
            hdr.trip.seen_low = hdr.trip.seen_low & meta.old_low;
            hdr.trip.seen_high = hdr.trip.seen_high & meta.old_high;
            }
            meta.event_index = hdr.trip.who >> 1;
            cells_counting.apply();
            cells_decisions.apply();
            if (meta.below == 32w0) {
            hdr.trip.flags = hdr.trip.flags | 8w16;
            }
            cells_mark.apply();
            cells_head.apply();
            lookup_lookup_a0.apply();
            lookup_lookup_b0.apply();
            lookup_lookup_a1.apply();
            lookup_lookup_b1.apply();
            lookup_lookup_a2.apply();
            lookup_lookup_b2.apply();
            lookup_lookup_a3.apply();
            lookup_lookup_b3.apply();
            lookup_lookup_a4.apply();
            lookup_lookup_b4.apply();
            lookup_lookup_a5.apply();
            lookup_lookup_b5.apply();
            lookup_lookup_a6.apply();
            lookup_lookup_b6.apply();
            lookup_lookup_a7.apply();
            lookup_lookup_b7.apply();
            lookup_lookup_a8.apply();
            lookup_lookup_b8.apply();
            lookup_lookup_a9.apply();
            lookup_lookup_b9.apply();
            lookup_lookup_a10.apply();
            lookup_lookup_b10.apply();
            lookup_lookup_a11.apply();
            lookup_lookup_b11.apply();
            lookup_lookup_a12.apply();
            lookup_lookup_b12.apply();
            lookup_lookup_a13.apply();
            lookup_lookup_b13.apply();
            lookup_lookup_a14.apply();
            lookup_lookup_b14.apply();
            lookup_lookup_a15.apply();
            lookup_lookup_b15.apply();
            words_words0.apply();
            words_words1.apply();
            words_words2.apply();
            words_words3.apply();
            words_words4.apply();
            words_words5.apply();
            words_words6.apply();
            words_words7.apply();
            words_words8.apply();
            words_words9.apply();
            words_words10.apply();
            words_words11.apply();
            words_words12.apply();
            words_words13.apply();
            words_words14.apply();
            words_words15.apply();
            if (hdr.trip.what == 8w2 && (hdr.tag.isValid() || hdr.trip.number == 8w0)) {
            events_0.count(meta.event_index[13:0]);
            }
            hdr.trip.complete = hdr.trip.complete & meta.complete;
            hdr.trip.completes = hdr.trip.completes | meta.completes;
            outcomes_0.apply();
        } else if (hdr.bridge.trip == 8w0) {
            if (hdr.bridge.port == (bit<16>)intrinsic.egress_port) {
            deparser.drop_ctl = 3w1;
            }
        } else {
            if (hdr.bridge.trip == 8w3) {
            meta.to = intrinsic.egress_rid;
            } else {
            meta.to = (bit<16>)hdr.bridge.worker;
            }
            addresses_0.apply();
        }
        hdr.bridge.setInvalid();
    }
}

Pipeline<ingress_headers_t, ingress_t, egress_headers_t, egress_t>(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch<ingress_headers_t, ingress_t, egress_headers_t, egress_t, _, _, _, _, _, _, _, _, _, _, _, _>(pipe) main;
