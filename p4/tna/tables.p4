// What the tables of the control plane leave to the architecture.
// Names are those of the controls: pipe.Ingress.membership.jobs.
#define NAMED(text)
// Of table `jobs`: slots, and the quorum.
#define PLACE_BITS 16
#define QUORUM_BITS 16
// The lookup table's number on this chip, and 1 if its lanes have 4 bits.
#define LOOKUP_PLACE bit<8> lookup, bit<1> half

#include "../shared/tables.p4"
