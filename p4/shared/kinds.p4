// Numbers that packets and counters carry. The order of reasons and events is that of
// protocol::aggregator, so that counters compare index by index.
const bit<8> VERSION = 3;                        // P1
const bit<8> FLAG_NUDGE = 1;                     // P17
const bit<8> FLAG_MARK = 4;                      // P46
const bit<8> NO_WORKER = 255;                    // P1

// P2. A result's kind is its request's with RESULT_BIT set.
const bit<8> KIND_NORM = 0x01;
const bit<8> KIND_DATA = 0x02;
const bit<8> KIND_RAW = 0x03;
const bit<8> RESULT_BIT = 0x10;
const bit<8> KIND_STRAGGLER = 0x14;
const bit<8> KIND_MISMATCH = 0x15;
const bit<8> KIND_NUDGE = 0x16;

// UDP lengths: 8 bytes of UDP, 20 of P1, the payload of P2.
const bit<16> UDP_NORM = 28 + 20;
const bit<16> UDP_DATA = 28 + DATA_BYTES;
const bit<16> UDP_WORDS = 28 + 1024;
// Of lanes of 4 bits: half of both.
const bit<16> UDP_HALF_DATA = 28 + DATA_BYTES / 2;
const bit<16> UDP_HALF_WORDS = 28 + 512;
const bit<16> UDP_STRAGGLER = 28 + 8;
const bit<16> UDP_MISMATCH = 28 + 40;
const bit<16> UDP_NUDGE = 28 + 12;

// P7: why a packet is dropped, the low bits of an index of the counter `drops`.
#define REASON_BITS 4
typedef bit<REASON_BITS> reason_t;
const reason_t DROP_SHORT = 0;
const reason_t DROP_VERSION = 1;
const reason_t DROP_KIND = 2;
const reason_t DROP_JOB = 3;
const reason_t DROP_COOKIE = 4;
const reason_t DROP_MEMBER = 5;
const reason_t DROP_SOURCE = 6;
const reason_t DROP_WORKERS = 7;
const reason_t DROP_LENGTH = 8;
const reason_t DROP_SLOT = 9;
const reason_t DROP_TABLE = 10;
// These two need the slot's cell. On Tofino that is in egress, which counts them as events.
@noWarn("unused") const reason_t DROP_ROUND = 11;
@noWarn("unused") const reason_t DROP_MIXED = 12;
// Not in P7. A host's kernel drops such packets before its aggregator sees them: IP options, fragments,
// lengths or an IP checksum that are wrong.
const reason_t DROP_CARRIER = 13;
// Not in P7. The job or the table was taken away while the packet was between two passes.
const reason_t DROP_PASS = 14;
@noWarn("unused") const reason_t NOT_DROPPED = 15;

// What became of a packet that was let in, the low bits of an index of the counter `events`.
#define EVENT_BITS 3
typedef bit<EVENT_BITS> event_t;
const event_t EVENT_OPENED = 0;
const event_t EVENT_ADDED = 1;
const event_t EVENT_DUPLICATE = 2;
const event_t EVENT_LATE = 3;
const event_t EVENT_STALE = 4;
const event_t EVENT_MISMATCH = 5;

// The low bits of an index of the counter `answers`.
#define ANSWER_BITS 2
typedef bit<ANSWER_BITS> answer_t;
const answer_t ANSWER_RESULT = 0;
const answer_t ANSWER_RESENT = 1;
const answer_t ANSWER_NUDGE = 2;
const answer_t ANSWER_PASS = 3;

// Indices of counters are concatenations, which cost a chip nothing:
//   packets  job ++ worker              (frames and bytes of frames)
//   events   job ++ worker ++ event
//   drops    job ++ worker ++ reason
//   answers  job ++ answer
//   carrier  reason, for packets of no job
// where job is the `index` of the job's entry and worker is 64 for all numbers from 64 on.
#define WORKER_BITS 7
const bit<WORKER_BITS> OTHER_WORKERS = 64;
