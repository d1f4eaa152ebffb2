// What BMv2 is given room for.
// 32-bit words of lanes that one pass aggregates, and the passes of a packet:
// WORDS * 4 * PASSES = 1024, as in Appendix C.2 of the paper.
#define WORDS 32
#define PASSES 8
#define PASS_BITS 3

// The port of a pass that has no row: not an interface's, nor the one that means "drop".
#define PASS_PORT 510

// Slots of all jobs together; a job gets a range of each (P8).
#define DATA_SLOTS 1024
#define NORM_SLOTS 1024
// One cell is what a slot holds for one pass.
#define DATA_CELLS (DATA_SLOTS * PASSES)

// Jobs at a time, and entries of the tables.
#define JOB_BITS 6
#define MAX_MEMBERS 4096
#define MAX_JOB_TABLES 1024
#define MAX_STATIONS 4096
#define MAX_ROOTS 1024
#define MAX_TABLES 256
