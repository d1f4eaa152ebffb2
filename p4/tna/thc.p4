// The aggregator on Tofino (TNA) and Tofino 2 (T2NA). Behaviour: docs/protocol.md; how packets flow: docs/switch.md.
#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "sizes.p4"
#include "../shared/sizes.p4"
#include "../shared/kinds.p4"
#include "../shared/racks.p4"
#include "../shared/headers.p4"
#include "tables.p4"
#include "headers.p4"
#include "metadata.p4"
#include "parser.p4"
#include "membership.p4"
#include "forwarding.p4"
#include "answers.p4"
#include "ingress.p4"
#include "cells.p4"
#include "lookup.p4"
#include "words.p4"
#include "egress.p4"

Pipeline(
    IngressParser(), Ingress(), IngressDeparser(),
    EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
