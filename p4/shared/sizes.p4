// Sizes that are the same for every architecture, and what follows from those that are not.
// Payload bytes of DATA: two 4-bit indices a byte for the lanes of 8 bits of one RESULT of 1024 bytes (P2).
#define DATA_BYTES 512

// Jobs have counters by index.
#define MAX_JOBS (1 << JOB_BITS)

// UDP port of the aggregator: the default of thc-ps.
#define THC_UDP_PORT 9000
