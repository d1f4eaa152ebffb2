// Sizes of everything that an architecture may size differently. Override with -D.
#ifndef THC_SIZES
#define THC_SIZES

// Bits of one summed coordinate downstream: 8 or 16, fixed when the program is compiled (P2).
#ifndef LANE_BITS
#define LANE_BITS 8
#endif

// Payload bytes of DATA: two 4-bit indices a byte for the lanes of one RESULT of 1024 bytes (P2).
#if LANE_BITS == 8
#define DATA_BYTES 512
#elif LANE_BITS == 16
#define DATA_BYTES 256
#else
#error "LANE_BITS must be 8 or 16"
#endif

// 32-bit words of lanes that one pass aggregates, and the passes of a packet:
// WORDS * 4 * PASSES = 1024, as in Appendix C.2 of the paper.
#ifndef WORDS
#define WORDS 32
#define PASSES 8
#define PASS_BITS 3
#endif

// Slots of all jobs together; a job gets a range of each (P8).
#ifndef DATA_SLOTS
#define DATA_SLOTS 1024
#endif
#ifndef NORM_SLOTS
#define NORM_SLOTS 1024
#endif
// One cell is what a slot holds for one pass.
#define DATA_CELLS (DATA_SLOTS * PASSES)

// Jobs at a time, and entries of the tables.
#ifndef JOB_BITS
#define JOB_BITS 6
#define MAX_JOBS 64
#define MAX_MEMBERS 4096
#define MAX_JOB_TABLES 1024
#define MAX_STATIONS 4096
#endif
#define MAX_TABLES 256

// UDP port of the aggregator: the default of thc-ps.
#ifndef THC_UDP_PORT
#define THC_UDP_PORT 9000
#endif

#endif
