// Packet forms: the carrier, P1 to P3, and what a packet carries between passes.
// Field names, widths and orders of P1 to P3 are those of protocol::wire; tests/tests/p4_build.rs compares them.
#ifndef THC_HEADERS
#define THC_HEADERS

typedef bit<48> mac_t;
typedef bit<32> ipv4_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

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

// The indices of one pass: those of one word of lanes in one field.
#if LANE_BITS == 8
#define INDICES bit<16>
#else
#define INDICES bit<8>
#endif
header indices_h {
    INDICES i0; INDICES i1; INDICES i2; INDICES i3; INDICES i4; INDICES i5; INDICES i6; INDICES i7;
    INDICES i8; INDICES i9; INDICES i10; INDICES i11; INDICES i12; INDICES i13; INDICES i14; INDICES i15;
    INDICES i16; INDICES i17; INDICES i18; INDICES i19; INDICES i20; INDICES i21; INDICES i22; INDICES i23;
    INDICES i24; INDICES i25; INDICES i26; INDICES i27; INDICES i28; INDICES i29; INDICES i30; INDICES i31;
}

// The words of one pass: a piece of RAW, or sums that go out.
header words_h {
    bit<32> w0; bit<32> w1; bit<32> w2; bit<32> w3; bit<32> w4; bit<32> w5; bit<32> w6; bit<32> w7;
    bit<32> w8; bit<32> w9; bit<32> w10; bit<32> w11; bit<32> w12; bit<32> w13; bit<32> w14; bit<32> w15;
    bit<32> w16; bit<32> w17; bit<32> w18; bit<32> w19; bit<32> w20; bit<32> w21; bit<32> w22; bit<32> w23;
    bit<32> w24; bit<32> w25; bit<32> w26; bit<32> w27; bit<32> w28; bit<32> w29; bit<32> w30; bit<32> w31;
}

// Sums of an earlier pass of the same packet, on their way out.
header done_h {
    bit<(WORDS * 32)> words;
}

// In front of a packet between two passes; it never leaves the switch.
header pass_h {
    // The pass that comes next, from 1 on.
    bit<8> number;
    // How many done_h follow the headers: `number`, or 0 once it is known that no RESULT can go out.
    bit<8> kept;
    // Every cell so far is complete.
    bit<1> complete;
    // This packet has completed one of the cells so far.
    bit<1> completes;
    // This packet has opened its round in the first cell.
    bit<1> opened;
    bit<5> unused;
    // What the RESULT's header says (P13): as of the packet that completed the first cell.
    bit<8> result_kind;
    bit<8> result_table;
    // Workers that are in every cell so far.
    bit<64> seen;
}

#endif
