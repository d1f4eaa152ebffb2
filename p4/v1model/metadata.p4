// What a packet is accompanied by within one pass.
struct headers_t {
    packet_in_h packet_in;
    pass_h pass;
    ethernet_h ethernet;
    arp_h arp;
    ipv4_h ipv4;
    udp_h udp;
    thc_h thc;
    norm_h norm;
    // MISMATCH: the payload that was refused.
    norm_h refused;
    straggler_h straggler;
    nudge_h nudge;
    done_h[PASSES - 1] done;
    indices_h indices;
    words_h words;
    words_h sums;
}

// The job's entry.
struct job_t {
    bit<JOB_BITS> index;
    bit<32> cookie;
    // Differs between incarnations of a job and between jobs: what a cell of another epoch holds is nothing.
    bit<32> epoch;
    bit<8> workers;
    bit<QUORUM_BITS> quorum;
    // 1: a packet may be rounds ahead of its slot (P9).
    bit<8> skip;
    bit<PLACE_BITS> data_base;
    bit<PLACE_BITS> data_slots;
    bit<PLACE_BITS> norm_base;
    bit<PLACE_BITS> norm_slots;
    bit<16> group;
}

// What the state of a cell said, after the packet.
struct cell_t {
    bit<32> index;
    event_t event;
    bit<32> round;
    bit<64> seen;
    bit<8> count;
    bool complete;
    // This packet has completed it.
    bool completes;
}

// The rack that this switch is in the job (P34), if it is one, and the root's port for the packet's slot.
struct rack_t {
    bool here;
    bit<8> number;
    bit<8> racks;
    PortId_t port;
    bool root_known;
    bit<8> root;
    ipv4_addr_t root_ip;
    bit<16> root_udp;
}

struct metadata_t {
    // The packet is addressed to the aggregator.
    bool ours;
    // The packet comes from an earlier pass, with so many done_h still to be parsed.
    bool between;
    bit<8> done_left;
    // The parser found fewer than 20 bytes for P1.
    bool too_short;
    reason_t reason;
    // The packet's job is known, and so whom a drop is counted for.
    bool known;
    job_t job;
    rack_t rack;
    // What the root has sent, for all members (P36).
    bool from_root;
    // The member's place.
    bit<16> member_port;
    ipv4_addr_t member_ip;
    bit<16> member_udp;
    // The worker's number for counters.
    bit<WORKER_BITS> worker;
    // T[0] in the highest byte.
    bit<128> table_values;
    // Bits per index and per sum of DATA.
    bit<8> width;
    bit<8> lane;
    // DATA with lanes of 4 bits: half of the bytes both ways, in the first half of the slot's cells.
    bool half;
    bit<PASS_BITS> pass;
    // Where the packet came in, in whatever pass it is.
    @field_list(0) bit<16> ingress_port;
    cell_t cell;
    // A NORM of another all-reduce than its slot's, or DATA or RAW of another kind or table (P14).
    bool differs;
    // Egress: the packet is an answer of the aggregator; to all members of its job, or to one.
    bool answer;
    bool to_all;
    bit<8> to;
    // Egress: the packet is flooded.
    bool flooded;
}
