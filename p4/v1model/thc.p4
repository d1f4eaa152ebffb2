// The aggregator on BMv2's simple_switch. Behaviour: docs/protocol.md; how packets flow: docs/switch.md.
#include <core.p4>
#include <v1model.p4>

#include "sizes.p4"
#include "../shared/sizes.p4"
#include "../shared/kinds.p4"
#include "../shared/racks.p4"
#include "../shared/headers.p4"
#include "tables.p4"
#include "kinds.p4"
#include "headers.p4"
#include "metadata.p4"
#include "parser.p4"
#include "racks.p4"
#include "membership.p4"
#include "cells.p4"
#include "norm.p4"
#include "data.p4"
#include "answers.p4"
#include "forwarding.p4"
#include "ingress.p4"
#include "egress.p4"
#include "deparser.p4"

V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), ComputeChecksums(), SwitchDeparser()) main;
