// Sizes that are the same for every architecture, and what follows from those that are not. Override with -D.
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

// Jobs have counters by index.
#define MAX_JOBS (1 << JOB_BITS)

// UDP port of the aggregator: the default of thc-ps.
#ifndef THC_UDP_PORT
#define THC_UDP_PORT 9000
#endif

#endif
