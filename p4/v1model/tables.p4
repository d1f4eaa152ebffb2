// What the tables of the control plane leave to the architecture.
typedef bit<9> PortId_t;

// Short names, without the controls' in front of them.
#define NAMED(text) @name(text)
// Of table `jobs`: slots, and the quorum.
#define PLACE_BITS 32
#define QUORUM_BITS 8
// Lookup tables have the numbers that packets name.
#define LOOKUP_PLACE

#include "../shared/tables.p4"
