// What a chip has room for. docs/switch.md has what the compiler says of these.
// Words of 32 bits that one pass aggregates; WORDS * PASSES = 256.
#if __TARGET_TOFINO__ == 1
#define WORDS 16
#define PASSES 16
#else
#define WORDS 32
#define PASSES 8
#endif

// Cells of one pipe. With all passes in one pipe that is PASSES cells a slot; with the passes spread over
// four pipes there are four times as many slots, because each pipe holds only its own passes.
#define PIPE_CELLS 8192
#define NORM_CELLS 1024
#define ALL_CELLS (PIPE_CELLS + NORM_CELLS)

// Lookup tables that are installed at once; 256 bytes of indices each.
#define LOOKUP_BITS 2
#define LOOKUP_ENTRIES (256 << LOOKUP_BITS)
// The number that packets without indices have.
#define NO_LOOKUP (1 << LOOKUP_BITS)

// P46: the length of a queue of passes that marks packets, unless the controller says another, in cells of the packet buffer, of 80
// bytes on Tofino and 176 on Tofino 2: some 80 KB, what 100 Gb/s bring in 6.5 µs.
#if __TARGET_TOFINO__ == 1
#define MARKING_DEPTH 1024
#else
#define MARKING_DEPTH 466
#endif

// Jobs at a time, and entries of the tables: counters of a job take memory of its own.
#define JOB_BITS 4
#define MAX_MEMBERS 1024
#define MAX_JOB_TABLES 1024
#define MAX_STATIONS 4096
#define MAX_ROOTS 256

// Ports over which packets come back, and ports through which the control plane may be asked only so often.
#define LOOPBACK_PORTS 256
#define METERED_PORTS 512
