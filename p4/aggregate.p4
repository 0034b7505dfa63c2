// In-network aggregation for v1model (BMv2's simple_switch): a table of contents. docs/protocol.md is what it is built to.
//
// A build has one number of lanes and one width: -D LANES=256 -D LANE_BITS=32 -D MAX_SLOTS=1024 (shared/constants.p4).
// The order of the includes is that of use; nothing includes anything else, so that every file shows what it depends on
// by standing below it.
#include <core.p4>
#include <v1model.p4>

#include "shared/constants.p4"
#include "shared/repeat.p4"
#include "shared/headers.p4"
#include "shared/types.p4"

#include "controls/parse.p4"      // bytes to headers; only what looks like an update of this build gets lanes
#include "controls/check.p4"      // row 1 of the protocol's table: lengths, checksum
#include "controls/admit.p4"      // row 2: who sent it
#include "controls/fence.p4"      // rows 4 and 5: which start of the job, which slot
#include "controls/epoch.p4"      // rows 7 and 8: which cell, and does it begin
#include "controls/seen.p4"       // row 9: other data, or seen already
#include "controls/count.p4"      // row 10: who is in it, and is it complete
#include "controls/slot.p4"       // the state of a slot around those three
#include "controls/aggregate.p4"  // row 10: the lanes
#include "controls/reply.p4"      // what a reply says
#include "controls/address.p4"    // to whom a copy of it goes
#include "controls/lose.p4"       // packets that are lost on purpose

#include "arch/v1model.p4"        // the pipeline of them

V1Switch(
    AggregationParser(),
    VerifyHeader(),
    AggregationIngress(),
    AggregationEgress(),
    ComputeHeader(),
    AggregationDeparser()) main;
