// What packets carry within the switch, and the words of a pass. Everything else is in shared/headers.p4.
// What a packet is on its way from ingress to egress for.
typedef bit<8> trip_t;
const trip_t TRIP_FORWARD = 0;
const trip_t TRIP_COLLECT = 1;
const trip_t TRIP_ADD = 2;
const trip_t TRIP_TO_ALL = 3;
const trip_t TRIP_TO_ONE = 4;
// What a packet that comes back from egress asks of ingress: another pass (TRIP_ADD, TRIP_COLLECT) or an answer.
const trip_t ANSWER_WITH_RESULT = 5;
const trip_t ANSWER_AGAIN = 6;
const trip_t ANSWER_STRAGGLER = 7;
const trip_t ANSWER_MISMATCH = 8;
const trip_t ANSWER_WITH_NUDGE = 9;
// Kinds of results, and of what else goes down (P2).
#define KIND_RESULTS 0x10 &&& 0xF8

// The number that NORM has in the table of passes; those of DATA and RAW count from 0.
const bit<8> NORM_PASS = 255;
const bit<8> LAST_PASS = PASSES - 1;
// Of lanes of 4 bits: the first half of the slot's cells.
const bit<8> HALF_LAST_PASS = PASSES / 2 - 1;

// In front of every packet between ingress and egress.
header bridge_h {
    trip_t trip;
    // TRIP_TO_ONE: the worker.
    bit<8> worker;
    bit<16> job;
    // TRIP_FORWARD: the port that a flooded packet came from, or NO_PORT.
    bit<16> port;
}
const bit<16> NO_PORT = 0xFFFF;

// The flags of trip_h: FLAG_NUDGE; and of a job that may skip rounds: with neither, P9 holds a packet to the next round. SKIP also
// in every pass but the first, whose cell has decided that: rounds with lanes of 4 bits leave out the second half of the cells.
const bit<8> TRIP_NUDGE = FLAG_NUDGE;
const bit<8> TRIP_SKIP = 2;
// Lanes of 4 bits.
const bit<8> TRIP_HALF = 4;
// P46: data that may be told of congestion, and that has been.
const bit<8> TRIP_ECT = 8;
const bit<8> TRIP_MARK = 16;
#define WITH(bits) bits &&& bits
#define WITHOUT(bits) 0 &&& bits

// Where a frame of Ethernet has its type, a packet between two passes has this one: IEEE 802's second local experimental type, which
// the switch keeps for itself. From any port that packets do not come back by, it is dropped.
const bit<16> ETHERTYPE_TRIP = 0x88B6;

// Both of them, up to the type.
header types_h {
    bit<96> before;
    bit<16> type;
}

// In front of a packet of the aggregator between its passes, in place of Ethernet, IP and UDP. It never
// leaves the switch.
header trip_h {
    trip_t what;
    bit<8> number;
    // The packet's slot among those of the switch, and its cell in the pipe of this pass.
    bit<16> place;
    bit<16> cell;
    // Where the packet came in.
    bit<16> port;
    // job ++ worker ++ 0: the index of its counters.
    bit<16> who;
    bit<16> quorum;
    // ETHERTYPE_TRIP.
    bit<16> type;
    bit<32> epoch;
    // Number of the lookup table on this chip, or NO_LOOKUP.
    bit<8> lookup;
    // 1 as long as every cell was complete, and once this packet has completed one.
    bit<8> complete;
    bit<8> completes;
    // TRIP_NUDGE and others, below.
    bit<8> flags;
    // Kind and table of the RESULT's header (P13).
    bit<16> head;
    // The worker's bit, and the workers that were in every cell so far, which it is in itself by now.
    bit<32> me_low;
    bit<32> me_high;
    // ANSWER_STRAGGLER: the round of the cell.
    bit<32> seen_low;
    bit<32> seen_high;
}

// NORM in egress: its tag, then its four other words as the first words of a pass.
header tag_h {
    bit<32> tag;
}

header first_h {
    bit<32> w0; bit<32> w1; bit<32> w2; bit<32> w3;
}

header more_h {
    bit<32> w4; bit<32> w5; bit<32> w6; bit<32> w7;
    bit<32> w8; bit<32> w9; bit<32> w10; bit<32> w11; bit<32> w12; bit<32> w13; bit<32> w14; bit<32> w15;
#if WORDS == 32
    bit<32> w16; bit<32> w17; bit<32> w18; bit<32> w19; bit<32> w20; bit<32> w21; bit<32> w22; bit<32> w23;
    bit<32> w24; bit<32> w25; bit<32> w26; bit<32> w27; bit<32> w28; bit<32> w29; bit<32> w30; bit<32> w31;
#endif
}

// The indices of one pass: two bytes for each word of lanes. Each is a field, because a key may not be a slice above bit 0:
// the P4Runtime server of open P4 Studio writes it from bit 0, and its driver reads it at its place in the field.
header index_h {
    bit<8> a0; bit<8> b0; bit<8> a1; bit<8> b1; bit<8> a2; bit<8> b2; bit<8> a3; bit<8> b3;
    bit<8> a4; bit<8> b4; bit<8> a5; bit<8> b5; bit<8> a6; bit<8> b6; bit<8> a7; bit<8> b7;
    bit<8> a8; bit<8> b8; bit<8> a9; bit<8> b9; bit<8> a10; bit<8> b10; bit<8> a11; bit<8> b11;
    bit<8> a12; bit<8> b12; bit<8> a13; bit<8> b13; bit<8> a14; bit<8> b14; bit<8> a15; bit<8> b15;
#if WORDS == 32
    bit<8> a16; bit<8> b16; bit<8> a17; bit<8> b17; bit<8> a18; bit<8> b18; bit<8> a19; bit<8> b19;
    bit<8> a20; bit<8> b20; bit<8> a21; bit<8> b21; bit<8> a22; bit<8> b22; bit<8> a23; bit<8> b23;
    bit<8> a24; bit<8> b24; bit<8> a25; bit<8> b25; bit<8> a26; bit<8> b26; bit<8> a27; bit<8> b27;
    bit<8> a28; bit<8> b28; bit<8> a29; bit<8> b29; bit<8> a30; bit<8> b30; bit<8> a31; bit<8> b31;
#endif
}

struct ingress_headers_t {
    bridge_h bridge;
    packet_in_h packet_in;
    trip_h trip;
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    udp_h udp;
    thc_h thc;
    norm_h norm;
    // The packet's own copy of its payload, should it be refused (P14).
    norm_h refused;
    straggler_h straggler;
    nudge_h nudge;
}

struct egress_headers_t {
    bridge_h bridge;
    trip_h trip;
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    thc_h thc;
    tag_h tag;
    index_h indices;
    first_h first;
    more_h more;
}

// do(header, a, b) for every pair of words of a pass.
#define FIRST_PAIRS(do) do(first, 0, 1) do(first, 2, 3)
#if WORDS == 16
#define MORE_PAIRS(do) do(more, 4, 5) do(more, 6, 7) do(more, 8, 9) do(more, 10, 11) do(more, 12, 13) do(more, 14, 15)
#else
#define MORE_PAIRS(do) do(more, 4, 5) do(more, 6, 7) do(more, 8, 9) do(more, 10, 11) do(more, 12, 13) do(more, 14, 15) \
    do(more, 16, 17) do(more, 18, 19) do(more, 20, 21) do(more, 22, 23) do(more, 24, 25) do(more, 26, 27) \
    do(more, 28, 29) do(more, 30, 31)
#endif
