// What a packet is accompanied by within ingress, and within egress.
// What ingress does with a packet.
typedef bit<4> way_t;
const way_t WAY_FORWARD = 0;
const way_t WAY_DROP = 1;
// Let in by P7, or back from a pass.
const way_t WAY_FRESH = 2;
const way_t WAY_BACK = 3;
const way_t WAY_CONTROL = 4;
// From the root to all members.
const way_t WAY_DOWN = 5;

// Indices of counters as fields of 16 bits: job ++ worker ++ reason, and job ++ answer.
#define WORKERS_BITS (JOB_BITS + WORKER_BITS)
#define WHO_BITS (WORKERS_BITS + REASON_BITS)
#define WHO_JOB WHO_BITS - 1:WORKER_BITS + REASON_BITS
#define WHO_WORKER WORKER_BITS + REASON_BITS - 1:REASON_BITS
#define WHO_REASON REASON_BITS - 1:0
#define WHOSE_BITS (JOB_BITS + ANSWER_BITS)
#define WHOSE_JOB WHOSE_BITS - 1:ANSWER_BITS
#define WHOSE_ANSWER ANSWER_BITS - 1:0
#define EVENTS_BITS (WORKERS_BITS + EVENT_BITS)
#if JOB_BITS > 5
#error "JOB_BITS is 5 at most: job ++ worker ++ reason are 16 bits"
#endif

// Not in P7: the control plane was asked too often through a port. The number is free, as `carrier` counts only what is dropped.
const reason_t DROP_RATE = 15;

struct ingress_t {
    // From the parser.
    bit<1> too_short;
    bit<1> down;
    bool bad_checksum;
    bit<16> port;
    // The tables hit.
    bit<1> ours;
    // The port is one that packets come back by.
    bit<1> own_port;
    // What the meter of requests to the control plane says.
    bit<8> color;
    bit<1> job_known;
    bit<1> member_known;
    bit<1> table_known;
    // As long as its kind, or as DATA with lanes of 4 bits; whether that is what its table's are.
    bit<1> length_known;
    bit<1> half_length;
    bit<1> half;
    // Zero where packet and entry agree.
    bit<32> cookie_off;
    bit<32> address_off;
    bit<16> udp_off;
    bit<16> port_off;
    bit<8> workers_off;
    // The member's port: 0 is any.
    bit<16> member_port;
    // 28 if IP's and UDP's lengths fit each other.
    bit<16> length_off;
    // The job's slots from the packet's on: 0 if it is none of them.
    bit<16> data_room;
    bit<16> norm_room;
    bit<16> data_place;
    bit<16> norm_place;
    bit<16> group;
    bit<16> quorum;
    bit<1> skip;
    // The packet's own of trip_h.
    bit<8> flags;
    // What a RESULT's header says: a complete cell has exactly quorum workers.
    bit<8> count;
    bit<32> epoch;
    bit<8> lookup;
    bit<32> me_low;
    bit<32> me_high;
    bit<8> next;
    // job ++ worker ++ reason.
    bit<16> who;
    // job ++ answer.
    bit<16> whose;
    bit<16> first_cell;
    // Of a rack (P34): its number, how many there are, the port of the root and the number of its UDP port in `addresses`.
    bit<1> rack;
    bit<8> rack_number;
    bit<8> racks;
    bit<8> racks_off;
    PortId_t root_port;
    bit<8> root;
    way_t way;
    bit<1> count_drop;
    bit<1> count_carrier;
    bit<1> count_answer;
    reason_t reason;
}

// How a packet's round stands to its cell's (P9).
typedef bit<2> age_t;
// Further ahead than the next round, where that is not allowed.
const age_t AGE_FAR = 0;
const age_t AGE_NEWER = 1;
const age_t AGE_SAME = 2;
const age_t AGE_OLDER = 3;

// What a cell drops (P7.12, P7.13), counted beside the events.
const bit<16> EVENT_ROUND = 6;
const bit<16> EVENT_MIXED = 7;

struct egress_t {
    // What the cell held before.
    bit<32> old_round;
    bit<32> old_epoch;
    bit<32> old_low;
    bit<32> old_high;
    // Workers that were missing for the quorum; of a cell that is opened, the quorum.
    bit<16> missing;
    bit<16> head;
    // P14: of NORM its tag, of DATA and RAW kind and table; and the cell's.
    bit<32> tag;
    bit<32> slot_tag;
    bit<32> ahead;
    bit<32> epoch_off;
    bit<1> fresh;
    age_t age;
    // The worker was in `seen`.
    bit<1> again;
    bit<8> complete;
    bit<8> completes;
    bit<1> stale;
    bit<1> differs;
    // The cell drops the packet.
    bit<1> refused;
    bit<1> counts;
    bit<16> event_index;
    // How long the packet's queue was when it left, and what it lacked of a length that marks it.
    bit<32> depth;
    bit<32> below;
    // Whom a copy is for.
    bit<16> to;
}
