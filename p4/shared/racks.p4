// Of racks (P34 to P37).
// On what a rack passes on.
const bit<8> FLAG_ROOT = 2;

// P2: what a root sends, but for the three below it in kinds.p4.
const bit<8> KIND_NORM_RESULT = 0x11;
const bit<8> KIND_RESULT = 0x12;
@noWarn("unused") const bit<8> KIND_RAW_RESULT = 0x13;

// A root has a port for each 64 slots of a job (P21): so many of a slot's lowest bits do not matter.
#define BLOCK_BITS 6
