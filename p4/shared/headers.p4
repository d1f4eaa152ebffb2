// Packet forms: the carrier, P1 to P3.
// Field names, widths and orders of P1 to P3 are those of protocol::wire; tests/tests/p4_build.rs compares them.
typedef bit<48> mac_t;
typedef bit<32> ipv4_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

// In front of a frame for the control plane, which P4Runtime hands over apart from the frame: the port that the frame came by.
@controller_header("packet_in")
header packet_in_h {
    bit<16> ingress_port;
}

header ethernet_h {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

// ARP for IPv4 over Ethernet.
header arp_h {
    bit<16> hardware;
    bit<16> protocol;
    bit<8> hardware_len;
    bit<8> protocol_len;
    bit<16> operation;
    mac_t sender_mac;
    ipv4_addr_t sender_ip;
    mac_t target_mac;
    ipv4_addr_t target_ip;
}

header ipv4_h {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total_len;
    bit<16> id;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_addr_t src;
    ipv4_addr_t dst;
}

// P46, RFC 3168: the low two bits of `tos`. Congestion where a packet came through; and of a packet that may be told of it: ECT(0).
const bit<2> ECN_CE = 3;
const bit<8> TOS_ECT = 2;

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> len;
    bit<16> checksum;
}

// P1.
header thc_h {
    bit<8> version;
    bit<8> kind;
    bit<8> flags;
    bit<8> num_workers;
    bit<16> job;
    bit<8> worker;
    bit<8> table_id;
    bit<32> cookie;
    bit<32> round;
    bit<16> slot;
    bit<8> count;
    bit<8> reserved;
}

// P3: the payload of NORM and NORM_RESULT, and twice that of MISMATCH.
header norm_h {
    bit<32> tag;
    bit<32> value;
    bit<32> length;
    bit<16> call;
    bit<8> table_id;
    bit<8> mode;
    bit<32> key;
}

// P15.
header straggler_h {
    bit<8> kind;
    bit<24> zero;
    bit<32> current;
}

// P17.
header nudge_h {
    bit<8> kind;
    bit<24> zero;
    bit<64> seen;
}
